"""A clock that stands still while its process does."""

from roq.clock import ROUNDING_SECONDS, ObservedClock


def test_it_goes_as_time_does_while_events_come() -> None:
    clock = ObservedClock(100.0, stall_seconds=1.5)
    assert [clock.read(now) for now in (100.5, 101.9, 103.4)] == [100.5, 101.9, 103.4]


def test_of_a_longer_gap_only_so_much_counts() -> None:
    clock = ObservedClock(100.0, stall_seconds=1.5)
    assert clock.read(160.0) == 101.5
    assert clock.read(161.0) == 102.5


def test_every_stall_is_taken_off_by_itself() -> None:
    clock = ObservedClock(0.0, stall_seconds=1.0)
    assert clock.read(11.0) == 1.0
    assert clock.read(22.0) == 2.0


def test_a_wake_up_for_an_observed_time_comes_late_enough() -> None:
    clock = ObservedClock(0.0, stall_seconds=1.0)
    clock.read(50.0)
    due = clock.read(50.0) + 1.0
    when = clock.outside(due)
    assert when == 51.0 + ROUNDING_SECONDS
    assert clock.read(when) >= due


def test_another_bound_holds_for_the_next_gap() -> None:
    clock = ObservedClock(0.0, stall_seconds=1.0)
    clock.stall_seconds = 10.0
    assert clock.read(9.0) == 9.0
