"""One run: how its handler's end is taken, whatever that is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

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
    ended = run(lambda job: job.check(), stop=why)
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
        for _ in range(3):
            with pytest.raises(JobInterrupted):
                job.check()
        return "done"

    assert run(handler, stop=RunEnd.STOPPED).end is RunEnd.DONE


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

    assert "cannot be made" in told(Bad()).text
    job = Job(RUN, JobType(Nobody(), lambda job: None, name="A"), lambda *_: False)
    assert raised(job, Bad()).end is RunEnd.RAISED


def test_a_job_knows_the_time_of_its_schedule() -> None:
    kind: JobType[Any] = JobType(Nobody(), lambda job: None, name="A")
    job = Job(RUN, kind, lambda *_: False, lambda run: 1_800_000_000_500_000 * run.id)
    assert job.scheduled() == datetime(2027, 1, 15, 8, 0, 0, 500_000, tzinfo=UTC)
    assert Job(RUN, kind, lambda *_: False).scheduled() is None
