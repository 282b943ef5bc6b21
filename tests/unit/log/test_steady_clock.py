"""A clock that jumps does not make messages due."""

from __future__ import annotations

import pytest

from roq.log.steady_clock import STANDS_SECONDS, AgeClock, SteadyClock
from roq.log.timing_wheel import SECOND

BEGIN = 1_700_000_000_000_000
DAY = 86_400 * SECOND


def test_it_goes_with_the_wall_clock() -> None:
    clock = SteadyClock()
    assert clock.look(5.0, BEGIN) == BEGIN
    assert clock.look(6.0, BEGIN + SECOND) == BEGIN + SECOND
    assert clock.look(7.0, BEGIN + 2 * SECOND + 900_000) == BEGIN + 2 * SECOND + 900_000


@pytest.mark.parametrize("jump", [-DAY, DAY, 2 * SECOND])
def test_a_jump_is_followed_when_it_has_stood(jump: int) -> None:
    clock = SteadyClock()
    clock.look(0.0, BEGIN)
    for seconds in range(0, int(STANDS_SECONDS), 50):
        now = BEGIN + seconds * SECOND
        assert clock.look(float(seconds), now + jump) == now
    now = BEGIN + int(STANDS_SECONDS) * SECOND
    assert clock.look(STANDS_SECONDS, now + jump) == now + jump


def test_another_jump_has_to_stand_as_long() -> None:
    clock = SteadyClock()
    clock.look(0.0, BEGIN)
    clock.look(1.0, BEGIN + SECOND + DAY)
    now = BEGIN + 500 * SECOND
    assert clock.look(500.0, now - DAY) == now
    now = BEGIN + 700 * SECOND
    assert clock.look(700.0, now - DAY) == now
    assert clock.look(701.0, now + SECOND) == now + SECOND
    assert clock.now_us == now + SECOND


def test_where_a_process_begins_there_is_nothing_but_the_wall_clock() -> None:
    clock = SteadyClock()
    assert clock.look(0.0, BEGIN + DAY) == BEGIN + DAY
    assert clock.look(1.0, BEGIN + SECOND) == BEGIN + DAY + SECOND, "going back is a jump now"
    assert clock.look(1.0 + STANDS_SECONDS, BEGIN + 601 * SECOND) == BEGIN + 601 * SECOND


def looked(*steps: tuple[float, int]) -> AgeClock:
    """One that has looked at these: seconds, and what the wall clock is ahead then."""
    clock = AgeClock()
    for seconds, ahead_us in steps:
        clock.look(50.0 + seconds, BEGIN + int(seconds * SECOND) + ahead_us)
    return clock


@pytest.mark.parametrize("jump", [0, DAY, -DAY])
def test_what_was_appended_since_ages_with_the_monotonic_clock(jump: int) -> None:
    clock = looked((0.0, 0), (1_000.0, jump), (3_000.0, jump), (4_000.0, 0))
    assert clock.lived_us == 4_000 * SECOND
    assert clock.age_us(BEGIN + jump, 1_000 * SECOND) == 3_000 * SECOND


def test_nothing_that_was_found_is_old_before_the_clock_has_gone_evenly() -> None:
    clock = looked((0.0, 0), (STANDS_SECONDS - 1.0, 0))
    assert clock.age_us(BEGIN - DAY, None) == 0
    clock.look(50.0 + STANDS_SECONDS, BEGIN + int(STANDS_SECONDS * SECOND))
    assert clock.age_us(BEGIN - DAY, None) == DAY + int(STANDS_SECONDS * SECOND)
    assert clock.age_us(BEGIN + DAY, None) == int(STANDS_SECONDS * SECOND), "no time to come"


def test_it_is_aged_by_what_the_clock_says_when_it_was_set_right() -> None:
    clock = looked((0.0, DAY), (5.0, 0), (STANDS_SECONDS, 0))
    assert clock.age_us(BEGIN - SECOND, None) == 0, "it has jumped a short while ago"
    clock.look(50.0 + STANDS_SECONDS + 5.0, BEGIN + int((STANDS_SECONDS + 5.0) * SECOND))
    assert clock.age_us(BEGIN - SECOND, None) == int((STANDS_SECONDS + 6.0) * SECOND)


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_a_later_jump_changes_nothing(jump: int) -> None:
    clock = looked((0.0, 0), (STANDS_SECONDS, 0), (1_000.0, jump), (5_000.0, jump))
    assert clock.age_us(BEGIN - DAY, None) == DAY + 5_000 * SECOND
