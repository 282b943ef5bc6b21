"""The asyncio side of requests: `Requester`, `Pending` and `Service`."""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar, cast, overload

from roq.aio.publisher import Receipt
from roq.aio.twin import Leaving, Told, Twin, awaited, called
from roq.client.publish.delayed import When
from roq.client.request import many as sync_many
from roq.client.request import pending as sync_pending
from roq.client.request import requester as sync_requester
from roq.client.request import service as sync_service
from roq.client.request.endpoint import Endpoint
from roq.client.request.handling import ServiceStats
from roq.client.request.requester import RequesterStats
from roq.client.request.service import BatchHandler, Handler, InstanceState
from roq.errors import RoQError, Unavailable, WouldBlock
from roq.model import wait_seconds

Q = TypeVar("Q")
R = TypeVar("R")

log = logging.getLogger(__name__)
_calling: Final[set[Future[None]]] = set()
"""Callbacks that run: their loops do not hold them."""
_stops: Final[dict[asyncio.AbstractEventLoop, list[Callable[[], object]]]] = {}
"""What SIGTERM calls in each loop that has services which run."""


class Pending(Twin[sync_pending.Pending[R]], Generic[R]):
    """As `roq.Pending`; `await` it to get the response."""

    endpoint = Told[Endpoint[Any, R]]("What was requested.")

    @property
    def accepted(self) -> Receipt | None:
        """The receipt, to be awaited; None of one that was found by its id."""
        return cast("Receipt | None", self._sync.accepted)

    id = Told[str](sync_pending.Pending.id)
    state = Told[str](sync_pending.Pending.state)
    attempts = Told[int](sync_pending.Pending.attempts)
    done = called(sync_pending.Pending.done)
    cancel = called(sync_pending.Pending.cancel)

    def future(self) -> asyncio.Future[R]:
        """The same as a future of this event loop."""
        return asyncio.wrap_future(self._sync.future())

    async def result(self, timeout: float | None = None) -> R:
        """Wait for the response, and give it; raises as `roq.Pending.result`."""
        try:
            async with asyncio.timeout(None if timeout is None else wait_seconds(timeout)):
                return await asyncio.shield(self.future())
        except TimeoutError:
            raise Unavailable(f"no response of {self.endpoint.name} within {timeout} s") from None

    def on_done(self, callback: Callable[[Pending[R]], object]) -> None:
        """Call this once in this event loop when it has ended; what it gives is awaited.

        It may take its time, and others are called meanwhile. What it raises is logged. When the
        retrieval is confirmed is said at `roq.Pending.on_done`; a callback that was cancelled, or
        whose loop was closed, has not ended.
        """
        _call_in_loop(self._sync, lambda: callback(self))

    def __await__(self) -> Generator[Any, None, R]:
        return self.result().__await__()


class PendingMany(Twin[sync_many.PendingMany[R]], Sequence[Pending[R]], Generic[R]):
    """As `roq.PendingMany`; `await` it to get the results."""

    endpoint = Told[Endpoint[Any, R]]("What was requested.")

    @property
    def accepted(self) -> list[Receipt]:
        """The receipts of the batches in which they travel, in order, to be awaited."""
        return cast("list[Receipt]", self._sync.accepted)

    done = called(sync_many.PendingMany.done)
    cancel = called(sync_many.PendingMany.cancel)

    def future(self) -> asyncio.Future[list[R | RoQError]]:
        """`results` as a future of this event loop."""
        return asyncio.wrap_future(self._sync.future())

    async def results(self, timeout: float | None = None) -> list[R | RoQError]:
        """Wait until all have ended; gives of each its response, or why there is none.

        Raises:
            Unavailable: not in time.
        """
        try:
            async with asyncio.timeout(None if timeout is None else wait_seconds(timeout)):
                return await asyncio.shield(self.future())
        except TimeoutError:
            return self._sync._results(timeout)  # noqa: SLF001 - of its twin

    async def result(self, timeout: float | None = None) -> list[R]:
        """As `results`, if each has a response; raises as `roq.PendingMany.result`."""
        await self.results(timeout)
        return self._sync.result(0)

    def on_done(self, callback: Callable[[PendingMany[R]], object]) -> None:
        """Call this once in this event loop when all have ended; see `Pending.on_done`."""
        _call_in_loop(self._sync, lambda: callback(self))

    def __len__(self) -> int:
        return len(self._sync)

    @overload
    def __getitem__(self, number: int) -> Pending[R]: ...

    @overload
    def __getitem__(self, number: slice) -> list[Pending[R]]: ...

    def __getitem__(self, number: int | slice) -> Pending[R] | list[Pending[R]]:
        if isinstance(number, slice):
            return [Pending(each) for each in self._sync[number]]
        return Pending(self._sync[number])

    def __await__(self) -> Generator[Any, None, list[R | RoQError]]:
        return self.results().__await__()


def _call_in_loop(
    pending: sync_pending.Pending[Any] | sync_many.PendingMany[Any], callback: Callable[[], object]
) -> None:
    """Call this in the running loop when these have ended, and await what it gives."""
    loop = asyncio.get_running_loop()

    async def call() -> None:
        try:
            told = callback()
            if inspect.isawaitable(told):
                await told
        except Exception:
            log.exception("a callback of a request has raised")
        pending.called()

    def begin() -> None:  # in the client's own thread, which must not wait
        calling = call()
        try:
            future = asyncio.run_coroutine_threadsafe(calling, loop)
        except RuntimeError:  # the loop was closed meanwhile
            calling.close()
            return
        _calling.add(future)
        future.add_done_callback(_calling.discard)

    pending.when_done(begin)


