"""How jobs that may be claimed are found; what else they do is in `job_contract`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from job_lab import Lab
from sqlalchemy import event, text

from roq.jobs.states import DEFAULT


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(str(tmp_path / "jobs.db"))
    yield made
    made.close()


def test_a_claim_reads_the_index_in_order(lab: Lab) -> None:
    with lab.database.read() as connection:
        plan = connection.execute(
            text(
                "EXPLAIN QUERY PLAN SELECT id FROM job WHERE type = 'A' AND status = 'CREATED'"
                " AND held = '' ORDER BY priority, created, batch_sequence, id LIMIT 5"
            )
        ).all()
    assert [row.detail for row in plan] == ["SEARCH job USING INDEX job_waiting (type=?)"]


def test_what_goes_first_and_what_is_unsent_is_found_by_an_index_of_the_type(lab: Lab) -> None:
    seen: list[tuple[str, Any]] = []
    event.listen(
        lab.database.engine, "before_cursor_execute",
        lambda _c, _cursor, statement, values, *_: seen.append((statement, values)),
    )  # fmt: skip
    lab.submit(priority=DEFAULT)
    with lab.database.write() as connection:
        seen.clear()
        assert lab.store.first_priority(connection, "A", DEFAULT) is None, (
            "its own is not asked for"
        )
        assert lab.store.first_priority(connection, "A", DEFAULT + 1) == DEFAULT
        assert lab.store.have_unsent(connection, ["A", "B"]) == [("A", DEFAULT)]
        assert len(lab.store.unsent(connection, "A", DEFAULT)) == 1
        ways = [
            [row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {each}", values)]
            for each, values in list(seen)
        ]
    told = " / ".join(line for way in ways for line in way)
    assert told.count("job_waiting (type=? AND priority=? AND created>?)") == 3, told
    assert told.count("job_unsent (type=? AND priority=? AND dispatched>? AND dispatched<?)") == 2
    assert "SCAN job" not in told
    assert "B-TREE" not in told
