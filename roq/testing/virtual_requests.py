"""Requests of a program on a clock of the test's: both ends in one process, and nothing is waited
for. The machines are those of production; sockets, daemons and real time are left out."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from roq.aio.requests import Requester as AsyncRequester
from roq.client.io import at_exit as farewell
from roq.client.io.engine import Engine
from roq.client.publish.batching import Payload
from roq.client.publish.events import (
    AskAttach,
    Assignment,
    ConnectionLost,
    Effect,
    Event,
    Received,
)
from roq.client.publish.link import Drop, Open, Say, Transmit
from roq.client.publish.machine import PublisherMachine
from roq.client.publish.publisher import Publisher
from roq.client.publish.receipt import Receipt
from roq.client.request.commands import Settings
from roq.client.request.context import parse_id
from roq.client.request.endpoint import Endpoint
from roq.client.request.pending import Pending
from roq.client.request.requester import Requester
from roq.client.request.service import (
    CLOSE_SECONDS,
    DRAIN_SECONDS,
    FIGURES_SECONDS,
    THREADS,
    InstanceState,
    Service,
    settings_of,
)
from roq.client.request.shell import Collector
from roq.client.request.waiting_requests import Waiter
from roq.client.request.workers import Workers
from roq.errors import Closed, InvalidRequest, Unavailable, WouldBlock
from roq.machine import Tick
from roq.model import PublisherId
from roq.protocol.requesting import OUTCOMES
from roq.testing.virtual_exchange import (
    INFO,
    LIMITS,
    QUEUE,
    TOPOLOGY,
    Frames,
    VirtualClient,
    VirtualExchange,
    VirtualLine,
)
from roq.testing.virtual_time import VirtualEventLoop, VirtualTime

R = TypeVar("R")
T = TypeVar("T")

BEGIN: Final = datetime(2030, 1, 1, tzinfo=UTC)
PATIENCE_SECONDS: Final = 30.0
LINGER_SECONDS: Final = 0.001
DELIVERY_SECONDS: Final = 60.0
OPEN_SECONDS: Final = 10.0
_ID_BYTES: Final = 16


class _Publisher:
    """Sends requests to the exchange: in the place of a `Publisher`, its shell and connections.

    Args:
        client: the process in which it is.
    """

    trouble = ""
    failure = None

    def __init__(self, client: VirtualClient, queue: str, number: int) -> None:
        self.queue = queue
        self.id = PublisherId(number.to_bytes(_ID_BYTES, "big"))
        self.guard = client.guard(f"the publisher of queue {queue}")
        self.away_seconds, self.holds = 0.0, False
        self.on_outcomes: Callable[[int, list[bytes]], None] = lambda *_: None
        self.on_cut: Callable[[], None] = lambda: None
        self.machine = PublisherMachine(
            self.id, queue, LIMITS, linger_seconds=LINGER_SECONDS,
            delivery_seconds=DELIVERY_SECONDS, new_receipt=lambda: Receipt(self),
            wall_us=lambda: int(client.wall_clock() * 1_000_000), now=client.now(),
            jitter=client.jitter, offsets=True,
        )  # fmt: skip
        self._shell = self._connections = self
        self._client = client
        self._lines: dict[int, VirtualLine] = {}
        self._epoch = 0
        self._timer_at = math.inf
        self._assign()

    # --- as a requester knows it ------------------------------------------------------------------

    def publish(self, payload: bytes, topic: str) -> Receipt:
        """Publish one message."""
        receipt = self.machine.publish(payload, topic, self._client.now())
        self._pass_on()
        if receipt is None:
            raise WouldBlock("there is no room for more requests on the way to the exchange")
        return receipt

    publish_raw = publish

    def publish_chunk(
        self, payloads: list[Payload], position: int, topic: str
    ) -> tuple[int, Receipt | None]:
        """Publish what fits into one batch."""
        told = self.machine.publish_chunk(payloads, position, topic, self._client.now())
        self._pass_on()
        return told

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all is acknowledged."""

        def flushed() -> bool:
            done = self.machine.seal_open(self._client.now())
            self._pass_on()
            return done

        self._client.wait_for(flushed, timeout)

    def close(self, timeout: float | None = None) -> None:
        """End, when all is acknowledged or the time is over."""
        with suppress(Closed):  # it was killed
            self.flush(DELIVERY_SECONDS if timeout is None else timeout)
        self._perform(self.machine.leave("the requester is closed", self._client.now()))

    # --- as a receipt knows it --------------------------------------------------------------------

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Let time pass until this is so."""
        return self._client.wait_for(condition, timeout)

    def call_back(self, callback: Callable[[], object], left_out: Callable[[], object]) -> None:
        """Call a user."""
        self._client.post(callback, left_out)

    def attend(self) -> None:
        """What arrives is read at once."""

    # --- the exchange -----------------------------------------------------------------------------

    def _assign(self) -> None:
        self._epoch += 1
        self._handle(Assignment(QUEUE, INFO, self._epoch, LIMITS))

    def _handle(self, event: Event) -> None:
        now = self._client.now()
        self._perform(self.machine.handle(event, now))
        self._look_again(self.machine.seal_due(now))
        self._pass_on()

    def _pass_on(self) -> None:
        machine, now = self.machine, self._client.now()
        if machine.unsent:
            machine.unsent = False
            for link in machine.links.all:
                if batches := link.transmit(now):
                    self._perform([Transmit(link.number, batches)])
        self._look_again(machine.due)
        self._look_again(machine.next_deadline())

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Transmit(link, batches):
                    for sealed in batches:
                        self._say(link, (sealed.stream.data, sealed.data))
                case Say(link, frames):
                    self._say(link, frames)
                case Open(link, _, hello):
                    self._open(link, hello)
                case Drop(link, bye):
                    self._drop(link, [bye] if bye else [])
                case AskAttach():
                    self._client.when_up(self._assign)
                case _:
                    pass  # nobody has it go elsewhere

    def _say(self, link: int, frames: Frames) -> None:
        if link in self._lines:
            self._lines[link].ask(frames)

    def _open(self, link: int, hello: Frames) -> None:
        self._drop(link, [])
        self._lines[link] = self._client.connect(
            lambda: self._say(link, hello), lambda: self._lost(link), partial(self._receive, link)
        )

    def _drop(self, link: int, byes: list[Frames]) -> None:
        line = self._lines.pop(link, None)
        if line is not None:
            line.close(byes)
            self.on_cut()

    def _lost(self, link: int) -> None:
        self._drop(link, [])
        self._handle(ConnectionLost(link, "the connection was cut"))

    def _receive(self, link: int, frames: Frames) -> None:
        if frames[0] == OUTCOMES:
            self.on_outcomes(link, list(frames))
        else:
            self._handle(Received(link, list(frames)))

    def _look_again(self, at: float | None) -> None:
        if at is not None and at < self._timer_at:
            self._timer_at = at
            self._client.call_at(at, partial(self._tick, at))

    def _tick(self, at: float) -> None:
        if at == self._timer_at:
            self._timer_at = math.inf
            self._handle(Tick())


class _Collector(Collector):
    """Waits for the ends of requests on the test's clock."""

    def __init__(self, client: VirtualClient, *given: Any) -> None:
        self._client = client
        super().__init__(cast("Engine", client), *given)
        self._topology(TOPOLOGY)

    def need_exchanges(self, timeout: float) -> None:
        """They are known; who is to answer begins first."""
        self._client.wait_for(self._known.is_set, timeout)

    @property
    def trouble(self) -> str:
        """Why the exchange cannot be reached; empty: it can."""
        return "the test has cut it off" if self._client.is_cut else ""

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Let time pass until this is so."""
        return self._client.wait_for(condition, timeout)


class _Threads(Workers[T], Generic[T]):
    """As `Workers`, with a thread for each thing that is done, on the test's clock."""

    def __init__(self, client: VirtualClient, work: Callable[[T], None]) -> None:
        super().__init__("", work)
        self._client = client
        self._things: deque[T] = deque()
        self._free = 0

    def start(self, count: int) -> None:
        """So much is done at once."""
        self._free = count

    def put(self, work: Iterable[T]) -> None:
        """This is to be done."""
        self._things.extend(work)
        self._client.call_soon(self._begin)

    def stop(self) -> None:
        """There is nothing to end."""

    def _begin(self) -> None:
        while self._things and self._free:
            self._free -= 1
            self._client.begin(partial(self._do, self._things.popleft()))

    def _do(self, thing: T) -> None:
        self._work(thing)
        self._free += 1
        self._client.call_soon(self._begin)


