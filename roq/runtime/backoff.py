"""How long to wait before the next attempt: the one formula of all processes. Pure.

The longest wait doubles with each failure, up to a limit. Where many may have failed at the same
instant the wait is drawn anew each time between nothing and that ("full jitter"), so that they are
spread evenly after a few attempts; and the first attempt is made at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

FIRST_SECONDS: Final = 0.1
"""The longest wait after the first failure, unless it is said otherwise."""
MOST_SECONDS: Final = 2.0
"""The limit of the longest wait, unless it is said otherwise."""
_DOUBLINGS_MAX: Final = 30
"""Two to the power of a thousand is no float."""

Jitter = Callable[[], float]
"""Gives a number in [0, 1), another one each time; machines draw none by themselves."""


def longest_wait(failures: int, first: float, most: float) -> float:
    """Seconds before the next attempt, at most.

    Args:
        failures: attempts that have failed in a row.
        first: after the first one.
        most: in the end.
    """
    return min(most, first * 2.0 ** min(max(failures - 1, 0), _DOUBLINGS_MAX))


class Backoff:
    """The attempts at one thing.

    Args:
        jitter: spreads the waits.
        most: no wait is longer than this; seconds.
        first: the longest wait after the first failure; seconds.

    Attributes:
        failures: attempts since it worked last.
    """

    __slots__ = ("_first", "_jitter", "_most", "failures")

    def __init__(
        self, jitter: Jitter, most: float = MOST_SECONDS, first: float = FIRST_SECONDS
    ) -> None:
        self.failures = 0
        self._jitter = jitter
        self._most = most
        self._first = first

    def wait(self, most: float | None = None) -> float:
        """Seconds before the next attempt; 0 for the first one since `reset`.

        Args:
            most: as in the constructor, for this wait only.
        """
        failures, self.failures = self.failures, self.failures + 1
        if not failures:
            return 0.0
        limit = self._most if most is None else most
        return longest_wait(failures, self._first, limit) * self._jitter()

    def reset(self) -> None:
        """It works: the next attempt will be a first one."""
        self.failures = 0
