"""The clock by which delayed messages are due: the wall clock, but for its jumps. Pure.

It goes with the monotonic one. Small steps of the wall clock, as time servers make them, are
followed at once. A jump is not, unless it has stood for ten minutes: then the clock was wrong
before, and was set right. Where a process begins it knows no other time than the wall clock's.
"""

from __future__ import annotations

from typing import Final

SMALL_US: Final = 1_000_000
STANDS_SECONDS: Final = 600.0


class SteadyClock:
    """Attributes:
    now_us: the time, µs UTC; 0: it was never looked.
    """

    def __init__(self) -> None:
        self.now_us = 0
        self._ahead_us: int | None = None
        """Of the monotonic clock, what this one is ahead."""
        self._jump_us = 0
        """Likewise of the wall clock, as it was when it was seen to have jumped."""
        self._since: float | None = None

    def look(self, now: float, wall_us: int) -> int:
        """It is so late.

        Args:
            now: monotonic, seconds.
            wall_us: what the system's wall clock says, µs UTC.
        """
        steady_us = int(now * 1_000_000)
        ahead_us = wall_us - steady_us
        if self._ahead_us is None or abs(ahead_us - self._ahead_us) <= SMALL_US:
            self._ahead_us, self._since = ahead_us, None
        elif self._since is None or abs(ahead_us - self._jump_us) > SMALL_US:
            self._jump_us, self._since = ahead_us, now
        elif now - self._since >= STANDS_SECONDS:
            self._ahead_us, self._since = ahead_us, None
        self.now_us = steady_us + self._ahead_us
        return self.now_us
