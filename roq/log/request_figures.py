"""Figures of the requests of one service since its exchange has begun: how many, and how long."""

from __future__ import annotations

from bisect import bisect_left

from roq.protocol.requesting import DURATION_BOUNDS, Durations


class DurationMeter:
    """Counts durations by how long they are."""

    def __init__(self) -> None:
        self._counts = [0] * (len(DURATION_BOUNDS) + 1)
        self.seconds = 0.0

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self._counts)

    def note(self, seconds: float, times: int = 1) -> None:
        """So long, so often."""
        self._counts[bisect_left(DURATION_BOUNDS, seconds)] += times
        self.seconds += seconds * times

    def read(self) -> Durations:
        """All of them."""
        return Durations(counts=list(self._counts), seconds=self.seconds)


class RequestFigures:
    """Of one service.

    Attributes:
        accepted: requests that were looked at.
        retried: that instances have given back, to be run again.
        waiting: until one was handed out, of each attempt since it was accepted.
        running: until it was answered.
    """

    def __init__(self) -> None:
        self.accepted = 0
        self.retried = 0
        self.waiting = DurationMeter()
        self.running = DurationMeter()