class _Service(Service):
    """An instance on the test's clock. Its process takes no memory and no processor time."""

    def __init__(self, client: VirtualClient, name: str, queue: str, **given: Any) -> None:
        super().__init__(cast("Engine", client), [], name, queue, **given)
        self._client = client
        handling = self._handling
        handling._clock, handling._wall_clock = client.now, client.wall_clock  # noqa: SLF001
        handling._workers = _Threads(client, handling._work_on)  # noqa: SLF001

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Take requests from now on; the first time that something is waited for does so, too."""
        super().start(loop or VirtualEventLoop(self._client, self._client.begin))

    def run(self) -> None:
        """A test does not wait for signals.

        Raises:
            InvalidRequest: always.
        """
        raise InvalidRequest("run() waits for a signal: a test uses start(), or nothing at all")

    wait_stopped = run

    def drain(self, timeout: float = DRAIN_SECONDS) -> None:
        """As of any service, on the test's clock."""
        if self._shell is not None and not self._closed:
            work = self._handling
            work.draining = True
            self._shell.drain()
            self._client.wait_for(lambda: not (work.busy or work.waiting), timeout)
            self.close()

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """As of any service, on the test's clock."""
        shell = self._shell
        if shell is not None and not self._closed:
            shell.take_no_more()
            with suppress(Closed):  # it was killed
                self._client.wait_for(lambda: not shell.unsettled, timeout)
        super().close(0.0)

    @property
    def begun(self) -> bool:
        """Whether it takes requests, or has, or never will."""
        return self._shell is not None or self._closed

    @property
    def handles(self) -> bool:
        """Whether it has a handler."""
        return bool(self._handling.handlers)

    @property
    def state(self) -> InstanceState:
        """How this instance is, as far as a test has influence on it."""
        work = self._handling
        return InstanceState(work.busy, self._threads, work.response_ms, flag=self._flag)

    def _wait(self) -> None:
        if self._shell is not None:
            self._shell.topology(TOPOLOGY)
        if not self._client.wait_for(self._ready.is_set, self._timeout):
            raise Unavailable(f"service {self.name} was not taken in: {self.trouble}")
        super()._wait()

    def _start_looking(self) -> None:
        if not self._closed:
            self._look()
            self._client.call_later(FIGURES_SECONDS, self._start_looking)

    def _watch(self) -> None:
        """An availability function that hangs would hold up the test."""


