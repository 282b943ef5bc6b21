"""The connections of one `Reader`: a SUB on the fan-out of an exchange, and its part of what the
client has for questions (`roq.client.io.exchange_connections`).

The SUB may be read by any thread that holds the lock; all else belongs to the I/O thread. It has no
heartbeats: one that says nothing, though it should twice a second, is connected anew
(`roq.client.subscribe.fan_out_liveness`).

Without a descriptor there is no connection: nothing comes by it then, and it is tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from roq.client.io.exchange_connections import ExchangeConnection, ExchangeConnections
from roq.client.subscribe.fan_out_liveness import FanOutLiveness
from roq.protocol import zmtp
from roq.protocol.framing import split_live
from roq.read.events import Answered, DataDown, DataUp, Event, Pause, Resume
from roq.read.reader import Reader
from roq.runtime import descriptors
from roq.runtime.backoff import Backoff, Jitter
from roq.runtime.interfaces import Timer
from roq.runtime.lifeline import not_begun
from roq.runtime.reactor import Reactor
from roq.runtime.zmtp_client import FAN_OUTS, ZmtpClient
from roq.timing import END_LATE_SECONDS

DRAIN_BURSTS: Final = 40
"""So many bursts at most are what has come already."""
BURST: Final = 50
BURST_BYTES: Final = 1024 * 1024
"""What is unpacked at once and handed over at once should still be in the processor's cache."""
READ_BYTES: Final = 64 * 1024
"""Likewise where nothing is handed over: memory that was just given back is the fastest."""
STEADY_SECONDS: Final = 5.0
"""A connection that has lasted so long has worked."""
AGAIN_SECONDS: Final = 1.0
"""Between two attempts to make a socket."""
LOOK_SECONDS: Final = 1.0
"""Between two looks whether it does."""


