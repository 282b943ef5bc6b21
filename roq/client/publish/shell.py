"""Runs a `PublisherMachine`: connections, session with the monitor, timers, threads that wait.

One lock guards the machine and the connections' sockets. The caller's thread sends and reads what
has arrived by then; the I/O thread does everything else and takes the lock only for events. While
the caller keeps filling batches it reads the acknowledgements itself, so the I/O thread stops
watching the descriptor and only looks in now and then: the two would fight for the interpreter
otherwise.

An exception of a signal handler (Ctrl-C) may end what the caller's thread does at any point. If it
ends a change half done, the publisher fails: what was not acknowledged is told to be unknown.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic, time_ns
from typing import Final

from roq.client.io import waiters
from roq.client.io.alarm import Alarm
from roq.client.io.bell import deadline_in
from roq.client.io.engine import Engine
from roq.client.io.waiters import Waiters
from roq.client.publish.batching import OpenBatch, Payload
from roq.client.publish.connections import Connection, Connections
from roq.client.publish.events import (
    AskAttach,
    Assignment,
    ConnectionLost,
    Effect,
    Elsewhere,
    Event,
    Relocate,
    Serving,
    TellRelocated,
)
from roq.client.publish.latency import LatencyBook
from roq.client.publish.link import Drop, Open, Say, Transmit
from roq.client.publish.machine import PublisherMachine, facts_of
from roq.client.publish.pending_batch import PendingBatch
from roq.client.publish.receipt import Receipt
from roq.client.publish.resume import Identity
from roq.client.publish.retries import Tries
from roq.client.session.events import SessionState
from roq.client.session.machine import PUBLISHER
from roq.client.session.shell import MonitorSession
from roq.client.session.status import PublisherFacts, why_not_sent
from roq.errors import Closed, Fenced, LocalProtocolError, QueueNotFound, RoQError
from roq.machine import Tick
from roq.model import Limits, PublisherId
from roq.protocol import control as wire
from roq.protocol.control import Assigned, Relocated, Topology
from roq.protocol.requesting import OUTCOMES
from roq.runtime import descriptors

LOOK_SECONDS: Final = 0.25
"""While anything is unacknowledged, the I/O thread looks in at least so often."""
BUSY_LOOK_SECONDS: Final = 0.003
"""How often the I/O thread looks whether the caller still sends and reads by itself."""
AWAY_SECONDS: Final = 0.02
"""For so long after a thread has waited the I/O thread leaves the reading to it."""
ATTEND_SECONDS: Final = 1.0
"""Until so long after somebody wanted to be called, the I/O thread reads at once all the same."""
READ_EVERY: Final = 8
"""Batches that a caller whom nobody waits for sends between two looks at what has arrived."""
READ_MAX: Final = 1_000
WAIT_SLICE_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


class PublisherShell:
    """Everything of a publisher that touches the outside.

    Args:
        engine: the client's I/O thread.
        addresses: endpoints of configuration managers.
        queue: name of the queue.
        publisher: id of the publisher.
        name: as people see it.
        linger_seconds, delivery_seconds, new_receipt, offsets, latency, resumed: see the machine.
        on_change: called, perhaps with the lock held, when `facts` may have changed.

    Attributes:
        guard: calls from outside check it before they take the lock.
        lock: taken here; the fast path of `publish` takes it, too.
        machine: what decides.
        failure: why the publisher can never publish again.
        away_seconds: so long a thread that has waited may be away before the I/O thread reads: one
            that waits for each message has its own answers, and no other thread is woken for them.
    """

    def __init__(
        self,
        engine: Engine,
        addresses: Sequence[str],
        queue: str,
        *,
        publisher: PublisherId,
        name: str,
        linger_seconds: float,
        delivery_seconds: float,
        new_receipt: Callable[[], Receipt],
        on_change: Callable[[], None],
        offsets: bool = False,
        latency: LatencyBook | None = None,
        resumed: Identity | None = None,
    ) -> None:
        self.guard = engine.guard(f"the publisher of queue {queue}")
        self.lock = self.guard.lock
        self.machine = PublisherMachine(
            publisher, queue, Limits(), linger_seconds=linger_seconds,
            delivery_seconds=delivery_seconds, new_receipt=new_receipt,
            wall_us=lambda: time_ns() // 1000, now=monotonic(), jitter=engine.jitter,
            offsets=offsets, latency=latency, resumed=resumed,
        )  # fmt: skip
        self.failure: RoQError | None = None
        # Who judges exchanges by how soon they answer reads their answers at once.
        self.away_seconds = 0.0 if latency else AWAY_SECONDS
        self._away_until = self._attend_until = 0.0
        self._full_seen = self._unread = 0
        self._engine = engine
        self._publisher = publisher
        self._on_change = on_change
        self._queue = queue
        self._was_ready = False
        self._connections = Connections(engine, prompt=latency is not None)
        self._alarm = Alarm(engine, self.lock, self._tick)
        self._waiters = Waiters()
        self._session = MonitorSession(
            engine, addresses, queue, client_id=publisher, name=name, role=PUBLISHER,
            on_assigned=self._assigned, on_relocate=self._relocate, on_topology=self._topology,
            on_state=self._state, alive=self._alive,
        )  # fmt: skip

    def start(self) -> None:
        """Look for an exchange."""
        self._engine.at_end(self._engine_ended)
        self._session.start()

    @property
    def why(self) -> str:
        """Why batches do not leave, in a sentence."""
        return why_not_sent(self.facts(0.0))

    @property
    def stopped(self) -> bool:
        """Whether the queue is stopped."""
        return self._session.state is SessionState.STOPPED

    def facts(self, late: float) -> PublisherFacts:
        """What the watchdog wants to know; without the lock, which may be held for too long."""
        if self.machine.changing or self.machine.unsent:
            # By a thread that is inside, or by one that was interrupted: the tick finds out.
            with suppress(Closed):
                self._engine.call_soon(self._tick)
        ended = "" if self.failure is None else str(self.failure)
        links, session, now = self.machine.links, self._session.facts(), monotonic()
        return facts_of(links, self._queue, session, now, late=late, ended=ended)

    # --- publishing, in the caller's thread -------------------------------------------------------

    def check(self) -> None:
        """Make sure that publishing can go on.

        Raises:
            RoQError: it cannot, ever.
        """
        if self.failure is not None or self.machine.changing:
            self._check_whole()
        self._engine.check()

    def _check_whole(self) -> None:
        with self.lock:
            if not self._whole() and self.failure is not None:
                raise type(self.failure)(*self.failure.args)

    def publish(self, data: bytes, topic: str) -> Receipt | None:
        """Publish one message; None if there is no room for one more batch.

        Raises:
            RoQError: this message cannot be published, or none can any more.
        """
        self.guard.check()
        with self.lock:
            self.check()
            now = monotonic()
            receipt = self.machine.publish(data, topic, now)
            self._pass_on(now)
            return receipt

    def publish_chunk(
        self, payloads: list[Payload], position: int, topic: str
    ) -> tuple[int, Receipt | None]:
        """Publish the next messages that fit into one batch; how many, and their receipt or None.

        Raises:
            RoQError: as `publish`.
        """
        with self.lock:
            self.check()
            now = monotonic()
            published = self.machine.publish_chunk(payloads, position, topic, now)
            self._pass_on(now)
            return published

    def watch(self, receipt: Receipt, seconds: float, retries: int) -> None:
        """Have this tried elsewhere in time, if it is not acknowledged.

        Args:
            seconds: for all tries.
            retries: beyond the first one.
        """
        if receipt.done() or not retries:
            return
        self.guard.check()
        with self.lock:
            tries = Tries(monotonic(), seconds, retries)
            self.machine.sends.watch(receipt, tries)
            if tries.next_at < math.inf:
                self._alarm.need(tries.next_at)

    def leave_exchange(self, name: str, reason: str) -> None:
        """Go on at another exchange than this one, if there is one."""
        self.guard.check()
        self._handle(Elsewhere(reason, name))

    def look_at(self, batch: OpenBatch) -> None:
        """A batch has reached its limit; with the lock held."""
        self.check()
        now = monotonic()
        self.machine.look_at(batch, now)
        self._pass_on(now)

    def has_room(self) -> bool:
        """Whether another batch may be sealed."""
        return self.machine.has_room

    def is_flushed(self) -> bool:
        """Send what is open as far as there is room; whether all was acknowledged. With the lock.

        For `wait_for` and `attempt`.
        """
        now = monotonic()
        flushed = self.machine.seal_open(now)
        self._pass_on(now)
        self._connections.flush()
        return flushed

    # --- in any thread, with the lock -------------------------------------------------------------

    def _whole(self) -> bool:
        """Whether the machine may be used: it has neither ended nor been left half changed."""
        self._engine.check_process()  # a child must say nothing over its parent's connections
        if self.failure is None and self.machine.changing:
            self._fail(
                Closed(
                    f"the publisher of queue {self._queue} was interrupted in the middle of its "
                    "work by an exception of a signal handler: what was not acknowledged may "
                    "arrive or not; open another publisher"
                )
            )
            with suppress(Closed):  # an engine that has ended has told the monitor
                self._engine.call_soon(self._session.close)
        return self.failure is None

    def _pass_on(self, now: float) -> None:
        """Send what was sealed, and have what was opened looked at in time."""
        machine = self.machine
        if machine.unsent:
            self._push(now)
        if machine.due < math.inf:
            due, machine.due = machine.due, math.inf
            self._alarm.need(due)

    def _push(self, now: float) -> None:
        """Send what was sealed, and read what has arrived meanwhile."""
        machine, connections = self.machine, self._connections
        waited = self._waiters.threads or self._waiters.loops
        machine.changing = True
        machine.unsent = False
        for link in machine.links.all:
            batches = link.transmit(now)
            if batches:
                under_way = 0 if waited else link.window.bytes_under_way
                self._transmit(link.number, batches, now, under_way)
        machine.changing = False
        self._unread += 1
        if self._unread >= READ_EVERY or waited or connections.watched or machine.links.pausing:
            self._unread = 0
            if self._read(now) and waited:
                self._waiters.ring()
        self._alarm.need(now + (BUSY_LOOK_SECONDS if connections.holding else LOOK_SECONDS))

    def _read(self, now: float) -> bool:
        """Take in what the exchanges have sent; whether there was anything."""
        connections, heard = self._connections, False
        connections.flush()
        for connection in connections.all:
            if connections.is_current(connection):
                self.machine.changing = True
                heard |= self._read_one(connection, now)
                self.machine.changing = False
        return heard

    def _read_one(self, connection: Connection, now: float) -> bool:
        links, link, connections = self.machine.links, connection.link, self._connections
        read = 0
        while read < READ_MAX:
            messages = connection.receive(READ_MAX)
            read += len(messages)
            for parts in messages:
                if parts[0] == OUTCOMES:
                    connections.on_outcomes(link, parts)
                elif effects := links.receive(link, parts, now):
                    self._perform(effects, now)
                if not connections.is_current(connection):
                    return True
            if not messages or not connection.more:
                return bool(read)
        self._engine.call_soon(lambda: self._readable(connection))
        return True

    def _transmit(
        self, link: int, batches: Sequence[PendingBatch], now: float, under_way: int = 0
    ) -> None:
        if not self._connections.transmit(link, batches, now, under_way):
            self._handle_lost(link, "the connection does not take batches", now)

    def _handle_lost(self, link: int, reason: str, now: float) -> None:
        self._perform(self.machine.handle(ConnectionLost(link, reason), now), now)

    def _perform(self, effects: list[Effect], now: float) -> None:
        for effect in effects:
            match effect:
                case Transmit(link, batches):
                    self._transmit(link, batches, now)
                case Say(link, frames):
                    self._connections.say(link, frames)
                case Open(link):
                    self._connections.open(link, partial(self._connect, effect))
                case Drop(link, bye):
                    self._connections.retire(link, bye)
                case AskAttach(failed):
                    self._ask_attach(failed)
                case TellRelocated():
                    self._tell_relocated(effect)

    def _ask_attach(self, failed: tuple[tuple[int, int], ...]) -> None:
        self._engine.call_soon(lambda: self._session.attach(failed))

    def _tell_relocated(self, told: TellRelocated) -> None:
        message = Relocated(
            queue_id=self._session.queue_id, publisher=self._publisher, epoch=told.epoch,
            outcome="accepted" if told.accepted else "failed", failed=list(told.failed),
            reason=told.reason, pause_us=told.pause_us,
        )  # fmt: skip
        self._engine.call_soon(lambda: self._session.tell(message))

    # --- waiting, without the lock ----------------------------------------------------------------

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Work on the connection until `condition()`, which is asked with the lock held.

        Args:
            condition: what is waited for.
            timeout: seconds; None: for ever, or until the publisher has failed.

        Returns:
            False when `timeout` has passed, or the publisher has failed, first.
        """
        self._engine.check_process()
        if self._engine.inside:
            raise LocalProtocolError("the I/O thread must not wait for itself")
        self.guard.check()
        deadline = deadline_in(timeout)
        visit = waiters.Visit()
        # Who has just sent sleeps at once: the system may keep this core for whom that has woken.
        # What is there already ends the sleep.
        reads = timeout is not None and timeout <= 0
        try:
            with self.lock:
                bell = self._waiters.enter(visit)
            while True:
                with self.lock:
                    if reads:
                        self._catch_up(monotonic(), bell)
                    elif self._whole():
                        self._connections.flush()
                    done, fds = condition(), self._connections.fds
                remaining, read, reads = deadline - monotonic(), reads, True
                if done or (remaining <= 0 and read) or self.failure is not None:
                    return done
                self._engine.check()
                waiters.sleep([bell, *fds], max(0.0, min(remaining, WAIT_SLICE_SECONDS)), bell)
        finally:
            with self.lock:
                self._waiters.leave(visit)
                away = self.away_seconds if (now := monotonic()) > self._attend_until else 0.0
                self._away_until = now + away
                if not self._connections.watched:
                    self._alarm.need(max(self._away_until, now + BUSY_LOOK_SECONDS))

    def attempt(self, condition: Callable[[], bool], wake: Callable[[], None]) -> bool:
        """As `wait_for`, but does not wait, for event loops.

        Args:
            condition: asked once, with the lock held.
            wake: called once, from any thread and with the lock held, when the condition is worth
                another attempt; only if the result is False.
        """
        self._engine.check_process()
        self.guard.check()
        with self.lock:
            now = monotonic()
            self._catch_up(now)
            done = condition()
            if not done and self.failure is None:
                self._waiters.call(wake)
                if not self._connections.watched:
                    self._alarm.need(now)  # nobody but the I/O thread reads from here on
            return done

    def attend(self) -> None:
        """Have what arrives be read at once: somebody is to be called, and may not wait here."""
        self._engine.check_process()
        with self.lock, suppress(Closed):  # who has ended has told all fates
            self._attend_until = (now := monotonic()) + ATTEND_SECONDS
            if now < self._away_until:
                self._away_until = 0.0
                self._alarm.need(now)

    def wake(self) -> None:
        """Have those look again who wait: something has happened elsewhere."""
        with self.lock:
            self._waiters.ring()

    def _catch_up(self, now: float, bell: int = -1) -> None:
        """Read what is there, and send what it has made possible; who has the bell looks anyway."""
        if self._whole() and self._read(now):
            self._seal_due(now)
            self._waiters.ring(bell)

    def _seal_due(self, now: float) -> float | None:
        """Send what is due; when to look again."""
        due = self.machine.seal_due(now)
        self._pass_on(now)
        return due

    # --- in the I/O thread ------------------------------------------------------------------------

    def _connect(self, effect: Open, serial: int) -> None:
        endpoint = self._engine.translate(effect.endpoint)
        with self.lock:
            if not self._whole() or not self._connections.is_awaited(effect.link, serial):
                return
            try:
                connection = Connection(
                    self._engine, effect.link, endpoint,
                    lock=self.lock, on_readable=self._readable, on_lost=self._lost,
                )  # fmt: skip
            except OSError as error:
                reason = f"cannot connect to {endpoint}: {descriptors.reason(error)}"
                self._handle_lost(effect.link, reason, monotonic())
                return
            self._connections.add(connection)
            connection.send(effect.hello)
            self._settle(monotonic())

    def _readable(self, connection: Connection) -> None:
        with self.lock:
            if self._whole() and self._connections.is_current(connection):
                now = monotonic()
                self._read(now)
                self._settle(now)

    def _lost(self, connection: Connection, reason: str) -> None:
        with self.lock:
            now = monotonic()
            if self._whole() and self._connections.is_current(connection):
                self._read(now)
            if self._connections.is_current(connection):
                self._handle_lost(connection.link, reason, now)
                self._settle(now)

    def _assigned(self, assigned: Assigned) -> None:
        queue_id = self._session.queue_id
        self._handle(Assignment(queue_id, assigned.exchange, assigned.epoch, assigned.limits))

    def _relocate(self, relocate: wire.Relocate) -> None:
        self._handle(Relocate(relocate.epoch, tuple(relocate.exchanges)))

    def _topology(self, topology: Topology) -> None:
        exchanges, emptied = tuple(topology.exchanges), frozenset(topology.emptied)
        self._handle(Serving(exchanges, emptied, frozenset(topology.logs)))

    def _handle(self, event: Event) -> None:
        with self.lock:
            if self._whole():
                now = monotonic()
                self._perform(self.machine.handle(event, now), now)
                self._settle(now)

    def _alive(self) -> dict[str, object]:
        """Where it publishes, and under which epoch: a new monitor does not know."""
        with self.lock:
            links = self.machine.links
            return {"at": links.at, "epoch": links.epoch} if links.epoch else {}

    def _state(self, state: str, reason: str) -> None:
        with self.lock:
            if state == SessionState.REMOVED:
                self._fail(QueueNotFound(reason))
                self._engine.call_soon(self._session.close)
            self._waiters.ring()
        self._on_change()

    def _fenced(self) -> None:
        """A later publisher of this name writes its streams now."""
        why = self.machine.links.tally.fenced
        self._fail(Fenced(f"the publisher of queue {self._queue} was fenced off: {why}"))
        self._alarm.cancel()
        with suppress(Closed):
            self._engine.call_soon(self._session.close)

    def _tick(self) -> None:
        self._alarm.with_lock(self.guard, self._look_at_clock)

    def _look_at_clock(self) -> bool:
        self._alarm.rung()
        now = monotonic()
        deadline = self.machine.next_deadline()
        over = deadline is not None and deadline <= now
        wanted = over or len(self.machine.packer) or self._waiters.loops
        if not wanted and now >= self._attend_until and self._connections.attended(now):
            self._alarm.set(now + BUSY_LOOK_SECONDS)
        elif self._whole():
            news = self._read(now)  # first: nobody is silent if this thread was only late
            self._perform(effects := self.machine.handle(Tick(), now), now)
            self._settle(now, news=news or over or bool(effects))
        return True

    def _settle(self, now: float, *, news: bool = True) -> None:
        """Seal what is due, wake who waits if there is news, watch or look away, set the timer."""
        if self.machine.links.tally.fenced and self.failure is None:
            self._fenced()
            return
        due, links = self._seal_due(now), self.machine.links
        # Who waits in `wait_for` reads as well; who waits in an event loop does not.
        filling = self.machine.full_batches != self._full_seen and not self._waiters.loops
        away = now < self._away_until and not self._waiters.loops
        busy = filling or away or self._waiters.threads
        self._full_seen = self.machine.full_batches
        self._connections.watch(wanted=not busy)
        if not busy and self._read(now):
            due = self._seal_due(now)
        self._connections.flush()  # nobody but this thread may come again
        if news or not busy:  # else threads that wait need not look
            self._waiters.ring()
        times = [] if due is None else [due]
        if away:
            times.append(self._away_until)
        if filling:
            times.append(now + BUSY_LOOK_SECONDS)
        if links.unsettled:
            times.append(now + LOOK_SECONDS)
        if (deadline := self.machine.next_deadline()) is not None:
            times.append(deadline)
        self._alarm.set(max(min(times), now + 0.0005) if times else math.inf)
        if links.ready is not self._was_ready:
            self._was_ready = links.ready
            self._on_change()

    # --- the end ----------------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """Give up what is open, say goodbye, release everything; not with the lock held."""
        if self._engine.forked:
            return  # the sockets are the parent's
        self.guard.check()
        self._engine.not_at_end(self._engine_ended)
        with self.lock:
            self._fail(Closed(reason))
            self._waiters.forget()
        try:
            self._session.close()
            self._engine.run_sync(self._release)
        except Closed:
            log.debug("closed after the I/O thread had ended")
        with self.lock:
            self._waiters.close()

    def _release(self) -> None:
        with self.lock:
            self._alarm.cancel()

    def _fail(self, error: RoQError) -> None:
        """It is over; with the lock held."""
        if self.failure is not None:
            return
        now, torn = monotonic(), self.machine.changing
        self.machine.changing = True
        self._perform(self.machine.leave(str(error), now, torn=torn), now)
        self._connections.retire_all()
        self._waiters.ring()
        # Last: if a signal handler has ended this, too, it is done once more.
        self.failure = error
        self.machine.changing = False

    def _engine_ended(self) -> None:
        with self.lock:
            if self.failure is None:
                self.failure = self._engine.end
                self.machine.leave(str(self.failure), monotonic())
            self._waiters.ring()
