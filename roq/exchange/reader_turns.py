"""What readers get of the loop beside the publishers: a moment in each turn, never the whole of it.

Fetches and questions wait in the core; here they are served, one by one, for a fifth of the time
when publishers keep the loop busy, and for longer when they do not. While there is something for
consumers, all of them together have half of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from roq.exchange.events import Effect, Send
from roq.exchange.machine import ExchangeCore
from roq.runtime.interfaces import Timer
from roq.runtime.reactor import Reactor
from roq.runtime.zmtp_server import Outcome

READERS_SECONDS: Final = 0.001
"""What readers may take of one turn."""
READERS_SHARE: Final = 0.25
"""And of the time that a full burst took, when there are more: a fifth of the turn."""
CONSUMERS_SHARE: Final = 1.0
"""Likewise when consumers are among them: half of the turn."""

READS_MAX: Final = 32
"""So often something is read for one request before the loop waits for the rest of it."""


SendParts = Callable[[bytes, tuple[bytes, ...], bytes | None], Outcome]
"""Sends to one peer without waiting."""

T = TypeVar("T")


class AtHand(Protocol):
    """Asks for something; gives None if it has to be read, and calls `then` when it was."""

    def __call__(self, ask: Callable[[], T], then: Callable[[], None]) -> T | None:
        """See `DiskLog.at_hand`."""
        ...


class ReaderTurns:
    """Serves the readers of one exchange.

    Args:
        core: where they wait.
        send: sends a piece of what is fetched.
        perform: performs what the core decides.
        served: called afterwards: publishers may be told more than before.
        at_hand: asks for the next piece (see `DiskLog.at_hand`); None: nothing is on a disk.
    """

    def __init__(
        self,
        reactor: Reactor,
        core: ExchangeCore[bytes],
        send: SendParts,
        perform: Callable[[list[Effect]], None],
        served: Callable[[], None],
        at_hand: AtHand | None = None,
    ) -> None:
        self._reactor = reactor
        self._core = core
        self._fetches = core.fetches
        self._consumers = core.consumers
        self._send = send
        self._perform = perform
        self._served = served
        self._at_hand = at_hand
        self._serving = False
        """Whether `_serve` is about to be called."""
        self._reads = 0
        """So often something was read for the request whose turn it is, and that was not all."""
        self._waits = False
        """That request waits until something is read."""
        self._retry_timer = Timer(0.0, self._serve)
        self._burst_seconds = 0.0
        self._credit = 0.0
        """Seconds that readers may take now."""

    def burst(self, seconds: float) -> None:
        """Publishers had as much to say as is heard in one turn; it took so long."""
        self._burst_seconds = seconds

    def look(self) -> None:
        """Serve the readers that wait, soon."""
        waits = self._asked() or self._fetches or self._consumers.runnable()
        if waits and not self._serving:
            self._serve_soon()

    def hand_out(self) -> None:
        """Send one delivery now, if nobody waits for a turn: before anything else is looked at."""
        if self._serving or self._asked() or self._fetches or not self._consumers.runnable():
            return
        self._deliver()
        if self._consumers.next_deadline() is not None:
            self._serve_soon()  # its connection is full: that is tried again

    def _serve_soon(self) -> None:
        self._serving = True
        self._reactor.call_soon(self._serve)

    def _serve(self) -> None:
        """Answer readers for a moment; publishers who wait get four fifths of the time.

        A turn that took longer than it had is paid for by the turns to come.
        """
        if self._burst_seconds:
            share = CONSUMERS_SHARE if self._consumers.runnable() else READERS_SHARE
            self._credit = min(self._credit + self._burst_seconds * share, READERS_SECONDS)
            self._burst_seconds = 0.0
        else:
            self._credit = READERS_SECONDS
        now = time.monotonic()
        self._consumers.begin(now)
        busy = True
        while busy and self._credit > 0:
            busy = self._serve_one(now)
            started, now = now, time.monotonic()
            self._credit -= now - started
        self._served()
        self._serving = False
        self._retry_timer.cancel()
        self._consumers.begin(now)
        if self._asked() or self._fetches.runnable(now) or self._consumers.runnable():
            self._serve_soon()
            return
        retries = (self._fetches.next_deadline(), self._consumers.next_deadline())
        retry_at = min((at for at in retries if at is not None), default=None)
        if retry_at is not None:
            self._retry_timer = self._reactor.call_at(retry_at, self._serve)

    def _serve_one(self, now: float) -> bool:
        """One answer, one piece of a fetch and one delivery; whether there was any of these."""
        busy = False
        if self._asked():
            for effect in self._answers(now):
                self._answer(effect)
            busy = True
        if self._fetches.runnable(now):
            self._send_piece(now)
            busy = True
        if self._consumers.runnable():
            self._deliver()
            busy = True
        return busy

    def _asked(self) -> bool:
        """Whether there is a request, and it does not wait for the disk."""
        return bool(self._core.requests) and not self._waits

    def _answers(self, now: float) -> list[Effect]:
        """The answer to the next request; nothing while something is read for it.

        What takes many reads is answered at once in the end: others may have what was read for it
        forgotten before it was asked again.
        """
        if self._at_hand is None or not self._core.asks_the_log or self._reads >= READS_MAX:
            self._reads = 0
            return self._core.answer_next(now)
        found = self._at_hand(lambda: self._core.answer_next(now), self._was_read)
        self._waits = found is None
        self._reads = self._reads + 1 if found is None else 0
        return found or []

    def _answer(self, effect: Effect) -> None:
        if not isinstance(effect, Send):
            self._perform([effect])
            return
        if self._send(effect.route, effect.parts, None) is Outcome.BLOCKED:
            self._fetches.answer_later(effect.route, effect.parts)

    def _send_piece(self, now: float) -> None:
        fetches = self._fetches
        piece = self._next(fetches.next_piece)
        if piece is None:
            fetches.wait()
            return
        if self._send(piece.route, piece.parts, piece.batch) is Outcome.SENT:
            fetches.sent(piece)
            self._core.counters.bytes_out += piece.size
        else:
            self._core.counters.fetches_abandoned += fetches.blocked(now)

    def _deliver(self) -> None:
        delivery = self._next(self._consumers.next_delivery)
        if delivery is None:
            return
        if self._send(delivery.route, delivery.parts, delivery.batch) is Outcome.SENT:
            self._consumers.sent(delivery)
            self._core.counters.bytes_out += delivery.size
        else:
            self._consumers.blocked(delivery)

    def _next(self, ask: Callable[[], T]) -> T | None:
        return ask() if self._at_hand is None else self._at_hand(ask, self._was_read)

    def _was_read(self) -> None:
        self._waits = False
        self._fetches.go_on()
        self._consumers.go_on()
        self.look()
