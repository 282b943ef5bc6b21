"""Runs the handlers of one instance of a service: in threads, or in an event loop.

Requests come from the client's I/O thread; each is answered, given back or left out. A batch
handler is called with what has come of its endpoint and has not begun, up to so many at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import monotonic, time
from typing import Any, Final, cast

import msgspec

from roq.client.consume.holding import LOST, OPEN
from roq.client.consume.message import Settlement
from roq.client.request.calls import (
    BatchRun,
    HeldWork,
    Registered,
    Work,
    answers_of,
    first_over,
    marked,
    result_of,
    results_of,
    values_of,
)
from roq.client.request.context import CURRENT, RequestContext
from roq.client.request.endpoint import Endpoint, is_async, type_text
from roq.client.request.instance_shell import InstanceShell
from roq.client.request.request_holding import (
    BACK,
    RUNS,
    WAITING,
    HandlerResult,
    RequestHolding,
)
from roq.client.request.workers import Workers
from roq.errors import InvalidRequest, LeaseLost, RoQError, brief, whole
from roq.protocol.consuming import clean
from roq.protocol.requesting import ENVELOPE, ENVELOPE_VERSION, TEXT_MAX, RequestState, quick

SECOND_US: Final = 1_000_000
LATELY_SECONDS: Final = 10.0
"""How long a handler has run counts for so long: an instance that takes nothing, as it was slow,
would never be quick again."""
BATCHES_HELD: Final = 4
"""Of the largest one; unless it is said how much an instance holds."""
_WAITING: Final = bytes((WAITING,))
_RUNS: Final = bytes((RUNS,))
_BACK: Final = bytes((BACK,))
_NOT_BEGUN: Final = Settlement(counted=False, reason="its instance had no thread for it")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ServiceStats:
    """What has happened so far at this instance.

    Attributes:
        received, answered: requests.
        failed, retried: of these, and those that were given back after an error.
        lost: answers that came too late: cancelled, or another instance had the request.
        elsewhere, orphaned: answers to requests whose exchange was gone: another one has taken
            them, or none has, and they were dropped.
    """

    received: int = 0
    answered: int = 0
    failed: int = 0
    retried: int = 0
    lost: int = 0
    elsewhere: int = 0
    orphaned: int = 0


class Handling:
    """The handlers, and what they are at.

    Args:
        service, queue: names.
        instance: by which people find this instance.
        threads: handlers that run at once in threads.
        retry_on: of an error whose text matches, its request is run again.
        retries: so often.
        clock: monotonic, seconds.
        wall_clock: seconds since 1970.

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
        clock: Callable[[], float] = monotonic, wall_clock: Callable[[], float] = time,
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
        self._clock = clock
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        """For what is told of requests: one thread at a time."""
        self._idle = threading.Condition(self._lock)
        self._workers: Workers[Work | Registered] = Workers(f"roq-{service}", self._work_on)
        """They are given single requests, and batch handlers that have something to do."""
        self._times: deque[tuple[float, float]] = deque(maxlen=100)
        """When handlers have ended, and how long each has run."""
        self._came = 0
        """Requests that a thread, or the loop, has come for, also those that were given back."""
        self._in_loop = 0
        """Of what runs, requests of coroutines."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._own_loop = False
        self._stopped = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def response_ms(self) -> float:
        """How long handlers have run of late, in the mean; 0: none has ended of late."""
        since = self._clock() - LATELY_SECONDS
        times = [took for ended, took in list(self._times) if ended >= since]
        return 1_000 * sum(times) / len(times) if times else 0.0

    @property
    def used(self) -> int:
        """Requests that wait for a handler, or have a thread."""
        return self.waiting + self.busy - self._in_loop

    @property
    def moves(self) -> int:
        """How often a thread, or the loop, has come for a request, or was through with one: as long
        as this stays what it is, all of them are busy."""
        return self._came + self.stats.answered + self.stats.retried

    @property
    def at_once(self) -> int:
        """Requests that can begin at once, if none runs: one in each thread, or a batch in each of
        a few; 0: as many as come, as all handlers are coroutines."""
        if all(each.coroutine for each in self.handlers.values()):
            return 0
        return max(self._threads, min(self._threads, BATCHES_HELD) * self.largest)

    @property
    def largest(self) -> int:
        """Requests that a call of a batch handler has at most; 0: there is no such handler."""
        return max((each.most for each in self.handlers.values()), default=0)

    def register(
        self, endpoint: Endpoint[Any, Any], function: Callable[..., Any], most: int = 0
    ) -> None:
        """Have requests to this endpoint run by this function.

        Args:
            most: requests that one call has at most; 0: it is no batch handler.

        Raises:
            InvalidRequest: the endpoint is another service's, or has a handler.
        """
        if endpoint.service != self._service:
            raise InvalidRequest(f"endpoint {endpoint.name} is not one of service {self._service}")
        if endpoint.topic in self.handlers:
            raise InvalidRequest(f"endpoint {endpoint.name} has a handler already")
        self.handlers[endpoint.topic] = Registered(endpoint, function, is_async(function), most)

    def start(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Begin.

        Args:
            loop: where `async def` handlers run; None: one of its own.
        """
        self._workers.start(self._threads)
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
        self.draining = self._stopped = True
        self._workers.stop()
        loop = self._loop
        if self._own_loop and loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed already
                loop.call_soon_threadsafe(loop.stop)

    def enqueue(self, holding: RequestHolding, indexes: range) -> None:
        """Requests are to run; I/O thread."""
        with self._lock:
            self.stats.received += len(indexes)
            self.waiting += len(indexes)
            holding.stages[indexes.start : indexes.stop] = _WAITING * len(indexes)
        registered = self.handlers.get(holding.batch.topic)
        if registered is not None and registered.most:
            registered.due.append(Work(holding, indexes.start, len(indexes)))
        works = [quick(Work, (holding, index, 1)) for index in indexes]
        loop = self._loop
        if registered is None:
            self._workers.put(works)
            return
        if not registered.coroutine or loop is None:
            self._workers.put([registered] if registered.most else works)
            return
        with contextlib.suppress(RuntimeError):  # it is closed: so is the service
            if registered.most:
                loop.call_soon_threadsafe(self._begin_batches, registered)
            else:
                loop.call_soon_threadsafe(self._begin_tasks, works)

    def withdraw(self, holding: RequestHolding) -> None:
        """Give back what of this no handler has begun with; I/O thread."""
        shell = self.shell
        with self._lock:
            for first, count in holding.open_at(WAITING):
                holding.stages[first : first + count] = _BACK * count
                self.waiting -= count
                if shell is not None:
                    with contextlib.suppress(RoQError):  # it is closed: others have it anyway
                        shell.settle(holding, first, count, _NOT_BEGUN)
            self._look_idle()

    def note_orphaned(self, taken: int, dropped: int) -> None:
        """So many answers whose exchange was gone have found another one, or none; I/O thread."""
        self.stats.elsewhere, self.stats.orphaned = taken, dropped

    def _work_on(self, work: Work | Registered) -> None:
        """In a worker thread."""
        if isinstance(work, Registered):
            self._run_batch(work)
            return
        run = self._prepare(work)
        if run is not None:
            self._call(work, run, self._clock())

    def _call(self, work: Work, run: tuple[Registered, Any, RequestContext], began: float) -> None:
        """Run a handler that is prepared, and say how that has ended."""
        registered, value, context = run
        token = CURRENT.set(context)
        try:
            answered = result_of(
                registered, registered.handler(value, context), context, self._clock()
            )
        except BaseException as error:  # noqa: BLE001 - the handler's: the thread goes on
            self._failed(work, context, error, began)
        else:
            self._end(work, answered, began)
        finally:
            CURRENT.reset(token)

    def _run_batch(self, registered: Registered) -> None:
        """In a worker thread."""
        works = registered.take()
        if registered.due:
            self._workers.put([registered])  # another thread may begin with the rest
        batch = self._prepare_all(registered, works)
        if not batch:
            return
        values, contexts = values_of(batch)
        began = self._clock()
        token = CURRENT.set(first_over(batch))
        try:
            answers = answers_of(registered.handler(values, contexts), len(contexts))
        except BaseException as error:  # noqa: BLE001 - the handler's: the thread goes on
            answers = [error] * sum(each.work.length for each in batch)
        finally:
            CURRENT.reset(token)
        self._end_all(registered, batch, answers, began)

    def _begin_tasks(self, works: list[Work]) -> None:
        for work in works:
            self._begin(self._run_task(work))

    def _begin_batches(self, registered: Registered) -> None:
        while works := registered.take():
            self._begin(self._run_batch_task(registered, works))

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(coroutine)  # noqa: TID251 - kept below
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_task(self, work: Work) -> None:
        run = self._prepare(work)
        if run is None:
            return
        registered, value, context = run
        began = self._clock()
        CURRENT.set(context)
        self._in_loop += 1
        try:
            answered = result_of(
                registered, await registered.handler(value, context), context, self._clock()
            )
        except BaseException as error:  # noqa: BLE001 - the handler's: the loop goes on
            self._check_loop(error)
            self._failed(work, context, error, began)
        else:
            self._end(work, answered, began)
        finally:
            self._in_loop -= 1

    def _check_loop(self, error: BaseException) -> None:
        """A handler has not raised this if its loop is gone, and what was left there collected."""
        here = asyncio._get_running_loop()  # noqa: SLF001 - it may be none
        if isinstance(error, GeneratorExit) and here is not self._loop:
            raise error

    async def _run_batch_task(self, registered: Registered, works: list[Work]) -> None:
        batch = self._prepare_all(registered, works)
        if not batch:
            return
        values, contexts = values_of(batch)
        began = self._clock()
        CURRENT.set(first_over(batch))
        self._in_loop += len(contexts)
        try:
            answers = answers_of(await registered.handler(values, contexts), len(contexts))
        except BaseException as error:  # noqa: BLE001 - the handler's: the loop goes on
            self._check_loop(error)
            answers = [error] * sum(each.work.length for each in batch)
        finally:
            self._in_loop -= len(contexts)
        self._end_all(registered, batch, answers, began)

    def _prepare_all(self, registered: Registered, works: list[Work]) -> list[BatchRun]:
        """What is to run of these, in one call."""
        now, clock = self._wall_clock(), self._clock()
        runs: list[BatchRun] = []
        for work in self._claim_all(works):
            run = self._ready_alike(registered, work, now, clock)
            if run is not None:
                runs.append(run)
                continue
            for one in work.each():
                found = self._ready(one, now, clock)
                if found is not None:
                    runs.append(BatchRun(one, [found[1]], [found[2]]))
        return runs

    def _ready_alike(
        self, registered: Registered, work: Work, now: float, clock: float
    ) -> BatchRun | None:
        """Requests that are all to run, and have the same time; None: each is looked at alone."""
        holding, first, count = work
        payloads = holding.batch.payloads[first : first + count]
        head = bytes(payloads[0][: ENVELOPE.size])
        if self.draining or len(head) < ENVELOPE.size:
            return None
        left = self._left(holding, head, now)
        if left <= 0 or not all(each.startswith(head) for each in payloads):
            return None
        decode, size = registered.endpoint.decode_request, ENVELOPE.size
        try:
            values = [decode(each[size:]) for each in payloads]
        except BaseException:  # noqa: BLE001 - whatever the codec raises
            return None
        queue, name, attempt = self._queue, registered.endpoint.name, holding.attempt
        return BatchRun(work, values, [
            RequestContext(HeldWork(queue, one), name, attempt, clock + left, self._clock)
            for one in work.each()
        ])  # fmt: skip

    def _left(self, holding: RequestHolding, head: bytes, now: float) -> float:
        """Seconds that a request has which begins so; 0: its envelope is of another version."""
        version, _, within_ms = cast("tuple[int, int, int]", ENVELOPE.unpack_from(head))
        if version != ENVELOPE_VERSION:
            return 0.0
        if not within_ms:
            return math.inf
        return (holding.batch.created_us + within_ms * 1_000) / SECOND_US - now

    def _prepare(self, work: Work) -> tuple[Registered, Any, RequestContext] | None:
        """What is to run now; None: nothing, and it was said why."""
        with self._lock:
            if not self._claim(work):
                return None
        return self._ready(work, self._wall_clock(), self._clock())

    def _claim(self, work: Work) -> bool:
        """Whether this is to be begun, and nobody can give it back any more; with the lock."""
        holding, at, _ = work
        self._came += 1
        if holding.stages[at] != WAITING:
            return False  # it was given back
        holding.stages[at] = RUNS
        self.waiting -= 1
        if holding.states[at] == LOST:
            self.stats.lost += 1
            self._look_idle()
            return False
        self.busy += 1
        return True

    def _claim_all(self, works: list[Work]) -> list[Work]:
        """Likewise; those that are."""
        claimed: list[Work] = []
        with self._lock:
            for work in works:
                holding, first, count = work
                end = first + count
                waiting = holding.stages.count(WAITING, first, end)
                if waiting == holding.states.count(OPEN, first, end) == count:
                    holding.stages[first:end] = _RUNS * count
                    self.waiting -= count
                    self.busy += count
                    self._came += count
                    claimed.append(work)
                else:
                    claimed += [one for one in work.each() if self._claim(one)]
        return claimed

    def _ready(
        self, work: Work, now: float, clock: float
    ) -> tuple[Registered, Any, RequestContext] | None:
        """What is to run, at this time of both clocks; None: nothing, and it was said why."""
        if self.draining:
            self._return(work, Settlement(counted=False, reason="its instance ends"))
            return None
        found = self._read(work, now, clock)
        if isinstance(found, HandlerResult):
            self._end(work, found, None)
            return None
        return found

    def _read(
        self, work: Work, now: float, clock: float
    ) -> tuple[Registered, Any, RequestContext] | HandlerResult:
        """What is to run; or how the request ends without that."""
        payload, batch = work.holding.batch.payloads[work.at], work.holding.batch
        registered = self.handlers.get(batch.topic)
        if len(payload) < ENVELOPE.size or payload[0] != ENVELOPE_VERSION:
            text = "it is no request of this version of RoQ"
            return HandlerResult(RequestState.FAILED, text=text)
        if registered is None:
            name = batch.topic.replace("/", ".", 1)
            text = f"none registered: {self._instance} has no endpoint {name}"
            return HandlerResult(RequestState.DISCARDED, text=text)
        left = self._left(work.holding, payload, now)
        if left <= 0:
            text = "its time was over before it had begun"
            return HandlerResult(RequestState.LATE, text=text)
        try:
            value = registered.endpoint.decode_request(payload[ENVELOPE.size :])
        except BaseException as error:  # noqa: BLE001 - whatever the codec raises
            kind = type_text(registered.endpoint.request)
            text = f"the request is no {kind}: {brief(error)}"
            return HandlerResult(RequestState.FAILED, text=text)
        context = RequestContext(
            HeldWork(self._queue, work), registered.endpoint.name, work.holding.attempt,
            clock + left, self._clock,
        )  # fmt: skip
        return registered, value, context

    def _end_all(
        self, registered: Registered, batch: list[BatchRun], answers: list[Any], began: float
    ) -> None:
        """What a batch handler has returned, or raised: an answer to each request."""
        ended, begin = self._clock(), 0
        self._times.append((ended, ended - began))
        for run in batch:
            holding, first, count = run.work
            end = begin + count
            some, begin = answers[begin:end], end
            results = results_of(registered, run, some, ended)
            if results is not None:
                self._tell_answers(holding, first, results, ran=True)
                continue
            for one, context, answer in zip(run.work.each(), run.contexts, some, strict=True):
                if isinstance(answer, BaseException):  # not raised: its traceback would grow
                    self._failed(one, context, answer, None)
                    continue
                try:
                    result = result_of(registered, answer, context, ended)
                except BaseException as error:  # noqa: BLE001 - of the codec
                    self._failed(one, context, error, None)
                else:
                    self._tell_answers(holding, one.at, [marked(one, result)], ran=True)

    def _failed(
        self, work: Work, context: RequestContext, error: BaseException, began: float | None
    ) -> None:
        """The handler has raised.

        Args:
            began: when it was called; None: of a batch, of which that is noted elsewhere.
        """
        if began is not None:
            self._note_time(began)
        text = self._text_of(error).encode("utf-8", "replace")
        if len(text) > TEXT_MAX:
            text = text[: TEXT_MAX // 2] + b"\n...\n" + text[-TEXT_MAX // 2 + 8 :]
        told = text.decode("utf-8", "ignore")
        again = (
            self._retry_on is not None
            and context.attempt - work.holding.losses <= self._retries
            and self._retry_on.search(told) is not None
        )
        if again and not context.cancelled:
            self._return(work, Settlement(reason=brief(error)), ran=True)
            return
        result = HandlerResult(RequestState.FAILED, text=clean(told, TEXT_MAX))
        self._tell_answers(work.holding, work.at, [marked(work, result)], ran=True)

    def _note_time(self, began: float) -> None:
        ended = self._clock()
        self._times.append((ended, ended - began))

    def _text_of(self, error: BaseException) -> str:
        """What who has asked is told of an error, and `retry_on` is searched for in."""
        return whole(error)

    def _end(self, work: Work, answered: HandlerResult, began: float | None) -> None:
        """A request has ended, here; whether it ran since then, or not at all."""
        if began is not None:
            self._note_time(began)
        if answered.text:
            text = clean(answered.text, TEXT_MAX)
            answered = msgspec.structs.replace(answered, text=text)
        answers = [marked(work, answered)]
        self._tell_answers(work.holding, work.at, answers, ran=began is not None)

    def _tell_answers(
        self, holding: RequestHolding, first: int, answers: list[HandlerResult], *, ran: bool
    ) -> None:
        shell, stats = self.shell, self.stats
        with self._idle:
            self._was_told(len(answers))  # before the exchange can give it something else
            stats.answered += len(answers)
            stats.failed += ran and answers[0].state is RequestState.FAILED
            if shell is not None:
                try:
                    shell.answer(holding, first, answers)
                except LeaseLost:
                    stats.lost += sum(holding.is_lost(first + at, 1) for at in range(len(answers)))
                except RoQError as error:  # it is closed: who looks for it finds it elsewhere
                    log.debug("an answer was not told: %s", error)

    def _return(self, work: Work, verdict: Settlement, *, ran: bool = False) -> None:
        shell = self.shell
        with self._idle:
            self._was_told(1)
            self.stats.retried += ran
            if shell is not None:
                try:
                    shell.give_back(work.holding, work.at, verdict)
                except LeaseLost:
                    self.stats.lost += 1
                except RoQError as error:  # as above
                    log.debug("that a request is given back was not told: %s", error)

    def _was_told(self, count: int) -> None:
        """So many requests do not run here any more; with the lock, and what is told of them is
        told under it."""
        self.busy -= count
        self._look_idle()

    def _look_idle(self) -> None:
        if self.draining and not (self.busy or self.waiting):
            self._idle.notify_all()

    def _start_loop(self) -> None:
        loop = self._loop = asyncio.new_event_loop()
        self._own_loop = True

        def run() -> None:
            asyncio.set_event_loop(loop)
            while not self._stopped:  # a handler may stop the loop
                try:
                    loop.run_forever()
                except BaseException:  # of a task that a handler has left there
                    log.exception("a task in the event loop of service %s", self._service)
            tasks = list(self._tasks)  # these leave the set as they end
            for task in tasks:
                task.cancel()
            if tasks:
                with contextlib.suppress(RuntimeError):  # it was told to stop once more
                    loop.run_until_complete(asyncio.wait(tasks, timeout=1.0))
            loop.close()

        threading.Thread(target=run, name=f"roq-{self._service}-loop", daemon=True).start()
