"""Requesters and instances of a service as processes: the real shells, and users who work.

A requester makes requests to two endpoints: what may be run again, and what must not. It makes some
of them together, wants to be called back for some, and cancels some. The handlers of an instance
take their time; some fail, and some of these want to be run again.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Final, cast

import roq
from roq.client.consume.message import Settlement
from roq.client.consume.seat import Membership
from roq.client.io import at_exit as farewell
from roq.client.io.lock import ClientLock
from roq.client.publish.batching import Payload
from roq.client.publish.publisher import Publisher as RealPublisher
from roq.client.publish.receipt import Receipt
from roq.client.request.calls import Registered, Work
from roq.client.request.context import RequestContext
from roq.client.request.endpoint import Endpoint
from roq.client.request.handling import Handling
from roq.client.request.instance_shell import InstanceShell
from roq.client.request.pending import Pending
from roq.client.request.requester import Requester
from roq.client.request.shell import Collector
from roq.client.request.waiting_requests import Waiter
from roq.errors import Unavailable, WouldBlock, brief
from roq.model import LogId
from roq.protocol.consuming import GroupSettings
from roq.protocol.control import Assigned
from roq.protocol.requesting import Figures, Position, RequestEnd, ServiceSettings, prefix_of
from roq.simulation.virtual.actors.publisher import NobodyWaits, Publisher
from roq.simulation.virtual.asking import KEEP_SECONDS, NUMBERS, Asked, Asking, Run
from roq.simulation.virtual.clients import PublishingClient
from roq.simulation.virtual.members import LEASE_SECONDS, RETRY_SECONDS, Engine, Joining
from roq.simulation.virtual.process import Process
from roq.simulation.virtual.sharing import Place

SERVICE: Final = "service"
AGAIN: Final = roq.endpoint(f"{SERVICE}.again", request=int, response=bytes, idempotent=True)
ONCE: Final = roq.endpoint(f"{SERVICE}.once", request=int, response=bytes)
SETTINGS: Final = ServiceSettings(
    send_wait=0.5, confirm_within=0.5, result_within=15.0, keep_result=KEEP_SECONDS
)
"""What has ended is kept until somebody has asked for it at the end of the trial."""
RATE: Final = 8.0
"""Times a second that a requester makes requests."""
TOGETHER: Final = 4
"""So many at once at most."""
CALL_SHARE: Final = 0.5
CANCEL_SHARE: Final = 0.05
SHORT_SHARE: Final = 0.1
"""The part of the requests whose time may be over before they have run."""
CANCEL_SECONDS: Final = (0.0, 0.2)
WITHIN_SECONDS: Final = (0.02, 3.0)
BLOCKED_SECONDS: Final = 0.05
THREADS: Final = 3
WORK_SECONDS: Final = (0.0, 0.1)
LONG_SECONDS: Final = (1.0, 5.0)
LONG_SHARE: Final = 0.03
FAILS_SHARE: Final = 0.04
AGAIN_SHARE: Final = 0.06
"""The part of the runs whose request is to be run again."""
UNAVAILABLE_SHARE: Final = 0.1
FIGURES_SECONDS: Final = 1.0
DRAIN_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.05


class NoRoomYet(Exception):
    """Whoever is called back would have to wait."""


class RequestEngine(Engine):
    """What requesters need of their client besides: see `roq.client.io.engine.Engine`."""

    def __init__(self, process: Process, on_answered: Callable[[], None] = lambda: None) -> None:
        super().__init__(process, on_answered)
        self._call_later = process.call_later

    @property
    def callbacks(self) -> RequestEngine:
        """Calls users back itself."""
        return self

    @property
    def repeats(self) -> RequestEngine:
        """Sends once more itself."""
        return self

    def post(self, call: Callable[[], object], left_out: object = None) -> None:  # noqa: ARG002
        """Call this in a turn of its own, and again if it would have to wait."""

        def again() -> None:
            try:
                call()
            except NoRoomYet:
                self._call_later(BLOCKED_SECONDS, again)

        self.call_soon(again)


class Collects(Collector):
    """A collector of which it is noticed what it is told."""

    def __init__(self, asking: Asking, *given: Any, **more: Any) -> None:
        self._asking = asking
        super().__init__(*given, **more)

    def _take_end(self, name: LogId, end: RequestEnd, now: float) -> None:
        self._asking.told(name, list(end.each()))
        super()._take_end(name, end, now)


class _Publishes:
    """A publisher and its shell, as a requester knows them: nothing is gathered, nobody waits."""

    trouble = ""
    why = "it is not accepted"

    def __init__(self, publisher: Publisher, queue: str) -> None:
        self.queue = queue
        self.guard = ClientLock("a publisher")
        self.links = publisher.machine
        self.away_seconds = 0.0
        self._publisher = publisher

    @property
    def _shell(self) -> _Publishes:
        return self

    @property
    def machine(self) -> _Publishes:
        return self

    @property
    def _connections(self) -> Publisher:
        return self._publisher

    def publish(self, payload: bytes, topic: str, *, properties: object = None) -> Receipt:  # noqa: ARG002
        count, receipt = self.publish_chunk([payload], 0, topic)
        if not count or receipt is None:
            raise WouldBlock("there is no room")
        return receipt

    def publish_raw(self, data: bytes, topic: str) -> Receipt:
        return self.publish(data, topic)

    def publish_chunk(
        self, payloads: Sequence[Payload], position: int, topic: str
    ) -> tuple[int, Receipt | None]:
        receipt, some = Receipt(NobodyWaits()), cast("list[bytes]", payloads[position:])
        if not self._publisher.publish(topic, some, receipt):
            return 0, None
        return len(some), receipt

    def flush(self, timeout: float | None = None) -> None:  # noqa: ARG002
        raise NoRoomYet


class RequesterShell(PublishingClient):
    """One process that makes requests.

    Attributes:
        collector: waits for their ends; None: it is not assigned yet.
        left: it ends.
    """

    offsets = True

    def __init__(
        self, process: Process, managers: Sequence[str], queue: str, asking: Asking
    ) -> None:
        self.collector: Collector | None = None
        self._managers = managers
        self._asking = asking
        self._requester: Requester | None = None
        self._random: Random = process.world.random
        self._stopped = self.left = False
        super().__init__(process, managers, queue)
        self._pause()

    def stop(self) -> None:
        """Make no more requests."""
        self._stopped = True

    def leave(self) -> None:
        """End without a word."""
        self.left = True
        self.process.end("leaves")

    def find(self, log: LogId, position: Position) -> Pending[bytes]:
        """Ask for a request that somebody has made."""
        collector = self.collector
        assert collector is not None  # noqa: S101 - it is assigned
        pending: Pending[bytes] = Pending(collector, self._queue, AGAIN)
        pending.place(log, position)
        self.process.turn(lambda: collector.find(pending))
        return pending

    def _assigned(self, assigned: Assigned) -> None:
        super()._assigned(assigned)
        if self._requester is None and self.publisher is not None:
            publisher = _Publishes(self.publisher, self._queue)
            self._requester = Requester(
                cast("RealPublisher", publisher), self._collect, settings=SETTINGS, timeout=0.0,
                block=False,
            )  # fmt: skip
            farewell.closed(self._requester)  # it ends with its process

    def _collect(self, on_lost: Callable[[Waiter], bool]) -> Collector:
        self.collector = Collects(
            self._asking, RequestEngine(self.process), self._managers, self._queue,
            bytes(self.id), on_lost, self._random.randbytes(16),
        )  # fmt: skip
        return self.collector

    # --- the user ---------------------------------------------------------------------------------

    def _pause(self) -> None:
        self._time.call_later(self._random.expovariate(RATE), self._make)

    def _make(self) -> None:
        if self._stopped:
            return
        if self._requester is None:
            self._pause()
            return
        random, asking = self._random, self._asking
        endpoint = random.choice([AGAIN, ONCE])
        within = random.uniform(*WITHIN_SECONDS) if random.random() < SHORT_SHARE else None
        made = [asking.make(self.process, once=endpoint is ONCE) for _ in range(self._count())]
        try:
            self._request(self._requester, endpoint, made, within)
        except (Unavailable, WouldBlock):
            self._time.call_later(BLOCKED_SECONDS, self._make)
        else:
            self._pause()

    def _count(self) -> int:
        return self._random.choice([1, 1, self._random.randint(2, TOGETHER)])

    def _request(
        self, requester: Requester, endpoint: Endpoint[int, bytes], made: list[Asked],
        within: float | None,
    ) -> None:  # fmt: skip
        wants = self._random.random() < CALL_SHARE

        def called(_: object) -> None:
            for each in made:
                self._asking.called(each)

        if len(made) == 1:
            pending = requester.request(endpoint, made[0].number, within=within)
            made[0].find = lambda: pending
            cancel: Callable[[], None] = pending.cancel
            if wants:
                pending.on_done(called)
        else:
            numbers = [each.number for each in made]
            many = requester.request_many(endpoint, numbers, within=within)
            for index, each in enumerate(made):
                each.find = lambda index=index: many[index]  # type: ignore[misc]
            cancel = many.cancel
            if wants:
                many.on_done(called)
        for each in made:
            each.wants_call = wants
        if self._random.random() < CANCEL_SHARE:
            for each in made:
                each.cancelled = True
            self._time.call_later(self._random.uniform(*CANCEL_SECONDS), cancel)


class Failing(Exception):
    """What a handler raises."""


class _Handles(Handling):
    """Runs handlers as threads would, which take their time by the virtual clock."""

    def __init__(self, process: Process, asking: Asking) -> None:
        super().__init__(
            SERVICE, "", process.name, THREADS, re.compile("once more"), 1,
            process.now, process.clocks.wall_clock,
        )  # fmt: skip
        self._process = process
        self._asking = asking
        self._random: Random = process.world.random
        self._due: deque[Work] = deque()
        self._running: dict[RequestContext, Run] = {}
        self._last: Run | None = None
        self._workers = self  # type: ignore[assignment]
        for endpoint in (AGAIN, ONCE):
            self.register(endpoint, self._handle)

    def put(self, works: Iterable[Work]) -> None:
        """See `Workers`."""
        self._due.extend(works)
        self._process.call_soon(self._begin_more)

    def _begin_more(self) -> None:
        while self._due and self.busy < THREADS:
            work = self._due.popleft()
            found = self._prepare(work)
            if found is not None:
                self._begin_run(work, found)

    def _begin_run(self, work: Work, found: tuple[Registered, Any, RequestContext]) -> None:
        holding, at, _ = work
        _, number, context = found
        place = Place(holding.log, holding.offset, holding.first + at)
        name, world = self._process.name, self._process.world
        self._running[context] = self._asking.begins(name, place, number, world.now)
        slow = self._random.random() < LONG_SHARE
        seconds = self._random.uniform(*(LONG_SECONDS if slow else WORK_SECONDS))
        began = self._process.now()
        self._process.call_later(seconds, lambda: self._end_run(work, found, began))

    def _end_run(
        self, work: Work, found: tuple[Registered, Any, RequestContext], began: float
    ) -> None:
        self._call(work, found, began)
        self._begin_more()

    def _handle(self, number: int, context: RequestContext) -> bytes:
        run = self._last = self._running.pop(context)
        chance = self._random.random()
        if chance < FAILS_SHARE:
            run.over = "failed"
            raise Failing("for good")
        if chance < FAILS_SHARE + AGAIN_SHARE:
            run.over = "failed"
            raise Failing("once more")
        run.over = "done"
        return NUMBERS.pack(number, run.number)

    def _text_of(self, error: BaseException) -> str:
        """Without the names of files: a seed has one history, wherever RoQ lies."""
        return brief(error)

    def _return(self, work: Work, verdict: Settlement, *, ran: bool = False) -> None:
        if ran and self._last is not None:
            self._last.over = "again"
        super()._return(work, verdict, ran=ran)


class ServiceShell(Joining):
    """One process that is an instance of the service."""

    def __init__(
        self, process: Process, managers: Sequence[str], queue: str, asking: Asking
    ) -> None:
        super().__init__(process)
        handles = self._handles = _Handles(process, asking)
        retry, most = RETRY_SECONDS
        member = Membership(
            id=self.id, name=process.name, group=SERVICE, latest=False, start_us=0,
            settings=GroupSettings(
                prefixes=(prefix_of(SERVICE),), lease_seconds=LEASE_SECONDS, attempts=0,
                retry_seconds=retry, retry_seconds_max=most, service=SETTINGS,
            ),
            prefetch=THREADS, prefetch_quick=2 * THREADS, prefetch_bytes=1 << 20,
        )  # fmt: skip
        self._asking = asking
        engine = RequestEngine(process, self._answered)
        self.shell: InstanceShell = InstanceShell(
            cast("Any", engine), member, handles, lambda: None, lambda _order: None,
            on_joined=lambda: None, on_refused=self._refused,
        )  # fmt: skip
        handles.shell = self.shell
        self._begin(engine, managers, queue)
        self._look()

    def _look(self) -> None:
        if not self.left:
            available = self.process.world.random.random() >= UNAVAILABLE_SHARE
            rule = "" if available else "chance"
            busy, response_ms = self._handles.busy, self._handles.response_ms
            self.shell.tell_figures(Figures(available, rule, busy, THREADS, response_ms))
        self.process.call_later(FIGURES_SECONDS, self._look)

    def _answered(self) -> None:
        for seat in self.shell.seats.values():
            for holding in seat.holdings.values():
                self._asking.resumed(self.process.name, holding)

    def _leave(self) -> None:
        """As `Service.drain`, and `close`."""
        self.left = True
        self._handles.draining = True
        self.shell.drain()
        self._end_by(self.process.now() + DRAIN_SECONDS)

    def _end_by(self, at: float) -> None:
        handles = self._handles
        if (handles.busy or handles.waiting or self.shell.unsettled) and self.process.now() < at:
            self.process.call_later(LOOK_SECONDS, lambda: self._end_by(at))
        else:
            self._close()
