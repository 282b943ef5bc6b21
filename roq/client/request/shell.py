"""Connections, timers and threads around a `RequesterMachine`: waits for the ends of requests.

Connections and timers belong to the client's I/O thread. Requests that an exchange has accepted
come by way of a list, and so do their ends, as far as exchanges tell them over the connections of
the publisher: a thread that waits reads these itself, and takes in what is on the lists; else the
I/O thread does. So both change what is here with a lock. Callbacks have a thread of their own.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from roq.client.io.bell import deadline_in
from roq.client.io.engine import Engine
from roq.client.publish.receipt import Outcome, SendStatus, failure
from roq.client.publish.shell import PublisherShell
from roq.client.request.confirmations import Confirmations
from roq.client.request.ends import Ends
from roq.client.request.machine import RequesterMachine
from roq.client.request.many import KeptRequests, ManyPart, PendingMany
from roq.client.request.pending import EXCHANGE_GONE, Pending, PendingRun, Requested
from roq.client.request.reader import OutcomeReader
from roq.client.request.request_connections import RequestConnections
from roq.client.request.waiting_requests import (
    ENDLESS,
    GRACE_SECONDS,
    TICK_SECONDS,
    InnerRequests,
    Sent,
    Waiter,
    Waiting,
    WaitingRequests,
)
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
from roq.protocol.defined_services import overruled
from roq.protocol.requesting import RequestEnd, RequestState, ServiceSettings
from roq.runtime.interfaces import Timer
from roq.runtime.structured_logs import RateLimited

OPEN_MAX: Final = 100_000
"""Requests that one client waits for at most, by queue and requester."""
SECOND_US: Final = 1_000_000
LOOK_SECONDS: Final = 1.0
_DEFAULTS: Final = ServiceSettings()

log = logging.getLogger(__name__)


class Collector:
    """Waits for the ends of the requests of one client and queue.

    Args:
        engine: the client's threads.
        managers: addresses of configuration managers.
        queue: name of the queue.
        publisher: by which requests are made here; empty: none is.
        on_lost: called with what an exchange had that is gone, before that is told; whether
            something else is done about it.

    Attributes:
        wall_clock: gives seconds since 1970.
        check_process: raises `Closed` in a forked child, in which nothing comes.
    """

    def __init__(
        self, engine: Engine, managers: Sequence[str], queue: str, publisher: bytes = b"",
        on_lost: Callable[[Waiter], bool] | None = None, client_id: bytes = b"",
    ) -> None:  # fmt: skip
        self.queue = queue
        self.kept = KeptRequests()
        self.inner = InnerRequests(threading.RLock())
        self.condition = threading.Condition()
        self._waiting = 0
        """Threads that wait for `condition`."""
        self._guard = engine.guard(f"what waits for requests of queue {queue}")
        self._reader: OutcomeReader | None = None
        self._failed = False
        """Some of `_accepted` was not."""
        self._told: deque[tuple[LogId, list[bytes]]] = deque()
        """What has come beside acknowledgements; each stays until it is taken in."""
        self._engine = engine
        self.wall_clock, self.check_process = engine.wall_clock, engine.check_process
        self._machine, self._publisher, self._on_lost = RequesterMachine(), publisher, on_lost
        self._connections = RequestConnections(engine, self._machine, self._guard.lock, self._take)
        self._perform = self._connections.perform
        self._requests = WaitingRequests()
        self._accepted: deque[Sent] = deque()
        self._confirmations = Confirmations(engine, self._machine, self._confirm)
        self._cancelled: deque[tuple[Requested, bool]] = deque()
        self._looking = False
        """Whether `_look` is about to be called."""
        self._ends = Ends(self._requests, self._machine, self._confirmations, self.kept)
        self.left = self._ends.left
        self._torn = False
        """A signal handler has ended in the middle what a thread has taken in."""
        self._timer: Timer | None = None
        self._error: RoQError | None = None
        self._known = threading.Event()
        """The exchanges of the queue are known."""
        self._limited = RateLimited(log)
        self._session = MonitorSession(
            engine, managers, queue, client_id=client_id or os.urandom(16), role="consumer",
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
            with self._guard.lock:
                self._perform(machine.attend(service, settings, self._publisher, now))

        self._engine.run_sync(ask)

        self.wait_for(
            lambda: machine.attended(service) or service in machine.refusals or self.ended, timeout
        )
        if self._error is not None:
            raise self._error
        if service in machine.refusals:
            raise InvalidRequest(f"service {service}: {machine.refusals[service]}")
        if not machine.attended(service):
            raise Unavailable(
                f"the exchanges of queue {self.queue} have not answered in {timeout:g} s: "
                f"{self.trouble or 'they are slow'}"
            )
        if text := overruled(settings, self.settings(service)):
            log.warning("service %s: queue %s defines that %s", service, self.queue, text)

    @property
    def open_count(self) -> int:
        """Requests that are accepted, or asked for by their ids, and have not ended."""
        return self._requests.count

    def settings(self, service: str) -> ServiceSettings:
        """Those of a service that is attended."""
        return self._machine.settings.get(service, _DEFAULTS)

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

    def read_by(self, shell: PublisherShell) -> None:
        """Those who wait read what exchanges tell over the connections of the publisher."""
        self._reader = OutcomeReader(
            self._engine, shell, self._guard, self._told, has_news=self._has_news,
            has_word=lambda: bool(self._told) or self._failed, take_in=self._take_in_here,
            on_news=self._news, on_cut=self._ask_all,
        )  # fmt: skip

    def accepted(self, sent: Sent) -> None:
        """A batch of requests has a fate; neither waits nor raises."""
        self._accepted.append(sent)
        status = sent.receipt.status
        self._failed |= status is None or not status.ok
        self._news()

    def expect(self, pending: Pending[Any] | PendingMany[Any], seconds: float) -> None:
        """A request is to end within so many seconds; I/O thread, or before anybody else has it."""
        pending.due = self._engine.reactor.now() + seconds

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
            with self._guard.lock:
                self._wait(pending, ask=True)
            self._tell()

        self._engine.call_soon(wait)

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until this is so; False: it was not in time."""
        self.check_process()
        self._engine.check_outside()
        deadline = deadline_in(timeout)
        if self._reader is not None and not self._engine.inside:
            done = self._reader.wait_for(condition, deadline)
            if done is not None:
                return done
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
        self._confirmations.add(requested)
        if self._confirmations.many:
            self._soon()

    def cancel(self, requested: Requested, *, late: bool = False) -> None:
        """It is not wanted any more."""
        self.check_process()
        self._cancelled.append((requested, late))
        self._soon()

    def ring(self, rings: list[Callable[[], None]]) -> None:
        """Call these in the I/O thread, and take them off: once, however often this is said."""

        def call() -> None:
            while rings:
                rings.pop(0)()

        for _ in list(rings):  # so often, as one may raise
            if not self._engine.inside:
                with suppress(Closed):
                    self._engine.call_soon(call)
                    continue
            call()

    def let_go(self, requested: Requested) -> None:
        """It will not be sent once more."""
        self.kept.let_go(requested)

    def later(self, call: Callable[[], object]) -> None:
        """Have this called in the thread for callbacks: it may wait."""
        self.check_process()
        self._engine.callbacks.post(call)

    def repeat(self, call: Callable[[], object], left_out: Callable[[], object]) -> None:
        """Have this sent once more, in a thread for that; or `left_out`, as `Callbacks.post`."""
        self.check_process()
        self._engine.repeats.post(call, left_out)

    def fail(self, waiter: Waiter, error: RoQError) -> None:
        """It is not sent once more, and this is why."""

        def settle() -> None:
            with self._guard.lock:
                self._ends.settle_all(waiter, None, error)
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

    # --- any thread, with the lock ----------------------------------------------------------------

    def _has_news(self) -> bool:
        return bool(self._told or self._accepted)

    def _take_in(self) -> None:
        """What is on the lists. It goes from there afterwards: a signal handler that raises may end
        this anywhere, and then it is done once more."""
        if self._torn:
            self._torn = False
            self._requests.recount()
        self._failed = False
        while self._accepted:
            self._take_accepted(self._accepted[0])
            self._accepted.popleft()
        while self._told:
            log, parts = self._told[0]
            self._take_each(log, [parts])
            self._told.popleft()

    def _take_in_here(self) -> bool:
        """Likewise, in a thread that waits; the I/O thread says what there is to be said."""
        self._looking = True  # below: in one go
        changed = self._ends.changed
        try:
            self._take_in()
        except BaseException:
            self._torn = True
            raise
        finally:
            self._ends.changed = changed  # those who wait here were woken by what has come
            self._looking = False
            if self._cancelled or self._confirmations.press:
                self._soon()
        return True

    # --- the I/O thread ---------------------------------------------------------------------------

    def _news(self) -> None:
        if self._reader is None or not self._reader.threads:
            self._soon()

    def _soon(self) -> None:
        if not self._looking:
            self._looking = True
            try:
                self._engine.call_soon(self._look)
            except Closed:
                if not self._engine.forked:  # nobody else does any more
                    self._guard.within(LOOK_SECONDS, self._look)

    def _confirm(self) -> None:
        with self._guard.lock:
            self._perform(self._confirmations.words())

    def _ask_all(self) -> None:
        with self._guard.lock:
            self._take_in()  # what is accepted and was not looked at is asked for as well
            self._machine.ask_all(self._engine.reactor.now())
            self._perform(self._machine.say())
        self._tell()

    def _look(self) -> None:
        """What other threads have left here since the last look."""
        with self._guard.lock:
            self._take_in()
            self._say()
        self._tell()
        if self._has_news():  # since the look, and before it was over
            self._news()

    def _say(self) -> None:
        self._looking = False
        machine, now = self._machine, self._engine.reactor.now()
        for _ in range(len(self._cancelled)):
            requested, late = self._cancelled.popleft()
            if requested.placed:
                for place in requested.places():
                    machine.cancel(requested.endpoint.service, *place, now, late=late)
            elif not requested.done():
                self._cancelled.append((requested, late))  # when it is known where it is
        if self._confirmations.press:
            self._perform(self._confirmations.words())

    def _take_accepted(self, sent: Sent) -> None:
        status = sent.receipt.status
        if status is None:
            return
        self._ends.accepted(sent, status, self._engine.reactor.now())
        before: Waiter | None = None
        while sent.taken < len(sent.pendings):
            singles = sent.singles() if status.ok and status.offset is not None else []
            if len(singles) > 1:
                self._wait_run(PendingRun(singles, status.log, status.offset or 0, sent.taken))
                sent.took(len(singles))
                continue
            waiter = sent.pendings[sent.taken]
            if waiter is not None and waiter is not before:
                before = waiter
                self._take_waiter(waiter, status)
            sent.took(1)

    def _take_waiter(self, waiter: Waiter, status: SendStatus) -> None:
        if status.ok and status.offset is not None:
            if isinstance(waiter, ManyPart):
                self._wait_all(waiter)
            else:
                self._wait(waiter, ask=False)
        elif status.ok or status.outcome is Outcome.UNKNOWN:
            why = status.reason or f"exchange {status.exchange} has it, and does not know where"
            self._ends.settle_all(waiter, RequestEnd(0, 0, RequestState.UNKNOWN, text=why), None)
        else:
            self._ends.settle_all(waiter, None, failure(status, 1))

    def _wait(self, pending: Pending[Any], *, ask: bool) -> None:
        place = pending.at
        if place is None:
            return
        if self._error is not None:
            self._ends.settle(pending, None, self._error)
            return
        if (early := self._requests.early.pop(place, None)) is not None:
            self._ends.settle(pending, early[1], None)
            return
        now, after = self._engine.reactor.now(), 0.0
        if pending.delayed is not None:
            after = max(0.0, pending.delayed[0] / SECOND_US - self.wall_clock())
        if not self._machine.wait(pending.endpoint.service, *place, now, ask=ask, after=after):
            self._lost(pending)
            return
        self._requests.add(place[0], place[1:], pending)
        if ask:
            self._soon()

    def _wait_run(self, run: PendingRun) -> None:
        """As `_wait`, of those that are accepted together and were made one by one."""
        if self._error is not None:
            self._ends.settle_all(run, None, self._error)
            return
        positions, requests = run.positions, self._requests
        if requests.early:
            for position in positions:
                if (early := requests.early.pop((run.log, position), None)) is not None:
                    self._ends.settle_run(run, early[1])
            if not (positions := [position for _, position in run.places()]):
                return
        if self._machine.wait_all(
            run.endpoint.service, run.log, positions, self._engine.reactor.now()
        ):
            requests.add(run.log, positions, run)
        else:
            self._lost(run)

    def _wait_all(self, part: ManyPart) -> None:
        """As `_wait`, of those that are accepted together."""
        place, requests = part.place(), self._requests
        if place is None:
            return
        if self._error is not None:
            self._ends.settle_all(part, None, self._error)
            return
        log, service, positions = place[0], part.many.endpoint.service, part.positions()
        if requests.early:
            for position in positions:
                early = requests.early.pop((log, position), None)
                if early is not None:
                    self._ends.settle_part(part, log, early[1])
            if not (positions := part.open()):
                return
        if self._machine.wait_all(service, log, positions, self._engine.reactor.now()):
            requests.add(log, positions, part)
        else:
            self._lost(part)

    def _lost(self, waiter: Waiting) -> None:
        """The exchange is gone that had it."""
        if isinstance(waiter, PendingRun):
            self._requests.not_due(waiter)
            for pending in waiter.open():
                self._lost(pending)
            return
        if self._on_lost is not None and self._on_lost(waiter):
            if isinstance(waiter, ManyPart):
                self._requests.not_due(waiter)  # what is sent once more is another part
            return
        if isinstance(waiter, ManyPart) or waiter.accepted is not None:
            self._ends.settle_all(
                waiter, RequestEnd(0, 0, RequestState.UNKNOWN, text=EXCHANGE_GONE), None
            )
        else:
            self._ends.settle(
                waiter, None, ResponseLost(f"{waiter.endpoint.name}: {EXCHANGE_GONE}")
            )

    def _take(self, name: LogId, answers: list[list[bytes]]) -> None:
        self._looking = self._ends.changed = True  # below: what is confirmed is said in one go
        try:
            with self._guard.lock:
                self._take_in()  # an exchange that attends by now is asked for what came before
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
            for end in ended:
                self._take_end(name, end, now)

    def _take_end(self, name: LogId, end: RequestEnd, now: float) -> None:
        self._ends.take(name, end, now)

    def _tell(self) -> None:
        """Have those look who wait, if they have reason to; without the lock."""
        if not self._ends.changed:
            return
        self._ends.changed = False
        if self._reader is not None:
            self._reader.wake()
        if self._waiting:
            with self.condition:
                self.condition.notify_all()

    def _topology(self, topology: Topology) -> None:
        if self._error is None:
            if self._timer is None:
                self._tick()
            with self._guard.lock:
                self._take_in()  # what has come is not lost
                places = self._connections.use(topology)
                lost = [waiter for place in places for waiter in self._requests.close(place)]
                for waiter in dict.fromkeys(lost):  # a part once
                    self._lost(waiter)
            self._known.set()
            self._ends.changed = True
            self._tell()

    def _tick(self) -> None:
        if self._error is not None:
            return
        with self._guard.lock:
            self._pass_time(self._engine.reactor.now())
            told = self._connections.overdue()
        if told and not self._session.facts().reason:
            self._topology(told)
        self._cancelled.extend(self.inner.unwanted())
        self._look()
        self._confirmations.tell()  # a signal handler may have ended what would have done that
        self._timer = self._engine.reactor.call_later(TICK_SECONDS, self._tick)

    def _pass_time(self, now: float) -> None:
        for waiter in self._requests.overdue(now):
            self._overdue(waiter, now)
        if self._reader is not None:  # else nothing is requested here
            self._ends.give_up(now, self._reader.why)
        self._perform(self._machine.tick(self._engine.reactor.now()))

    def _overdue(self, waiter: Waiting, now: float) -> None:
        """Its time is over: its exchange decides, and is asked; else that is not known here."""
        if waiter.done():
            return
        endpoint, places, machine = waiter.endpoint, waiter.places(), self._machine
        if isinstance(waiter, Pending) and not places:
            return  # it is given up with its batch, or due again when that is accepted
        if waiter.due < ENDLESS:  # not asked yet, however long it is over
            for place in places:
                machine.wait(endpoint.service, *place, self._engine.reactor.now(), ask=False)
                machine.cancel(endpoint.service, *place, now, late=True)
            waiter.due = ENDLESS
            self._requests.due_again(waiter, now + GRACE_SECONDS)
            return
        for place in places:
            if not self._requests.leave(place, waiter):
                machine.forget(endpoint.service, *place)
        why = f"its exchange has not said how it has ended: {self.trouble or 'it is silent'}"
        self._ends.settle_all(waiter, None, Unavailable(f"{endpoint.name}: {why}"))

    def _state(self, state: str, reason: str) -> None:
        if state == SessionState.REMOVED:
            self._end(QueueNotFound(reason))

    def _engine_ended(self) -> None:
        self._end(self._engine.end)

    def _end(self, error: RoQError) -> None:
        if self._error is not None:
            return
        with self._guard.lock:
            self._error = error
            if self._timer is not None:
                self._timer.cancel()
            self._take_in()
            self._connections.close(self._confirmations.words())
            self._known.set()
            for waiter in self._requests.clear():
                self._ends.settle_all(waiter, None, error)
        self._tell()
