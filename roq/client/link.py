"""A publisher's link to its exchange: assignment, connection, acknowledgement, replay. Pure.

    DETACHED --Assigned--> OPENING --Ready--> READY --connection lost--> OPENING
        ^                     | refused, no answer, unreachable     |
        +---------------------+<-- exchange gone, foreign, moved ---+

One connection carries one Hello with a higher `attempt` each time. A connection that breaks is
opened again at the same exchange; an exchange that does not answer is reported as failed and the
monitor assigns another one under a higher epoch. Nothing is dropped here but what the delivery
time-out gives up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from roq.client.outbox import Outbox, Sealed
from roq.client.receipt import Outcome, SendStatus
from roq.client.topics import Topics
from roq.errors import RemoteProtocolError
from roq.machine import Tick
from roq.model import ExchangeInfo, Limits, PublisherId
from roq.protocol import channel, documents

READY_SECONDS: Final = 1.5
ACK_SECONDS: Final = 3.0
RESET_SECONDS: Final = 1.0
BACKOFF_FIRST_SECONDS: Final = 0.05
BACKOFF_MOST_SECONDS: Final = 1.0

_STAYS_ALIVE: Final = frozenset({"stale_epoch", "moved", "full", "version", "malformed"})
"""Refusals after which the exchange goes on, so that nothing it has acknowledged is in danger."""


class LinkPhase(StrEnum):
    """Where the link stands."""

    DETACHED = "detached"
    OPENING = "opening"
    READY = "ready"
    CLOSED = "closed"


# --- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assignment:
    """The monitor says where to publish, and under which epoch."""

    exchange: ExchangeInfo
    epoch: int
    limits: Limits


@dataclass(frozen=True, slots=True)
class Serving:
    """(number, epoch) of all exchanges that serve the queue now."""

    exchanges: frozenset[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Received:
    """A message from the exchange."""

    frames: list[bytes]


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The connection was closed, or could not be opened."""

    reason: str


@dataclass(frozen=True, slots=True)
class Leave:
    """The publisher closes; whatever is not acknowledged is given up."""

    reason: str


Event = Assignment | Serving | Received | ConnectionLost | Leave | Tick


