"""How long to wait before the next attempt, so that many clients do not try as one. Pure.

The first attempt is made at once. The wait before each further one is drawn anew between nothing
and a bound, which doubles up to a limit ("full jitter"): clients that have lost the same thing at
the same instant are spread evenly after a few attempts, and nobody ever gives up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

FIRST_SECONDS: Final = 0.1
"""The bound of the first wait."""
MOST_SECONDS: Final = 2.0
"""The limit of the bound for exchanges and monitors."""
MANAGERS_MOST_SECONDS: Final = 5.0
"""The limit of the bound for configuration managers."""
_DOUBLINGS_MAX: Final = 16

Jitter = Callable[[], float]
"""Gives a number in [0, 1), another one each time; machines draw none by themselves."""


class Backoff:
    """The attempts at one thing.

    Args:
        jitter: spreads the waits.
        most: no wait is longer than this; seconds.

    Attributes:
        failures: attempts since it worked last.
    """

    __slots__ = ("_jitter", "_most", "failures")

    def __init__(self, jitter: Jitter, most: float = MOST_SECONDS) -> None:
        self.failures = 0
        self._jitter = jitter
        self._most = most

    def wait(self, most: float | None = None) -> float:
        """Seconds before the next attempt; 0 for the first one since `reset`.

        Args:
            most: as in the constructor, for this wait only.
        """
        doublings = min(self.failures - 1, _DOUBLINGS_MAX)
        self.failures += 1
        if doublings < 0:
            return 0.0
        bound = min(self._most if most is None else most, FIRST_SECONDS * 2.0**doublings)
        return bound * self._jitter()

    def reset(self) -> None:
        """It works: the next attempt will be a first one."""
        self.failures = 0
