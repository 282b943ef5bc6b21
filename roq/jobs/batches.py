"""Batches: many jobs that are submitted together, and one that runs when they are done.

The last one is a job after all the others, as `after` makes it: it is let go in the commit that
completes the last of them. A batch is a row beside it, which says how many there were.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

import msgspec
import sqlalchemy as sa

from roq.errors import ConfigError, InvalidRequest, JobNotFound
from roq.jobs.database import JobDatabase
from roq.jobs.handle import JobHandle, Looker
from roq.jobs.rows import NewJob, Submitted
from roq.jobs.schema import BATCH, EDGE, JOB
from roq.jobs.search import BADLY
from roq.jobs.states import JobStatus
from roq.jobs.store import JobStore, refuse
from roq.jobs.types import JobType, checked_text
from roq.jobs.views import BatchRow

MEMBERS_MAX: Final = 100_000
R = TypeVar("R")


class BatchSubmitter(Looker, Protocol):
    """What a batch asks of the jobs that it belongs to."""

    def submit_batch(
        self, name: str, jobs: Sequence[NewJob], last: NewJob, connection: sa.Connection | None
    ) -> list[Submitted]:
        """Write them down, the last one last."""
        ...

    def batch_of(self, job: int) -> BatchRow:
        """How far the batch of that last job is."""
        ...


class JobBatch:
    """Jobs that are submitted together, and one that runs when all of them are COMPLETE.

        batch = jobs.batch("import 7")
        for part in parts:
            batch.add(load, part)
        report = batch.then(summary, "import 7")     # here all of it is submitted

    Made by `Jobs.batch`. Nothing is in the database before `then`, which submits all of it in one
    transaction. If one of the jobs ends otherwise than COMPLETE, the last one waits, and says so,
    until that one is restarted and COMPLETE.

    Attributes:
        name: of the batch; its jobs have it as their tag.
        handles: of its jobs, in their order, without the last; empty before `then`.
    """

    def __init__(self, submitter: BatchSubmitter, name: str) -> None:
        self.name = checked_text("the name of a batch", name)
        self.handles: list[JobHandle[Any]] = []
        self._jobs = submitter
        self._members: list[tuple[JobType[Any], NewJob]] = []
        self._last: int | None = None
        # From `then` on, unless that fails: other threads may still have this batch.
        self._taken = threading.Lock()

    def __len__(self) -> int:
        return len(self._members)

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
        """One job more; arguments as `JobType.submit`.

        Raises:
            ConfigError: the type is one of another `Jobs`.
            InvalidRequest: a value that cannot be; the batch is submitted already, or has 100,000
                jobs.
            MessageTooLarge: params of more than 16 MiB.
        """
        self._check(type_)
        if len(self._members) >= MEMBERS_MAX:
            raise InvalidRequest(f"a batch has {MEMBERS_MAX:,} jobs at most: make several")
        job = type_.new(
            params, priority=priority, due=due, unique=unique, on_unique=on_unique, key=key,
            after=after, tag=self.name,
        )  # fmt: skip
        self._members.append((type_, job))

    def then(
        self,
        type_: JobType[R],
        params: Any = None,
        *,
        priority: int | str | None = None,
        due: datetime | None = None,
        key: str | None = None,
        connection: sa.Connection | None = None,
    ) -> JobHandle[R]:
        """Submit the batch, with this job as its last one; gives the handle of that.

        Args:
            type_, params, priority, due, key: of the last job, as `JobType.submit`.
            connection: a transaction of yours: all of it is there if you commit, or nothing.

        Raises:
            JobExists, JobNotFound, Unavailable: as `JobType.submit`; nothing was submitted.
            ConfigError, InvalidRequest, MessageTooLarge: as `add`.
        """
        self._check(type_)
        last = type_.new(params, priority=priority, due=due, key=key, tag=self.name)
        if not self._taken.acquire(blocking=False):
            raise self._submitted()
        try:
            told = self._jobs.submit_batch(
                self.name, [job for _, job in self._members], last, connection
            )
        except BaseException:
            self._taken.release()
            raise
        self._last = told[-1].id
        self.handles = [
            JobHandle(self._jobs, each.id, kind.decode_result, new=each.outcome == "new")
            for (kind, _), each in zip(self._members, told[:-1], strict=True)
        ]
        return JobHandle(self._jobs, self._last, type_.decode_result)

    def progress(self) -> BatchRow:
        """How many of its jobs are done.

        Raises:
            InvalidRequest: it is not submitted.
            JobNotFound: its last job was deleted, or its transaction not committed.
            Unavailable: the database cannot be reached.
        """
        if self._last is None:
            raise InvalidRequest(f"batch {self.name!r} is not submitted yet: `then` does it")
        return self._jobs.batch_of(self._last)

    def _check(self, type_: JobType[Any]) -> None:
        if self._taken.locked():
            raise self._submitted()
        mine: object = self._jobs
        if type_.jobs is not mine:
            raise ConfigError(f"batch {self.name!r} wants types of its own `Jobs`")

    def _submitted(self) -> InvalidRequest:
        return InvalidRequest(f"batch {self.name!r} is submitted: make another one")

    def __repr__(self) -> str:
        return f"<roq.JobBatch {self.name!r}: {len(self)} jobs>"


def write_batch(
    store: JobStore,
    connection: sa.Connection,
    name: str,
    jobs: Sequence[NewJob],
    last: NewJob,
    **how: Any,
) -> list[Submitted]:
    """Write a batch down, the last job last.

    Args:
        store: of the database.
        connection: the transaction.
        name: of the batch.
        jobs: of which it is.
        last: that waits for them.
        how: as `JobStore.submit`.

    Raises:
        JobExists: one that is to be unique is there already.
        JobNotFound: as `JobStore.submit`.
    """
    # Nothing of it stays if the user's transaction goes on after an error.
    with connection.begin_nested() if how.get("foreign") else nullcontext():
        told = store.submit(connection, jobs, **how) if jobs else []
        refuse(jobs, told)
        after = tuple({each.id for each in told})
        fresh = bool(told) and all(each.outcome == "new" for each in told)
        final = msgspec.structs.replace(last, parents=after)
        told += store.submit(connection, [final], fresh=fresh, **how)
        connection.execute(BATCH.insert().values(job=told[-1].id, name=name, number=len(after)))
    return told


def batch_row(database: JobDatabase, job: int) -> BatchRow:
    """How far the batch of a last job is.

    Raises:
        JobNotFound: there is none.
        Unavailable: the database cannot be reached.
    """
    with database.read() as connection:
        found = batch_rows(connection, most=1, job=job)
    if not found:
        raise JobNotFound(f"job {job} is the last one of no batch")
    return found[0]


def batch_rows(connection: sa.Connection, *, most: int, job: int | None = None) -> list[BatchRow]:
    """Batches, the newest first, or the one of a last job."""
    asked = sa.select(BATCH, JOB.c.type, JOB.c.status, JOB.c.created, JOB.c.ended, JOB.c.waits)
    asked = asked.join(JOB, JOB.c.id == BATCH.c.job).order_by(BATCH.c.job.desc()).limit(most)
    if job is not None:
        asked = asked.where(BATCH.c.job == job)
    rows = connection.execute(asked).all()
    waiting = [row.job for row in rows if row.waits]
    failed: dict[int, int] = {}
    if waiting:
        number = sa.func.count().label("number")
        badly = [each.value for each in BADLY]
        for row in connection.execute(
            sa.select(EDGE.c.child, number)
            .join(JOB, JOB.c.id == EDGE.c.parent)
            .where(EDGE.c.child.in_(waiting), JOB.c.status.in_(badly))
            .group_by(EDGE.c.child)
        ):
            failed[row.child] = row.number
    return [
        BatchRow(
            job=row.job, name=row.name, type=row.type, status=JobStatus(row.status),
            number=row.number, complete=row.number - row.waits, failed=failed.get(row.job, 0),
            created=row.created, ended=row.ended,
        )
        for row in rows
    ]  # fmt: skip