class RequestWorld:
    """A queue, its services and requesters on the clock of a test; made by `roq.testing.requests`.

    Code that is given a `roq.Cluster` may be given this instead, as far as it makes services and
    requesters. Each of these is as a process of its own, that may be cut off, or killed.
    """

    def __init__(self, queue: str, begin: datetime, patience: float) -> None:
        self.queue = queue
        self._time = VirtualTime(begin, patience)
        self._time.before, self._time.between = self._start_services, self._begin_services
        self._exchange = VirtualExchange(self._time)
        self._clients: dict[Service | Requester, VirtualClient] = {}
        self._new: list[_Service] = []
        """Services that may not have begun."""
        self._made = 0
        self._own = self._client()
        self._found: _Collector | None = None

    # --- as of a cluster --------------------------------------------------------------------------

    def service(
        self,
        name: str,
        queue: str = "",
        *,
        threads: int = THREADS,
        prefetch: int | None = None,
        available: Callable[[InstanceState], bool] | None = None,
        retry_on: str | None = None,
        retries: int = 1,
        retry: float = 1.0,
        retry_max: float = 60.0,
        lease: float = 10.0,
        settings: Settings | None = None,
        instance: str | None = None,
        version: str = "",
        timeout: float = OPEN_SECONDS,
    ) -> Service:
        """An instance of a service, as of `Cluster.service`; if it was not started, it is before
        the first request is made, or time passes.

        Args:
            name: of the service.
            queue: the queue of this test, or nothing.
            threads, prefetch, available, retry_on, retries, retry, retry_max, lease, settings,
                instance, version, timeout: as there; seconds are of the test's clock.

        Raises:
            InvalidRequest: the queue is another one, or a setting cannot be.
        """
        self._check(queue)
        client = self._client()
        service = _Service(
            client, name, self.queue, threads=threads, prefetch=prefetch,
            available=available, retry_on=retry_on, retries=retries, retry=retry,
            retry_max=retry_max, lease=lease, settings=settings_of(settings),
            instance=instance or f"{name}-{self._made}", version=version, timeout=timeout,
        )  # fmt: skip
        self._clients[service] = client
        self._new.append(service)
        return service

    def requester(
        self,
        queue: str = "",
        *,
        settings: Settings | None = None,
        collect: bool = True,
        timeout: float = OPEN_SECONDS,
        block: bool = True,
    ) -> Requester:
        """Makes requests, as of `Cluster.requester`.

        Args:
            queue: the queue of this test, or nothing.
            settings, collect, timeout, block: as there; seconds are of the test's clock.

        Raises:
            InvalidRequest: the queue is another one, or a setting cannot be.
        """
        self._check(queue)
        client = self._client()
        publisher = _Publisher(client, self.queue, self._made)

        def make(on_lost: Callable[[Waiter], bool]) -> Collector:
            whose = publisher.id if collect else b""
            return _Collector(client, [], self.queue, whose, on_lost)

        requester = Requester(
            cast("Publisher", publisher), make, settings=settings_of(settings), timeout=timeout,
            block=block, collect=collect,
        )  # fmt: skip
        self._clients[requester] = client
        return requester

    def async_requester(
        self, queue: str = "", *, settings: Settings | None = None, collect: bool = True
    ) -> AsyncRequester:
        """Makes requests from `async def` handlers, and in `run`: as of `roq.aio`.

        Args:
            queue, settings, collect: as of `requester`.

        Raises:
            InvalidRequest: as `requester`.
        """
        return AsyncRequester(self.requester(queue, settings=settings, collect=collect))

    def response(self, endpoint: Endpoint[Any, R], request_id: str) -> Pending[R]:
        """The response to a request that somebody has made, as of `Cluster.response`.

        Args:
            endpoint: what was requested.
            request_id: the id of the request.

        Raises:
            InvalidRequest: that is no id of this queue.
        """
        where = parse_id(request_id)
        self._check(where.queue)
        if self._found is None:
            self._found = _Collector(self._own, [], self.queue)
        pending: Pending[R] = Pending(self._found, self.queue, endpoint)
        pending.place(where.log, where.position)
        self._found.find(pending)
        return pending

    # --- the test's -------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """What time it is, UTC."""
        return datetime.fromtimestamp(self._time.wall_clock(), UTC)

    def advance(self, seconds: float = 0.0) -> None:
        """Let time pass: everything that is due happens, in order, and each at its time.

        Args:
            seconds: 0: what is due now.

        Raises:
            InvalidRequest: time does not go back; or a handler waits for something real.
            Exception: what a callback of the test has raised.
        """
        if not seconds >= 0:  # nor by what is no number
            raise InvalidRequest(f"time does not go back by {-seconds:g} s")
        self._time.run(self._time.now() + seconds)

    def sleep(self, seconds: float) -> None:
        """In a `def` handler or a callback: take so long. In `async def`: `asyncio.sleep`.

        Args:
            seconds: of the test's clock.

        Raises:
            InvalidRequest: it is called in an event loop.
        """
        self._time.wait_for(lambda: False, seconds)

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine of the test to its end, and give its result, as `asyncio.run`.

        Args:
            coroutine: what is run.
            timeout: seconds of the test's clock; None: a day.

        Raises:
            InvalidRequest: it has not ended by then.
        """
        task = VirtualEventLoop(self._own, self._own.begin).create_task(coroutine)
        if not self._time.wait_for(task.done, timeout):
            raise InvalidRequest(f"the coroutine has not ended within {timeout:g} s")
        return task.result()

    def kill(self, who: Service | Requester) -> None:
        """It dies as by SIGKILL: nothing of it is called any more; its connections end at once. Of
        `def` handlers that wait, no more than what is in `finally` is run.

        Raises:
            InvalidRequest: it is not of this test.
        """
        self._of(who).kill()
        farewell.closed(who)

    def cut(self, who: Service | Requester, seconds: float) -> None:
        """The network lets nothing through between it and the exchange, and loses what is on its
        way; it goes on by itself, and comes back after so many seconds.

        Raises:
            InvalidRequest: it is not of this test.
        """
        self._of(who).cut(seconds)

    def end(self) -> None:
        """Nothing happens any more."""
        self._time.end()
        for who in self._clients:
            farewell.closed(who)

    def _client(self) -> VirtualClient:
        self._made += 1
        return VirtualClient(self._time, self._exchange, self._made)

    def _of(self, who: Service | Requester) -> VirtualClient:
        if who not in self._clients:
            raise InvalidRequest(f"{who!r} is not of this test")
        return self._clients[who]

    def _check(self, queue: str) -> None:
        if queue not in {"", self.queue}:
            raise InvalidRequest(f"the queue of this test is {self.queue}, not {queue}")

    def _start_services(self) -> None:
        for who in (each for each in self._to_begin() if not each.begun):  # by now
            who.start()

    def _begin_services(self) -> None:
        """Those that were made while time passes, as by a coroutine of the test."""

        def start(who: _Service) -> None:
            try:
                who.start()
            except Exception as error:  # noqa: BLE001 - raised where time passes
                self._time.errors.append(error)

        for who in self._to_begin() if self._new else ():
            self._clients[who].begin(partial(start, who))

    def _to_begin(self) -> list[_Service]:
        self._new = [who for who in self._new if not who.begun and self._clients[who].alive]
        return [who for who in self._new if who.handles]


@contextmanager
def requests(
    queue: str = "work", begin: datetime = BEGIN, *, patience: float = PATIENCE_SECONDS
) -> Iterator[RequestWorld]:
    """Services and requesters of a program on a clock of the test's, for a block.

        with roq.testing.requests() as world:
            service = world.service("billing")
            service.handler(create)(create_invoice)
            pending = world.requester().request(create, Order(7), within=60)
            world.advance(61)
            assert pending.state == "done"

    Args:
        queue: its name.
        begin: the time at the beginning, with a time zone.
        patience: seconds of real time that a handler or a callback may take. No limit while
            it is traced, as by a debugger.

    Raises:
        InvalidRequest: the time has no zone.
    """
    world = RequestWorld(queue, begin, patience)
    try:
        yield world
    finally:
        world.end()
