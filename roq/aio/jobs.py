"""The asyncio side of jobs: submitting and waiting, and handlers that run in the program's loop."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable, Coroutine, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import Any, Generic, Protocol, Self, TypeVar, overload

import sqlalchemy as sa

from roq.aio.twin import Leaving, Told, Twin, awaited, called
from roq.errors import Unavailable
from roq.jobs import batches
from roq.jobs import handle as sync_handle
from roq.jobs import jobs as sync_jobs
from roq.jobs import types as sync_types
from roq.jobs.dispatch import QUEUE
from roq.jobs.handle import FIRST_LOOK_SECONDS, LAST_LOOK_SECONDS
from roq.jobs.limits import TypeLimits
from roq.jobs.schedules import NewSchedule
from roq.jobs.states import DEFAULT, ENDED, RETRIES, TIME_LIMIT_SECONDS, JobStatus
from roq.jobs.timetable import CatchUp, Overlap
from roq.jobs.types import JobKind, Upgrade
from roq.jobs.worker import JobWorker
from roq.model import wait_seconds

R = TypeVar("R")


class TypeMaker(Protocol):
    """Makes a type of a handler; what `Jobs.type` gives."""

    @overload
    def __call__(self, handler: Callable[..., Coroutine[Any, Any, R]]) -> JobType[R]: ...
    @overload
    def __call__(self, handler: Callable[..., R]) -> JobType[R]: ...


class _Waiting:
    """All that is waited for, with one look at the database for all of it."""

    def __init__(self, jobs: sync_jobs.Jobs) -> None:
        self._jobs = jobs
        self._futures: dict[int, set[asyncio.Future[None]]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._fresh = False

    async def ended(self, job: int) -> None:
        """Wait until a job has ended, or is deleted."""
        loop = asyncio.get_running_loop()
        if self._looking is not None and not self._looking.get_loop().is_running():
            self._futures, self._looking = {}, None  # of a loop that was left as it was
        future = loop.create_future()
        self._futures.setdefault(job, set()).add(future)
        self._fresh = True
        self._jobs.tell_change()
        if self._looking is None:
            self._looking = loop.create_task(self._look())
        try:
            await future
        finally:
            mine = self._futures.get(job, set())
            mine.discard(future)
            if not mine:
                self._futures.pop(job, None)

    async def _look(self) -> None:
        pause = FIRST_LOOK_SECONDS
        try:
            while self._futures:
                if self._fresh:
                    pause, self._fresh = FIRST_LOOK_SECONDS, False
                for job in await asyncio.to_thread(self._jobs.ended_of, tuple(self._futures)):
                    self._settle(job, None)
                if self._futures and not self._fresh:
                    await asyncio.to_thread(self._jobs.wait_for_change, pause)
                    pause = min(LAST_LOOK_SECONDS, pause * 1.5)
        except Exception as error:  # noqa: BLE001 - those who wait are to know
            for job in tuple(self._futures):
                self._settle(job, error)
        finally:
            self._looking = None

    def _settle(self, job: int, error: Exception | None) -> None:
        for future in self._futures.pop(job, ()):
            if not future.done():
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)


class JobHandle(Twin[sync_handle.JobHandle[R]], Generic[R]):
    """As `roq.JobHandle`; `await handle` gives the result."""

    __slots__ = ("_waiting",)

    def __init__(self, handle: sync_handle.JobHandle[R], waiting: _Waiting) -> None:
        super().__init__(handle)
        self._waiting = waiting

    id = Told[int]("Of the job; `roq jobs show` takes it.")
    new = Told[bool]("Whether it was made by this call; False: `unique` found another one.")
    status = awaited(sync_handle.JobHandle.status)

    async def wait(self, timeout: float | None = None) -> JobStatus:
        """Wait until it has ended; gives how. See `roq.JobHandle.wait`.

        However many are waited for, one thread looks for all of them.
        """
        now = asyncio.get_running_loop().time()
        deadline = None if timeout is None else now + wait_seconds(timeout)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._waiting.ended(self.id)
            status = await self.status()
            if status in ENDED:
                return status
            if deadline is not None and asyncio.get_running_loop().time() >= deadline:
                raise Unavailable(f"job {self.id} is {status} after {timeout} s: `roq jobs show`")

    async def result(self, timeout: float | None = None) -> R:
        """Wait until it has ended; gives what its handler has returned. See `roq.JobHandle`."""
        await self.wait(timeout)
        return await asyncio.to_thread(self._sync.result, 0)

    def __await__(self) -> Generator[Any, Any, R]:
        return self.result().__await__()


class JobType(Twin[sync_types.JobType[R]], Generic[R]):
    """A type of jobs, made by `Jobs.type`; see `roq.JobType`.

    Attributes:
        sync: the same for threads.
    """

    def __init__(self, kind: sync_types.JobType[R], waiting: _Waiting) -> None:
        super().__init__(kind)
        self.sync = kind
        self._waiting = waiting

    name = Told[str]("By which the database knows it.")
    handler = Told[Callable[..., Any]](
        "The function: of a `roq.Job` and of the params, if the jobs have any."
    )
    version = Told[int]("Of the params, as this program writes them.")
    restartable = Told[bool]("Whether a job may run again by itself after it failed half way.")
    limits = Told[TypeLimits]("That hold unless an operator sets others.")
    kind = Told[JobKind]("Where the handler runs.")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The handler itself, called here and now."""
        return self.sync(*args, **kwargs)

    async def submit(
        self,
        params: Any = None,
        *,
        priority: int | str | None = None,
        due: datetime | None = None,
        unique: str | None = None,
        on_unique: str = "raise",
        key: str | None = None,
        after: Iterable[JobHandle[Any] | int] = (),
        tag: str = "",
        connection: sa.Connection | None = None,
    ) -> JobHandle[R]:
        """Submit a job; it is in the database when this returns. See `roq.JobType.submit`.

        Args:
            params, priority, due, unique, on_unique, key, after, tag: as there.
            connection: a transaction of `jobs.sync.engine`; nobody else uses it meanwhile.
        """
        made = await _whole(
            self.sync.submit, params, priority=priority, due=due, unique=unique,
            on_unique=on_unique, key=key, after=_ids(after), tag=tag, connection=connection,
        )  # fmt: skip
        return JobHandle(made, self._waiting)

    async def submit_many(
        self,
        params: Iterable[Any],
        *,
        priority: int | str | None = None,
        due: datetime | None = None,
        key: str | None = None,
        after: Iterable[JobHandle[Any] | int] = (),
        tag: str = "",
        connection: sa.Connection | None = None,
    ) -> list[JobHandle[R]]:
        """Submit a job for each of these params, all in one transaction; otherwise as `submit`."""
        made = await _whole(
            self.sync.submit_many, params, priority=priority, due=due, key=key, after=_ids(after),
            tag=tag, connection=connection,
        )  # fmt: skip
        return [JobHandle(each, self._waiting) for each in made]


