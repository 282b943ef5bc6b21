"""A beat for everybody, and what it says when it comes late."""

from __future__ import annotations

import pytest

from roq.client.io.ticker import BEAT_SECONDS, REST, REST_MAX_SECONDS, Ticker
from roq.runtime.reactor import Reactor


class Clock(Reactor):
    """A reactor whose time stands still."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 100.0

    def now(self) -> float:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += seconds
        self._run_timers()


@pytest.fixture
def clock():
    clock = Clock()
    yield clock
    clock.close()


def test_everybody_is_called_at_each_beat(clock: Clock) -> None:
    ticker, beats = Ticker(clock), list[tuple[str, float]]()
    ticker.add(lambda late: beats.append(("a", late)))
    second = lambda late: beats.append(("b", late))  # noqa: E731
    ticker.add(second)
    clock.advance(BEAT_SECONDS)
    assert beats == [("a", 0.0), ("b", 0.0)]
    ticker.remove(second)
    ticker.remove(second)
    clock.advance(BEAT_SECONDS)
    assert len(beats) == 3


def test_a_beat_that_comes_late_says_by_how_much(clock: Clock) -> None:
    ticker, beats = Ticker(clock), list[float]()
    ticker.add(beats.append)
    clock.time += BEAT_SECONDS + 3.0
    assert ticker.late == 3.0
    clock.advance(0.0)
    assert beats == [3.0]
    assert ticker.late == 0.0


@pytest.mark.parametrize(
    ("took", "rest"), [(0.1, BEAT_SECONDS - 0.1), (1.0, REST), (5.0, REST_MAX_SECONDS)]
)
def test_after_a_beat_that_took_long_messages_come_first(
    clock: Clock, took: float, rest: float
) -> None:
    ticker, beats = Ticker(clock), list[float]()

    def slow(late: float) -> None:
        beats.append(late)
        clock.time += took

    ticker.add(slow)
    clock.advance(BEAT_SECONDS)
    clock.advance(rest - 0.01)
    assert (len(beats), ticker.late) == (1, 0.0)
    clock.advance(0.02)
    assert len(beats) == 2


def test_without_anybody_there_is_no_beat(clock: Clock) -> None:
    ticker, beats = Ticker(clock), list[float]()
    ticker.add(beats.append)
    ticker.remove(beats.append)
    clock.advance(BEAT_SECONDS)
    clock.advance(10.0)
    assert (beats, ticker.late) == ([], 0.0)
    ticker.add(beats.append)
    clock.advance(BEAT_SECONDS)
    assert beats == [0.0]
