"""How the runs of an instance have ended, and how long they took. Pure."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from roq.jobs.states import RunEnd

BOUNDS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 600.0)
"""Seconds; of a bucket what took no longer."""


class RunTimes:
    """Counters since the start of the instance.

    Attributes:
        ends: (type, end) → runs.
        buckets: type → runs by `BOUNDS`, and those that took longer than the last.
        seconds: type → of all its runs.
    """

    def __init__(self) -> None:
        self.ends: dict[tuple[str, RunEnd], int] = {}
        self.buckets: dict[str, list[int]] = {}
        self.seconds: dict[str, float] = {}

    def ended(self, kind: str, end: RunEnd, seconds: float | None) -> None:
        """A run has ended, and had a thread for so long; None: for no time."""
        self.ends[kind, end] = self.ends.get((kind, end), 0) + 1
        if seconds is not None:
            buckets = self.buckets.setdefault(kind, [0] * (len(BOUNDS) + 1))
            buckets[bisect_left(BOUNDS, seconds)] += 1
            self.seconds[kind] = self.seconds.get(kind, 0.0) + seconds
