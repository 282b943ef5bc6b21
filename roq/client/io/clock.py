"""The clock of a subscriber.

It counts *active* time: a step of it is at most a quarter of a second, so a process that was
stopped for a minute does not wake up believing that everybody has been silent for a minute. What
others have measured is never compared with it, but with `ActiveClock.elapsed`.
"""

from __future__ import annotations

import time
from typing import Final

CLOCK_STEP_SECONDS: Final = 0.25


class ActiveClock:
    """The monotonic clock without the time in which this process did not run."""

    def __init__(self) -> None:
        self._made = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._real = time.monotonic()
        self._active = 0.0

    def __call__(self) -> float:
        """The active time, in seconds from an arbitrary origin."""
        real = time.monotonic()
        self._active += min(real - self._real, CLOCK_STEP_SECONDS)
        self._real = real
        return self._active

    def elapsed(self) -> float:
        """Seconds since this was made, with all in which the process or the machine slept.

        What others measure is compared with this one.
        """
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self._made
