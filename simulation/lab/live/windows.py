"""What one client did, window by window; a window is told when something is new in it."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Final

from roq.simulation.lab.live.clocks import MICROSECONDS

LATE_SECONDS: Final = 0.010
"""A message that is published more than this after it should be is late."""


class Window:
    """One window of one client; see `simulation.lab.traces.messages.ClientTrace`."""

    __slots__ = (
        "begin_us", "bytes", "doubled", "failed", "late", "latency", "latency_sum", "messages",
        "reordered",
    )  # fmt: skip

    def __init__(self, begin_us: int) -> None:
        self.begin_us = begin_us
        self.messages = 0
        self.bytes = 0
        self.late = 0
        self.failed = 0
        self.doubled = 0
        self.reordered = 0
        self.latency: defaultdict[int, int] = defaultdict(int)
        self.latency_sum = 0.0


class Windows:
    """The windows of one client.

    A client holds `lock` while it fills them in; `drain` is for the task's channel.

    Args:
        begin_us: when the load began.
        seconds: length of a window.

    Attributes:
        lock: see above.
        late, latency, latency_sum: until now, of windows that were told.
    """

    def __init__(self, begin_us: int, seconds: float) -> None:
        self.lock = threading.Lock()
        self.late = 0
        self.latency: defaultdict[int, int] = defaultdict(int)
        self.latency_sum = 0.0
        self.width_us = int(seconds * MICROSECONDS)
        self._begin_us = begin_us
        self._open: dict[int, Window] = {}

    def at(self, time_us: int) -> Window:
        """The window to which a moment belongs; the caller holds the lock."""
        number = (time_us - self._begin_us) // self.width_us
        window = self._open.get(number)
        if window is None:
            window = self._open[number] = Window(self._begin_us + number * self.width_us)
        return window

    def drain(self) -> list[Window]:
        """Those in which something is new, in order of time; they are empty from now on."""
        with self.lock:
            found, self._open = self._open, {}
        told = [found[number] for number in sorted(found)]
        for window in told:
            self.late += window.late
            self.latency_sum += window.latency_sum
            for bucket, count in window.latency.items():
                self.latency[bucket] += count
        return told
