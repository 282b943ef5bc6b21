"""The connections of one `Reader`: a SUB on the fan-out of an exchange, and its part of what the
client has for questions (`roq.client.io.exchange_connections`).

The SUB may be read by any thread that holds the lock; all else belongs to the I/O thread.

A socket that is full because nobody reads it, whose peer then dies, aborts the process at its next
heartbeat (libzmq 4.3.5: `Assertion failed: !_io_error`), or when it reconnects by itself (issue
3937), or answers one. Subscribers that read slowly are full. So there are none, and each connection
of the fan-out has a SUB of its own. One that says nothing, though it should twice a second, is
connected anew (`roq.client.subscribe.silence`).

Without a descriptor there is no socket: nothing comes by it then, and it is tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, NoReturn, cast

import zmq

from roq.client.io.exchange_connections import ExchangeConnection, ExchangeConnections
from roq.client.subscribe.silence import Silence
from roq.protocol.framing import split_live
from roq.read.events import Answered, DataDown, DataUp, Event, Pause, Resume
from roq.read.reader import Reader
from roq.runtime import descriptors, sockets
from roq.runtime.backoff import Backoff, Jitter
from roq.runtime.interfaces import Timer
from roq.runtime.lifeline import Lifeline, not_begun
from roq.runtime.reactor import Reactor
from roq.timing import END_LATE_SECONDS

LIVE_MESSAGES_MAX: Final = 1_000
"""High-water mark of the SUB: beyond it the exchange drops, and the log is read instead."""
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
_NOBLOCK: Final = zmq.Flag(zmq.NOBLOCK)
_EVENTS_NOW: Final = zmq.EVENTS
_POLLIN: Final = int(zmq.POLLIN)


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

    Attributes:
        live_fd: readable when something may have come by the fan-out; edge-triggered, so ask
            `pending` after each use of the socket. -1: there is no socket.
    """

    def __init__(
        self,
        reactor: Reactor,
        context: zmq.Context[zmq.Socket[bytes]],
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
        self._context = context
        self._live_address = live
        self._backoff = Backoff(jitter)
        self._live: zmq.Socket[bytes] | None = None
        self._lifeline: Lifeline | None = None
        self._live_timer: Timer | None = None
        self._live_trouble = ""
        self._recv: Callable[[zmq.Flag], bytes] = _nothing
        self._get: Callable[[int], int | bytes] = _no
        self.live_fd = -1
        self._expected = 1
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
            self._live.setsockopt(zmq.SUBSCRIBE, topic)

    def unsubscribe(self, topic: bytes) -> None:
        """Remove a filter."""
        if self._live is not None:
            self._live.setsockopt(zmq.UNSUBSCRIBE, topic)

    @property
    def reading(self) -> bool:
        """Whether it is not paused."""
        return self._reading

    def pause(self) -> None:
        """Stop reading the fan-out: what its socket cannot hold is dropped by the exchange."""
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
        if wanted is self._watching:
            return
        self._watching = wanted
        if self._live is None:
            return
        if wanted:
            self._reactor.add(self.live_fd, self._live_readable)
            self._reactor.call_soon(self._live_readable)
        else:
            self._reactor.remove(self.live_fd)

    def drain(self) -> None:
        """Read what has come already; before a close."""
        for _ in range(2 * LIVE_MESSAGES_MAX // BURST):
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
    def pending(self) -> bool:
        """Whether something has come by the fan-out."""
        return bool(int(self._get(_EVENTS_NOW)) & _POLLIN)

    def take_burst(self, bytes_max: int = BURST_BYTES) -> bool:
        """Read up to `BURST` messages of the fan-out; False if there are no more.

        Args:
            bytes_max: after so many bytes the burst is over.
        """
        live, recv, now = self.reader.live, self._recv, self._clock()
        taken, size, more = 0, 0, True
        while taken < BURST and size <= bytes_max:
            # To ask whether there is a message is cheaper than to be told that there is none, and
            # dearer than to get one: asked only from as many on as there were the last time.
            if taken >= self._expected and not int(self._get(_EVENTS_NOW)) & _POLLIN:
                more = False
                break
            try:
                frame = recv(_NOBLOCK)
            except zmq.Again:
                more = False
                break
            live(split_live(frame), now)
            taken += 1
            size += len(frame)
        self._expected = taken
        return more

    def take_announced(self) -> None:
        """Read the one message that the descriptor has announced; others come with a burst.

        Who slept has that message in his hands before anything is asked of the socket: to ask costs
        two system calls each time, which a single message would wait for twice.
        """
        try:
            frame = self._recv(_NOBLOCK)
        except zmq.Again:
            return
        self.reader.live(split_live(frame), self._clock())

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
        self._silence = Silence(self._clock() + wait)
        try:
            live = self._live = sockets.subscriber(self._context)
            live.setsockopt(zmq.RCVHWM, LIVE_MESSAGES_MAX)
            live.setsockopt(zmq.HEARTBEAT_IVL, 0)
            for topic in self.reader.subscriptions():
                live.setsockopt(zmq.SUBSCRIBE, topic)
            self._lifeline = Lifeline(
                self._reactor, live, self._live_ended, on_stands=self._live_stands
            )
            if not wait:
                self._connect_live()
        except zmq.ZMQError as error:
            self._close_live()
            self._live_trouble = descriptors.reason(error)
            self._live_timer = self._reactor.call_later(AGAIN_SECONDS, self._renew_live)
            return
        self._live_trouble = not_begun(self._live_trouble)
        # The methods of the base class: the subclass only adds Python to each call.
        self._recv = super(zmq.Socket, live).recv
        self._get = super(zmq.Socket, live).get
        self.live_fd = cast("int", self._get(zmq.FD))
        self._expected = 1
        if wait:
            self._live_timer = self._reactor.call_later(wait, self._connect_live)

    def _connect_live(self) -> None:
        if self._lifeline is not None:
            self._connected_at = self._reactor.now()
            self._lifeline.connect(self._live_address)

    def _close_live(self) -> None:
        if self._live_timer is not None:
            self._live_timer.cancel()
        if self._lifeline is not None:
            self._lifeline.close()
        if self._live is not None:
            self._live.close(0)
        self._live = self._lifeline = self._live_timer = None
        self._recv, self._get, self.live_fd = _nothing, _no, -1

    def _live_stands(self) -> None:
        with self._lock:
            self._live_trouble = ""
            if self._lifeline is not None:
                self._lifeline.close()
                self._lifeline = None

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
                self._silence.unheard(now)
            elif self._live is not None and self._is_lost(now):
                self.drain()  # nobody is silent if only those who read were late
                self._burst()
                if self._is_lost(now):
                    self._connect_anew()

    def _look_then(self, down_at: float, heard_at: float) -> None:
        """Whether the fan-out has ended together with the connection for questions."""
        with self._lock:
            stands = self._live is not None and self._lifeline is None
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
        lost = self._silence.lost(
            now, self.reader.live_at, answered_at, stands=self._lifeline is None
        )
        if self._silence.doubted:
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


def _nothing(*_: object) -> NoReturn:
    """Receive from no socket."""
    raise zmq.Again


def _no(_: int) -> int:
    """An option of no socket."""
    return 0
