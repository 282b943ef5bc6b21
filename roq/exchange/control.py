"""The word that an exchange keeps with its host manager; data does not wait for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import zmq

from roq.errors import Unavailable
from roq.protocol.control import (
    Answer,
    ChildAck,
    ChildReport,
)
from roq.protocol.facts import ChildInfo
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import RpcClient

REPORT_SECONDS: Final = 1.0


class ManagerLink:
    """Reports to the host manager each second, and hears from it whether to go on.

    Args:
        endpoint: control address of the host manager.
        orphan_seconds: without an answer for so many reports in a row, nobody wants this exchange.
            Counted in reports, so that a process that was stopped for a while does not conclude it.
        child: gives the present state of this process.
        on_monitor: called with the address of the monitor when the host manager names one.
        on_stop: called with a reason.
    """

    def __init__(
        self,
        reactor: Reactor,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        *,
        orphan_seconds: float,
        child: Callable[[], ChildInfo],
        on_monitor: Callable[[str], None],
        on_stop: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._orphan_seconds = orphan_seconds
        self._child = child
        self._on_monitor = on_monitor
        self._on_stop = on_stop
        self._silent_reports = 0
        self._client = RpcClient(reactor, context, endpoint, self._answered)
        self._timer = reactor.call_later(0, self._report)

    def report_now(self) -> None:
        """Tell of a change of state at once; the answer is not waited for."""
        self._client.send(ChildReport(child=self._child()))

    def close(self) -> None:
        """Report no more."""
        self._timer.cancel()
        self._client.close()

    def _report(self) -> None:
        if self._silent_reports * REPORT_SECONDS > self._orphan_seconds:
            self._on_stop(f"no word from the host manager for {self._orphan_seconds:g} s")
            return
        self._silent_reports += 1
        self._timer = self._reactor.call_later(REPORT_SECONDS, self._report)
        self._client.request(ChildReport(child=self._child()), REPORT_SECONDS, self._answered)

    def _answered(self, answer: Answer | Unavailable) -> None:
        if not isinstance(answer, ChildAck):
            return  # the count of silent reports tells
        self._silent_reports = 0
        if answer.action == "stop":
            self._on_stop(answer.reason or "the host manager said so")
        elif answer.monitor:
            self._on_monitor(answer.monitor)
