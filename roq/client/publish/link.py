"""One link of a publisher at one exchange: Hello and Ready, window, acknowledgements, resets. Pure.

    OPENING --Ready--> WAITING --release--> READY --connection lost, silence--> OPENING
       | refused, no answer, foreign             | refused, nonsense
       +-------------> IDLE <--------------------+

A link has a connection of its own, link numbers that count from 1, and an epoch that it keeps. One
that is opened for a relocation waits after Ready until the old links have drained. An IDLE link has
no connection and only collects. The owner of the link (`roq.client.publish.machine`) looks at
`failure` after each call and decides what becomes of it and of what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from msgspec import structs

from roq.client.publish.latency import LatencyBook
from roq.client.publish.pending_batch import PendingBatch
from roq.client.publish.receipt import Outcome, SendStatus
from roq.client.publish.send_window import SendWindow
from roq.errors import RemoteProtocolError
from roq.model import NO_LOG, ExchangeInfo, LogId
from roq.protocol import channel, documents
from roq.timing import ACK_SECONDS, EXCHANGE_UNKNOWN_SECONDS, RESET_SECONDS

READY_SECONDS: Final = 1.5
READY_SECONDS_MOST: Final = 6.0
"""When exchanges did not answer in time before: they may be overloaded by such as this."""
SUSPECT_SECONDS: Final = 0.5
"""As ACK_SECONDS, for an exchange that the monitor has declared gone."""
STEADY_SECONDS: Final = 5.0
"""A connection that has lasted so long has worked."""
FLAPS_MAX: Final = 3
"""One that works no longer than that is made again so often in a row; then the link is given up."""

_PASSED: Final = frozenset({"stale_epoch", "moved", "fenced", "forgotten"})
"""Refusals after which the exchange takes nothing of this link."""
_STAYS_ALIVE: Final = _PASSED | {"full", "version", "malformed"}
"""Those after which it goes on, so that nothing it has acknowledged is in danger."""


class LinkPhase(StrEnum):
    """Where a link stands."""

    IDLE = "idle"
    OPENING = "opening"
    WAITING = "waiting"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Open:
    """Drop the link's connection, open one to this address and send these frames first."""

    link: int
    endpoint: str
    hello: tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the link's connection, after sending these frames if there are any."""

    link: int
    bye: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Say:
    """Send this message that is no batch; if the connection does not take it, never mind."""

    link: int
    frames: tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Transmit:
    """Send these batches in order; if the connection does not take one: `ConnectionLost`."""

    link: int
    batches: Sequence[PendingBatch]


