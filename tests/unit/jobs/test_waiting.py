"""How jobs that may be claimed are found; what else they do is in `job_contract`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from job_lab import Lab
from sqlalchemy import event, text

from roq.jobs.states import DEFAULT, HIGH, LOW
from roq.jobs.waiting import REST, REST_SECONDS, SLACK, SLOW_SECONDS, WaitingFloors

NOW = 1_800_000_000_000_000


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


class Time:
    """A clock."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_look_that_is_not_slow_is_always_a_whole_one() -> None:
    floors = WaitingFloors(Time())
    for _ in range(3):
        assert floors.floor("A", LOW) == 0
        floors.looked("A", LOW, 0, NOW, SLOW_SECONDS)


def test_a_slow_look_has_the_next_ones_begin_where_it_has_found_something() -> None:
    time = Time()
    floors = WaitingFloors(time)
    floors.looked("A", LOW, 0, NOW, 0.1)
    assert floors.floor("A", LOW) == NOW - SLACK
    assert floors.floor("A", HIGH) == floors.floor("B", LOW) == 0
    time.now = 0.1 * REST - 0.01
    floors.looked("A", LOW, NOW - SLACK, NOW + 7, 0.5)
    assert floors.floor("A", LOW) == NOW + 7 - SLACK
    time.now = 0.1 * REST
    assert floors.floor("A", LOW) == 0, "a whole one, also if those in between were slow"
    floors.looked("A", LOW, 0, NOW, 0.0)
    assert floors.floor("A", LOW) == 0


def test_there_is_a_whole_look_again_however_slow_it_was() -> None:
    time = Time()
    floors = WaitingFloors(time)
    floors.looked("A", LOW, 0, NOW, 3600.0)
    time.now = REST_SECONDS
    assert floors.floor("A", LOW) == 0


def test_a_look_that_began_at_a_floor_is_no_whole_one_however_late_it_ends() -> None:
    time = Time()
    floors = WaitingFloors(time)
    floors.looked("A", LOW, 0, NOW, 0.1)
    time.now = 0.1 * REST - 0.01
    floor = floors.floor("A", LOW)
    time.now += 1.0
    floors.looked("A", LOW, floor, NOW, 1.0)
    assert floors.floor("A", LOW) == 0, "who waits before the floor is seen by the next look"
