"""Time as far as this process has lived through it."""

from __future__ import annotations

from typing import Final

STALL_SECONDS: Final = 1.5
"""For whom events come every second: a longer silence means that this process did not run."""
ROUNDING_SECONDS: Final = 1e-6
"""A wake-up that comes too early by a rounding error would be followed by another, and another."""


class ObservedClock:
    """A clock that stands still while its process does.

    A process that was stopped for a while has heard from nobody, which says nothing about them: on
    this clock it was a short moment, so nobody is declared lost for it.

    Args:
        now: the present time.
        stall_seconds: events come more often than this; of a longer gap only so much counts.

    Attributes:
        stall_seconds: the same, for the next gap.
    """

    __slots__ = ("_last", "_skipped", "stall_seconds")

    def __init__(self, now: float, stall_seconds: float = STALL_SECONDS) -> None:
        self._last = now
        self._skipped = 0.0
        self.stall_seconds = stall_seconds

    def read(self, now: float) -> float:
        """Observed time at the time `now`, which never runs backwards."""
        gap = now - self._last
        if gap > self.stall_seconds:
            self._skipped += gap - self.stall_seconds
        self._last = now
        return now - self._skipped

    def outside(self, observed: float) -> float:
        """The time at which `observed` will have been reached if nothing stalls."""
        return observed + self._skipped + ROUNDING_SECONDS
