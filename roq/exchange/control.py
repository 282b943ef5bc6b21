"""The exchange's word with its host manager and its monitor; data waits for neither."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import zmq

from roq.errors import Unavailable
from roq.exchange import events
from roq.model import PUBLISHER_ID_BYTES, PublisherId
from roq.protocol.control import (
    Answer,
    ChildAck,
    ChildReport,
    ExchangeAck,
    ExchangeReport,
    Failure,
    Passed,
)
from roq.protocol.facts import ChildInfo
from roq.runtime.logs import RateLimited
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import RpcClient

REPORT_SECONDS: Final = 1.0
ADDRESSES_MAX: Final = 16
"""Exchanges at which one publisher may publish at once."""
ADDRESS_CHARACTERS_MAX: Final = 255
_U63: Final = (1 << 63) - 1

log = logging.getLogger(__name__)


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


class MonitorLink:
    """Reports to the monitor each KPI period; an address that changes is followed.

    Args:
        endpoint: control address of the monitor; empty as long as it is not known.
        queue: queue id; what concerns another queue is not heard.
        report: gives the present report.
        on_passed: called when the monitor says that a publisher has gone elsewhere.
        on_stop: called with a reason when a newer process has taken this exchange over.
    """

    def __init__(
        self,
        reactor: Reactor,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        *,
        queue: bytes,
        kpi_seconds: float,
        report: Callable[[], ExchangeReport],
        on_passed: Callable[[events.Passed], None],
        on_stop: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._context = context
        self._queue = queue
        self._on_passed = on_passed
        self._limited = RateLimited(log)
        self._kpi_seconds = kpi_seconds
        self._report_of = report
        self._on_stop = on_stop
        self._client: RpcClient | None = None
        self._timer = reactor.call_later(kpi_seconds, self._report)
        self.move(endpoint)

    def move(self, endpoint: str) -> None:
        """The monitor is at this address from now on."""
        if not endpoint or (self._client is not None and self._client.endpoint == endpoint):
            return
        if self._client is not None:
            self._client.close()
            log.info("monitor is now at %s", endpoint, extra={"event": "monitor_moved"})
        self._client = RpcClient(self._reactor, self._context, endpoint, self._pushed)
        self.report_now()

    def report_now(self) -> None:
        """Report beside the period, at a change of state."""
        if self._client is not None:
            self._client.request(self._report_of(), self._kpi_seconds, self._answered)

    def close(self) -> None:
        """Report no more."""
        self._timer.cancel()
        if self._client is not None:
            self._client.close()

    def _report(self) -> None:
        self._timer = self._reactor.call_later(self._kpi_seconds, self._report)
        self.report_now()

    def _answered(self, answer: Answer | Unavailable) -> None:
        if isinstance(answer, ExchangeAck | Failure):
            code = answer.code if isinstance(answer, ExchangeAck) else answer.CODE
            if code == "stale_epoch":
                self._on_stop("a newer process has taken this exchange over")

    def _pushed(self, message: Answer) -> None:
        if not isinstance(message, Passed) or message.queue_id != self._queue:
            return
        if (
            len(message.publisher) != PUBLISHER_ID_BYTES
            or not 0 < message.epoch <= _U63
            or len(message.addresses) > ADDRESSES_MAX
            or any(len(address) > ADDRESS_CHARACTERS_MAX for address in message.addresses)
        ):
            self._limited.warning("passed", self._reactor.now(), "the monitor says nonsense")
            return
        publisher = PublisherId(message.publisher)
        self._on_passed(events.Passed(publisher, message.epoch, tuple(message.addresses)))
