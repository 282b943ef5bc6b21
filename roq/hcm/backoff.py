"""How long to wait before a child that crashed is started again, and when to give up."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CrashLimits:
    """When a child counts as failed.

    Attributes:
        most: so many crashes within the window, and it is not started again.
        window_seconds: older crashes are forgotten.
        first_seconds: delay after the second crash; it doubles with each further one.
        longest_seconds: the longest delay.
    """

    most: int = 5
    window_seconds: float = 60.0
    first_seconds: float = 0.5
    longest_seconds: float = 10.0


class CrashHistory:
    """The crashes of one child that still count."""

    __slots__ = ("_limits", "_times", "total")

    def __init__(self, limits: CrashLimits) -> None:
        self._limits = limits
        self._times: deque[float] = deque(maxlen=limits.most)
        self.total = 0

    def crashed(self, now: float) -> float | None:
        """Take a crash in; gives the seconds to wait before the next start, None: give up."""
        self.total += 1
        while self._times and now - self._times[0] > self._limits.window_seconds:
            self._times.popleft()
        self._times.append(now)
        count = len(self._times)
        if count >= self._limits.most:
            return None
        if count == 1:
            return 0.0
        return min(self._limits.longest_seconds, self._limits.first_seconds * 2.0 ** (count - 2))