class Requester(Leaving[sync_requester.Requester]):
    """Makes requests from one event loop. Made by `Cluster.requester`.

    response = await (await requester.request(create, Order(7), within=60))
    """

    queue = Told[str]("Name of the queue.")
    open = Told[int](sync_requester.Requester.open)
    stats = Told[RequesterStats](sync_requester.Requester.stats)
    trouble = Told[str](sync_requester.Requester.trouble)

    async def request(
        self,
        endpoint: Endpoint[Q, R],
        value: Q,
        *,
        within: float | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        delay: When | None = None,
        inherit: bool = True,
    ) -> Pending[R]:
        """Make a request; waits for room alone. See `roq.Requester.request`."""
        make = partial(
            self._sync.request, endpoint, value, within=within, headers=headers, priority=priority,
            delay=delay, inherit=inherit,
        )  # fmt: skip
        made = await self._made(endpoint, make)
        return Pending(made)

    async def request_many(
        self,
        endpoint: Endpoint[Q, R],
        values: Iterable[Q],
        *,
        within: float | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        inherit: bool = True,
    ) -> PendingMany[R]:
        """Make many requests, in order; waits for room alone. See `roq.Requester.request_many`."""
        await self._know(endpoint)
        making = self._sync.begin_many(endpoint, values, within, headers, priority, inherit=inherit)
        while not making.publish():
            try:
                await asyncio.to_thread(self._sync.wait_for_room)
            except RoQError as error:
                making.give_up(error)
            except asyncio.CancelledError:
                with suppress(RoQError):
                    making.give_up(Unavailable("request_many was cancelled before this was made"))
                raise
        return PendingMany(making.many)

    async def send(
        self,
        endpoint: Endpoint[Q, Any],
        value: Q,
        *,
        within: float | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        delay: When | None = None,
        inherit: bool = True,
    ) -> Receipt:
        """Make a request whose response nobody wants; gives the receipt, to be awaited. See
        `roq.Requester.send`."""
        send = partial(
            self._sync.send, endpoint, value, within=within, headers=headers, priority=priority,
            delay=delay, inherit=inherit,
        )  # fmt: skip
        made = await self._made(endpoint, send)
        return cast("Receipt", made)

    async def _made(self, endpoint: Endpoint[Any, Any], make: Callable[[], R]) -> R:
        await self._know(endpoint)
        while True:
            try:
                return make()
            except WouldBlock:
                await asyncio.to_thread(self._sync.wait_for_room)

    async def _know(self, endpoint: Endpoint[Any, Any]) -> None:
        if not self._sync.knows(endpoint.service):
            await asyncio.to_thread(self._sync.prepare, endpoint.service)

    flush = awaited(sync_requester.Requester.flush)
    close = awaited(sync_requester.Requester.close)


@contextmanager
def _stopped_by_sigterm(stop: Callable[[], object]) -> Iterator[None]:
    """Have SIGTERM call this in the running loop, unless the program handles it itself."""
    loop = asyncio.get_running_loop()
    stops = _stops.get(loop)
    if stops is None:
        main = threading.current_thread() is threading.main_thread()
        if not main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
            yield
            return
        stops = _stops[loop] = []
        loop.add_signal_handler(signal.SIGTERM, _stop_all, stops)
    stops.append(stop)
    try:
        yield
    finally:
        stops.remove(stop)
        if not stops:
            loop.remove_signal_handler(signal.SIGTERM)
            del _stops[loop]


def _stop_all(stops: Sequence[Callable[[], object]]) -> None:
    for stop in stops:
        stop()


class Service(Leaving[sync_service.Service]):
    """One instance of a service, whose `async def` handlers run in this event loop."""

    name = Told[str]("Of the service.")
    queue = Told[str]("Name of the queue.")
    instance = Told[str]("By which people find it.")
    drained = Told[bool]("`Cluster.drain_service` has told it to end.")
    stats = Told[ServiceStats](sync_service.Service.stats)
    state = Told[InstanceState](sync_service.Service.state)
    trouble = Told[str](sync_service.Service.trouble)

    @overload
    def handler(
        self, endpoint: Endpoint[Q, R]
    ) -> Callable[[Handler[Q, R]], Callable[..., Any]]: ...

    @overload
    def handler(
        self, endpoint: Endpoint[Q, R], *, batch: int
    ) -> Callable[[BatchHandler[Q, R]], Callable[..., Any]]: ...

    def handler(
        self, endpoint: Endpoint[Any, Any], *, batch: int | None = None
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Have requests to this endpoint run by the function below; see `roq.Service.handler`."""
        if batch is None:
            return self._sync.handler(endpoint)
        return self._sync.handler(endpoint, batch=batch)

    flag = called(sync_service.Service.flag)

    async def start(self) -> None:
        """Take requests from now on; raises as `roq.Service.start`."""
        await asyncio.to_thread(self._sync.start, asyncio.get_running_loop())

    async def run(self) -> None:
        """Take requests until `stop`, or SIGTERM, or until this is cancelled; then `drain`.

        SIGTERM ends all services of this loop, and nothing else: what the program does when this
        returns is its own matter. It is left alone if the program has a handler for it, and in
        other threads than the main one. Ctrl-C cancels what `asyncio.run` runs.
        """
        if self._sync._shell is None:  # noqa: SLF001 - of its twin, which may be drained since
            await self.start()
        with _stopped_by_sigterm(self._sync.stop):
            try:
                await asyncio.to_thread(self._sync.wait_stopped)
            finally:
                self._sync.stop()
                await asyncio.shield(self.drain())

    stop = called(sync_service.Service.stop)
    drain = awaited(sync_service.Service.drain)
    close = awaited(sync_service.Service.close)

    async def __aenter__(self) -> Self:
        await self.start()
        return self
