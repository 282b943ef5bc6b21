"""The word that an exchange keeps with its monitor; data does not wait for it.

    reporting --acknowledged--> well
        \\--no word to two reports--> looked for, besides what the host manager tells

An exchange reports to the monitor that it was told of last, and to nobody else. The one before is
told once that there is a newer one: it can step aside then instead of taking it for lost.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

import msgspec

from roq.errors import InvalidRequest, Unavailable
from roq.exchange import events
from roq.model import PUBLISHER_ID_BYTES, ExchangeInfo, PublisherId
from roq.protocol.control import (
    Answer,
    ExchangeAck,
    ExchangeReport,
    Failure,
    OrderAsk,
    OrderTold,
    Passed,
)
from roq.protocol.defined_services import DefinedServices, checked_services
from roq.runtime.interfaces import Dialer, Loop, Socket
from roq.runtime.rpc import RpcClient
from roq.runtime.structured_logs import RateLimited
from roq.timing import IDLE_FACTOR, MONITOR_UNHEARD_SECONDS

FAREWELL_MS: Final = 200
ADDRESSES_MAX: Final = 16
"""Exchanges at which one publisher may publish at once."""
ADDRESS_CHARACTERS_MAX: Final = 255
STALE: Final = "stale_epoch"
REMOVED: Final = "removed"
_U63: Final = (1 << 63) - 1

log = logging.getLogger(__name__)


class Shell(Protocol):
    """What the exchange does for its link with the monitor."""

    @property
    def info(self) -> ExchangeInfo:
        """Where the exchange is."""
        ...

    def report(self) -> ExchangeReport:
        """The present report."""
        ...

    def passed(self, event: events.Passed) -> None:
        """The monitor says that a publisher has gone elsewhere."""
        ...

    def ordered(self, message: OrderAsk | OrderTold) -> None:
        """Another exchange asks or answers by way of the monitor."""
        ...

    def acknowledged(self, hold_seconds: int | None, *, retire: bool, same_groups: bool) -> None:
        """The monitor knows this exchange; so long slow subscribers are waited for.

        Args:
            retire: nothing more is to be accepted.
            same_groups: all exchanges of the queue have the groups that it has told last.
        """
        ...

    def defined(self, services: DefinedServices) -> None:
        """The monitor says what the definition of the queue says of its services; checked."""
        ...

    def unheard(self) -> None:
        """The monitor says nothing: a configuration manager may know where it is."""
        ...

    def superseded(self) -> None:
        """A newer process has taken this exchange over."""
        ...

    def dismissed(self) -> None:
        """The queue does not have this exchange any more."""
        ...


class MonitorLink:
    """Reports to the monitor each KPI period, less often while the exchange is idle; an address
    that changes is followed.

    Args:
        endpoint: control address of the monitor; empty as long as it is not known.
        queue: queue id; what concerns another queue is not heard.
        kpi_seconds: between two reports.
        shell: the exchange.
    """

    def __init__(
        self,
        reactor: Loop,
        context: Dialer[Socket],
        endpoint: str,
        *,
        queue: bytes,
        kpi_seconds: float,
        shell: Shell,
    ) -> None:
        self._reactor = reactor
        self._context = context
        self._queue = queue
        self._kpi_seconds = kpi_seconds
        self._shell = shell
        self._limited = RateLimited(log)
        self._client: RpcClient | None = None
        self._former: RpcClient | None = None
        """Towards the monitor before this one, until this one has answered."""
        self._epoch = 0
        """Of the last monitor that has answered."""
        self._told = ""
        self._silent_reports = 0
        self._retire = False
        """What it was told last."""
        self._idle = False
        """Whether the last report said so."""
        self._timer = reactor.call_about(kpi_seconds, self._report)
        self.told(endpoint)

    def told(self, endpoint: str) -> None:
        """The host manager names the monitor; the same again says nothing new.

        It may know less than who was asked since, if nobody has told it for a while.
        """
        if endpoint and endpoint != self._told:
            self._told = endpoint
            self.move(endpoint)

    def move(self, endpoint: str) -> None:
        """The monitor is at this address from now on."""
        if not endpoint or (self._client is not None and self._client.endpoint == endpoint):
            return
        if self._client is not None:
            self._forget_former()
            self._former = self._client
            log.info("monitor is now at %s", endpoint, extra={"event": "monitor_moved"})
        local = _host_of(endpoint) == _host_of(self._shell.info.data)
        self._client = RpcClient(self._reactor, self._context, endpoint, self._pushed, local=local)
        self.report_now()

    def report_now(self) -> None:
        """Report beside the period, at a change of state."""
        if self._client is not None:
            self._reported = self._shell.report()
            self._idle = self._reported.idle
            self._client.request(self._reported, self._kpi_seconds, self._answered)

    def report_on(self) -> None:
        """The exchange is idle no more: report now, and each period from now on."""
        self._timer.cancel()
        self._report()

    def say(self, message: OrderAsk | OrderTold) -> None:
        """Tell the monitor, if it is known and there is room; it is not answered."""
        if self._client is not None:
            self._client.send(message)

    def close(self) -> None:
        """Report no more."""
        self._timer.cancel()
        self._forget_former()
        if self._client is not None:
            self._client.close()

    def _report(self) -> None:
        if self._silent_reports * self._kpi_seconds >= MONITOR_UNHEARD_SECONDS:
            self._shell.unheard()
        self._silent_reports += 1
        self.report_now()
        pause = self._kpi_seconds * (IDLE_FACTOR if self._idle else 1)
        self._timer = self._reactor.call_about(pause, self._report)

    def _answered(self, answer: Answer | Unavailable) -> None:
        if not isinstance(answer, ExchangeAck | Failure):
            return  # the count of silent reports tells
        code = answer.code if isinstance(answer, ExchangeAck) else answer.CODE
        if code == STALE:
            self._shell.superseded()
        elif code == REMOVED:
            self._shell.dismissed()
        elif isinstance(answer, ExchangeAck):
            self._silent_reports = 0
            self._shell.acknowledged(
                answer.hold_seconds, retire=answer.retire, same_groups=answer.same_groups
            )
            self._define(answer)
            self._known_to(answer.epoch)
            if answer.retire != self._retire:
                self._retire = answer.retire
                self.report_now()  # somebody waits for that

    def _define(self, ack: ExchangeAck) -> None:
        if ack.services is None:
            return
        try:
            self._shell.defined(checked_services(ack.services))
        except InvalidRequest as error:
            text = "the monitor says of services what cannot be in force: %s"
            self._limited.warning("services", self._reactor.now(), text, error)

    def _known_to(self, epoch: int) -> None:
        """A monitor of this epoch counts this exchange; an older one that did so is told."""
        if self._former is not None:
            if 0 < self._epoch < epoch:
                self._former.send(msgspec.structs.replace(self._reported, monitor=epoch))
            self._forget_former()
        self._epoch = epoch

    def _forget_former(self) -> None:
        if self._former is not None:
            self._former.close(linger_ms=FAREWELL_MS)
            self._former = None

    def _pushed(self, message: Answer) -> None:
        if isinstance(message, OrderAsk | OrderTold):
            self._shell.ordered(message)
            return
        if isinstance(message, ExchangeAck):
            self._define(message)
            return
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
        self._shell.passed(events.Passed(publisher, message.epoch, tuple(message.addresses)))


def _host_of(address: str) -> str:
    return address.rpartition(":")[0]
