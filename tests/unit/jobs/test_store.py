"""The SQL of jobs on SQLite; the same tests run on PostgreSQL in `tests/integration`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from job_contract import StoreContract
from job_lab import Lab, new
from sqlalchemy import event, text

from roq.jobs.states import DEFAULT


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(str(tmp_path / "jobs.db"))
    yield made
    made.close()


class TestSQLite(StoreContract):
    """All of it."""


def test_statements_about_named_jobs_look_at_no_others(lab: Lab) -> None:
    values = {"rows": "[]", "owner": 1, "now": 1}
    with lab.database.read() as connection:
        for statement in (lab.store._claim, lab.store._finish):
            plan = connection.execute(text(f"EXPLAIN QUERY PLAN {statement}"), values).all()
            way = " / ".join(row.detail for row in plan)
            assert "job USING INTEGER PRIMARY KEY" in way, way


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


def test_instances_are_not_told_of_jobs_whose_messages_are_sent(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    monkeypatch.setattr(lab.database, "notify", told.append)
    with lab.database.write() as connection:
        lab.store.submit(connection, [new(), new()], sent=True)
        assert told == []
        lab.store.submit(connection, [new(), new(due=2**60)], sent=True)
        assert len(told) == 1, "one of them is not sent"
        lab.store.submit(connection, [new()])
    assert len(told) == 2
