"""One timer of the I/O thread that any thread may want earlier; all of it with the owner's lock."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from roq.client.io.engine import Engine
from roq.client.io.lock import ClientLock
from roq.runtime.interfaces import Timer

PUT_OFF_SECONDS: Final = 0.001
PUT_OFF_MAX: Final = 3
"""So often it rings again while somebody has the lock, before it waits for that."""


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
        self._put_off = 0

    def need(self, at: float) -> None:
        """Ring at this time, or earlier; from any thread."""
        if at < self._at:
            # Asked for first: a signal handler that raises in between must not leave a time that
            # nobody is going to ring at.
            self._engine.call_soon(self._rearm)
            self._at = at

    def rung(self) -> None:
        """It has rung: until `set` it need not be wanted, for the I/O thread is there."""
        if self._timer is not None:
            self._timer.cancel()  # of a ring that nobody set it for
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

    def with_lock(self, guard: ClientLock, ring: Callable[[], bool]) -> None:
        """For the ring: do this with the owner's lock, or ring again soon if somebody has it.

        Who comes for the lock again and again would wait for the I/O thread each time.

        Args:
            ring: gives True.
        """
        patience = 0.0 if self._put_off < PUT_OFF_MAX else -1.0
        if guard.within(patience, ring):
            self._put_off = 0
            return
        self._put_off += 1
        if self._timer is None or self._timer.call is None:
            self._timer = self._engine.reactor.call_later(PUT_OFF_SECONDS, self._ring)

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
