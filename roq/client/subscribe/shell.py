"""Sockets and timers around a `SubscriberMachine`, for one subscriber.

One lock guards the machine and the sockets of the fan-out. The thread that wants messages reads the
fan-out itself (`read`, `wait`): a hand-over from thread to thread costs more than the reading.
The I/O thread does everything else, and reads when the user's thread stays away.

A signal handler may raise in the user's thread at any point of `read`. What it leaves behind looks
like a message that the network has dropped, which is repaired: a message is passed on before it
counts as read, and delivered before it counts as passed on; `_mend` puts right what follows.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from typing import Final, assert_never

from roq.client.io.engine import Engine
from roq.client.session.events import SessionFacts
from roq.client.session.status import SubscriberFacts
from roq.client.session.status_reporter import Losses
from roq.client.subscribe.log_connection import READ_BYTES, LogConnection
from roq.client.subscribe.machine import Order, ReceptionStats, Starts, SubscriberMachine
from roq.client.subscribe.receive_queue import ReceiveQueue
from roq.client.subscribe.user_thread import Presence, UserThread
from roq.errors import Closed, RoQError
from roq.model import ExchangeInfo, LogId
from roq.protocol.channel import NONCE_BYTES
from roq.protocol.control import Topology
from roq.read.events import Ask, BelowFloor, Event, Subscribe, Unsubscribe
from roq.read.message import MICROSECONDS
from roq.runtime.interfaces import Timer
from roq.runtime.structured_logs import RateLimited
from roq.timing import AWAY_SECONDS

TICK_SECONDS: Final = 0.2
TICK_SECONDS_MIN: Final = 0.001
LATENCY_SECONDS_MAX: Final = 60.0
"""A message that is older counts as so old, one from the future as new: by the clock of one
publisher that is wrong a queue must not grow."""
LOCK_SECONDS: Final = 1.0
"""Who only wants to look waits no longer for the lock."""
LOOK_SECONDS: Final = 0.01
"""A user's thread that stays away for longer than this has the I/O thread read in its place."""
CLOCK_STEP_SECONDS: Final = 0.25

log = logging.getLogger(__name__)


class ActiveClock:
    """The monotonic clock without the time in which this process did not run.

    A step of it is at most a quarter of a second, so a process that was stopped for a minute does
    not wake up believing that everybody has been silent for a minute. What others have measured is
    never compared with it, but with `elapsed`.
    """

    def __init__(self) -> None:
        self._made = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._real = time.monotonic()
        self._active = 0.0

    def __call__(self) -> float:
        """The active time, in seconds from an arbitrary origin."""
        real = time.monotonic()
        self._active += min(real - self._real, CLOCK_STEP_SECONDS)
        self._real = real
        return self._active

    def elapsed(self) -> float:
        """Seconds since this was made, with all in which the process or the machine slept."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self._made


class ReadBy(Enum):
    """Who reads the fan-out; the others leave it alone."""

    USER = "user"
    """The user's thread, when it comes for messages."""
    IO = "io"
    """The I/O thread: the user's thread stays away, or waits in an event loop."""
    NOBODY = "nobody"
    """The user has fallen behind. Exchanges that do not know of this subscriber are read on."""


