"""`roq.Jobs`: a database of jobs, the types of a program, and instances that run them."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import random
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, ClassVar, Final, Self, TypeVar

import sqlalchemy as sa

from roq.errors import ConfigError, JobNotFound, Unavailable
from roq.jobs.batches import JobBatch, batch_row, write_batch
from roq.jobs.database import JobDatabase, Undone
from roq.jobs.dispatch import QUEUE, QueueMessages, QueueSender
from roq.jobs.handle import JobHandle
from roq.jobs.instances import JobInstances
from roq.jobs.limits import TypeLimits
from roq.jobs.operate import JobOperations
from roq.jobs.rows import Body, NewJob, ReadyJob, Submitted, spread
from roq.jobs.schedules import JobSchedules, NewSchedule
from roq.jobs.schema import prepare
from roq.jobs.states import DEFAULT, RETRIES, TIME_LIMIT_SECONDS, JobStatus
from roq.jobs.store import Gone, JobStore, refuse
from roq.jobs.timetable import CatchUp, Overlap, planned
from roq.jobs.trial import trial_type
from roq.jobs.types import JobType, Upgrade, checked_text, priority_of
from roq.jobs.views import ID_MAX, BatchRow
from roq.jobs.worker import GRACE_SECONDS, JobWorker
from roq.model import check_name

R = TypeVar("R")
TRIES: Final = 5
"""Of a submission that met another one with the same `unique` that had just ended, or that was
undone in favour of another transaction."""
THREADS: Final = 8
_TOO_FAST: Final = "jobs with the same `unique` come and go too fast: submit again"
PREFETCH_MIN: Final = 64
"""Messages of each type and priority that an instance holds at least."""


class Jobs:
    """Jobs in a database: SQLite for one host, PostgreSQL for several.

        jobs = roq.Jobs("jobs.db")

        @jobs.type("Resize", restartable=True)
        def resize(job: roq.Job, params: Resize) -> Report: ...

        handle = resize.submit(Resize(images, 800))
        jobs.work()                                   # in this program, or by `roq jobs work`

    The database is opened, and its tables are made, when it is used first.

    Args:
        url: path of a file of SQLite, or a URL: `postgresql://user@host/database`.
        cluster: addresses of a RoQ cluster by whose queue instances hear of jobs, once
            `roq jobs dispatch queue` has said so; None: by the database alone.
        queue: name of that queue, one for each database.
        clock: µs since 1970 in place of the time, with SQLite; for tests.
        jitter: spreads what is tried again; gives a number in [0, 1).

    Raises:
        ConfigError: no such database is supported, or its driver is not installed.
    """

    may_work: ClassVar[bool] = True
    """Whether instances may run in this process."""

    def __init__(
        self,
        url: str = "jobs.db",
        cluster: str | None = None,
        *,
        queue: str = QUEUE,
        clock: Callable[[], int] | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.database = JobDatabase(url, clock)
        self.cluster = cluster
        self.queue = check_name(queue)
        self.store = JobStore(self.database, jitter)
        self.instances = JobInstances(self.store)
        self.types: dict[str, JobType[Any]] = {}
        self.schedules: dict[str, NewSchedule] = {}
        self._trial = trial_type(self)
        self._prepared = False
        self._sender: QueueSender | None = None
        self._changed = threading.Condition()
        self._workers: list[tuple[JobWorker, threading.Thread]] = []
        self._preparing = threading.Lock()

    @property
    def engine(self) -> sa.Engine:
        """SQLAlchemy's engine, for transactions of your own: `with jobs.engine.begin() as c:`."""
        self.open()
        return self.database.engine

    @property
    def operate(self) -> JobOperations:
        """What operators see and do."""
        self.open()
        return JobOperations(self.store, self.instances)

    def open(self) -> Self:
        """Make the tables if there is none; done by everything that needs them.

        Raises:
            ConfigError: they are of another version of RoQ.
            Unavailable: the database cannot be reached, or written to.
        """
        with self._preparing:
            if not self._prepared:
                prepare(self.database)
                self._prepared = True
        return self

    @contextlib.contextmanager
    def elsewhere(self, url: str, clock: Callable[[], int] | None = None) -> Iterator[Self]:
        """Use another database within a block, without a cluster: for tests of a program.

        Args:
            url, clock: as `Jobs`.

        Raises:
            ConfigError: as `Jobs`; or instances of this object run.
        """
        if self._workers or self._sender is not None:
            raise ConfigError("its instances run: take another database before they are started")
        mine = self.database, self.store, self.instances, self.cluster, self._prepared
        self.database = JobDatabase(url, clock)
        self.store = JobStore(self.database, self.store.jitter)
        self.instances = JobInstances(self.store)
        self.cluster, self._prepared = None, False
        try:
            yield self
        finally:
            self.close()
            self.database, self.store, self.instances, self.cluster, self._prepared = mine

    # --- types ------------------------------------------------------------------------------------

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
    ) -> Callable[[Callable[..., R]], JobType[R]]:
        """Make a function the handler of a type of jobs.

        It gets a `Job` and, if it takes a second argument, the params, decoded as its annotation
        says. It runs in a thread, or as a task of an event loop if it is `async def`, or in a
        process of its own.

        Args:
            name: of the type, the same in all programs.
            version: of the params; higher after a change that old params need an upgrade for.
            upgrade: from an older version and what JSON says to what the params are now.
            items: how many items a job has, from its params; shown, and not interpreted.
            restartable: whether a job may run again by itself after it failed, was interrupted or
                lost half way. If not, it stays until somebody restarts it.
            cluster_limit: jobs that run at once in the whole cluster.
            threads: jobs that run at once in one instance.
            time_limit: seconds that a job may take.
            retries: so often is a restartable job tried again after an exception or `time_limit`.
            rate: jobs that begin in a second, in the whole cluster: 0.1 is one in ten seconds.
                A second's worth of them may begin at once.
            priority: of jobs that are submitted without one.
            kind: `thread`, `async` or `process`; None: as the handler is defined. A process is
                killed if it does not stop, and its crash is an error of the job alone. It imports
                the handler's module, so that must be possible.

        Operators may set other limits, see `roq jobs set`.

        Raises:
            ConfigError: a value that cannot be, or a handler that is none.
            InvalidRequest: no such priority.
        """
        limits = TypeLimits(
            threads=threads, cluster_limit=cluster_limit, retries=retries, time_limit=time_limit,
            rate=rate, priority=priority_of(priority),
        )  # fmt: skip

        def make(handler: Callable[..., R]) -> JobType[R]:
            if name in {*self.types, self._trial.name}:
                raise ConfigError(f"there are two handlers for jobs of type {name}")
            made: JobType[R] = JobType(
                self, handler, name=name, version=version, upgrade=upgrade, items=items,
                restartable=restartable, limits=limits, kind=kind,
            )  # fmt: skip
            self.types[name] = made
            return made

        return make

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
        """Have jobs of a type be submitted at certain times, by whatever instance lives then.

            jobs.schedule("nightly", resize, Resize([]), cron="0 3 * * *", zone="Europe/Warsaw")

        Instances of this program write it into the database when they begin. There it stays, also
        when no program declares it any more, until `roq jobs schedule delete`. If several programs
        declare one name, it is as the one says that began last.

        Args:
            name: of the schedule, one in the database; its jobs have it as their tag.
            type_: of the jobs.
            params: what their handler gets, each time.
            cron: minute, hour, day of the month, month, day of the week, as Debian's cron has them.
            every: seconds, from 1 to 366 days; they are counted from 1970 on, so that the times do
                not follow from when anything was started. Instead of `cron`.
            zone: time zone of `cron`, such as `Europe/Warsaw`.
            catch_up: what becomes of times at which no instance lived, or the schedule was paused:
                `none` leaves them out, `last` fires the last one, `all` fires the last hundred.
            overlap: what becomes of a time while a job of an earlier one waits or runs: `skip` has
                no job, `queue` has one that runs after it, `allow` has one beside it.
            priority: of the jobs; None: what the program says of the type.

        Raises:
            ConfigError: there are two of this name, or the type is one of another `Jobs`.
            InvalidRequest: a value that cannot be, a cron expression that never fires, a zone that
                is not known here, or params that the handler does not take.
            MessageTooLarge: params of more than 16 MiB.
        """
        if name in self.schedules:
            raise ConfigError(f"there are two schedules {name!r}: give one another name")
        if self.types.get(type_.name) is not type_:
            raise ConfigError(
                f"schedule {name!r} wants a type that was made by this `jobs.type(…)`"
            )
        checked_text("the name of a schedule", name)
        job = type_.new(params, priority=priority)
        plan = planned(
            cron=cron, every=every, zone=zone, catch_up=catch_up, overlap=overlap,
            priority=job.priority, items=job.items,
        )  # fmt: skip
        self.schedules[name] = NewSchedule(name, type_.name, plan, type_.restartable, job.params)

    # --- submit -----------------------------------------------------------------------------------

    def submit(
        self, type_: JobType[Any], jobs: Sequence[NewJob], connection: sa.Connection | None
    ) -> list[JobHandle[Any]]:
        """Write jobs of a type down; `JobType.submit` is what programs call.

        Raises:
            JobExists: of one there is another with the same `unique`; none was submitted.
            JobNotFound, Unavailable: as `JobType.submit`.
        """
        if not jobs:
            return []

        def write(within: sa.Connection, **how: Any) -> list[Submitted]:
            told = self.store.submit(within, jobs, **how)
            refuse(jobs, told)
            return told

        told = self._submitted(jobs, write, connection)
        return [
            JobHandle(self, each.id, type_.decode_result, new=each.outcome == "new")
            for each in told
        ]

    def batch(self, name: str) -> JobBatch:
        """A batch: jobs that are submitted together, and one that runs when they are done.

        Args:
            name: for people, and the tag of its jobs; there may be several of one name.

        Raises:
            InvalidRequest: it is no name.
        """
        return JobBatch(self, name)

    def submit_batch(
        self, name: str, jobs: Sequence[NewJob], last: NewJob, connection: sa.Connection | None
    ) -> list[Submitted]:
        """Write the jobs of a batch down, and its last one; `JobBatch.then` calls it.

        Raises:
            JobExists, JobNotFound, Unavailable: as `JobType.submit`.
        """

        def write(within: sa.Connection, **how: Any) -> list[Submitted]:
            return write_batch(self.store, within, name, jobs, last, **how)

        return self._submitted([*jobs, last], write, connection)

    def batch_of(self, job: int) -> BatchRow:
        """How far the batch of this last job is.

        Raises:
            JobNotFound: it is the last one of none.
            Unavailable: the database cannot be reached.
        """
        self.open()
        return batch_row(self.database, job)

    def _submitted(
        self,
        jobs: Sequence[NewJob],
        write: Callable[..., list[Submitted]],
        connection: sa.Connection | None,
    ) -> list[Submitted]:
        """Have jobs be written down, in the user's transaction or in one of ours."""
        self.open()
        if connection is None:
            return self._written(jobs, write)
        try:
            return write(connection, foreign=True)
        except Gone:
            raise Unavailable(_TOO_FAST) from None

    def _written(
        self, jobs: Sequence[NewJob], write: Callable[..., list[Submitted]]
    ) -> list[Submitted]:
        told: list[Submitted] = []
        sent = False
        for left in reversed(range(TRIES)):
            try:
                with self.store.write() as connection:
                    sent, now = self._by_queue(connection)
                    told = write(connection, sent=sent, now=now)
                break
            except Undone:
                if not left:
                    raise
            except Gone:
                if not left:
                    raise Unavailable(_TOO_FAST) from None
        if sent:
            self._sending().send(
                ReadyJob(each.priority, each.id, 1, job.type)
                for job, each in zip(jobs, told, strict=True)
                if each.ready
            )
        for worker, _ in list(self._workers):
            worker.hint()
        return told

    def _by_queue(self, connection: sa.Connection) -> tuple[bool, int | None]:
        """Whether messages of new jobs are to be sent, and the time if it was asked."""
        if self.cluster is None:
            return False, None
        told = self.database.run(
            connection,
            f"SELECT {self.database.time} AS now,"
            " (SELECT value FROM job_setting WHERE name = 'dispatch') AS dispatch",
        ).one()
        return told.dispatch == "queue", told.now

    def _sending(self) -> QueueSender:
        with self._preparing:
            if self._sender is None:
                assert self.cluster is not None  # noqa: S101 - asked before
                self._sender = QueueSender(self.cluster, self.queue)
            return self._sender

    # --- what handles ask -------------------------------------------------------------------------

    def handle(self, job: int, type_: JobType[R]) -> JobHandle[R]:
        """A handle for a job whose id is known from elsewhere.

        Raises:
            JobNotFound: no job can have it.
        """
        if not 0 < job <= ID_MAX:
            raise JobNotFound(f"there is no job {job}")
        return JobHandle(self, job, type_.decode_result, new=False)

    def status_of(self, job: int) -> tuple[JobStatus, str | None] | None:
        """Status and error of a job; None: there is none."""
        self.open()
        with self.database.read() as connection:
            row = self.database.run(
                connection, "SELECT status, error FROM job WHERE id = :id", id=job
            ).first()
        return None if row is None else (JobStatus(row.status), row.error)

    def ended_of(self, jobs: Collection[int]) -> set[int]:
        """Those of these jobs that have ended, or are not there."""
        self.open()
        with self.database.read() as connection:
            rows = self.database.run(
                connection,
                "SELECT id FROM job WHERE status IN ('CREATED', 'RUNNING') AND id IN"
                f" (SELECT id FROM {self.database.given(('id', 'bigint'))} AS d)",
                spread(jobs),
            )
            return set(jobs) - {row.id for row in rows}

    def result_of(self, job: int) -> Body | None:
        """The result of a job; None: it has none."""
        self.open()
        with self.database.read() as connection:
            row = self.database.run(
                connection, "SELECT codec, version, body FROM job_result WHERE job = :id", id=job
            ).first()
        return None if row is None else Body(row.codec, row.version, bytes(row.body))

    def wait_for_change(self, seconds: float) -> None:
        """Return after so many seconds, or when an instance in this process has ended runs."""
        with self._changed:
            self._changed.wait(seconds)

    def tell_change(self) -> None:
        """Have `wait_for_change` return."""
        with self._changed:
            self._changed.notify_all()

    # --- instances --------------------------------------------------------------------------------

    def worker(
        self,
        *,
        threads: int = THREADS,
        types: Iterable[str] | None = None,
        name: str | None = None,
        grace: float = GRACE_SECONDS,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> JobWorker:
        """An instance that runs jobs of this program's types when its `run` is called.

        Args:
            threads: jobs that it runs at once.
            types: names of the types; None: all, and test jobs.
            name: by which people find it; None: program, host and process id.
            grace: seconds for jobs to stop when it ends.
            loop: an event loop that runs, for coroutines; None: one of the instance's own.

        Raises:
            ConfigError: no type, or one that this program does not have; no thread.
        """
        wanted = list(self.types) if types is None else list(types)
        unknown = sorted(set(wanted) - set(self.types))
        if unknown or not wanted:
            named = f"no type {', '.join(unknown)}" if unknown else "no type at all"
            raise ConfigError(f"this program has {named}: `@jobs.type(…)` makes one")
        if not self.may_work:
            raise ConfigError(
                "this process runs handlers for an instance and cannot have one of its own: start "
                "instances under `if __name__ == '__main__':`"
            )
        if not 1 <= threads <= 1_000:
            raise ConfigError(f"an instance has 1 to 1,000 threads, not {threads}")
        mine = {each: self.types[each] for each in wanted}
        if types is None:
            mine[self._trial.name] = self._trial
        self.open()
        # Handlers' transactions may use up the connections of `engine`.
        store = JobStore(self.database.for_instance(), self.store.jitter)
        return JobWorker(
            store,
            JobInstances(store),
            mine,
            threads=threads,
            name=name,
            grace=grace,
            changed=self.tell_change,
            messages=None if self.cluster is None else self._messages(store, list(mine), threads),
            schedules=[each for each in self.schedules.values() if each.type in wanted],
            fired=JobSchedules(self.store, self.instances).time_of,
            loop=loop,
        )

    def _messages(
        self, store: JobStore, types: list[str], threads: int
    ) -> Callable[[Callable[[], None]], QueueMessages]:
        cluster, sender = str(self.cluster), self._sending()
        return lambda ready: QueueMessages(
            cluster, store, sender, types, prefetch=max(PREFETCH_MIN, 4 * threads),
            ready=ready, queue=self.queue,
        )  # fmt: skip

    def work(self, **settings: Any) -> None:
        """Run jobs in this thread until `stop` is called from another one; arguments as `worker`.

        Raises:
            ConfigError, Unavailable: as `worker` and `JobWorker.run`.
        """
        self.run_worker(self.worker(**settings))

    def run_worker(self, worker: JobWorker) -> None:
        """Run an instance of `worker` in this thread, until it is stopped.

        Raises:
            ConfigError, Unavailable: as `JobWorker.run`.
        """
        pair = (worker, threading.current_thread())
        self._workers.append(pair)
        try:
            worker.run()
        finally:
            self._workers.remove(pair)

    def start(self, **settings: Any) -> JobWorker:
        """Run jobs in a thread of its own until `close`; arguments as `worker`.

        Raises:
            ConfigError, Unavailable: as `worker` and `JobWorker.run`; nothing runs then.
        """
        worker = self.worker(**settings)
        worker.enter()
        thread = threading.Thread(target=worker.run, name="roq-jobs", daemon=True)
        self._workers.append((worker, thread))
        thread.start()
        return worker

    def stop(self) -> None:
        """Have the instances of this object end; does not wait for that."""
        for worker, _ in list(self._workers):
            worker.stop()

    def close(self) -> None:
        """End the instances that `start` has started, and close the database; idempotent."""
        self.stop()
        for _, thread in list(self._workers):
            if thread is not threading.current_thread():
                thread.join()
        self._workers.clear()
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: builtins.type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<roq.Jobs in {self.database.name}: {len(self.types)} types>"
