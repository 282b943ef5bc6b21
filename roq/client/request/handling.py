"""Runs the handlers of one instance of a service: in threads, or in an event loop.

Requests come from the client's I/O thread, one by one; each is answered, given back or left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from time import monotonic, time
from typing import Any, Final

from roq.client.consume.message import Settlement
from roq.client.request.context import CURRENT, RequestContext, RequestId
from roq.client.request.endpoint import Endpoint, is_async
from roq.client.request.instance import HandlerResult, RequestHolding
from roq.client.request.instance_shell import InstanceShell
from roq.errors import InvalidRequest, LeaseLost, RoQError
from roq.protocol.consuming import clean
from roq.protocol.requesting import (
    ENVELOPE,
    ENVELOPE_VERSION,
    SILENT,
    TEXT_MAX,
    Position,
    RequestState,
)

SECOND_US: Final = 1_000_000

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ServiceStats:
    """What has happened so far at this instance.

    Attributes:
        received, answered: requests.
        failed, retried: of these, and those that were given back after an error.
        lost: answers that came too late: cancelled, or another instance had the request.
    """

    received: int = 0
    answered: int = 0
    failed: int = 0
    retried: int = 0
    lost: int = 0


@dataclass(slots=True)
class Registered:
    """A handler, and of what."""

    endpoint: Endpoint[Any, Any]
    handler: Callable[[Any, RequestContext], Any]
    coroutine: bool


class Handling:
    """The handlers, and what they are at.

    Args:
        service, queue: names.
        instance: by which people find this instance.
        threads: handlers that run at once in threads.
        retry_on: of an error whose text matches, its request is run again.
        retries: so often.

    Attributes:
        shell: to which it is told how requests have ended; None: the service has not begun.
        stats: counters.
        handlers: by topic.
        busy: requests that run.
        waiting: requests that are held and have not begun to run.
        draining: what has not begun is given back.
    """

    def __init__(
        self, service: str, queue: str, instance: str, threads: int,
        retry_on: re.Pattern[str] | None, retries: int,
    ) -> None:  # fmt: skip
        self.shell: InstanceShell | None = None
        self.stats = ServiceStats()
        self.handlers: dict[str, Registered] = {}
        self.busy = 0
        self.waiting = 0
        self.draining = False
        self._service = service
        self._queue = queue
        self._instance = instance
        self._threads = threads
        self._retry_on = retry_on
        self._retries = retries
        self._lock = threading.Lock()
        """For what is told of requests: one thread at a time."""
        self._idle = threading.Condition(self._lock)
        self._work: SimpleQueue[tuple[RequestHolding, int] | None] = SimpleQueue()
        self._workers: list[threading.Thread] = []
        self._times: deque[float] = deque(maxlen=100)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._own_loop = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def response_ms(self) -> float:
        """How long handlers have run of late, in the mean."""
        times = list(self._times)
        return 1_000 * sum(times) / len(times) if times else 0.0

    def register(self, endpoint: Endpoint[Any, Any], function: Callable[..., Any]) -> None:
        """Have requests to this endpoint run by this function.

        Raises:
            InvalidRequest: the endpoint is another service's, or has a handler.
        """
        if endpoint.service != self._service:
            raise InvalidRequest(f"endpoint {endpoint.name} is not one of service {self._service}")
        if endpoint.topic in self.handlers:
            raise InvalidRequest(f"endpoint {endpoint.name} has a handler already")
        self.handlers[endpoint.topic] = Registered(endpoint, function, is_async(function))

    def start(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Begin.

        Args:
            loop: where `async def` handlers run; None: one of its own.
        """
        for number in range(self._threads):
            worker = threading.Thread(
                target=self._work_on, name=f"roq-{self._service}-{number}", daemon=True
            )
            worker.start()
            self._workers.append(worker)
        self._loop = loop
        if loop is None and any(each.coroutine for each in self.handlers.values()):
            self._start_loop()

    def wait_idle(self, seconds: float) -> bool:
        """Wait until nothing runs and nothing is held; False: not in time."""
        deadline = monotonic() + seconds
        with self._idle:
            while self.busy or self.waiting:
                remaining = deadline - monotonic()
                if remaining <= 0:
                    return False
                self._idle.wait(min(1.0, remaining))
        return True

    def stop(self) -> None:
        """Begin with nothing more; what runs in threads runs on, and nobody is told of it."""
        self.draining = True
        for _ in self._workers:
            self._work.put(None)
        loop = self._loop
        if self._own_loop and loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed already
                loop.call_soon_threadsafe(loop.stop)

    def enqueue(self, holding: RequestHolding, index: int) -> None:
        """A request is to run; I/O thread."""
        self.stats.received += 1
        with self._lock:
            self.waiting += 1
        registered = self.handlers.get(holding.batch.topic)
        loop = self._loop
        if registered is not None and registered.coroutine and loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed: so is the service
                loop.call_soon_threadsafe(self._begin_task, holding, index)
        else:
            self._work.put((holding, index))

    def _work_on(self) -> None:
        """A worker thread."""
        while True:
            work = self._work.get()
            if work is None:
                return
            run = self._prepare(*work)
            if run is None:
                continue
            registered, value, context = run
            began = monotonic()
            token = CURRENT.set(context)
            try:
                answered = _result(registered, registered.handler(value, context), context)
            except BaseException as error:  # noqa: BLE001 - the handler's: the thread goes on
                self._failed(*work, context, error, began)
            else:
                self._end(*work, answered, began)
            finally:
                CURRENT.reset(token)

    def _begin_task(self, holding: RequestHolding, index: int) -> None:
        task = asyncio.ensure_future(self._run_task(holding, index))  # noqa: TID251 - kept below
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_task(self, holding: RequestHolding, index: int) -> None:
        run = self._prepare(holding, index)
        if run is None:
            return
        registered, value, context = run
        began = monotonic()
        CURRENT.set(context)
        try:
            answered = _result(registered, await registered.handler(value, context), context)
        except GeneratorExit:
            raise  # the loop is gone, and what was left there collected
        except BaseException as error:  # noqa: BLE001 - the handler's: the loop goes on
            self._failed(holding, index, context, error, began)
        else:
            self._end(holding, index, answered, began)

    def _prepare(
        self, holding: RequestHolding, index: int
    ) -> tuple[Registered, Any, RequestContext] | None:
        """What is to run now; None: nothing, and it was said why."""
        payload, batch = holding.batch.payloads[index], holding.batch
        answered: HandlerResult | None = None
        run: tuple[Registered, Any, RequestContext] | None = None
        if self.draining:
            self._return(holding, index, Settlement(counted=False, reason="its instance ends"))
            return None
        if holding.is_lost(index, 1):
            self._leave_out()
            return None
        registered = self.handlers.get(batch.topic)
        if len(payload) < ENVELOPE.size or payload[0] != ENVELOPE_VERSION:
            answered = HandlerResult(
                RequestState.FAILED, text="it is no request of this version of RoQ"
            )
        elif registered is None:
            name = batch.topic.replace("/", ".", 1)
            text = f"none registered: {self._instance} has no endpoint {name}"
            answered = HandlerResult(RequestState.DISCARDED, text=text)
        else:
            _, _, within_ms = ENVELOPE.unpack_from(payload)
            left = math.inf
            if within_ms:
                left = (batch.created_us + within_ms * 1_000) / SECOND_US - time()
            if left <= 0:
                answered = HandlerResult(
                    RequestState.LATE, text="its time was over before it had begun"
                )
            else:
                try:
                    value = registered.endpoint.decode_request(payload[ENVELOPE.size :])
                except BaseException as error:  # noqa: BLE001 - whatever the codec raises
                    kind = registered.endpoint.request
                    text = f"the request is no {kind!r}: {brief(error)}"
                    answered = HandlerResult(RequestState.FAILED, text=text)
                else:
                    run = registered, value, self._context(holding, index, registered, left)
        if answered is not None:
            self._end(holding, index, answered, None)
            return None
        with self._lock:
            self.waiting -= 1
            self.busy += 1
        return run

    def _context(
        self, holding: RequestHolding, index: int, registered: Registered, left: float
    ) -> RequestContext:
        position = Position(holding.offset, holding.first + index)
        batch = holding.batch

        def headers() -> Mapping[str, str]:
            if batch.attributes is None:
                return {}
            return batch.attributes.of(batch.sequence + index).properties

        return RequestContext(
            str(RequestId(self._queue, holding.log, position)), registered.endpoint.name,
            holding.attempt, monotonic() + left, monotonic, headers,
            lambda: holding.is_lost(index, 1),
        )  # fmt: skip

    def _failed(
        self, holding: RequestHolding, index: int, context: RequestContext,
        error: BaseException, began: float,
    ) -> None:  # fmt: skip
        text = _whole(error).encode("utf-8", "replace")
        if len(text) > TEXT_MAX:
            text = text[: TEXT_MAX // 2] + b"\n...\n" + text[-TEXT_MAX // 2 + 8 :]
        told = text.decode("utf-8", "ignore")
        again = (
            self._retry_on is not None
            and context.attempt <= self._retries
            and self._retry_on.search(told) is not None
        )
        if again and not context.cancelled:
            self._times.append(monotonic() - began)
            self.stats.retried += 1
            self._return(holding, index, Settlement(reason=brief(error)), ran=True)
            return
        self.stats.failed += 1
        self._end(holding, index, HandlerResult(RequestState.FAILED, text=told), began)

    def _end(
        self, holding: RequestHolding, index: int, answered: HandlerResult, began: float | None
    ) -> None:
        """A request has ended, here; whether it ran since then, or not at all."""
        if holding.batch.payloads[index][1:2] and holding.batch.payloads[index][1] & SILENT:
            answered = answered._replace(silent=True, value=b"")
        answered = answered._replace(text=clean(answered.text, TEXT_MAX))
        self._tell(lambda shell: shell.answer(holding, index, answered), ran=began is not None)
        if began is not None:
            self._times.append(monotonic() - began)
        self.stats.answered += 1

    def _return(
        self, holding: RequestHolding, index: int, verdict: Settlement, *, ran: bool = False
    ) -> None:
        self._tell(lambda shell: shell.give_back(holding, index, verdict), ran=ran)

    def _leave_out(self) -> None:
        self._tell(lambda _: None, ran=False)
        self.stats.lost += 1

    def _tell(self, say: Callable[[InstanceShell], None], *, ran: bool) -> None:
        shell = self.shell
        with self._idle:
            if ran:
                self.busy -= 1
            else:
                self.waiting -= 1
            if shell is not None:
                try:
                    say(shell)
                except LeaseLost:
                    self.stats.lost += 1
                except RoQError as error:  # it is closed: who looks for it finds it elsewhere
                    log.debug("an answer was not told: %s", error)
            if self.draining and not (self.busy or self.waiting):
                self._idle.notify_all()

    def _start_loop(self) -> None:
        loop = self._loop = asyncio.new_event_loop()
        self._own_loop = True

        def run() -> None:
            asyncio.set_event_loop(loop)
            try:
                loop.run_forever()
            finally:
                for task in list(self._tasks):
                    task.cancel()
                if self._tasks:
                    loop.run_until_complete(asyncio.wait(self._tasks, timeout=1.0))
                loop.close()

        threading.Thread(target=run, name=f"roq-{self._service}-loop", daemon=True).start()


def brief(error: BaseException) -> str:
    """What an error says, whatever it does when it is asked."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001 - the program's own
        return f"{type(error).__name__}, which cannot be printed"


def _whole(error: BaseException) -> str:
    """The same with its traceback."""
    try:
        return "".join(traceback.format_exception(error))
    except BaseException:  # noqa: BLE001 - the program's own
        return brief(error)


def _result(registered: Registered, value: Any, context: RequestContext) -> HandlerResult:
    """What a handler has returned; nothing that comes too late counts."""
    if monotonic() >= context.deadline:
        return HandlerResult(RequestState.LATE, text="its result came when its time was over")
    return HandlerResult(RequestState.DONE, registered.endpoint.encode_response(value))