class JobBatch(Twin[batches.JobBatch]):
    """As `roq.JobBatch`. Made by `Jobs.batch`."""

    def __init__(self, batch: batches.JobBatch, waiting: _Waiting) -> None:
        super().__init__(batch)
        self._waiting = waiting

    name = Told[str]("Of the batch; its jobs have it as their tag.")

    @property
    def handles(self) -> list[JobHandle[Any]]:
        """Of its jobs, in their order, without the last; empty before `then`."""
        return [JobHandle(each, self._waiting) for each in self._sync.handles]

    def __len__(self) -> int:
        return len(self._sync)

    def add(
        self,
        type_: JobType[Any],
        params: Any = None,
        *,
        priority: int | str | None = None,
        due: datetime | None = None,
        unique: str | None = None,
        on_unique: str = "raise",
        key: str | None = None,
        after: Iterable[JobHandle[Any] | int] = (),
    ) -> None:
        """One job more; see `roq.JobBatch.add`."""
        self._sync.add(
            type_.sync, params, priority=priority, due=due, unique=unique, on_unique=on_unique,
            key=key, after=_ids(after),
        )  # fmt: skip

    async def then(
        self,
        type_: JobType[R],
        params: Any = None,
        *,
        priority: int | str | None = None,
        due: datetime | None = None,
        key: str | None = None,
        connection: sa.Connection | None = None,
    ) -> JobHandle[R]:
        """Submit the batch, with this job as its last one; see `roq.JobBatch.then`."""
        made = await _whole(
            self._sync.then, type_.sync, params, priority=priority, due=due, key=key,
            connection=connection,
        )  # fmt: skip
        return JobHandle(made, self._waiting)

    progress = awaited(batches.JobBatch.progress)


