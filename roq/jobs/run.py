"""One run of a job: what its handler gets, and what is made of how it ends."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import os
import traceback
import types
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, Final, Protocol, TypeVar

import sqlalchemy as sa

from roq.errors import InvalidRequest, JobInterrupted, JobOutdated, whole
from roq.jobs.database import MICROSECONDS
from roq.jobs.rows import Body, Claimed, Ended, Trouble
from roq.jobs.states import RunEnd
from roq.jobs.types import ITEMS_MAX, JobType, Unreadable

T = TypeVar("T")
TRACE_CHARACTERS: Final = 8_000
TEXT_CHARACTERS: Final = 500
_WHY: Final = {
    RunEnd.STOPPED: "its instance ends",
    RunEnd.INTERRUPTED: "an operator has interrupted it",
    RunEnd.LIMIT: "it is over its time limit",
    RunEnd.LOST: "its instance was taken for dead",
}


class Finisher(Protocol):
    """Writes down, in the user's transaction, that a run is done."""

    def __call__(
        self, run: Claimed, saved: int, result: Body | None, connection: sa.Connection
    ) -> bool:
        """False: the run is not the valid one any more."""
        ...


class Job:
    """What a handler gets of its job. Belongs to the run: after its end it does nothing.

    Attributes:
        id: of the job.
        token: of this run. It rises with every run of the job, so what others store with it can
            refuse what comes late from a lower one.
        type, tag: of the job.
        attempt: 1 for the first run.
    """

    def __init__(
        self,
        run: Claimed,
        kind: JobType[Any],
        finish: Finisher,
        fired: Callable[[Claimed], int | None] = lambda _: None,
    ) -> None:
        self.id = run.id
        self.token = run.token
        self.type = run.type
        self.tag = run.tag
        had = run.attempts
        self.attempt = 1 + had.failures + had.timeouts + had.losses
        self.run = run
        self.stop: RunEnd | None = None
        """Why it is to stop; set by the instance, read by `check`."""
        self.finished = False
        self.place = run.saved
        self._kind = kind
        self._finish = finish
        self._fired = fired

    def scheduled(self) -> datetime | None:
        """The time of a schedule that it was submitted for; None: no schedule has submitted it.

        The database is asked. It may be long ago, if the schedule catches up with what it missed.

        Raises:
            Unavailable: the database cannot be reached.
        """
        time = self._fired(self.run)
        return None if time is None else datetime.fromtimestamp(time / MICROSECONDS, UTC)

    @property
    def saved(self) -> int:
        """How many items are done, over all runs; a run that follows begins there."""
        return self.place

    def save(self, items: int) -> None:
        """Say how many items are done. It is written down within a second, and when the run ends.

        Raises:
            InvalidRequest: it is no number of items.
        """
        if not isinstance(items, int) or not 0 <= items < ITEMS_MAX:
            raise InvalidRequest(f"a place is a number of items, not {items!r}")
        self.place = items

    @property
    def interrupted(self) -> bool:
        """Whether it is to stop."""
        return self.stop is not None

    def check(self) -> None:
        """Go on, or stop here: call it wherever a job can be left.

        Raises:
            JobInterrupted: it is to stop. Let that pass.
        """
        if self.stop is not None:
            raise JobInterrupted(f"job {self.id} is to stop: {_WHY.get(self.stop, self.stop)}")

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """The items that are not done, in order; checks for interruption before each.

        An item is done when the loop comes back for the next one. A later run of the job begins
        with the first that is not done, so the items and their order have to be the same then.

        Raises:
            JobInterrupted: it is to stop.
        """
        begin = self.place
        for number, item in enumerate(items):
            if number < begin:
                continue
            self.check()
            yield item
            self.place = number + 1

    def finish(self, result: object = None, *, connection: sa.Connection) -> None:
        """Complete the job in a transaction of yours, together with what it has done.

        Call it last; return after your commit. If the commit fails, raise.

        Args:
            result: what the handler would return.
            connection: the transaction, in the database of the jobs.

        Raises:
            JobOutdated: this run is not the valid one any more: roll back.
        """
        body = self._kind.encode_result(result)
        # From now on its row is the transaction's: its instance leaves it alone.
        self.finished = True
        done = False
        try:
            done = self._finish(self.run, self.place, body, connection)
        finally:
            self.finished = done
        if not done:
            raise JobOutdated(
                f"run {self.token} of job {self.id} is not the valid one any more: roll back what "
                "was to be committed with it"
            )


