"""Where a look for jobs begins, on a clock of the test's."""

from __future__ import annotations

from roq.jobs.floors import REST, REST_SECONDS, SLACK, SLOW_SECONDS, WaitingFloors
from roq.jobs.states import HIGH, LOW

NOW = 1_800_000_000_000_000


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