# --- effects --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Open:
    """Drop the present connection, open one to this address and send these frames first."""

    endpoint: str
    hello: tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection, after sending these frames if there are any."""

    bye: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Transmit:
    """Send these batches in order; if the connection does not take one: `ConnectionLost`."""

    batches: Sequence[Sealed]


@dataclass(frozen=True, slots=True)
class AskAttach:
    """Ask the monitor for an exchange other than the failed (number, epoch) ones."""

    failed: tuple[tuple[int, int], ...]


Effect = Open | Drop | Transmit | AskAttach


class LinkMachine:
    """The link of one publisher.

    Args:
        publisher: id of the publisher.
        queue_id: exchanges of other queues refuse.
        limits: used until the first exchange tells its own.
        delivery_seconds: what is not acknowledged for so long is given up.

    Attributes:
        outbox: what was sealed and is not settled.
        topics: the publisher's streams.
        reason: why the link does not work at present, in a sentence; empty when it does.
    """

    def __init__(
        self,
        publisher: PublisherId,
        queue_id: bytes,
        limits: Limits,
        *,
        delivery_seconds: float,
    ) -> None:
        self.publisher = publisher
        self.queue_id = queue_id
        self.limits = limits
        self.delivery_seconds = delivery_seconds
        self.phase = LinkPhase.DETACHED
        self.outbox = Outbox(publisher, limits.window_batches, limits.window_bytes)
        self.topics = Topics(limits.topics)
        self.reason = "no exchange is assigned yet"
        self.connections = 0
        self.moves = 0
        self.resets = 0
        self.refused = 0
        self.forgotten = 0
        self.malformed = 0
        self._exchange: ExchangeInfo | None = None
        self._acceptor: tuple[int, int] | None = None
        """Which exchange has acknowledged last; `_in_doubt`: it may be dead, with its memory."""
        self._in_doubt = False
        self._status = SendStatus(outcome=Outcome.ACCEPTED)
        self._attempt = 0
        self._failures = 0
        self._ready_by = 0.0
        self._ask_at: float | None = None
        self._progress_at = 0.0
        self._reset: tuple[int, float] = (0, 0.0)

    @property
    def exchange(self) -> ExchangeInfo | None:
        """The exchange that is assigned at present."""
        return self._exchange

    @property
    def ready(self) -> bool:
        """Whether batches can be sent."""
        return self.phase is LinkPhase.READY

    def handle(self, event: Event, now: float) -> list[Effect]:  # noqa: PLR0911 - one per event
        """Take one event in; see `roq.machine`."""
        if self.phase is LinkPhase.CLOSED:
            return []
        match event:
            case Received(frames):
                return self._received(frames, now)
            case Assignment():
                return self._assigned(event, now)
            case Serving(exchanges):
                return self._serving(exchanges, now)
            case ConnectionLost(reason):
                return self._connection_lost(reason, now)
            case Leave(reason):
                return self._leave(reason)
            case Tick():
                return self._tick(now)

    def next_deadline(self) -> float | None:
        """When a `Tick` is wanted at the latest."""
        times = []
        if self.phase is LinkPhase.OPENING:
            times.append(self._ready_by)
        if self._ask_at is not None:
            times.append(self._ask_at)
        oldest = next((s for s in self.outbox if s.owed and not s.void), None)
        if oldest is not None:
            times.append(oldest.sealed_at + self.delivery_seconds)
        if self.phase is LinkPhase.READY and self.outbox.under_way:
            times.append(self._ack_by())
        return min(times, default=None)

    def check(self) -> None:
        """Assert the invariants."""
        self.outbox.check()
        assert (self.phase is LinkPhase.READY) or self.outbox.under_way == 0  # noqa: S101

    def transmit(self, now: float) -> list[Sealed]:
        """What to send now; the plain call for the hot path after `outbox.seal`."""
        if self.phase is not LinkPhase.READY:
            return []
        if not self.outbox.under_way:
            self._progress_at = now
        return self.outbox.take_unsent()

    # --- finding an exchange ----------------------------------------------------------------------

    def _assigned(self, assignment: Assignment, now: float) -> list[Effect]:
        if assignment.epoch <= self.outbox.epoch:
            return []  # an answer that was overtaken
        exchange = assignment.exchange
        identity = (exchange.number, exchange.epoch)
        self.outbox.move(
            assignment.epoch,
            replay_kept=self._in_doubt and identity != self._acceptor,
        )
        self.moves += 1
        self._exchange = exchange
        self._ask_at = None
        self._use(assignment.limits.window_batches, assignment.limits.window_bytes)
        self.limits = assignment.limits
        return self._open(now)

    def _serving(self, exchanges: frozenset[tuple[int, int]], now: float) -> list[Effect]:
        exchange = self._exchange
        if exchange is None or (exchange.number, exchange.epoch) in exchanges:
            return []
        if self.phase is LinkPhase.READY:
            # The monitor may be new and not know it yet; a working connection is the better proof.
            return []
        return self._fail(f"exchange {exchange.name} is gone", now, lost=True)

    def _open(self, now: float) -> list[Effect]:
        exchange = self._exchange
        if exchange is None:
            return []
        self.phase = LinkPhase.OPENING
        self.outbox.unsend()
        self._attempt += 1
        self.connections += 1
        self._ready_by = now + READY_SECONDS
        self._reset = (0, 0.0)
        self.reason = f"connecting to exchange {exchange.name} at {exchange.data}"
        hello = channel.Hello(
            version=channel.CHANNEL_VERSION,
            queue=self.queue_id,
            publisher=self.publisher,
            epoch=self.outbox.epoch,
            attempt=self._attempt,
            streams=self.topics.states(self.outbox.first_sequences(), now),
        )
        return [Open(exchange.data, (channel.HELLO, documents.encode(hello)))]

    def _connection_lost(self, reason: str, now: float) -> list[Effect]:
        if self.phase is LinkPhase.READY:
            self._in_doubt = True
            return self._open(now)
        if self.phase is LinkPhase.OPENING:
            return self._fail(reason, now, lost=True)
        return []

    def _fail(self, reason: str, now: float, *, lost: bool) -> list[Effect]:
        """This exchange is of no use: ask the monitor for another one, soon or later."""
        self.phase = LinkPhase.DETACHED
        self.outbox.unsend()
        self.reason = reason
        exchange = self._exchange
        if exchange is not None and (exchange.number, exchange.epoch) == self._acceptor:
            self._in_doubt = lost
        delay = 0.0
        if self._failures:
            delay = min(BACKOFF_MOST_SECONDS, BACKOFF_FIRST_SECONDS * 2 ** min(self._failures, 8))
        self._failures += 1
        if delay:
            self._ask_at = now + delay
            return [Drop()]
        return [Drop(), self._ask()]

    def _ask(self) -> AskAttach:
        self._ask_at = None
        exchange = self._exchange
        return AskAttach(((exchange.number, exchange.epoch),) if exchange is not None else ())

    # --- what the exchange says -------------------------------------------------------------------

    def _received(self, frames: list[bytes], now: float) -> list[Effect]:
        if self.phase not in {LinkPhase.OPENING, LinkPhase.READY}:
            return []
        try:
            kind, body = frames
            if kind == channel.ACK:
                return self._acked(channel.read_number(body), now)
            if kind == channel.READY:
                return self._hello_accepted(documents.decode(body, channel.Ready), now)
            if kind == channel.RESET:
                return self._was_reset(documents.decode(body, channel.Reset), now)
            if kind == channel.REFUSED:
                return self._was_refused(documents.decode(body, channel.Refused), now)
        except (ValueError, RemoteProtocolError):
            kind = b""  # wrong number of frames, or not readable
        self.malformed += 1
        return []

    def _acked(self, number: int, now: float) -> list[Effect]:
        outbox = self.outbox
        if self.phase is not LinkPhase.READY or number < outbox.low:
            return []
        if number >= outbox.low + outbox.under_way:
            self.malformed += 1
            return self._fail("the exchange acknowledged what was never sent", now, lost=False)
        outbox.acknowledge(number, self._status, now)
        self._progress_at = now
        return self._send()

    def _send(self) -> list[Effect]:
        batches = self.outbox.take_unsent()
        return [Transmit(batches)] if batches else []

    def _hello_accepted(self, ready: channel.Ready, now: float) -> list[Effect]:
        exchange = self._exchange
        if self.phase is not LinkPhase.OPENING or exchange is None:
            return []
        if (ready.exchange, ready.exchange_epoch) != (exchange.number, exchange.epoch):
            return self._fail(f"another exchange answers at {exchange.data}", now, lost=True)
        outbox = self.outbox
        if not (ready.expected == 1 or outbox.low <= ready.expected <= outbox.sent_high + 1):
            return self._fail(
                f"exchange {exchange.name} knows this link differently", now, lost=False
            )
        self._status = SendStatus(
            outcome=Outcome.ACCEPTED, exchange=exchange.name, exchange_epoch=exchange.epoch
        )
        self._acceptor = (exchange.number, exchange.epoch)
        self._in_doubt = False
        if ready.expected < outbox.low:
            self.forgotten += 1
            outbox.restart()
        else:
            outbox.acknowledge(ready.expected - 1, self._status, now)
        self._use(ready.window_batches, ready.window_bytes)
        self.phase = LinkPhase.READY
        self.reason = ""
        self._failures = 0
        self._progress_at = now
        return self._send()

    def _use(self, window_batches: int, window_bytes: int) -> None:
        self.outbox.window_batches = max(1, window_batches)
        self.outbox.window_bytes = max(1, window_bytes)

    def _was_reset(self, reset: channel.Reset, now: float) -> list[Effect]:
        if self.phase is not LinkPhase.READY:
            return []
        self.resets += 1
        expected = reset.expected
        if not self.outbox.low <= expected <= self.outbox.low + self.outbox.under_way:
            # Wants a Hello, or what is not there any more: Ready will tell what it really knows.
            return self._open(now)
        if self._reset[0] == expected and now < self._reset[1] + RESET_SECONDS:
            return []  # said about batches that were on their way when the replay began
        self._reset = (expected, now)
        self.outbox.rewind(expected)
        return self._send()

    def _was_refused(self, refused: channel.Refused, now: float) -> list[Effect]:
        self.refused += 1
        reason = f"the exchange refused ({refused.code}): {refused.text}"
        if refused.link_number == 0:
            return self._fail(reason, now, lost=refused.code not in _STAYS_ALIVE)
        status = SendStatus(outcome=Outcome.FAILED, reason=reason)
        if self.phase is not LinkPhase.READY or not self.outbox.refuse(refused.link_number, status):
            return []
        self._reset = (refused.link_number, now)
        return self._send()

    # --- time and the end -------------------------------------------------------------------------

    def _tick(self, now: float) -> list[Effect]:
        if not self._in_doubt:
            self.outbox.forget_kept(now)
        self.outbox.expire(
            now - self.delivery_seconds,
            f"not acknowledged within {self.delivery_seconds:g} s"
            + (f": {self.reason}" if self.reason else ""),
        )
        if self._ask_at is not None and now >= self._ask_at:
            return [self._ask()]
        if self.phase is LinkPhase.OPENING and now >= self._ready_by:
            return self._fail(f"no answer: {self.reason}", now, lost=True)
        if self.phase is LinkPhase.READY and self.outbox.under_way and now >= self._ack_by():
            self._in_doubt = True
            return self._open(now)
        return []

    def _ack_by(self) -> float:
        """An acknowledgement has to come by then, also over a slow network."""
        transfer = channel.transfer_seconds(self.outbox.bytes_under_way)
        return self._progress_at + ACK_SECONDS + transfer

    def _leave(self, reason: str) -> list[Effect]:
        bye: tuple[bytes, ...] = ()
        if self.phase is LinkPhase.READY:
            bye = (channel.BYE, documents.encode(channel.Bye(publisher=self.publisher)))
        self.phase = LinkPhase.CLOSED
        self.reason = reason
        self._ask_at = None
        self.outbox.abandon(reason)
        return [Drop(bye)]
