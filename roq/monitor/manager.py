"""The word that a child keeps with its host manager."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import zmq

from roq.errors import Unavailable
from roq.monitor.clock import ObservedClock
from roq.protocol.control import (
    Answer,
    ChildAck,
    ChildReport,
)
from roq.protocol.facts import ChildInfo
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import RpcClient

REPORT_SECONDS: Final = 1.0
ASK_SECONDS: Final = 0.5

log = logging.getLogger(__name__)


class ManagerLink:
    """Reports each second, and notices when nobody wants this process (any more).

    Args:
        endpoint: control address of the host manager.
        orphan_seconds: without an answer for so long, nobody does.
        child: gives the present state of this process.
        on_leader: called with the address of the leading configuration manager when it is told.
        on_stop: called with the reason, empty when the host manager is gone.
    """

    def __init__(
        self,
        reactor: Reactor,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        orphan_seconds: float,
        child: Callable[[str], ChildInfo],
        on_leader: Callable[[str], None],
        on_stop: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._orphan_seconds = orphan_seconds
        self._child = child
        self._on_leader = on_leader
        self._on_stop = on_stop
        self._clock = ObservedClock(reactor.now())
        self._heard = self._clock.read(reactor.now())
        self._client = RpcClient(reactor, context, endpoint, self._answered)
        self._closed = False

    def start(self) -> None:
        """Report now and every second from now on."""
        if self._closed:
            return
        now = self._clock.read(self._reactor.now())
        if now - self._heard > self._orphan_seconds:
            log.warning(
                "no word from the host manager at %s for %g s: ending",
                self._client.endpoint, self._orphan_seconds, extra={"event": "orphaned"},
            )  # fmt: skip
            self._on_stop("")
            return
        self._client.request(
            ChildReport(child=self._child("running")), REPORT_SECONDS, self._answered
        )
        self._reactor.call_later(REPORT_SECONDS, self.start)

    def ask_reason(self, done: Callable[[str], None]) -> None:
        """Ask why this process was told to stop; `done` gets an empty text if nobody says."""

        def answered(answer: Answer | Unavailable) -> None:
            wanted = isinstance(answer, ChildAck) and answer.action == "stop"
            done(answer.reason if isinstance(answer, ChildAck) and wanted else "")

        self._client.request(ChildReport(child=self._child("stopping")), ASK_SECONDS, answered)

    def close(self) -> None:
        """Report no more."""
        self._closed = True
        self._client.close()

    def _answered(self, answer: Answer | Unavailable) -> None:
        if isinstance(answer, Unavailable):
            return  # counted by the clock
        self._heard = self._clock.read(self._reactor.now())
        if not isinstance(answer, ChildAck):
            return
        if answer.action == "stop":
            self._on_stop(answer.reason)
        elif answer.leader:
            self._on_leader(answer.leader)
