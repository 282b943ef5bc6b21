"""Looks how a publisher or subscriber stands, and tells its user and the log when that changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from roq.client.io.engine import Engine
from roq.client.session.events import Cause, ClientState, StateChange
from roq.client.session.status import Status, StatusLog
from roq.errors import Closed

OnState = Callable[[StateChange], None]

log = logging.getLogger(__name__)


class Losses(NamedTuple):
    """What is lost by now, all in all."""

    messages: int = 0
    gaps: int = 0
    """Places of which nobody knows how many messages they held."""
    reason: str = ""


class StatusReporter:
    """One publisher's or subscriber's.

    Args:
        engine: the client's threads.
        who: such as `publisher of queue orders`, for the log.
        look: gives how it stands, told by how many seconds the I/O thread is late; from any thread.
        losses: gives what is lost by now; from any thread.
        on_state: called with each change, in the client's thread for callbacks.
    """

    def __init__(
        self,
        engine: Engine,
        who: str,
        look: Callable[[float], Status],
        losses: Callable[[], Losses],
        on_state: OnState | None,
    ) -> None:
        self._engine = engine
        self._who = who
        self._look = look
        self._losses = losses
        self._on_state = on_state
        self._watchdog = StatusLog()
        self._closed = False
        self._lock = threading.RLock()

    def start(self) -> None:
        """Begin to look; from any thread."""
        self._engine.call_soon(lambda: self._engine.ticker.add(self._beat))

    @property
    def status(self) -> Status:
        """How it stands now; from any thread."""
        if self._engine.forked:
            return Status(ClientState.CLOSED, Cause.CLOSED, "it belongs to the parent process")
        return self._look(self._engine.ticker.late)

    def look_soon(self) -> None:
        """Something has happened; from any thread, also with locks held."""
        if not self._closed:
            with suppress(Closed):
                self._engine.call_soon(self._look_now)

    def close(self, reason: str) -> None:
        """It is over; told once; from any thread."""
        if self._engine.forked:
            return
        with self._lock:
            if not self._closed:
                self._tell_losses()
                self._tell(self._watchdog.look(Status(ClientState.CLOSED, Cause.CLOSED, reason)))
            self._closed = True

    def _look_now(self) -> None:
        self._beat(0.0)

    def _beat(self, late: float) -> None:
        status = self._look(late)
        with self._lock:
            if self._closed:
                self._engine.ticker.remove(self._beat)
                return
            self._tell_losses()
            self._tell(self._watchdog.look(status))
        # What only the application can change is told, but not logged.
        if status.state is ClientState.WAITING and status.cause is not Cause.NOT_TAKEN:
            # One line for all clients of this kind that are in the same trouble.
            self._engine.limited.warning(
                f"{self._who} {status.cause}", self._engine.reactor.now(), "%s: %s", self._who,
                status.reason,
            )  # fmt: skip

    def _tell_losses(self) -> None:
        self._tell(self._watchdog.lost(*self._losses()))

    def _tell(self, change: StateChange | None) -> None:
        if change is None:
            return
        on_state = self._on_state
        if on_state is None and not log.isEnabledFor(logging.DEBUG):
            return

        def tell() -> None:  # a logging handler is not called with a lock held, nor by this thread
            log.debug("%s: %s %s", self._who, change.state, change.reason)
            if on_state is not None:
                on_state(change)

        self._engine.callbacks.post(tell)
