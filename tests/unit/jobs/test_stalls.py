"""What stands still; what is asked of jobs, on both databases, is in `job_contract`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from job_lab import Lab
from schedule_contract import schedule
from sqlalchemy import event, text

from roq.jobs.schedules import LATE
from roq.jobs.views import COUNTED_MAX


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(str(tmp_path / "jobs.db"))
    yield made
    made.close()


def test_schedules_that_do_not_fire_are_told_by_type(lab: Lab) -> None:
    lab.declare("A", None)
    with lab.database.write() as connection:
        new = [schedule("s"), schedule("t"), schedule("u", "Gone")]
        lab.jobs.operate.schedules.declare(connection, new, "me")

    def told() -> list[tuple[str, str, int, str]]:
        return [(each.type, each.reason, each.number, each.why) for each in operate.stalls()]

    operate = lab.jobs.operate
    one, other = told()
    assert one[:3] == ("A", "schedule", 2)
    assert "schedule s does not fire: no instance lives" in one[3]
    assert "(and 1 more)" in one[3]
    assert other[3] == (
        "schedule u does not fire: no program has declared type Gone: start one that has"
    )
    lab.instance()
    operate.schedules.switch("u", False, who="me")
    assert told() == [], "a paused one is to rest"
    operate.switch(False, who="me", type="A")
    assert "switched off" in told()[0][3]
    operate.switch(True, who="me", type="A")
    with lab.database.write() as connection:
        due = lab.database.now(connection) - 2 * LATE
        connection.execute(text("UPDATE job_schedule SET next = :due"), {"due": due})
    assert "it is late" in told()[0][3]


def test_no_look_reads_all_jobs(lab: Lab) -> None:
    seen: list[tuple[str, Any]] = []
    event.listen(
        lab.database.engine, "before_cursor_execute",
        lambda _c, _cursor, statement, values, *_: seen.append((statement, values)),
    )  # fmt: skip
    lab.jobs.operate.stalls([])
    assert not any("job_instance AS i" in each for each, _ in seen), "no instance has died"
    lab.set("job_instance", "expires = 1", lab.instance())
    lab.jobs.operate.stalls([])
    with lab.database.read() as connection:
        told = [
            row.detail
            for each, values in list(seen)
            if "job_instance AS i" in each or "job_edge AS e" in each
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {each}", values)
        ]
    assert "SCAN job USING INDEX job_blocks" in told
    assert not {"SCAN job", "SCAN c", "SCAN e"} & set(told), told


def test_what_waits_behind_one_job_is_not_counted_without_an_end(lab: Lab) -> None:
    failed, first = lab.submit(), lab.submit()
    lab.set("job", "status = 'FAILED', children = 1", failed)
    lab.set("job", "held = 'parents', waits = 1", first)
    ids = range(first, first + COUNTED_MAX + 1)
    with lab.database.write() as connection:
        connection.exec_driver_sql(
            "INSERT INTO job (type, priority, status, created, batch_sequence, held, token,"
            " restartable, items) SELECT j.type, priority, status, created, n.value, held, token,"
            " 1, 0 FROM job AS j, json_each(?) AS n WHERE j.id = ?",
            (json.dumps([*ids][1:]), first),
        )
        lab.store.write_edges(connection, [[failed, child] for child in ids])
    (told,) = lab.jobs.operate.stalls([])
    assert told.number == COUNTED_MAX
