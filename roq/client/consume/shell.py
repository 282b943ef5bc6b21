"""Connections, timers and the user's queue around a `ConsumerMachine`, for one consumer.

The machine and its connections belong to the client's I/O thread. Between it and the user's thread
are a queue of holdings, and a list of those that the user has settled something of: the I/O thread
looks at that list as soon as it gets its first entry, and then every two milliseconds as long as
there is something, so a quick user does not wake it for each message.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final, Protocol

from roq.client.consume.holding import ACKED, RETURNED, ConsumerStats, Holding
from roq.client.consume.machine import ConsumerMachine
from roq.client.consume.message import DONE, NOT_TRIED, Settlement
from roq.client.consume.ordering import ORDERED, Ordering
from roq.client.consume.seat import IN, Membership, Seat, SeatPhase
from roq.client.io.queue_connections import Connecting, QueueConnections
from roq.errors import (
    Closed,
    GroupNotFound,
    InvalidRequest,
    LeaseLost,
    RemoteProtocolError,
    RoQError,
)
from roq.log.leases import runs_of
from roq.model import LogId
from roq.protocol.consuming import DELETED, Run
from roq.protocol.control import Topology
from roq.protocol.requesting import ServiceSettings
from roq.runtime.interfaces import Timer
from roq.runtime.structured_logs import RateLimited

TICK_SECONDS: Final = 0.25
FLUSH_SECONDS: Final = 0.002
"""Between two looks at what the user has settled."""
HURRY_PARTS: Final = 2
"""When so large a part of what may be held is settled, it is told at once."""

_LOST: Final = (
    "messages of topic {!r} were held for too long without a word from this process, or its "
    "connection was cut, and another consumer has them: what was done with them may be done twice"
)

log = logging.getLogger(__name__)


class ConsumerEngine(Connecting, Protocol):
    """What a consumer needs of its client's I/O thread."""

    @property
    def forked(self) -> bool:
        """Whether this is a forked child."""
        ...

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run `function` in that thread; does not wait for it."""
        ...

    def call_here(self, function: Callable[[], None]) -> None:
        """Run `function` in this thread if that one sleeps, else there."""
        ...

    def check_process(self) -> None:
        """Raises `Closed` in a forked child."""
        ...


class ConsumerShell:
    """One consumer's.

    Args:
        engine: the client's threads.
        member: who it is.
        on_joined: called once, when all exchanges have taken it in.
        on_refused: called with why the group does not take it.
        machine: what decides; None: a `ConsumerMachine`.

    Attributes:
        arrived: what is to be handed to the user, in order; see `take`.
        error: why it is over; None: it is not.
        ranked: what has a higher priority goes before the rest of what is being read.
        on_ready: called by who adds; for event loops.
    """

    def __init__(
        self,
        engine: ConsumerEngine,
        member: Membership,
        *,
        on_joined: Callable[[], None],
        on_refused: Callable[[RoQError], None],
        machine: ConsumerMachine | None = None,
    ) -> None:
        self.arrived: deque[Holding] = deque()
        self.condition = threading.Condition()
        self.waiting = 0
        """Threads that wait for `condition`."""
        self.error: RoQError | None = None
        self.on_ready: Callable[[], None] | None = None
        self.joined = False
        self._engine = engine
        self._machine = ConsumerMachine(member) if machine is None else machine
        self._reading: Holding | None = None
        """What the user has taken last."""
        self._ordering = Ordering() if member.settings.mode in ORDERED else None
        self.ranked = member.settings.mode == "priority"
        self._order_lock = threading.Lock()
        """Of what has arrived, where its order matters: what comes while a message fails, or is
        taken, is seen by one of the two threads."""
        self._on_joined = on_joined
        self._on_refused = on_refused
        self._connections = QueueConnections(
            engine, self._machine, self._machine.seats,
            on_gone=self._gone, on_answers=self._take, on_heard=self._heard,
        )  # fmt: skip
        self._perform = self._connections.perform
        self._settled: deque[Holding] = deque()
        self._returned: deque[tuple[Holding, Run, Settlement]] = deque()
        self._extending: dict[int, Future[float]] = {}
        """Who waits for more time, by number of the request."""
        self._asked = 0
        self._marked = 0
        """Messages that the user has settled."""
        self._hurry_at = max(1, member.prefetch // HURRY_PARTS)
        """When so many are settled they are told at once: the exchange waits for that."""
        self._flushing = False
        """Whether `_flush` is about to be called."""
        self._flush_timer = Timer(0.0, self._flush)
        """The next one of these calls, if it is a timer's."""
        self._timer: Timer | None = None
        self._looked_at = engine.reactor.now()
        """When the I/O thread has looked after the leases last."""
        self._closed = False
        self._limited = RateLimited(log)

    def quick(self, most: int) -> None:
        """So many messages may be held if as many are settled in a tenth of a second."""
        self._machine.prefetch.most = most

    # --- the user's thread ------------------------------------------------------------------------

    def settle(self, holding: Holding, index: int, count: int, verdict: Settlement) -> None:
        """Messages are done, or to be tried again.

        Raises:
            LeaseLost: some are not this consumer's any more; what it was said of the others counts.
            Closed: it is closed.
        """
        self._engine.check_process()
        lost = holding.is_lost(index, count)
        if self.error is not None and not lost:
            raise self.error
        if self.error is None:
            self._note(holding, index, count, verdict)
        if lost:
            raise LeaseLost(_LOST.format(holding.batch.topic))

    def extend(self, holding: Holding, index: int, count: int, seconds: float) -> Future[float]:
        """Have messages held for longer: until when, by the clock of the loop; from any thread.

        The future raises `LeaseLost` if they are not this consumer's, or it is closed meanwhile.

        Raises:
            LeaseLost, Closed: as `settle`.
            InvalidRequest: they are settled.
        """
        self._engine.check_process()
        future: Future[float] = Future()
        if holding.is_lost(index, count):
            raise LeaseLost(_LOST.format(holding.batch.topic))
        if self.error is not None:
            raise self.error
        if not holding.is_open(index, count):
            raise InvalidRequest("what is acknowledged or given back cannot be held for longer")
        run = Run(holding.offset, holding.first + index, count)

        def ask() -> None:
            self._asked += 1
            self._extending[self._asked] = future
            now = self._engine.reactor.now()
            machine = self._machine
            self._perform(machine.extend(holding, run, now + seconds, self._asked, now))
            self._told_extended()

        self._engine.call_soon(ask)
        return future

    def _told_extended(self) -> None:
        """Tell those who have asked for more time."""
        extended, self._machine.extended = self._machine.extended, []
        for request, until in extended:
            future = self._extending.pop(request, None)
            if future is None or not future.set_running_or_notify_cancel():
                continue
            if until:
                future.set_result(until)
            else:
                future.set_exception(
                    LeaseLost("the messages are not this consumer's any more, or they are settled")
                )

    def done(self, holding: Holding, index: int) -> None:
        """One message is done: as `settle`, for loops over messages. One that is lost is counted.

        Raises:
            Closed: as `settle`.
        """
        states = holding.states
        if states[index] or self.error is not None or self._engine.forked:
            with suppress(LeaseLost):
                self.settle(holding, index, 1, DONE)
            return
        states[index] = ACKED
        self._marked = marked = self._marked + 1
        if not holding.dirty:
            holding.dirty = True
            self._settled.append(holding)
        if not self._flushing or marked >= self._hurry_at:
            self._flush_soon()

    def _note(self, holding: Holding, index: int, count: int, verdict: Settlement) -> None:
        """Have the exchange told, of those that are still this consumer's."""
        if verdict.acked:
            settled = holding.settle(index, count, ACKED)
            self._marked += settled
            if settled and not holding.dirty:
                holding.dirty = True
                self._settled.append(holding)
        else:
            failed = [at for at in range(index, index + count) if holding.settle(at, 1, RETURNED)]
            self._give_back([(holding, at) for at in failed], verdict)
            if failed and self._ordering is not None:
                with self._order_lock:
                    unbegun = [*self.arrived, *([self._reading] if self._reading else [])]
                    self._put_back(self._ordering.failed(holding, failed, unbegun))
        self._flush_soon()

    def _flush_soon(self) -> None:
        """Have the I/O thread look, if it does not, or not soon enough."""
        if self._flushing and self._marked < self._hurry_at:
            return
        hurries = self._flushing
        self._flushing = True
        self._hurry_at = self._next_hurry()
        with suppress(Closed):
            self._call(self._hurry if hurries else self._flush)

    def _call(self, function: Callable[[], None]) -> None:
        self._engine.call_soon(function)

    def _next_hurry(self) -> int:
        """What is settled is told at once when so many are."""
        return self._marked + max(1, self._machine.prefetch.messages // HURRY_PARTS)

    def _hurry(self) -> None:
        """Tell what the user has settled, beside the looks that are due."""
        self._flush_now()

    def _put_back(self, messages: list[tuple[Holding, int]]) -> None:
        """Give back what is not to be begun; with the lock of the order."""
        returned = [each for each in messages if each[0].settle(each[1], 1, RETURNED)]
        self._give_back(returned, NOT_TRIED)

    def _give_back(self, messages: list[tuple[Holding, int]], verdict: Settlement) -> None:
        self._marked += len(messages)
        by_holding: dict[int, tuple[Holding, int]] = {}
        for holding, at in messages:
            bits = by_holding.get(id(holding), (holding, 0))[1]
            by_holding[id(holding)] = holding, bits | 1 << at
        self._returned.extend(
            (holding, Run(holding.offset, holding.first + at, count), verdict)
            for holding, bits in by_holding.values()
            for at, count in runs_of(bits)
        )

    def take(self) -> Holding | None:
        """The next holding that is certainly this consumer's; None: there is none now.

        What was held at an exchange that is away, or by a process that stood still, may be
        somebody else's by now: it waits until the exchange has said so.
        """
        if not self.ranked:
            return self._take_next()
        with self._order_lock:
            return self._take_next()

    def put_aside(self, holding: Holding) -> bool:
        """Whether something has come that goes before the rest of this; that is taken later."""
        if not self.ranked or not self.arrived or self.arrived[0].priority <= holding.priority:
            return False
        with self._order_lock:
            self._insert(holding, first=True)
        return True

    def _insert(self, holding: Holding, *, first: bool = False) -> None:
        """Behind all of its priority, or before them; with the lock."""
        arrived, priority = self.arrived, holding.priority
        at = len(arrived)
        if first or (arrived and arrived[-1].priority < priority):
            least = priority if first else priority - 1
            at = next((n for n, each in enumerate(arrived) if each.priority <= least), at)
        arrived.insert(at, holding)

    def _take_next(self) -> Holding | None:
        arrived = self.arrived
        while arrived and arrived[0].lost:
            arrived.popleft()
        if not arrived:
            return None
        if self._is_certain(arrived[0]):
            self._reading = arrived.popleft()
            return self._reading
        # Others need not wait for it. A copy, as the I/O thread may add to it meanwhile.
        for index, holding in enumerate(tuple(arrived)):
            if not holding.lost and self._is_certain(holding):
                del arrived[index]
                self._reading = holding
                return holding
        return None

    @property
    def ready(self) -> bool:
        """Whether `take` has something, or it is over."""
        if not self.arrived or self.error is not None:
            return self.error is not None
        return any(
            not holding.lost and self._is_certain(holding) for holding in tuple(self.arrived)
        )

    def _is_certain(self, holding: Holding) -> bool:
        seat = self._machine.seats.get(holding.log)
        late = self._engine.reactor.now() - self._looked_at
        return seat is not None and seat.phase is IN and late < seat.lease_seconds

    @property
    def unsettled(self) -> int:
        """Messages that were settled, and of which it is not known yet what has become."""
        return self._marked + self._machine.stats.passed_over - self._machine.resolved

    @property
    def attempts(self) -> int:
        """So often is a message of the group tried; 0: without an end."""
        return self._machine.attempts

    @property
    def service(self) -> ServiceSettings | None:
        """Settings of the service that the group is, as an exchange has told last."""
        return self._machine.service

    @property
    def seats(self) -> dict[LogId, Seat]:
        """How it stands at each exchange. For who looks from outside; I/O thread only."""
        return self._machine.seats

    def stats(self) -> ConsumerStats:
        """The counters."""
        return self._machine.stats

    def places(self) -> list[tuple[str, str]]:
        """The exchanges at which it is not in, and why."""
        return [
            (
                seat.exchange.name,
                seat.trouble or self._connections.trouble(name) or seat.phase.value,
            )
            for name, seat in list(self._machine.seats.items())
            if seat.phase is not SeatPhase.IN
        ]

    # --- the I/O thread ---------------------------------------------------------------------------

    def topology(self, topology: Topology) -> None:
        """Be a member at exactly these exchanges from now on, and at those that come back with
        their logs: what is held of them stays held."""
        if self._closed:
            return
        if self._timer is None:
            self._tick()
        self._connections.use(topology)

    def close(self) -> None:
        """Give back what is held, and close the connections."""
        if self._closed:
            return
        self._flush_now()
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._connections.close(self._machine.farewells())
        self._machine.extended = [(request, 0.0) for request in self._extending]
        self._told_extended()

    def end(self, error: RoQError) -> None:
        """The user is to be told this; from any thread."""
        self.error = self.error or error
        self._tell_user()

    def take_no_more(self) -> None:
        """What is on its way still comes; nothing else does."""
        self._perform(self._machine.taking(taking=False, now=self._engine.reactor.now()))

    def _gone(self, name: LogId) -> None:
        self._machine.leave(name)

    def _heard(self, name: LogId) -> None:
        self._perform(self._machine.heard(name, self._engine.reactor.now()))

    def _take(self, name: LogId, answers: list[list[bytes]]) -> None:
        now = self._engine.reactor.now()
        for parts in answers:
            try:
                asks = self._machine.take(name, parts, now)
            except RemoteProtocolError as error:
                self._limited.warning("malformed", now, "an exchange's message: %s", error)
                continue
            if asks:
                self._perform(asks)
        machine = self._machine
        self._told_extended()
        for place, offset, why in machine.given_up:
            self._limited.warning(
                f"given up {place} {offset}", now,
                "the batch at offset %d of log %s cannot be read, and was passed over after "
                "%d attempts: %.200s", offset, place, machine.attempts, why, event="given_up",
            )  # fmt: skip
        machine.given_up.clear()
        if machine.passed_over:
            for holding in machine.passed_over:
                holding.dirty = True
            self._settled.extend(machine.passed_over)
            machine.passed_over.clear()
            self._flush_soon()
        if more := bool(machine.arrived):
            self._arrive(machine.arrived)
            machine.arrived.clear()
            self._tell_user()
        if machine.refusal is not None:
            code, text = machine.refusal
            self._on_refused(
                GroupNotFound(f"{text}: a new consumer makes it again")
                if code == DELETED
                else InvalidRequest(f"{text} ({code})")
            )
        elif not self.joined and machine.joined:
            self.joined = True
            self._on_joined()
        if self.waiting and not more and (self.arrived or not self.unsettled):
            self._tell_user()

    def _arrive(self, holdings: list[Holding]) -> None:
        if self.ranked:
            with self._order_lock:
                for holding in holdings:
                    self._insert(holding)
            return
        if self._ordering is None:
            self.arrived.extend(holdings)
            return
        with self._order_lock:
            for holding in holdings:
                back = [(holding, index) for index in self._ordering.arrived(holding)]
                if back:
                    self._put_back(back)
                    self._flush_soon()
            self.arrived.extend(holdings)

    def _tell_user(self) -> None:
        if self.waiting:
            with self.condition:
                self.condition.notify_all()
        if self.on_ready is not None:
            self.on_ready()

    def _flush(self) -> None:
        """Tell what the user has settled, and look again soon; not if there was nothing."""
        if self._flush_now() and self._gathers:
            self._flush_timer = self._engine.reactor.call_later(FLUSH_SECONDS, self._flush)
            return
        self._end_flushing()

    @property
    def _gathers(self) -> bool:
        """Whether what is settled next waits a little for others."""
        return True

    def _end_flushing(self) -> None:
        """Who settles something has this thread look again."""
        self._flush_timer.cancel()
        self._flushing = False
        # Since the look, and before the line above; who is closed tells nothing more.
        if not self._closed and (self._settled or self._returned):
            self._flushing = True
            self._engine.reactor.call_soon(self._flush)

    def _flush_now(self) -> bool:
        settled, returned = self._settled, self._returned
        if self._closed or not (settled or returned):
            return False
        holdings = [settled.popleft() for _ in range(len(settled))]
        back = [returned.popleft() for _ in range(len(returned))]
        self._perform(self._machine.tell(holdings, back, self._engine.reactor.now()))
        return True

    def _tick(self) -> None:
        if self._closed:
            return
        reactor = self._engine.reactor
        self._perform(self._machine.tick(reactor.now()))
        self._told_extended()
        self._looked_at = reactor.now()
        if self.arrived:
            self._tell_user()
        self._timer = reactor.call_later(TICK_SECONDS, self._tick)
