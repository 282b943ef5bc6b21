"""Beats twice a second in the I/O thread, for all publishers and subscribers of a client; more
seldom where a process with many of them has too little processor time for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from roq.runtime.interfaces import Loop, Timer

BEAT_SECONDS: Final = 0.5
REST: Final = 3.0
"""After a beat it rests so many times as long as that took: messages come first."""
REST_MAX_SECONDS: Final = 4.0

Beat = Callable[[float], None]


class Ticker:
    """Calls everybody who wants a beat; does nothing while nobody does. I/O thread, but for `late`.

    Args:
        reactor: of the I/O thread.
    """

    def __init__(self, reactor: Loop) -> None:
        self._reactor = reactor
        self._beats: list[Beat] = []
        self._timer: Timer | None = None
        self._due = float("inf")

    def add(self, beat: Beat) -> None:
        """Call this at each beat, with the seconds by which the beat is late."""
        self._beats.append(beat)
        if self._timer is None:
            self._arm(self._reactor.now() + BEAT_SECONDS)

    def remove(self, beat: Beat) -> None:
        """Call this no more."""
        if beat in self._beats:
            self._beats.remove(beat)

    @property
    def late(self) -> float:
        """Seconds by which the next beat is late already; from any thread."""
        return max(0.0, self._reactor.now() - self._due)

    def _arm(self, due: float) -> None:
        self._due, self._timer = due, self._reactor.call_at(due, self._beat)

    def _beat(self) -> None:
        late, began = self.late, self._reactor.now()
        if not self._beats:
            self._timer, self._due = None, float("inf")
            return
        self._due = began + BEAT_SECONDS
        try:
            for beat in list(self._beats):
                beat(late)
        finally:
            now = self._reactor.now()
            self._arm(max(self._due, now + min(REST * (now - began), REST_MAX_SECONDS)))
