"""Some processes that do the same: those that end are started again, until all are to end.

One that says so by its status has ended for good.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Final, Protocol

AGAIN_SECONDS: Final = 1.0
"""Before one that has ended is started again; doubled for each time that it has soon ended."""
AGAIN_SECONDS_MAX: Final = 30.0
SOON_SECONDS: Final = 10.0
GIVE_UP: Final = 4
"""When each has ended so often in a row soon after its start, and none runs, it is no use."""


class Process(Protocol):
    """A process; `subprocess.Popen` is one."""

    def poll(self) -> int | None:
        """How it has ended; None: it runs."""
        ...

    def send_signal(self, number: int) -> None:
        """Tell it."""
        ...


class _Slot:
    """One of them, which is started again and again."""

    def __init__(self) -> None:
        self.process: Process | None = None
        self.started = self.again_at = 0.0
        self.soon = 0
        """So often in a row it has ended soon after its start."""


class Fleet:
    """Some processes.

    Args:
        start: starts one.
        count: how many.
        last: one that ends with this status is not started again.
    """

    def __init__(self, start: Callable[[], Process], count: int, last: int | None = None) -> None:
        self._start = start
        self._last = last
        self._places = [_Slot() for _ in range(count)]
        self._ending = False

    @property
    def running(self) -> int:
        """So many run."""
        return sum(place.process is not None for place in self._places)

    def look(self, now: float) -> list[int]:
        """See which have ended, and start what is to be started; gives how they have ended."""
        ended: list[int] = []
        for place in list(self._places):
            status = None if place.process is None else place.process.poll()
            if status is not None and status == self._last:
                self._places.remove(place)
                continue
            if status is not None:
                ended.append(status)
                place.process = None
                place.soon = place.soon + 1 if now - place.started < SOON_SECONDS else 0
                place.again_at = now + min(AGAIN_SECONDS * 2**place.soon, AGAIN_SECONDS_MAX)
            if place.process is None and not self._ending and now >= place.again_at:
                place.process, place.started = self._start(), now
        if not self.running and all(place.soon >= GIVE_UP for place in self._places):
            self._ending = True
        return ended

    @property
    def left(self) -> bool:
        """Whether all have ended with the last status."""
        return not self._places

    @property
    def over(self) -> bool:
        """Whether none runs, and none will."""
        return self._ending and not self.running

    def end(self, number: int = signal.SIGTERM) -> None:
        """Tell all of them, and start none any more."""
        self._ending = True
        for place in self._places:
            if place.process is not None:
                place.process.send_signal(number)