class LogConnection:
    """Brings everything that arrives to the reader; its owner performs the reader's effects.

    Args:
        exchanges: the client's connections for questions.
        live, data: addresses of the exchange (translated, if they are to be).
        lock: taken for everything that comes; hold it when calling a method.
        step: feed this event to the reader, perform its effects, pass on what it brought.
        burst: the reader was fed through `Reader.live` or `fetched`: pass on what it brought.
        reconnected: called, with the lock held, when `live_fd` is another one.
        clock: the time that the reader knows.
        jitter: spreads attempts to connect.
    """

    def __init__(
        self,
        reactor: Reactor,
        exchanges: ExchangeConnections,
        reader: Reader,
        *,
        live: str,
        data: str,
        lock: AbstractContextManager[object],
        step: Callable[[Event], None],
        burst: Callable[[], None],
        reconnected: Callable[[], None],
        clock: Callable[[], float],
        jitter: Jitter,
    ) -> None:
        self.reader = reader
        self._reactor = reactor
        self._lock = lock
        self._step = step
        self._burst = burst
        self._reconnected = reconnected
        self._clock = clock
        self._reading = True
        self._watching = False
        self._live_address = live
        self._backoff = Backoff(jitter)
        self._live: ZmtpClient | None = None
        self._stands = False
        self._watched = -1
        """What the I/O thread watches."""
        self._live_timer: Timer | None = None
        self._live_trouble = ""
        self._connected_at = 0.0
        self._closed = False
        self._look_timer = reactor.call_later(LOOK_SECONDS, self._look)
        self._exchanges = exchanges
        self._open_live(0.0)
        self._questions = self._open_questions(data)

    @property
    def trouble(self) -> str:
        """Why no connection can be made; empty: both stand, or nothing keeps them from it."""
        return self._live_trouble or self._questions.trouble

    # --- effects ----------------------------------------------------------------------------------

    def ask(self, frames: list[bytes]) -> None:
        """Send a request; one that cannot be sent is asked again when its time is over."""
        self._questions.ask(frames)

    def subscribe(self, topic: bytes) -> None:
        """Add a filter."""
        if self._live is not None:
            self._live.send([zmtp.SUBSCRIBED + topic])

    def unsubscribe(self, topic: bytes) -> None:
        """Remove a filter."""
        if self._live is not None:
            self._live.send([zmtp.CANCELLED + topic])

    @property
    def reading(self) -> bool:
        """Whether it is not paused."""
        return self._reading

    def pause(self) -> None:
        """Stop reading the fan-out: what the system cannot hold is dropped by the exchange."""
        if self._reading:
            self._reading = False
            self._step(Pause())

    def resume(self) -> None:
        """Read again."""
        if not self._reading:
            self._reading = True
            self._step(Resume())

    def watch(self, *, wanted: bool) -> None:
        """Let the I/O thread read the fan-out, or not: the user's thread does."""
        self._watching = wanted
        fd = self.live_fd if wanted else -1
        if fd == self._watched:
            return
        if self._watched >= 0:
            self._reactor.remove(self._watched)
        if fd >= 0:
            self._reactor.add(fd, self._live_readable)
            self._reactor.call_soon(self._live_readable)
        self._watched = fd

    def drain(self) -> None:
        """Read what has come already; before a close."""
        for _ in range(DRAIN_BURSTS):
            if not self.take_burst():
                return

    def move(self, *, live: str, data: str) -> None:
        """Go on at these addresses, where the same log is."""
        if self._reading:
            self.drain()
            self._burst()
        self._questions.close([])
        if self.reader.connected:
            self._step(DataDown())
        self._live_address = live
        self._questions = self._open_questions(data)
        self._reopen_live(0.0)

    def close(self) -> None:
        """Tell the exchange that nobody reads here any more, and close the sockets."""
        self._look_timer.cancel()
        self._reading = False
        self.watch(wanted=False)
        self._closed = True
        self._close_live()
        self._questions.close(self.reader.farewells())

    # --- the fan-out ------------------------------------------------------------------------------

    @property
    def live_fd(self) -> int:
        """Readable when something has come by the fan-out; -1: the connection does not stand."""
        return -1 if self._live is None else self._live.fd

    @property
    def pending(self) -> bool:
        """Whether something has come that its descriptor does not tell of any more."""
        return self._live is not None and self._live.more

    def take_burst(self, bytes_max: int = BURST_BYTES) -> bool:
        """Read about `BURST` messages of the fan-out; whether there may be more.

        Args:
            bytes_max: after so many bytes the burst is over.
        """
        connection, live, now = self._live, self.reader.live, self._clock()
        if connection is None:
            return False
        taken, size = 0, 0
        while taken < BURST and size <= bytes_max:
            taken += 1  # a large message comes in pieces, and takes its time as well
            for frames in connection.receive(BURST):
                for frame in frames:
                    live(split_live(frame), now)
                    size += len(frame)
                taken += 1
            if not connection.more:
                return False
        return True

    def _live_readable(self) -> None:
        with self._lock:
            if not self._watching:
                return
            more = self.take_burst()
            self._burst()
            if more:
                self._reactor.call_soon(self._live_readable)

    # --- the connection of the fan-out ------------------------------------------------------------

    def _open_live(self, wait: float) -> None:
        """Make the socket, and connect it after so many seconds."""
        self._liveness = FanOutLiveness(self._clock() + wait)
        self._stands = False
        live = self._live = ZmtpClient(
            self._reactor, b"SUB", FAN_OUTS, lock=self._lock, on_stands=self._live_stands,
            on_ended=self._live_ended,
        )  # fmt: skip
        for topic in self.reader.subscriptions():
            self.subscribe(topic)
        if wait:
            self._live_timer = self._reactor.call_later(wait, lambda: self._connect_live(live))
        else:
            self._connect_live(live)

    def _connect_live(self, live: ZmtpClient) -> None:
        self._connected_at = self._reactor.now()
        try:
            live.connect(self._live_address)
        except OSError as error:
            self._close_live()
            self._live_trouble = descriptors.reason(error)
            self._live_timer = self._reactor.call_later(AGAIN_SECONDS, self._renew_live)
        else:
            self._live_trouble = not_begun(self._live_trouble)

    def _close_live(self) -> None:
        if self._live_timer is not None:
            self._live_timer.cancel()
        if self._live is not None:
            self._live.close()
        self._live = self._live_timer = None
        self._stands = False

    def _live_stands(self) -> None:
        with self._lock:
            self._live_trouble = ""
            self._stands = True
            self.watch(wanted=self._watching)
            self._reconnected()

    def _live_ended(self, reason: str) -> None:
        with self._lock:
            if self._live is not None:
                self._live_trouble = not_begun(reason)
                self._connect_anew()

    def _look(self) -> None:
        """Whether the fan-out says what it should."""
        with self._lock:
            self._look_timer = self._reactor.call_later(LOOK_SECONDS, self._look)
            now = self._clock()
            if not self._is_read():
                self._liveness.unheard(now)
            elif self._live is not None and self._is_lost(now):
                self.drain()  # nobody is silent if only those who read were late
                self._burst()
                if self._is_lost(now):
                    self._connect_anew()

    def _look_then(self, down_at: float, heard_at: float) -> None:
        """Whether the fan-out has ended together with the connection for questions."""
        with self._lock:
            stands = self._live is not None and self._stands
            if not stands or self._connected_at > down_at or not self._is_read():
                return
            self.drain()
            self._burst()
            if self._live is not None and self.reader.live_at <= heard_at and self._is_read():
                self._connect_anew()

    def _is_read(self) -> bool:
        return self._reading and not self.reader.held_back

    def _is_lost(self, now: float) -> bool:
        questions, answered_at = self._questions, None
        if questions.up:
            answered_at = now - (self._reactor.now() - questions.heard_at)
        live_at = self.reader.live_at
        if self._live is not None:  # over a slow network a large message may be on its way
            live_at = max(live_at, now - (self._reactor.now() - self._live.heard_at))
        lost = self._liveness.lost(now, live_at, answered_at, stands=self._stands)
        if self._liveness.doubted:
            questions.probe(self.reader.queue)
        return lost

    def _connect_anew(self) -> None:
        if self._reading:
            self.drain()
            self._burst()
        if self._reactor.now() - self._connected_at > STEADY_SECONDS:
            self._backoff.reset()
        self._reopen_live(self._backoff.wait())

    def _renew_live(self) -> None:
        with self._lock:
            self._reopen_live(0.0)

    def _reopen_live(self, wait: float) -> None:
        watching = self._watching
        self.watch(wanted=False)
        self._close_live()
        self._open_live(wait)
        self.watch(wanted=watching)
        self._reconnected()

    # --- questions --------------------------------------------------------------------------------

    def _open_questions(self, address: str) -> ExchangeConnection:
        return self._exchanges.open(
            address,
            on_up=self._questions_up,
            on_down=self._questions_down,
            on_answers=self._answered,
        )

    def _questions_up(self) -> None:
        with self._lock:
            self._step(DataUp())

    def _questions_down(self) -> None:
        with self._lock:
            down_at, heard_at = self._reactor.now(), self.reader.live_at
            self._reactor.call_later(END_LATE_SECONDS, lambda: self._look_then(down_at, heard_at))
            self._step(DataDown())

    def _answered(self, answers: list[list[bytes]]) -> None:
        fetched = self.reader.fetched
        with self._lock:
            now = self._clock()
            for parts in answers:
                if not fetched(parts, now):
                    self._step(Answered(parts))
                    if self._closed:
                        return
            self._burst()
