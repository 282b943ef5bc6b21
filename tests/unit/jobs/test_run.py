"""One run: how its handler's end is taken, whatever that is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from roq.errors import InvalidRequest, JobInterrupted, JobOutdated
from roq.jobs.handle import JobHandle
from roq.jobs.rows import Body, Claimed, Ended, NewJob
from roq.jobs.run import Job, execute, execute_async, raised, storable, told
from roq.jobs.states import Attempts, RunEnd
from roq.jobs.types import JobType

RUN = Claimed(
    id=1, token=2, type="A", priority=10, created=5, sequence=0, attempts=Attempts(1, 1, 1),
    restartable=True, items=7, saved=0, params=Body("json", 1, b"[1,2,3]"),
)  # fmt: skip


class Nobody:
    def submit(
        self, type_: JobType[Any], jobs: Sequence[NewJob], connection: sa.Connection | None
    ) -> list[JobHandle[Any]]:
        raise AssertionError


def run(handler: Any, run: Claimed = RUN, stop: RunEnd | None = None) -> Ended:
    kind: JobType[Any] = JobType(Nobody(), handler, name="A")
    job = Job(run, kind, lambda *_: False)
    job.stop = stop
    if kind.is_async:
        return asyncio.run(execute_async(kind, job))
    return execute(kind, job)


def test_a_handler_that_returns() -> None:
    ended = run(lambda job, params: sum(params))
    assert (ended.end, ended.result) == (RunEnd.DONE, Body("json", 1, b"6"))
    assert run(lambda job: job.attempt).result == Body("json", 1, b"4")


def test_a_coroutine_that_returns() -> None:
    async def handler(job: Job, params: list[int]) -> int:
        await asyncio.sleep(0)
        return len(params)

    assert run(handler).result == Body("json", 1, b"3")


@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), MemoryError()]
)
def test_whatever_a_handler_raises_is_an_end(error: BaseException) -> None:
    def handler(job: Job) -> None:
        raise error

    ended = run(handler)
    assert ended.end is RunEnd.RAISED
    assert ended.trouble is not None
    assert ended.trouble.text.startswith(type(error).__name__)


def test_alike_failures_have_one_fingerprint() -> None:
    def fail(job: Job, params: list[int]) -> None:
        raise ValueError(f"no image {params[0]}")

    def other(job: Job, params: list[int]) -> None:
        raise ValueError("another way")

    second = replace(RUN, params=Body("json", 1, b"[9]"))
    marks = [run(fail).trouble, run(fail, second).trouble, run(other).trouble]
    first, alike, different = (each.fingerprint for each in marks if each is not None)
    assert first == alike != different


def test_params_that_cannot_be_read_are_no_run() -> None:
    def handler(job: Job, params: str) -> None:
        raise AssertionError

    ended = run(handler)
    assert ended.end is RunEnd.REFUSED
    assert ended.trouble is not None
    assert "cannot be read" in ended.trouble.text


def test_items_are_done_one_by_one_and_a_later_run_goes_on() -> None:
    seen: list[int] = []

    def handler(job: Job, params: list[int]) -> None:
        for each in job.each(params):
            seen.append(each)
            if each == 2 and job.attempt == 4:
                job.stop = RunEnd.STOPPED

    ended = run(handler)
    assert (ended.end, ended.saved, seen) == (RunEnd.STOPPED, 2, [1, 2])
    assert ended.trouble is None
    later = run(handler, replace(RUN, saved=2, attempts=Attempts()))
    assert (later.end, later.saved, seen) == (RunEnd.DONE, 3, [1, 2, 3])


@pytest.mark.parametrize("why", [RunEnd.LIMIT, RunEnd.INTERRUPTED])
def test_an_interrupted_job_says_why(why: RunEnd) -> None:
    def handler(job: Job) -> None:
        job.stop = why
        job.check()

    ended = run(handler)
    assert ended.end is why
    assert ended.trouble is not None


def test_who_stays_behind_when_its_instance_ends_says_why() -> None:
    kind: JobType[Any] = JobType(Nobody(), lambda job: None, name="A")
    for restartable, text in ((True, None), (False, "its instance ends, after 3 items")):
        job = Job(replace(RUN, restartable=restartable, saved=3), kind, lambda *_: False)
        job.stop = RunEnd.STOPPED
        trouble = raised(job, JobInterrupted()).trouble
        assert (None if trouble is None else trouble.text) == text


def test_a_handler_that_swallows_the_interruption_and_returns_is_done() -> None:
    def handler(job: Job) -> str:
        job.stop = RunEnd.STOPPED
        for _ in range(3):
            with pytest.raises(JobInterrupted):
                job.check()
        return "done"

    assert run(handler).end is RunEnd.DONE


@pytest.mark.parametrize(
    ("why", "end"),
    [
        (RunEnd.STOPPED, RunEnd.UNSTARTED),
        (RunEnd.LOST, RunEnd.UNSTARTED),
        (RunEnd.INTERRUPTED, RunEnd.INTERRUPTED),
    ],
)
def test_a_run_that_is_to_stop_before_it_begins_is_not_begun(why: RunEnd, end: RunEnd) -> None:
    called: list[Job] = []

    async def coroutine(job: Job) -> None:
        called.append(job)

    assert run(called.append, stop=why).end is end
    assert run(coroutine, stop=why).end is end
    assert called == []


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_upgrade_may_raise_anything(error: BaseException) -> None:
    def upgrade(version: int, raw: object) -> object:
        raise error

    def handler(job: Job, params: int) -> None:
        raise AssertionError

    kind: JobType[Any] = JobType(Nobody(), handler, name="A", version=2, upgrade=upgrade)
    job = Job(RUN, kind, lambda *_: False)
    assert execute(kind, job).end is RunEnd.REFUSED


def test_a_child_that_a_coroutine_has_forked_ends_with_its_step() -> None:
    steps: list[int] = []

    async def forks(job: Job) -> int:
        child = os.fork()
        if child == 0:
            await asyncio.sleep(0)
            os._exit(7)  # not reached
        _, status = os.waitpid(child, 0)  # noqa: ASYNC222 - it ends at once
        return os.waitstatus_to_exitcode(status)

    async def other(job: Job) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
            steps.append(os.getpid())

    async def both() -> list[Ended]:
        made = [JobType[Any](Nobody(), each, name="A") for each in (other, forks)]
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(execute_async(each, Job(RUN, each, lambda *_: False)))
                for each in made
            ]
        return [each.result() for each in tasks]

    _, ended = asyncio.run(both())
    assert ended.result == Body("json", 1, b"0")
    assert set(steps) == {os.getpid()}


def test_an_interruption_that_nobody_wanted_is_a_failure() -> None:
    def handler(job: Job) -> None:
        raise JobInterrupted("my own")

    assert run(handler).end is RunEnd.RAISED


def test_results_that_cannot_be_stored_fail_the_job() -> None:
    assert run(lambda job: object()).end is RunEnd.RAISED


def test_a_coroutine_of_a_plain_function_is_refused() -> None:
    async def coroutine() -> None:
        """Never run."""

    ended = run(lambda job: coroutine())
    assert ended.trouble is not None
    assert "make it `async def`" in ended.trouble.text


def test_an_outdated_run_cannot_finish() -> None:
    kind: JobType[Any] = JobType(Nobody(), lambda job: None, name="A")
    job = Job(RUN, kind, lambda *_: False)
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection, pytest.raises(JobOutdated, match="roll back"):
        job.finish(connection=connection)
    engine.dispose()
    with pytest.raises(InvalidRequest):
        job.save(-1)


def test_texts_are_made_storable() -> None:
    assert storable("a\0b\ud800") == "a\\0b\\ud800"

    class Bad(Exception):
        def __str__(self) -> str:
            raise ValueError

    class Worse(Exception):
        def __str__(self) -> str:
            raise SystemExit

    assert "cannot be made" in told(Bad()).text
    assert "cannot be made" in told(Worse()).text
    job = Job(RUN, JobType(Nobody(), lambda job: None, name="A"), lambda *_: False)
    assert raised(job, Bad()).end is RunEnd.RAISED


def test_an_exception_whose_trace_cannot_be_made_ends_the_run_all_the_same() -> None:
    def handler(job: Job) -> None:
        raise SyntaxError("no", ("its file", 1, 1, b"its text"))

    ended = run(handler)
    assert ended.end is RunEnd.RAISED
    assert ended.trouble is not None
    assert ended.trouble.text == "SyntaxError: no (its file, line 1)"
    assert ended.trouble.trace == f"{ended.trouble.text} (its trace cannot be made: TypeError)"


def test_a_job_knows_the_time_of_its_schedule() -> None:
    kind: JobType[Any] = JobType(Nobody(), lambda job: None, name="A")
    job = Job(RUN, kind, lambda *_: False, lambda run: 1_800_000_000_500_000 * run.id)
    assert job.scheduled() == datetime(2027, 1, 15, 8, 0, 0, 500_000, tzinfo=UTC)
    assert Job(RUN, kind, lambda *_: False).scheduled() is None