LinkEffect = Open | Drop | Say | Transmit


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a link is of no use any more."""

    reason: str
    lost: bool
    """Whether the exchange may be gone with what it has acknowledged."""
    late: bool = False
    """Whether it was given up because it did not answer in time."""


class Link:
    """One link.

    Args:
        number: names the link's connection; never used again.
        exchange: where; None for a link that only collects.
        window: what it carries.
        hello: gives the frames of the next Hello.
        waits: after Ready it sends nothing before `release`.
        ready_seconds: what the exchange may take to answer a Hello.
        latency: is told how long acknowledgements take, and says whether that is too long.

    Attributes:
        phase: where it stands.
        failure: set once when it has failed; it is IDLE then.
        reason: why it does not work at present, in a sentence; empty when it does.
        suspect: the monitor says that the exchange is gone.
        progress_at: when it has acknowledged something last, or got something to acknowledge, or
            said why it does not.
        held: why acknowledgements wait, in a sentence; empty: they do not.
        held_at: since when they do.
        passed: it never goes on: the exchange has refused it for a newer link, or does not know its
            link numbers any more. Another one under a higher epoch may be opened there.
    """

    def __init__(
        self,
        number: int,
        exchange: ExchangeInfo | None,
        window: SendWindow,
        hello: Callable[[Link, float], tuple[bytes, bytes]],
        *,
        waits: bool = False,
        ready_seconds: float = READY_SECONDS,
        latency: LatencyBook | None = None,
    ) -> None:
        self.number = number
        self.exchange = exchange
        self.window = window
        self.phase = LinkPhase.IDLE
        self.failure: Failure | None = None
        self.reason = "" if exchange is not None else "no exchange is assigned yet"
        self.suspect = False
        self.passed = False
        self._hello = hello
        self._waits = waits
        self._latency = latency
        self._ready_seconds = ready_seconds
        self._status = SendStatus(outcome=Outcome.OK)
        self._ready_by = 0.0
        self.progress_at = 0.0
        self._ready_at = 0.0
        self.held = ""
        self.held_at = 0.0
        self._accepted = 0
        """Up to this link number the exchange has all, and its disk does not confirm it."""
        self._flaps = 0
        self._reset: tuple[int, float] = (0, 0.0)
        self._leave_at: float | None = None

    @property
    def log(self) -> LogId:
        """Into which log it publishes; zeros if there is none."""
        return NO_LOG if self.exchange is None else self.exchange.log

    @property
    def process(self) -> tuple[int, int]:
        """Number and epoch of the exchange; zeros if there is none."""
        exchange = self.exchange
        return (0, 0) if exchange is None else (exchange.number, exchange.epoch)

    @property
    def name(self) -> str:
        """The exchange's name as people see it."""
        return "" if self.exchange is None else self.exchange.name

    def next_deadline(self) -> float | None:
        """When `tick` is wanted."""
        if self.phase is LinkPhase.OPENING:
            return self._ready_by
        if self.phase is not LinkPhase.READY:
            return None
        if not self.window.under_way:
            return self._leave_at
        ack_by = self._ack_by()
        return ack_by if self._leave_at is None else min(ack_by, self._leave_at)

    def quiet(self, now: float) -> float:
        """For how many seconds it has acknowledged nothing although it has something to."""
        waits = self.phase is LinkPhase.READY and self.window.under_way
        return now - self.progress_at if waits else 0.0

    def check(self) -> None:
        """Assert the invariants."""
        self.window.check()
        assert self.phase is LinkPhase.READY or self.window.under_way == 0  # noqa: S101
        assert self.exchange is not None or self.phase is LinkPhase.IDLE  # noqa: S101

    # --- opening and closing ----------------------------------------------------------------------

    def open(self, now: float) -> list[LinkEffect]:
        """Begin, or begin again, with a Hello on a new connection."""
        exchange = self.exchange
        if exchange is None:
            return []
        self.phase = LinkPhase.OPENING
        self.held = ""
        self._accepted = 0
        self.window.unsend()
        self.window.tally.connections += 1
        self._ready_by = now + self._ready_seconds
        self._reset = (0, 0.0)
        self.reason = f"connecting to exchange {exchange.name} at {exchange.data}"
        return [Open(self.number, exchange.data, self._hello(self, now))]

    def release(self, now: float) -> list[LinkEffect]:
        """Nothing is to be waited for any more."""
        self._waits = False
        if self.phase is not LinkPhase.WAITING:
            return []
        self.phase = LinkPhase.READY
        self.progress_at = now
        return self._send()

    def close(self, bye: channel.Bye | None = None) -> list[LinkEffect]:
        """Give the connection back; `bye` is said if the exchange listens."""
        if self.phase is LinkPhase.IDLE:
            return []
        listens = self.phase is not LinkPhase.OPENING
        self.phase = LinkPhase.IDLE
        self.window.unsend()
        if bye is None or not listens:
            return [Drop(self.number)]
        return [Drop(self.number, (channel.BYE, documents.encode(bye)))]

    def _fail(self, reason: str, *, lost: bool, late: bool = False) -> list[LinkEffect]:
        self.phase = LinkPhase.IDLE
        self._leave_at = None
        self.window.unsend()
        self.reason = reason
        self.failure = Failure(reason, lost, late)
        self._doubt(lost=lost)
        return [Drop(self.number)]

    def _doubt(self, *, lost: bool) -> None:
        buffer = self.window.buffer
        if buffer.log == self.log:
            buffer.doubt = lost

    # --- what happens to it -----------------------------------------------------------------------

    def transmit(self, now: float) -> list[PendingBatch]:
        """What to send now; the plain call for the hot path after a batch was sealed."""
        if self.phase is not LinkPhase.READY:
            return []
        if not self.window.under_way:
            self.progress_at = now
        return self.window.take_unsent()

    def received(  # noqa: PLR0911 - one for each message
        self, frames: list[bytes], now: float
    ) -> list[LinkEffect]:
        """A message from the exchange."""
        try:
            kind, body = frames
            if kind == channel.ACK:
                number = channel.read_number(body)
                runs = channel.read_runs(body) if len(body) > channel.NUMBER.size else ()
                return self._acked(number, runs, now)
            if kind == channel.SYNCED:
                return self._is_synced(channel.read_number(body))
            if kind == channel.READY:
                return self._hello_accepted(documents.decode(body, channel.Ready), now)
            if kind == channel.RESET:
                return self._was_reset(documents.decode(body, channel.Reset), now)
            if kind == channel.HELD:
                return self._was_held(documents.decode(body, channel.Held), now)
            if kind == channel.REFUSED:
                return self._was_refused(documents.decode(body, channel.Refused), now)
        except (ValueError, RemoteProtocolError):
            kind = b""  # wrong number of frames, or not readable
        self.window.tally.malformed += 1
        return []

    def connection_lost(self, reason: str, now: float) -> list[LinkEffect]:
        """The connection was closed, or could not be opened."""
        if self.phase is LinkPhase.READY and not self.suspect:
            steady = now >= self._ready_at + STEADY_SECONDS
            self._flaps = 0 if steady else self._flaps + 1
            if self._flaps <= FLAPS_MAX:
                self._doubt(lost=True)
                return self.open(now)
        if self.phase is LinkPhase.IDLE:
            return []
        return self._fail(reason, lost=True)

    def gone(self, now: float, *, elsewhere: bool) -> list[LinkEffect]:
        """The monitor does not count this exchange any more.

        It may be a new monitor that does not know it yet, so a connection that works is the better
        proof for a while; one that has to prove itself anyway is given up at once.

        Args:
            now: the present time.
            elsewhere: the monitor counts others.
        """
        self.suspect = True
        if not elsewhere:
            self._leave_at = None
        elif self._leave_at is None:
            self._leave_at = now + EXCHANGE_UNKNOWN_SECONDS
        if self.phase is LinkPhase.OPENING:
            return self._fail(f"exchange {self.name} is gone", lost=True)
        self._doubt(lost=True)
        return self.tick(now)

    def serves(self, exchange: ExchangeInfo, now: float) -> list[LinkEffect]:
        """The monitor counts this log; another process may serve it by now: the link goes there."""
        self._leave_at = None
        if self.suspect:
            self.suspect = False
            self._doubt(lost=self.phase is not LinkPhase.READY)
        before = self.exchange
        if exchange == before or (before is not None and exchange.epoch < before.epoch):
            return []
        self.exchange = exchange
        return [] if self.phase is LinkPhase.IDLE else self.open(now)

    def goes_on_at(self, exchange: ExchangeInfo) -> bool:
        """Whether the durable log into which it publishes is served there."""
        return self.window.buffer.durable and exchange.log == self.log and not self.passed

    def go_on(self, exchange: ExchangeInfo, ready_seconds: float, now: float) -> list[LinkEffect]:
        """Connect there anew, and go on under the same numbers; an answer has so much time."""
        self.suspect = self._waits = False
        self._leave_at = None
        self._ready_seconds = ready_seconds
        self.exchange = exchange
        return self.open(now)

    def give_up(self, reason: str) -> list[LinkEffect]:
        """Go elsewhere; the exchange may be well."""
        return [] if self.phase is LinkPhase.IDLE else self._fail(reason, lost=False)

    def tick(self, now: float) -> list[LinkEffect]:
        """Time has passed."""
        if self._latency is not None and not self.held:
            quiet = self.quiet(now)
            slow = quiet > self._latency.most  # what is quick is not known before it has come
            if slow and self._latency.took(self.process, quiet, now, self.progress_at):
                return self._too_slow(quiet)
        if self.phase is LinkPhase.OPENING and now >= self._ready_by:
            return self._fail(f"no answer: {self.reason}", lost=True, late=True)
        leave_at = self._leave_at
        if self.phase is LinkPhase.READY and leave_at is not None and now >= leave_at:
            return self._fail(f"no subscriber reads exchange {self.name} any more", lost=True)
        if self.phase is LinkPhase.READY and self.window.under_way and now >= self._ack_by():
            if self.suspect:
                return self._fail(f"exchange {self.name} is gone", lost=True)
            self._doubt(lost=True)
            return self.open(now)
        return []

    def _ack_by(self) -> float:
        """An acknowledgement has to come by then, also over a slow network."""
        transfer = channel.transfer_seconds(self.window.bytes_under_way)
        patience = SUSPECT_SECONDS if self.suspect else ACK_SECONDS
        return self.progress_at + patience + transfer

    # --- what the exchange says -------------------------------------------------------------------

    def _acked(self, number: int, runs: Sequence[channel.Run], now: float) -> list[LinkEffect]:
        window = self.window
        if self.phase is not LinkPhase.READY or number < window.low:
            return []
        if number >= window.low + window.under_way:
            window.tally.malformed += 1
            return self._fail("the exchange acknowledged what was never sent", lost=False)
        oldest = window.sealed_at
        if runs:
            window.place(runs, number, self._status)
        window.acknowledge(number, self._status, now)
        since, self.progress_at = self.progress_at, now
        if self._latency is not None and not self.held:
            took = now - max(oldest, self._ready_at)
            if self._latency.took(self.process, took, now, since):
                return self._too_slow(took)
        self.held = ""
        self._accepted = 0
        return self._send()

    def _too_slow(self, took: float) -> list[LinkEffect]:
        return self._fail(f"exchange {self.name} took {took:.2f} s to acknowledge", lost=False)

    def _is_synced(self, number: int) -> list[LinkEffect]:
        if self.phase is LinkPhase.READY and 0 < number < self.window.low:
            self.window.buffer.synced(number, self.window.epoch)
        return []

    def expire(self, before: float, delivery_seconds: float) -> None:
        """Give up what was sealed before this time and is not acknowledged."""
        why = self.reason or self.held
        reason = f"not acknowledged within {delivery_seconds:g} s" + (f": {why}" if why else "")
        held = structs.replace(
            self._status, outcome=Outcome.FLUSH_TIMEOUT, flushed=False, reason=reason
        )
        self.window.expire(before, reason, self._accepted, held)

    def _was_held(self, held: channel.Held, now: float) -> list[LinkEffect]:
        if self.phase is LinkPhase.READY:
            self.held_at = self.held_at if self.held else self.progress_at
            self.progress_at = now
            self.held = _who_holds(held, self.name)
            self._accepted = held.accepted if held.disk else 0
        return []

    def _send(self) -> list[LinkEffect]:
        batches = self.window.take_unsent()
        return [Transmit(self.number, batches)] if batches else []

    def _hello_accepted(self, ready: channel.Ready, now: float) -> list[LinkEffect]:
        exchange = self.exchange
        if self.phase is LinkPhase.READY and (ready.exchange, ready.generation) == self.log:
            # The answer to a Hello that has introduced it anew: more of it may have left before.
            reached = self.window.low + self.window.under_way - 1
            return self._acked(min(ready.expected - 1, reached), ready.places, now)
        if self.phase is not LinkPhase.OPENING or exchange is None:
            return []
        if (ready.exchange, ready.generation) != self.log:
            return self._fail(f"another exchange answers at {exchange.data}", lost=True)
        window = self.window
        taken = max(ready.taken, ready.expected - 1)
        fits = window.low <= ready.expected and taken <= window.sent_high
        # A power cut has taken the end of its log.
        cut = ready.ahead and 0 < ready.expected == taken + 1 < window.low
        if not fits and not cut:
            self.passed = True
            window.tally.forgotten += 1
            return self._fail(f"exchange {exchange.name} knows this link differently", lost=False)
        self._status = SendStatus(
            outcome=Outcome.OK, exchange=exchange.name, exchange_epoch=ready.exchange_epoch,
            log=self.log, stored=True, flushed=ready.durable and not ready.ahead,
        )  # fmt: skip
        lost = window.buffer.take_lost(ready.expected, ready.exchange_epoch, window.epoch)
        window.buffer.confirm(durable=ready.durable, ahead=ready.ahead, epoch=ready.exchange_epoch)
        if lost or cut:
            window.tally.forgotten += 1
            window.take_back(lost, ready.expected)
        else:
            window.place(ready.places, ready.expected - 1, self._status)
            window.acknowledge(ready.expected - 1, self._status, now)
        window.drop_spares(taken)
        window.window_batches = max(1, ready.window_batches)
        window.window_bytes = max(1, ready.window_bytes)
        self.reason = ""
        self.progress_at = self._ready_at = now
        if self._waits:
            self.phase = LinkPhase.WAITING
            return []
        self.phase = LinkPhase.READY
        return self._send()

    def _was_reset(self, reset: channel.Reset, now: float) -> list[LinkEffect]:
        if self.phase is not LinkPhase.READY:
            return []
        window = self.window
        window.tally.resets += 1
        expected = reset.expected
        if not window.low <= expected <= window.low + window.under_way:
            # Wants a Hello, or what is not there any more: Ready will tell what it really knows.
            return self.open(now)
        if self._reset[0] == expected and now < self._reset[1] + RESET_SECONDS:
            return []  # said about batches that were on their way when the replay began
        self._reset = (expected, now)
        window.rewind(expected)
        return self._send()

    def _was_refused(self, refused: channel.Refused, now: float) -> list[LinkEffect]:
        if self.phase is LinkPhase.IDLE:
            return []
        self.window.tally.refused += 1
        if refused.code == "fenced":
            self.window.tally.fenced = refused.text
        self.passed |= refused.code in _PASSED
        self.window.tally.forgotten += refused.code == "forgotten"
        reason = f"the exchange refused ({refused.code}): {refused.text}"
        if refused.link_number == 0:
            lost = refused.code not in _STAYS_ALIVE
            if self.phase is LinkPhase.OPENING:
                # An exchange that refuses a Hello does not name itself: a doubt remains.
                lost |= self.window.buffer.doubt
            return self._fail(reason, lost=lost)
        status = SendStatus(
            outcome=Outcome.REFUSED, exchange=self.name, log=self.log, reason=reason
        )
        number = refused.link_number
        if self.phase is not LinkPhase.READY or not self.window.refuse(number, status):
            return []
        self._reset = (number, now)
        return self._send()


def _who_holds(held: channel.Held, exchange: str) -> str:
    """For whom acknowledgements wait, in a sentence."""
    if held.disk:
        full = f": {held.full}" if held.full else ""
        return f"held back by the disk of exchange {exchange}, for {held.seconds:.1f} s{full}"
    if held.group:
        return (
            f"held back by consumer group {held.reader.decode(errors='replace')!r} of exchange "
            f"{exchange}, for {held.seconds:.1f} s: what it has not consumed would be dropped"
        )
    return (
        f"held back by a slow subscriber ({held.reader.hex()[:8]}) of exchange {exchange}, for "
        f"{held.seconds:.1f} of at most {held.most:g} s"
    )
