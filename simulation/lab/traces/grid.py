"""The windows of a run: equally long from the beginning of the load, the last one maybe shorter."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

MICROSECONDS: Final = 1_000_000
WINDOWS_MAX: Final = 600


@dataclass(frozen=True, slots=True)
class Grid:
    """Where windows begin and end.

    Attributes:
        begin_us: the beginning of the load, µs since 1970 by the clock of the driver.
        end_us: its end.
        window_us: length of a window.
    """

    begin_us: int
    end_us: int
    window_us: int

    @property
    def count(self) -> int:
        """How many windows there are."""
        return -(-(self.end_us - self.begin_us) // self.window_us)

    def seconds(self, window: int) -> float:
        """How long one of them is."""
        begin = self.begin_us + window * self.window_us
        return (min(begin + self.window_us, self.end_us) - begin) / MICROSECONDS

    def ends(self, window: int) -> float:
        """When one ends, seconds since the load began."""
        end = min(self.begin_us + (window + 1) * self.window_us, self.end_us)
        return (end - self.begin_us) / MICROSECONDS

    def at(self, time_us: int) -> float:
        """A moment, in seconds since the load began."""
        return (time_us - self.begin_us) / MICROSECONDS

    def within(self, time_us: int) -> bool:
        """Whether a moment is one of the load."""
        return self.begin_us <= time_us <= self.end_us

    def touched(self, begin_us: int, end_us: int) -> range:
        """The windows that a span of time has a part in."""
        first = (max(begin_us, self.begin_us) - self.begin_us) // self.window_us
        return range(first, -(-(min(end_us, self.end_us) - self.begin_us) // self.window_us))


def grid(begin_us: int, seconds: float) -> Grid:
    """Windows of a second, longer ones for a load of more than ten minutes.

    Args:
        begin_us: the beginning of the load.
        seconds: how long it lasts.
    """
    end_us = begin_us + round(seconds * MICROSECONDS)
    return Grid(begin_us, end_us, width(seconds) * MICROSECONDS)


def width(seconds: float) -> int:
    """Seconds of a window of a load that lasts so long."""
    return max(1, ceil(seconds / WINDOWS_MAX))