class Jobs(Leaving[sync_jobs.Jobs]):
    """As `roq.Jobs`, in one event loop: `async def` handlers of its instances run there.

        jobs = roq.aio.Jobs("jobs.db")

        @jobs.type("Fetch", restartable=True)
        async def fetch(job: roq.Job, params: str) -> int: ...

        async with jobs:
            handle = await fetch.submit("https://…")
            await jobs.start()                        # or elsewhere: roq jobs work module:jobs
            print(await handle)

    What is asked of the database waits in a worker thread.

    Args:
        url, cluster, queue: as `roq.Jobs`.

    Attributes:
        sync: the same for threads: for `operate`, `engine`, and `roq.testing.jobs`.

    Raises:
        ConfigError: as `roq.Jobs`.
    """

    def __init__(
        self, url: str = "jobs.db", cluster: str | None = None, *, queue: str = QUEUE
    ) -> None:
        self.sync = sync_jobs.Jobs(url, cluster, queue=queue)
        super().__init__(self.sync)
        self._waiting = _Waiting(self.sync)

    cluster = Told[str | None](
        "Addresses of a RoQ cluster by whose queue instances may hear of jobs."
    )
    queue = Told[str]("Name of that queue.")
    types = Told[dict[str, sync_types.JobType[Any]]]("The types of this program, by name.")
    schedules = Told[dict[str, NewSchedule]]("The schedules that this program declares, by name.")

    async def open(self) -> Self:
        """Make the tables if there is none; done by everything that needs them."""
        await asyncio.to_thread(self.sync.open)
        return self

    def type(
        self,
        name: str,
        *,
        version: int = 1,
        upgrade: Upgrade | None = None,
        items: Callable[[Any], int] | None = None,
        restartable: bool = False,
        cluster_limit: int | None = None,
        threads: int | None = None,
        time_limit: float = TIME_LIMIT_SECONDS,
        retries: int = RETRIES,
        rate: float | None = None,
        priority: int | str = DEFAULT,
        kind: str | None = None,
    ) -> TypeMaker:
        """Make a function the handler of a type of jobs; see `roq.Jobs.type`.

        One that is `async def` runs in the event loop in which the instance was started, any other
        one in a thread.
        """
        make: Callable[[Callable[..., Any]], sync_types.JobType[Any]] = self.sync.type(
            name, version=version, upgrade=upgrade, items=items, restartable=restartable,
            cluster_limit=cluster_limit, threads=threads, time_limit=time_limit, retries=retries,
            rate=rate, priority=priority, kind=kind,
        )  # fmt: skip

        def made(handler: Callable[..., Any]) -> JobType[Any]:
            return JobType(make(handler), self._waiting)

        return made

    def schedule(
        self,
        name: str,
        type_: JobType[Any],
        params: Any = None,
        *,
        cron: str | None = None,
        every: float | None = None,
        zone: str = "UTC",
        catch_up: str = CatchUp.LAST,
        overlap: str = Overlap.SKIP,
        priority: int | str | None = None,
    ) -> None:
        """Have jobs of a type be submitted at certain times; see `roq.Jobs.schedule`."""
        self.sync.schedule(
            name, type_.sync, params, cron=cron, every=every, zone=zone, catch_up=catch_up,
            overlap=overlap, priority=priority,
        )  # fmt: skip

    def handle(self, job: int, type_: JobType[R]) -> JobHandle[R]:
        """A handle for a job whose id is known from elsewhere."""
        return JobHandle(self.sync.handle(job, type_.sync), self._waiting)

    def batch(self, name: str) -> JobBatch:
        """Jobs that are submitted together, and one that runs when they are done."""
        return JobBatch(self.sync.batch(name), self._waiting)

    async def work(self, **settings: Any) -> None:
        """Run jobs until `stop` is called, or this is cancelled; arguments as `roq.Jobs.work`.

        Cancelled, it interrupts what runs and waits for that, as at SIGTERM.

        Raises:
            ConfigError, Unavailable: as `roq.Jobs.work`.
        """
        loop = asyncio.get_running_loop()
        worker = await asyncio.to_thread(self._worker, loop, settings)
        thread = ThreadPoolExecutor(1, "roq-jobs")
        running = loop.run_in_executor(thread, self.sync.run_worker, worker)
        thread.shutdown(wait=False)
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            worker.stop()
            await running
            raise

    async def start(self, **settings: Any) -> JobWorker:
        """Run jobs beside what the program does, until `close`; arguments as `roq.Jobs.start`.

        Raises:
            ConfigError, Unavailable: as `roq.Jobs.start`; nothing runs then.
        """
        loop = asyncio.get_running_loop()
        starting = _threaded(self.sync.start, **{"loop": loop, **settings})
        try:
            return await _ended(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_stopped)
            raise

    stop = called(sync_jobs.Jobs.stop)
    close = awaited(sync_jobs.Jobs.close)

    def _worker(self, loop: asyncio.AbstractEventLoop, settings: dict[str, Any]) -> JobWorker:
        return self.sync.worker(**{"loop": loop, **settings})


def _threaded(function: Callable[..., R], *args: Any, **kwargs: Any) -> asyncio.Future[R]:
    """Have a thread do it; unlike a task it is not cancelled with all others."""
    call = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
    return asyncio.get_running_loop().run_in_executor(None, call)


async def _ended(doing: asyncio.Future[R]) -> R:
    """Its result. If this is cancelled, its end is waited for before: whoever has cancelled goes on
    with the same transaction, or does it anew."""
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing])
        raise


async def _whole(function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    return await _ended(_threaded(function, *args, **kwargs))


def _stopped(starting: asyncio.Future[JobWorker]) -> None:
    if starting.exception() is None:
        starting.result().stop()


def _ids(after: Iterable[JobHandle[Any] | int]) -> list[int]:
    return [each if isinstance(each, int) else each.id for each in after]
