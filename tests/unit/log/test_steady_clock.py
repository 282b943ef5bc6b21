"""A clock that jumps does not make messages due."""

from __future__ import annotations

import pytest

from roq.log.steady_clock import STANDS_SECONDS, SteadyClock
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