class SubscriberShell:
    """Reads all exchanges of one queue for one subscriber.

    Args:
        name: the subscriber's id.
        prefixes: of topics.
        start: where to begin on the exchanges that are there.
        receive_queue: where batches go.
        on_confirmed: called once, when every exchange of the start has confirmed.
        on_refused: called once, with why, when the start is an offset that is kept no more.
        on_news: called when `alive` has something to tell that is not to wait.
        on_doubt: called when `topology` is to be called, even if nothing has changed.
        away_seconds: see `Subscriber`.
        repair, check_duplicates: off only in tests that prove what these are good for.
    """

    def __init__(
        self,
        engine: Engine,
        name: bytes,
        prefixes: list[bytes],
        start: Starts,
        receive_queue: ReceiveQueue,
        *,
        on_confirmed: Callable[[], None],
        on_refused: Callable[[str], None],
        on_news: Callable[[], None],
        on_doubt: Callable[[], None],
        away_seconds: float = AWAY_SECONDS,
        below_floor: BelowFloor = BelowFloor.EARLIEST,
        repair: bool = True,
        check_duplicates: bool = True,
    ) -> None:
        self.confirmed = False
        self._refused = False
        self._engine = engine
        self._receive_queue = receive_queue
        self._on_confirmed = on_confirmed
        self._on_refused = on_refused
        self._on_news = on_news
        self._on_doubt = on_doubt
        self._clock = ActiveClock()
        self._machine = SubscriberMachine(
            prefixes,
            start,
            below_floor=below_floor,
            nonce=lambda: os.urandom(NONCE_BYTES),
            now=self._clock(),
            name=name,
            elapsed=self._clock.elapsed,
            away_seconds=away_seconds,
            repair=repair,
            check_duplicates=check_duplicates,
        )
        self._guard = engine.guard("the subscriber")
        self._lock = self._guard.lock
        self._attendance = UserThread()
        self._announced: tuple[int, ...] = ()
        """Descriptors that have woken the user's thread, and were not read since."""
        self._looking = False
        """Whether a `_look` is about to be made."""
        self._settling = False
        self._torn = False
        """Set while the user's thread reads. Set while the lock is free: it was interrupted."""
        self._connections: dict[LogId, LogConnection] = {}
        self._read_taps: dict[LogId, LogConnection] = {}
        """Those that are read now: the others are held back."""
        self._reads = ReadBy.IO
        self._resting = False
        """`_rest` is at work."""
        self._closed = False
        self._timer: Timer | None = None
        self._timer_at = float("inf")
        self._limited = RateLimited(log)
        self._lost = Losses()
        self._latency_sum = 0.0
        self._latency_count = 0

    # --- the user's thread ------------------------------------------------------------------------

    def read(self) -> bool:
        """Read what has come; whether there is anything to take. Does not wait."""
        items = self._receive_queue.items
        self._guard.check()
        with self._lock:
            self._attendance.come()
            if not items:
                if self._reads is ReadBy.NOBODY:
                    self._call_soon(self._resume)
                elif not self._torn:
                    self._read_here()
            if not self._looking:
                self._look_soon()
            return bool(items)

    def wait(self, seconds: float) -> None:
        """Sleep until `read` may have something; the caller calls `read` afterwards."""
        attendance = self._attendance
        try:
            with self._lock:
                resting = self._reads is ReadBy.NOBODY or self._torn
                connections = () if resting else self._read_taps.values()
                if (
                    self._closed
                    or self._receive_queue.items
                    or any(connection.pending for connection in connections)
                ):
                    return
                fds = [connection.live_fd for connection in connections if connection.live_fd >= 0]
                attendance.waiting = True
            self._announced = attendance.sleep(fds, seconds)
        finally:
            attendance.waiting = False
            with self._lock:
                attendance.hush()
                if not self._looking:
                    self._look_soon()

    def emptied(self) -> None:
        """The user's thread, which does not read by itself, has taken everything."""
        if self._reads is ReadBy.NOBODY:
            self._call_soon(self._resume)

    def _read_here(self) -> None:
        self._torn = True
        now, machine, more = self._clock(), self._machine, False
        announced, self._announced = self._announced, ()
        for source, connection in self._read_taps.items():
            if not announced or connection.live_fd in announced or connection.pending:
                connection.take_burst(READ_BYTES)
            more |= machine.pass_on(source, now)
        if machine.out:
            self._put()
        self._torn = False
        if more and not self._settling:
            self._settling = True
            self._call_soon(self._settle)

    def _look_soon(self) -> None:
        self._looking = True
        self._call_soon(self._look)

    def _call_soon(self, function: Callable[[], None]) -> None:
        with suppress(Closed):  # an engine that has ended has told the user
            self._engine.call_soon(function)

    # --- any thread -------------------------------------------------------------------------------

    def end(self, error: RoQError) -> None:
        """Let the user raise this after what is already there."""
        with self._lock:
            self._receive_queue.end(error)
            self._attendance.ring()

    def facts(self, queue: str, session: SessionFacts) -> SubscriberFacts | None:
        """What the watchdog wants to know; None: another thread holds the lock for too long."""
        return self._guard.within(LOCK_SECONDS, lambda: self._facts(queue, session))

    def _facts(self, queue: str, session: SessionFacts) -> SubscriberFacts:
        now, receive_queue = self._clock(), self._receive_queue
        facts = self._machine.facts(queue, session, now)
        if self._reads is ReadBy.NOBODY:  # so nobody is silent
            heard = tuple(replace(each, silent=0.0) for each in facts.exchanges)
            facts = replace(facts, exchanges=heard)
        for trouble in {
            connection.trouble for connection in self._connections.values() if connection.trouble
        }:
            facts = _because(facts, trouble)
        return replace(
            facts,
            untaken=receive_queue.untaken(now),
            batches=len(receive_queue.items),
            full=self._reads is ReadBy.NOBODY,
        )

    def losses(self) -> Losses:
        """What is lost by now."""
        return self._lost

    def stats(self) -> ReceptionStats:
        """The counters."""
        self._guard.check()
        with self._lock:
            return self._machine.stats()

    # --- the I/O thread ---------------------------------------------------------------------------

    def topology(self, topology: Topology) -> None:
        """Read exactly these exchanges from now on, and those that come back with their logs."""
        wanted = {exchange.log: exchange for exchange in topology.exchanges}
        with self._lock:
            if self._closed:
                return
            left = self._machine.topology_known(wanted, topology.logs, self._clock())
            read = {log: each.reader.exchange for log, each in self._connections.items()}
            if wanted == read:
                return
            self._mend()
            for source in left:
                connection = self._connections[source]
                connection.drain()
                self._perform(self._machine.leave(source, self._clock()))
                connection.close()
                del self._connections[source]
                self._read_taps.pop(source, None)
            for source, exchange in wanted.items():
                if source not in self._connections:
                    self._open(source, exchange, topology.queue_id)
                elif exchange != read[source]:
                    self._move(source, exchange)
            self._after()
            self._attendance.ring()  # it sleeps on other descriptors

    def alive(self) -> Mapping[str, object]:
        """The figures for the monitor; mean latency in ms since the last call."""
        with self._lock:
            mean = self._latency_sum / self._latency_count if self._latency_count else 0.0
            self._latency_sum, self._latency_count = 0.0, 0
            counts = self._machine.resequencer.counts
            return {
                "received": counts.delivered,
                "latency_ms": max(0.0, mean * 1_000),
                "lost": counts.lost,
                "read": self._machine.read(),
            }

    def close(self) -> None:
        """Close all sockets."""
        with self._lock:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
            for connection in self._connections.values():
                connection.close()
            self._connections.clear()
            self._read_taps.clear()
            self._attendance.close()

    def _look(self) -> None:
        """Read in place of the user's thread, or leave it to that."""
        with self._lock:
            if self._closed:
                return
            presence = self._attendance.look()
            self._looking = presence is Presence.BUSY
            if self._looking:
                self._engine.reactor.call_later(LOOK_SECONDS, self._look)
            if self._reads is not ReadBy.NOBODY:
                self._reads = ReadBy.IO if presence is Presence.AWAY else ReadBy.USER
                self._watch()
            if self._torn:
                self._mend()
                self._after()

    def _resume(self) -> None:
        """The user has caught up."""
        with self._lock:
            if self._reads is ReadBy.NOBODY and not self._closed:
                self._reads = ReadBy.IO
                self._machine.read_again(self._clock())
                for connection in list(self._connections.values()):
                    if self._reads is ReadBy.NOBODY:
                        break  # what the ones before have brought has filled it again
                    connection.resume()
                self._watch()
                self._arm()
                self._attendance.ring()

    def _settle(self) -> None:
        """What the user's thread has left to do."""
        with self._lock:
            self._settling = False
            for source in list(self._connections):
                self._burst(source)
            self._after()

    def _mend(self) -> None:
        """Put right what an interrupted `read` has left half done."""
        if not self._torn:
            return
        self._torn = False
        out, items = self._machine.out, self._receive_queue.items
        if out and items and items[-1] is out[-1]:
            self._machine.take()  # it was put, and not yet taken away
        self._machine.recount()
        for source in list(self._connections):
            self._burst(source)

    # --- the I/O thread, with the lock ------------------------------------------------------------

    def _move(self, source: LogId, exchange: ExchangeInfo) -> None:
        """Another process serves this log by now, or the same one at other addresses."""
        self._machine.readers[source].exchange = exchange
        self._connections[source].move(
            live=self._engine.translate(exchange.live), data=self._engine.translate(exchange.data)
        )

    def _open(self, source: LogId, exchange: ExchangeInfo, queue: bytes) -> None:
        connection = self._connections[source] = LogConnection(
            self._engine.reactor,
            self._engine.exchanges,
            self._machine.open(exchange, queue, self._clock()),
            live=self._engine.translate(exchange.live),
            data=self._engine.translate(exchange.data),
            lock=self._lock,
            step=lambda event: self._step(source, event),
            burst=lambda: self._burst(source),
            reconnected=self._attendance.ring,
            clock=self._clock,
            jitter=self._engine.jitter,
        )
        self._read_taps[source] = connection
        self._watch()

    def _step(self, source: LogId, event: Event) -> None:
        self._mend()
        self._perform(self._machine.handle(source, event, self._clock()))
        self._after()

    def _burst(self, source: LogId) -> None:
        self._mend()
        orders = self._machine.burst(source, self._clock())
        if orders:
            self._perform(orders)
            self._after()
            return
        if self._machine.out:
            self._deliver()
        if self._machine.resequencer.waiting:
            self._arm()

    def _tick(self) -> None:
        with self._lock:
            self._timer, self._timer_at = None, float("inf")
            self._mend()
            now = self._clock()
            resting = self._reads is ReadBy.NOBODY
            if resting and self._receive_queue.eased:
                self._call_soon(self._resume)
            self._perform(self._machine.tick(now, resting=resting))
            self._after()

    def _watch(self) -> None:
        """Have the I/O thread read what is to be read, if it is to read."""
        for source, connection in self._connections.items():
            wanted = connection.reading and source in self._read_taps
            connection.watch(wanted=wanted and self._reads is not ReadBy.USER)

    def _pace(self) -> None:
        """Leave exchanges alone that are ahead of others, and read those that are so no more."""
        machine = self._machine
        before = machine.held_back
        self._perform(machine.pace(self._clock()))
        held_back = machine.held_back
        if held_back != before:
            self._read_taps = {
                source: connection
                for source, connection in self._connections.items()
                if source not in held_back
            }
            self._watch()
            self._attendance.ring()  # it sleeps on other descriptors

    def _after(self) -> None:
        """Whatever the reception has decided is passed on."""
        if self._closed:
            return
        if self._machine.resequencer.waiting or self._machine.held_back:
            self._pace()
        if not self.confirmed and self._machine.confirmed:
            self.confirmed = True
            self._on_confirmed()
            if self._receive_queue.full:
                self._pause()
        if not self.confirmed and not self._refused and self._machine.not_kept:
            self._refused = True
            self._on_refused(self._machine.not_kept)
        if self._reads is ReadBy.NOBODY and not self._resting:
            self._rest()
        if self._machine.gaps:
            self._report()
        if self._machine.out:
            self._deliver()
        self._arm()
        if self._machine.has_news(self._clock()):
            self._engine.reactor.call_soon(self._on_news)  # which asks `alive`: without the lock
        if self._machine.has_doubts(self._clock()):
            self._engine.reactor.call_soon(self._on_doubt)

    def _perform(self, orders: Iterable[Order]) -> None:
        for source, effect in orders:
            connection = self._connections.get(source)
            if connection is None:
                continue
            match effect:
                case Ask(frames):
                    connection.ask(frames)
                case Subscribe(topic):
                    connection.subscribe(topic)
                    self._attendance.ring()  # to use the socket may swallow a wake-up
                case Unsubscribe(topic):
                    connection.unsubscribe(topic)
                case _:
                    assert_never(effect)

    def _deliver(self) -> None:
        self._put()
        self._attendance.ring()
        if self._receive_queue.full and self._reads is not ReadBy.NOBODY:
            self._pause()

    def _pause(self) -> None:
        """Read no more until the user has caught up.

        Nobody can take anything before the start is confirmed.
        """
        if self.confirmed:
            self._reads = ReadBy.NOBODY
        self._receive_queue.stop()
        self._rest()
        if self.confirmed and not self._receive_queue.items:
            self._call_soon(self._resume)  # all was taken before its pause could be seen

    def _rest(self) -> None:
        """Stop reading the exchanges that know of this subscriber; others would not wait for it."""
        self._resting = True
        try:
            readers = self._machine.readers
            for source, connection in list(self._connections.items()):
                if connection.reading and readers[source].confirmed:
                    connection.pause()
        finally:
            self._resting = False
        self._watch()

    def _put(self) -> None:
        out = self._machine.out
        age = time.time() - out[-1].created_us / MICROSECONDS
        self._latency_sum += max(0.0, min(age, LATENCY_SECONDS_MAX))
        self._latency_count += 1
        self._receive_queue.put(out)
        self._machine.take()

    def _report(self) -> None:
        machine = self._machine
        for gap in machine.gaps:
            self._limited.warning(
                "gap", self._engine.reactor.now(), "topic %r: %s", gap.topic, gap.text
            )
            self._receive_queue.put_gap(gap)
        last = machine.gaps[-1].text
        self._lost = Losses(machine.resequencer.counts.lost, machine.log_gaps, last)
        machine.gaps.clear()
        self._attendance.ring()

    def _arm(self) -> None:
        """Have `_tick` called in time; also only to keep the clock going."""
        if self._closed:
            return
        now = self._clock()
        deadline = None if self._reads is ReadBy.NOBODY else self._machine.next_deadline(now)
        wait = TICK_SECONDS
        if deadline is not None:
            wait = max(TICK_SECONDS_MIN, min(wait, deadline - now))
        at = self._engine.reactor.now() + wait
        if at < self._timer_at - TICK_SECONDS_MIN:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer = self._engine.reactor.call_at(at, self._tick)


def _because(facts: SubscriberFacts, trouble: str) -> SubscriberFacts:
    """Why there is no connection."""
    told = (replace(each, address=f"{each.address} ({trouble})") for each in facts.exchanges)
    start = f"{facts.start} ({trouble})" if facts.start else ""
    return replace(facts, exchanges=tuple(told), start=start)