def execute(kind: JobType[Any], job: Job) -> Ended:
    """Run the handler, in this thread, if it is not to stop; whatever it raises is an end."""
    if job.stop is not None:
        return unbegun(job)
    try:
        params = kind.decode(job.run.params)
        result = kind.handler(job, params) if kind.takes_params else kind.handler(job)
        return returned(kind, job, result)
    except Unreadable as error:
        return unreadable(job, error)
    except BaseException as error:  # noqa: BLE001 - a job may raise anything, and the thread goes on
        return raised(job, error)


async def execute_async(kind: JobType[Any], job: Job) -> Ended:
    """Run the coroutine of a handler; it is interrupted by cancelling the task."""
    if job.stop is not None:
        return unbegun(job)
    try:
        params = kind.decode(job.run.params)
        made = kind.handler(job, params) if kind.takes_params else kind.handler(job)
        return returned(kind, job, await _here(made, os.getpid()))
    except Unreadable as error:
        return unreadable(job, error)
    except BaseException as error:  # noqa: BLE001 - as above; cancelling is how a job is interrupted
        return raised(job, error)


@types.coroutine
def _here(made: Coroutine[Any, Any, T], process: int) -> Generator[Any, Any, T]:
    """The coroutine, step by step in this process alone: if a step has forked, its child ends with
    the step, and does not go on with the loop and with the jobs of others."""
    error: BaseException | None = None
    while True:
        try:
            awaited = made.send(None) if error is None else made.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            if os.getpid() != process:
                os._exit(0)
        try:
            yield awaited
            error = None
        except BaseException as raised_here:  # noqa: BLE001 - it is the coroutine's
            error = raised_here


def unbegun(job: Job) -> Ended:
    """The end of a run whose handler was not called. Nothing of it was done, so it may run again by
    itself, unless an operator has interrupted it."""
    if job.stop is RunEnd.INTERRUPTED:
        return raised(job, JobInterrupted())
    return Ended(job.run, RunEnd.UNSTARTED, job.place)


def returned(kind: JobType[Any], job: Job, result: object) -> Ended:
    """The end of a run whose handler has returned."""
    if inspect.iscoroutine(result):
        result.close()
        raise InvalidRequest(f"the handler of {kind.name} gave a coroutine: make it `async def`")
    body = None if job.finished else kind.encode_result(result)
    return Ended(job.run, RunEnd.DONE, job.place, body)


def unreadable(job: Job, error: Unreadable) -> Ended:
    """The end of a run that cannot begin."""
    return Ended(job.run, RunEnd.REFUSED, job.place, trouble=told(error))


def raised(job: Job, error: BaseException) -> Ended:
    """The end of a run whose handler has raised."""
    stopped = isinstance(error, JobInterrupted | asyncio.CancelledError)
    if stopped and job.stop is not None:
        text = f"{_WHY.get(job.stop, job.stop)}, after {job.place} items"
        goes_on = job.stop is RunEnd.STOPPED and job.run.restartable
        trouble = None if goes_on else Trouble(text, fingerprint=job.stop.value)
        return Ended(job.run, job.stop, job.place, trouble=trouble)
    return Ended(job.run, RunEnd.RAISED, job.place, trouble=told(error))


def told(error: BaseException) -> Trouble:
    """An exception as it is written down.

    The fingerprint is of its class and of the functions that it came through: so it is the same for
    all jobs that fail alike, whatever they say of themselves.
    """
    frames = traceback.extract_tb(error.__traceback__)
    way = [f"{PurePath(frame.filename).name}:{frame.name}" for frame in frames]
    kind = type(error).__name__
    mark = hashlib.sha256("\n".join([kind, *way]).encode()).hexdigest()[:16]
    text = f"{kind}: {_safe(error)}" if not isinstance(error, Unreadable) else _safe(error)
    trace = "" if isinstance(error, Unreadable) else whole(error)
    return Trouble(storable(text)[:TEXT_CHARACTERS], storable(trace)[-TRACE_CHARACTERS:], mark)


def _safe(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as second:  # noqa: BLE001 - whatever a foreign __str__ raises
        return f"(its text cannot be made: {type(second).__name__})"


def storable(text: str) -> str:
    """A text without what PostgreSQL cannot store."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
