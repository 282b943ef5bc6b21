"""Where the jobs that wait begin, among those that were claimed and cannot be forgotten. Pure.

As long as some transaction is open PostgreSQL keeps what was claimed since at the front of the
index of what waits, and whoever looks for the next job passes all of it. So who has found that a
look takes long begins the next ones where the last one has found something. A job that comes to
wait behind that place, such as one that is tried again, is found by the next whole look.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final

SLOW_SECONDS: Final = 0.02
"""A look that takes no longer is always a whole one."""
REST: Final = 20
"""After a whole look that was slow there is none for so many times as long …"""
REST_SECONDS: Final = 10.0
"""… and at most for so long."""
SLACK: Final = 1_000_000
"""µs: for transactions that commit later than others which began after them."""


class WaitingFloors:
    """By type and priority, from which `created` on jobs are looked for.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self._floors: dict[tuple[str, int], tuple[int, float]] = {}

    def floor(self, kind: str, priority: int) -> int:
        """Where to begin; 0: the look is to be a whole one."""
        floor, until = self._floors.get((kind, priority), (0, 0.0))
        return floor if self.clock() < until else 0

    def looked(self, kind: str, priority: int, floor: int, oldest: int, seconds: float) -> None:
        """Jobs were looked for.

        Args:
            kind: type of the jobs.
            priority: theirs.
            floor: where the look began.
            oldest: `created` of the first that was found, or now if there was none.
            seconds: that the look took.
        """
        cell = (kind, priority)
        if floor:
            _, until = self._floors.get(cell, (0, 0.0))
        elif seconds > SLOW_SECONDS:
            until = self.clock() + min(REST * seconds, REST_SECONDS)
        else:
            self._floors.pop(cell, None)
            return
        self._floors[cell] = (max(1, oldest - SLACK), until)
