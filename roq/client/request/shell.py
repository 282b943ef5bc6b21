"""Connections, timers and threads around a `RequesterMachine`: waits for the ends of requests.

The machine belongs to the client's I/O thread. Requests that an exchange has accepted come to it by
way of a list, which that thread looks at once however many there are; what has ended settles the
`Pending` there, and callbacks have a thread of their own.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic, time
from typing import Any, Final

from roq.client.consume.machine import AskExchange
from roq.client.io.engine import Engine
from roq.client.io.exchange_connections import ExchangeConnection
from roq.client.publish.receipt import Outcome, Receipt, failure
from roq.client.request.machine import RequesterMachine
from roq.client.request.many import ManyPart, PendingMany
from roq.client.request.pending import Pending, Requested
from roq.client.session.events import SessionState
from roq.client.session.shell import MonitorSession
from roq.errors import (
    Closed,
    InvalidRequest,
    QueueNotFound,
    RemoteProtocolError,
    ResponseLost,
    RoQError,
    Unavailable,
)
from roq.model import LogId
from roq.protocol.control import Topology
from roq.protocol.requesting import Position, RequestEnd, RequestState, ServiceSettings
from roq.runtime.interfaces import Timer
from roq.runtime.structured_logs import RateLimited

TICK_SECONDS: Final = 0.25
GRACE_SECONDS: Final = 5.0
"""After its time a request has so long for its exchange to say how it has ended."""
OPEN_MAX: Final = 100_000
"""Requests that one client waits for at most, by queue and requester."""
EARLY_MAX: Final = 100_000
"""Ends that may come before it is known where the request is."""
EARLY_SECONDS: Final = 60.0
SECOND_US: Final = 1_000_000
LOOK_SECONDS: Final = 1.0
REPEAT_BYTES: Final = 64 * 1024 * 1024
"""What a requester keeps of idempotent requests, for exchanges that die."""

log = logging.getLogger(__name__)

_At = tuple[LogId, Position]
Waiter = Pending[Any] | ManyPart
"""What waits for the end of a request: itself, or those that were made with it."""


class Sent:
    """Requests of one batch, in order, and its receipt."""

    __slots__ = ("pendings", "receipt", "taken")

    def __init__(self, receipt: Receipt) -> None:
        self.receipt = receipt
        self.pendings: list[Waiter | None] = []
        """None: nobody waits for this one. A part stands in the place of each that it has."""
        self.taken = 0
        """So many of them have been looked at."""


class Collector:
    """Waits for the ends of the requests of one client and queue.

    Args:
        engine: the client's threads.
        managers: addresses of configuration managers.
        queue: name of the queue.
        publisher: by which requests are made here; empty: none is.
        on_lost: called with what an exchange had that is gone, before that is told; whether
            something else is done about it.
    """

    def __init__(
        self,
        engine: Engine,
        managers: Sequence[str],
        queue: str,
        publisher: bytes = b"",
        on_lost: Callable[[Waiter], bool] | None = None,
    ) -> None:
        self.queue = queue
        self.condition = threading.Condition()
        self._waiting = 0
        """Threads that wait for `condition`."""
        self._engine = engine
        self._machine = RequesterMachine()
        self._publisher = publisher
        self._on_lost = on_lost
        self._connections: dict[LogId, ExchangeConnection] = {}
        self._open: dict[_At, tuple[Waiter, ...]] = {}
        self.open_count = 0
        """Requests that are accepted, or asked for by their ids, and have not ended."""
        self._early: OrderedDict[_At, tuple[float, RequestEnd]] = OrderedDict()
        self._due: dict[int, set[Waiter]] = {}
        """By the quarter of a second in which their time is over."""
        self._accepted: deque[Sent] = deque()
        self._confirmed: deque[Requested] = deque()
        self._cancelled: deque[tuple[Requested, bool]] = deque()
        self._looking = False
        """Whether `_look` is about to be called."""
        self._timer: Timer | None = None
        self._keeping = threading.Lock()
        self._kept_bytes = 0
        self._error: RoQError | None = None
        self._known = threading.Event()
        """The exchanges of the queue are known."""
        self._limited = RateLimited(log)
        self._session = MonitorSession(
            engine, managers, queue, client_id=os.urandom(16), role="consumer",
            on_topology=self._topology, on_state=self._state,
        )  # fmt: skip
        engine.at_end(self._engine_ended)
        self._session.start()

    # --- any thread -------------------------------------------------------------------------------

    def attend(self, service: str, settings: ServiceSettings, timeout: float) -> None:
        """Have the service known at every exchange; returns when it is.

        Raises:
            Unavailable: not in time.
            InvalidRequest: the queue has a consumer group of that name.
            RoQError: the queue is gone, or this is closed.
        """
        machine = self._machine

        def ask() -> None:
            now = self._engine.reactor.now()
            self._perform(machine.attend(service, settings, self._publisher, now))

        self._engine.run_sync(ask)

        def settled() -> bool:
            return machine.attended(service) or service in machine.refusals or self.ended

        self.wait_for(settled, timeout)
        if self._error is not None:
            raise self._error
        if service in machine.refusals:
            raise InvalidRequest(f"service {service}: {machine.refusals[service]}")
        if not machine.attended(service):
            raise Unavailable(
                f"the exchanges of queue {self.queue} have not answered in {timeout:g} s: "
                f"{self.trouble or 'they are slow'}"
            )

    def settings(self, service: str) -> ServiceSettings:
        """Those of a service that is attended."""
        return self._machine.settings.get(service, ServiceSettings())

    @property
    def trouble(self) -> str:
        """Why the exchanges cannot be reached; empty: they can."""
        facts = self._session.facts()
        away = [
            f"{place.exchange.name}: {place.trouble or 'it is away'}"
            for place in list(self._machine.places.values())
            if not place.up or place.trouble
        ]
        return "; ".join(away) or facts.reason

    def need_exchanges(self, timeout: float) -> None:
        """Wait until the exchanges of the queue are known.

        Raises:
            Unavailable: not in time.
            RoQError: the queue is gone, or this is closed.
        """
        known = self._known.wait(timeout)
        if self._error is not None:
            raise self._error
        if not known:
            raise Unavailable(f"queue {self.queue} is not known yet: {self.trouble}")

    @property
    def ended(self) -> bool:
        """Whether it waits for nothing any more."""
        return self._error is not None

    def accepted(self, sent: Sent) -> None:
        """A batch of requests has a fate; neither waits nor raises."""
        self._accepted.append(sent)
        self._soon()

    def expect(self, pending: Pending[Any] | PendingMany[Any], seconds: float) -> None:
        """A request is to end within so many seconds; I/O thread, or before anybody else has it."""
        pending.due = monotonic() + seconds

    def find(self, pending: Pending[Any]) -> None:
        """Somebody waits for a request that is elsewhere made.

        Raises:
            Unavailable: too many are waited for.
        """
        if self.open_count >= OPEN_MAX:
            raise Unavailable(
                f"{OPEN_MAX} responses are waited for already: take some first, or wait for those "
                "that are not there yet"
            )

        def wait() -> None:
            self._wait(pending, ask=True)
            self._tell()

        self._engine.call_soon(wait)

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until this is so; False: it was not in time."""
        self._engine.check_outside()
        deadline = float("inf") if timeout is None else monotonic() + timeout
        with self.condition:
            self._waiting += 1
            try:
                while not condition():
                    remaining = deadline - monotonic()
                    if remaining <= 0:
                        return False
                    self.condition.wait(min(remaining, LOOK_SECONDS))
            finally:
                self._waiting -= 1
        return True

    def confirm(self, requested: Requested) -> None:
        """The outcome has arrived."""
        self._confirmed.append(requested)
        self._soon()

    def cancel(self, requested: Requested, *, late: bool = False) -> None:
        """It is not wanted any more."""
        self._cancelled.append((requested, late))
        self._soon()

    def keep(self, pending: Pending[Any], data: bytes) -> None:
        """This may be sent once more; it is kept for that, as far as the allowance reaches."""
        with self._keeping:
            if self._kept_bytes + len(data) <= REPEAT_BYTES:
                self._kept_bytes += len(data)
                pending.repeat = data

    def keep_many(self, many: PendingMany[Any], data: list[bytes]) -> None:
        """Likewise, all of these or none."""
        size = sum(map(len, data))
        with self._keeping:
            if self._kept_bytes + size <= REPEAT_BYTES:
                self._kept_bytes += size
                many.repeat = data

    def let_go(self, requested: Requested) -> None:
        """It will not be sent once more."""
        with self._keeping:
            self._kept_bytes -= requested.forget_repeat()

    def later(
        self, call: Callable[[], object], left_out: Callable[[], object] = lambda: None
    ) -> None:
        """Have this called in the thread for callbacks: it may wait.

        Args:
            left_out: called instead, as `Callbacks.post` says.
        """
        self._engine.callbacks.post(call, left_out)

    def fail(self, waiter: Waiter, error: RoQError) -> None:
        """It is not sent once more, and this is why."""

        def settle() -> None:
            self._settle_all(waiter, None, error)
            self._tell()

        try:
            self._engine.call_soon(settle)
        except Closed:
            settle()

    def close(self) -> None:
        """Wait for nothing any more; idempotent."""
        self._engine.not_at_end(self._engine_ended)
        with suppress(Closed, Unavailable):
            self._session.close()
            self._engine.run_sync(lambda: self._end(Closed("the requester is closed")))

    # --- the I/O thread ---------------------------------------------------------------------------

    def _soon(self) -> None:
        if not self._looking:
            self._looking = True
            try:
                self._engine.call_soon(self._look)
            except Closed:
                if not self._engine.forked:
                    self._look()  # nobody else does any more

    def _look(self) -> None:
        """What other threads have left here since the last look."""
        self._looking = False
        while self._accepted:
            self._take_accepted(self._accepted.popleft())
        machine = self._machine
        while self._confirmed:
            done = self._confirmed.popleft()
            for place in done.places():
                machine.fetched(done.endpoint.service, *place)
        for _ in range(len(self._cancelled)):
            requested, late = self._cancelled.popleft()
            if requested.placed:
                for place in requested.places():
                    machine.cancel(requested.endpoint.service, *place, late=late)
            elif not requested.done():
                self._cancelled.append((requested, late))  # when it is known where it is
        self._perform(machine.say())
        self._tell()

    def _take_accepted(self, sent: Sent) -> None:
        status = sent.receipt.status
        if status is None:
            return
        first, sent.taken = sent.taken, len(sent.pendings)
        before: Waiter | None = None
        for index in range(first, sent.taken):
            waiter, sent.pendings[index] = sent.pendings[index], None
            if waiter is None or waiter is before:
                continue
            before = waiter
            if status.ok and status.offset is not None:
                if isinstance(waiter, ManyPart):
                    self._wait_all(waiter)
                else:
                    self._wait(waiter, ask=False)
            elif status.ok or status.outcome is Outcome.UNKNOWN:
                where = f"exchange {status.exchange} has it and does not know where any more"
                why = status.reason or where
                self._settle_all(waiter, RequestEnd(0, 0, RequestState.UNKNOWN, text=why), None)
            else:
                self._settle_all(waiter, None, failure(status, 1))

    def _wait(self, pending: Pending[Any], *, ask: bool) -> None:
        place = pending.at
        if place is None:
            return
        if self._error is not None:
            self._settle(pending, None, self._error)
            return
        early = self._early.pop(place, None)
        if early is not None:
            self._settle(pending, early[1], None)
            return
        now = self._engine.reactor.now()
        after = 0.0
        if pending.delayed is not None:
            after = max(0.0, pending.delayed[0] / SECOND_US - time())
        if not self._machine.wait(pending.endpoint.service, *place, now, ask=ask, after=after):
            self._lost(pending)
            return
        self._open[place] = (*self._open.get(place, ()), pending)
        self.open_count += 1
        self._is_due(pending)
        if ask:
            self._soon()

    def _wait_all(self, part: ManyPart) -> None:
        """As `_wait`, of those that are accepted together."""
        place = part.place()
        if place is None:
            return
        if self._error is not None:
            self._settle_all(part, None, self._error)
            return
        log, service, positions = place[0], part.many.endpoint.service, part.positions()
        if self._early:
            for position in positions:
                early = self._early.pop((log, position), None)
                if early is not None:
                    self._settle_part(part, log, position, early[1])
            positions = part.open()
            if not positions:
                return
        if not self._machine.wait_all(service, log, positions, self._engine.reactor.now()):
            self._lost(part)
            return
        waiters, opened = (part,), self._open
        for position in positions:
            key = log, position
            opened[key] = waiters if key not in opened else (*opened[key], part)
        self.open_count += len(positions)
        self._is_due(part)

    def _is_due(self, waiter: Waiter) -> None:
        if waiter.due < float("inf"):
            self._due.setdefault(int(waiter.due / TICK_SECONDS) + 1, set()).add(waiter)

    def _not_due(self, waiter: Waiter) -> None:
        slot = int(waiter.due / TICK_SECONDS) + 1 if waiter.due < float("inf") else -1
        some = self._due.get(slot)
        if some is not None:
            some.discard(waiter)
            if not some:
                del self._due[slot]

    def _closed(self, place: _At) -> tuple[Waiter, ...]:
        """Nothing is waited for there any more; what was."""
        waiters = self._open.pop(place, ())
        self.open_count -= len(waiters)
        return waiters

    def _lost(self, waiter: Waiter) -> None:
        """The exchange is gone that had it."""
        if self._on_lost is not None and self._on_lost(waiter):
            if isinstance(waiter, ManyPart):
                self._not_due(waiter)  # what is sent once more is another part
            return
        gone = "its exchange is gone, with all that it knew"
        if isinstance(waiter, ManyPart) or waiter.accepted is not None:
            self._settle_all(waiter, RequestEnd(0, 0, RequestState.UNKNOWN, text=gone), None)
        else:
            self._settle(waiter, None, ResponseLost(f"{waiter.endpoint.name}: {gone}"))

    def _take(self, name: LogId, answers: list[list[bytes]]) -> None:
        self._looking = True  # below: what is confirmed meanwhile is said in one go
        try:
            self._take_each(name, answers)
        finally:
            self._look()

    def _take_each(self, name: LogId, answers: list[list[bytes]]) -> None:
        now = self._engine.reactor.now()
        for parts in answers:
            try:
                _, ended = self._machine.take(name, parts, now)
            except RemoteProtocolError as error:
                self._limited.warning("malformed", now, "an exchange's message: %s", error)
                continue
            for outcome in ended:
                place = name, Position(outcome.offset, outcome.index)
                waiters = self._closed(place)
                if not waiters:
                    self._early[place] = now, outcome
                    if len(self._early) > EARLY_MAX:
                        self._early.popitem(last=False)
                    continue
                for waiter in waiters:
                    if isinstance(waiter, ManyPart):
                        self._settle_part(waiter, *place, outcome)
                    else:
                        self._settle(waiter, outcome, None)

    def _settle(
        self, pending: Pending[Any], outcome: RequestEnd | None, error: RoQError | None
    ) -> None:
        self._not_due(pending)
        pending.settle(outcome, error)

    def _settle_part(
        self, part: ManyPart, log: LogId, position: Position, outcome: RequestEnd
    ) -> None:
        """One of those that were made together has ended."""
        part.settle(position.at, outcome, None)
        if not part.many.held:
            self._machine.fetched(part.many.endpoint.service, log, position)
        if not part.left:
            self._not_due(part)

    def _settle_all(
        self, waiter: Waiter, outcome: RequestEnd | None, error: RoQError | None
    ) -> None:
        """All of them, if they are several, that have not ended."""
        if not isinstance(waiter, ManyPart):
            self._settle(waiter, outcome, error)
            return
        self._not_due(waiter)
        for member in waiter.open_members():
            waiter.many.settle(member, outcome, error)
        waiter.left = 0

    def _tell(self) -> None:
        if self._waiting:
            with self.condition:
                self.condition.notify_all()

    def _topology(self, topology: Topology) -> None:
        if self._error is not None:
            return
        if self._timer is None:
            self._tick()
        wanted = {exchange.log: exchange for exchange in topology.exchanges}
        numbers = {log.number for log in wanted}
        for name in [name for name in self._machine.places if name not in wanted]:
            if name.number in topology.logs and name.number not in numbers:
                continue  # it comes back with its log
            connection = self._connections.pop(name, None)
            if connection is not None:
                connection.close([])
            lost = [
                waiter
                for _, position in self._machine.leave(name)
                for waiter in self._closed((name, position))
            ]
            for waiter in dict.fromkeys(lost):  # a part once
                self._lost(waiter)
        for name, exchange in wanted.items():
            place = self._machine.places.get(name)
            moved = place is not None and place.exchange.data != exchange.data
            self._machine.open(exchange, topology.queue_id)
            if moved and name in self._connections:
                self._connections.pop(name).close([])
                self._machine.down(name)
            if name not in self._connections:
                self._connect(name, exchange.data)
        self._known.set()
        self._tell()

    def _connect(self, name: LogId, address: str) -> None:
        self._connections[name] = self._engine.exchanges.open(
            self._engine.translate(address),
            on_up=lambda: self._perform(self._machine.up(name, self._engine.reactor.now())),
            on_down=lambda: self._machine.down(name),
            on_answers=lambda answers: self._take(name, answers),
        )

    def _tick(self) -> None:
        if self._error is not None:
            return
        now = monotonic()
        for slot in [slot for slot in self._due if slot * TICK_SECONDS <= now]:
            for waiter in self._due.pop(slot):
                self._overdue(waiter, now)
        while self._early and next(iter(self._early.values()))[0] < now - EARLY_SECONDS:
            self._early.popitem(last=False)
        self._perform(self._machine.tick(self._engine.reactor.now()))
        if self._accepted or self._confirmed or self._cancelled:
            self._soon()
        self._tell()
        self._timer = self._engine.reactor.call_later(TICK_SECONDS, self._tick)

    def _overdue(self, waiter: Waiter, now: float) -> None:
        """Its time is over: its exchange decides; if that says nothing, it is not known here."""
        if isinstance(waiter, ManyPart):
            endpoint, at = waiter.many.endpoint, waiter.place()
            places = [] if at is None else [(at[0], position) for position in waiter.open()]
            done = not waiter.left
        else:
            endpoint, done = waiter.endpoint, waiter.done()
            places = [] if waiter.at is None else [waiter.at]
        if done:
            return
        machine = self._machine
        if now < waiter.due + GRACE_SECONDS:
            clock = self._engine.reactor.now()
            if not isinstance(waiter, ManyPart) and not places:
                self.cancel(waiter, late=True)  # when it is known where it is
            for place in places:
                machine.cancel(endpoint.service, *place, late=True)
                # And ask soon what it has said, if it does not say it.
                machine.wait(endpoint.service, *place, clock, ask=False)
            again = int((waiter.due + GRACE_SECONDS) / TICK_SECONDS) + 1
            self._due.setdefault(again, set()).add(waiter)
            return
        for place in places:
            machine.forget(endpoint.service, *place)
            self._closed(place)
        why = f"its exchange has not said how it has ended: {self.trouble or 'it is silent'}"
        self._settle_all(waiter, None, Unavailable(f"{endpoint.name}: {why}"))

    def _perform(self, asks: list[AskExchange]) -> None:
        for ask in asks:
            connection = self._connections.get(ask.log)
            if connection is not None:
                connection.ask(ask.frames)

    def _state(self, state: str, reason: str) -> None:
        if state == SessionState.REMOVED:
            self._end(QueueNotFound(reason))

    def _engine_ended(self) -> None:
        self._end(self._engine.end)

    def _end(self, error: RoQError) -> None:
        if self._error is not None:
            return
        self._error = error
        if self._timer is not None:
            self._timer.cancel()
        self._perform(self._machine.say())
        for connection in self._connections.values():
            connection.close([])
        self._connections.clear()
        self._known.set()
        while self._accepted:
            self._take_accepted(self._accepted.popleft())
        waiters = dict.fromkeys(each for some in self._open.values() for each in some)
        self._open.clear()
        self.open_count = 0
        for waiter in waiters:
            self._settle_all(waiter, None, error)
        self._tell()
