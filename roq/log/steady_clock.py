"""The clock by which delayed messages are due: the wall clock, but for its jumps; and ages. Pure.

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

    @property
    def jumped(self) -> bool:
        """Whether the wall clock has jumped, and is not followed yet."""
        return self._since is not None

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


class AgeClock:
    """How old what stands in a log is, whatever jumps the wall clock makes.

    What a process has appended ages with its monotonic clock. What it has found has times of the
    wall clock, and only that clock may know how long nobody was there. So it ages by what that one
    said at the beginning, and nothing of it counts as old before the clock has gone evenly for ten
    minutes: time to set it right. What it says for longer is believed, or nothing found would ever
    be old.

    Attributes:
        lived_us: time since it was looked first, µs of the monotonic clock.
    """

    def __init__(self) -> None:
        self.lived_us = 0
        self._began: float | None = None
        self._wall = SteadyClock()
        self._began_us: int | None = None
        """What the wall clock said then, as far as it is believed; None: not yet."""

    def look(self, now: float, wall_us: int) -> None:
        """It is so late.

        Args:
            now: monotonic, seconds.
            wall_us: what the system's wall clock says, µs UTC.
        """
        if self._began is None:
            self._began = now
        self.lived_us = round((now - self._began) * 1_000_000)
        if self._began_us is None:
            time_us = self._wall.look(now, wall_us)
            if now - self._began >= STANDS_SECONDS and not self._wall.jumped:
                self._began_us = time_us - self.lived_us

    def age_us(self, appended_us: int, lived_us: int | None) -> int:
        """How old something is, µs.

        Args:
            appended_us: its append time, µs UTC.
            lived_us: how long this process had lived then; None: it was appended before.
        """
        if lived_us is not None:
            return self.lived_us - lived_us
        if self._began_us is None:
            return 0
        # A time to come was told by a clock that was wrong: it is as old as this process.
        return self.lived_us + max(0, self._began_us - appended_us)
