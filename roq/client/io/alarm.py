"""One timer of the I/O thread that any thread may want earlier; all of it with the owner's lock."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager

from roq.client.io.engine import Engine
from roq.runtime.interfaces import Timer


class Alarm:
    """Rings once, at the earliest time that was wanted since it rang last.

    Args:
        engine: in whose thread it rings.
        lock: the owner's, held for every call but the ring.
        ring: called in the I/O thread without the lock; it calls `rung` first.
    """

    def __init__(
        self, engine: Engine, lock: AbstractContextManager[object], ring: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._lock = lock
        self._ring = ring
        self._timer: Timer | None = None
        self._at = math.inf

    def need(self, at: float) -> None:
        """Ring at this time, or earlier; from any thread."""
        if at < self._at:
            # Asked for first: a signal handler that raises in between must not leave a time that
            # nobody is going to ring at.
            self._engine.call_soon(self._rearm)
            self._at = at

    def rung(self) -> None:
        """It has rung: until `set` it need not be wanted, for the I/O thread is there."""
        self._timer = None
        self._at = -math.inf

    def set(self, at: float) -> None:
        """Ring at this time, or at the earlier one that is set; I/O thread only."""
        if self._timer is None or at < self._timer.when:
            self._at = at
            self._rearm_now()
        else:
            # An early look costs less than setting the timer anew for each message.
            self._at = self._timer.when

    def again(self, at: float) -> None:
        """It has rung at a bad time: ring once more; I/O thread only, without the lock."""
        if self._timer is None or self._timer.call is None:
            self._timer = self._engine.reactor.call_at(at, self._ring)

    def cancel(self) -> None:
        """Do not ring any more; I/O thread only."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rearm(self) -> None:
        with self._lock:
            self._rearm_now()

    def _rearm_now(self) -> None:
        if self._timer is not None:
            if self._timer.when <= self._at:
                return
            self._timer.cancel()
            self._timer = None
        if self._at < math.inf:
            self._timer = self._engine.reactor.call_at(self._at, self._ring)
