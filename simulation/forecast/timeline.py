"""A figure that is constant piece by piece, and its integral."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from math import ceil

from roq.simulation.scenario.rates import Burst, Rate, Step, next_jump, sent_by

STEPS_MAX = 100_000
"""Pieces of one phase; a finer step is made coarser."""
STEPS_MIN = 12
"""Pieces of one phase whose rate changes all the time; a coarser step is made finer."""


class Timeline:
    """A rate over time; before its beginning it is what it is in its beginning.

    Args:
        pieces: (beginning, value) in order of time.
        end: of the last piece; afterwards it is 0.
    """

    __slots__ = ("_sums", "times", "values")

    def __init__(self, pieces: Iterable[tuple[float, float]], end: float) -> None:
        self.times = array("d")
        self.values = array("d")
        for begin, value in pieces:
            if not self.values or value != self.values[-1]:
                self.times.append(begin)
                self.values.append(value)
        self.times.append(end)
        self.values.append(0.0)
        self._sums = array("d", [0.0])
        for index in range(len(self.times) - 1):
            length = self.times[index + 1] - self.times[index]
            self._sums.append(self._sums[-1] + self.values[index] * length)

    def at(self, time: float) -> float:
        """The value at a moment."""
        return self.values[max(0, bisect_right(self.times, time) - 1)]

    def until(self, time: float) -> float:
        """The integral from the beginning to a moment."""
        index = max(0, bisect_right(self.times, time) - 1)
        return self._sums[index] + self.values[index] * (time - self.times[index])

    def mean(self, begin: float, end: float) -> float:
        """The mean between two moments; if they are one, the value then."""
        first = max(0, bisect_right(self.times, begin) - 1)
        last = first + 1
        if end <= begin or last == len(self.times) or end < self.times[last]:
            return self.values[first]  # exactly, so that what does not change is seen not to
        return (self.until(end) - self.until(begin)) / (end - begin)


def steps(rate: Rate, phase: float, step: float) -> Iterator[tuple[float, float]]:
    """A rate as (seconds since the phase began, messages a second), the same number of messages."""
    edges = _edges(rate, phase, step)
    for begin, end in zip(edges, [*edges[1:], phase], strict=True):
        sent = sent_by(rate, end, phase) - sent_by(rate, begin, phase)
        yield begin, sent / (end - begin)


def _edges(rate: Rate, phase: float, step: float) -> list[float]:
    """Where pieces begin: where a rate jumps, or else every so often."""
    match rate:
        case int() | float():
            return [0.0]
        case Step():
            return list(_jumps(rate, phase))
        case Burst(every=every) if phase / every <= STEPS_MAX:
            return list(_jumps(rate, phase))
        case _:
            step = max(min(step, phase / STEPS_MIN), phase / STEPS_MAX)
            return _apart([index * step for index in range(ceil(phase / step) + 1)], phase)


def _jumps(rate: Rate, phase: float) -> Iterator[float]:
    """The beginning, and where a rate jumps."""
    at = 0.0
    while at < phase - 1e-9:
        yield at
        at = next_jump(rate, at, phase)


def _apart(edges: list[float], phase: float) -> list[float]:
    """Without pieces of no length."""
    found: list[float] = []
    for edge in edges:
        if edge < phase - 1e-9 and (not found or edge > found[-1] + 1e-9):
            found.append(edge)
    return found or [0.0]
