"""A clock that follows small steps, and jumps only if they stand."""

import pytest

from roq.exchange.steady_clock import STANDS_SECONDS, SteadyClock

START = 1_700_000_000_000_000
SECOND = 1_000_000
DAY = 86_400 * SECOND


def test_it_goes_with_the_wall_clock() -> None:
    clock = SteadyClock()
    assert clock.look(5.0, START) == START
    assert clock.look(6.0, START + SECOND) == START + SECOND
    assert clock.look(7.0, START + 2 * SECOND + 900_000) == START + 2 * SECOND + 900_000


@pytest.mark.parametrize("jump", [-DAY, DAY, 2 * SECOND])
def test_a_jump_is_followed_when_it_has_stood(jump: int) -> None:
    clock = SteadyClock()
    clock.look(0.0, START)
    for seconds in range(0, int(STANDS_SECONDS), 50):
        now = START + seconds * SECOND
        assert clock.look(float(seconds), now + jump) == now
    now = START + int(STANDS_SECONDS) * SECOND
    assert clock.look(STANDS_SECONDS, now + jump) == now + jump


def test_another_jump_has_to_stand_as_long() -> None:
    clock = SteadyClock()
    clock.look(0.0, START)
    clock.look(1.0, START + SECOND + DAY)
    now = START + 500 * SECOND
    assert clock.look(500.0, now - DAY) == now
    now = START + 700 * SECOND
    assert clock.look(700.0, now - DAY) == now
    assert clock.look(701.0, now + SECOND) == now + SECOND
    assert clock.now_us == now + SECOND
