"""Load over time: straight lines between points."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


class Profile:
    """A load that changes with time.

    Args:
        points: (seconds since the start, load), in order of time; before the first and after the
            last one the load does not change.
    """

    def __init__(self, points: Sequence[tuple[float, float]]) -> None:
        if not points or any(later[0] < earlier[0] for earlier, later in pairwise(points)):
            raise ValueError("a profile has at least one point, and they are in order of time")
        self._points = tuple(points)

    @property
    def seconds(self) -> float:
        """Until the last point."""
        return self._points[-1][0]

    @property
    def peak(self) -> float:
        """The highest load."""
        return max(load for _, load in self._points)

    def at(self, seconds: float) -> float:
        """The load at this time."""
        if seconds <= self._points[0][0]:
            return self._points[0][1]
        for (begin, before), (end, after) in pairwise(self._points):
            if seconds < end:
                return before + (after - before) * (seconds - begin) / (end - begin)
        return self._points[-1][1]
