"""Jobs in an event loop: what is submitted, waited for, run and interrupted there."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import roq
import roq.aio


def test_coroutines_run_in_the_programs_loop_and_functions_in_threads(tmp_path: Path) -> None:
    jobs = roq.aio.Jobs(str(tmp_path / "jobs.db"))
    assert repr(jobs).startswith("<roq.aio.Jobs in ")

    @jobs.type("Double")
    async def double(job: roq.Job, params: int) -> int:
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is loops[0]
        return 2 * params

    @jobs.type("Thread")
    def thread(job: roq.Job) -> bool:
        return threading.current_thread() is not threading.main_thread()

    async def scene() -> None:
        loops.append(asyncio.get_running_loop())
        async with jobs:
            many = await double.submit_many(range(20))
            last = await thread.submit(after=many)
            worker = await jobs.start(threads=4)
            assert [await each for each in many] == [2 * n for n in range(20)]
            assert await last.result(30) is True
            assert await jobs.handle(many[1].id, double).result() == 2
            assert worker.stats.complete == 21
        assert worker.running == 0

    loops: list[asyncio.AbstractEventLoop] = []
    asyncio.run(scene())


def test_one_look_is_enough_for_all_that_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = roq.aio.Jobs(str(tmp_path / "jobs.db"))
    kind = jobs.type("A")(lambda job: None)
    asked_for_all = threading.Event()
    ask = jobs.sync.ended_of

    def asked(ids: tuple[int, ...]) -> set[int]:
        if len(ids) == 50:
            asked_for_all.set()
        return ask(ids)

    monkeypatch.setattr(jobs.sync, "ended_of", asked)

    async def scene() -> None:
        async with jobs:
            made = await kind.submit_many([None] * 50)
            async with asyncio.TaskGroup() as group:
                waits = [group.create_task(each.wait()) for each in made]
                assert await asyncio.to_thread(asked_for_all.wait, 30)
                await jobs.start(threads=2)
            assert {each.result() for each in waits} == {roq.JobStatus.COMPLETE}

    asyncio.run(scene())


def test_a_wait_has_an_end_and_a_deleted_job_is_said(tmp_path: Path) -> None:
    jobs = roq.aio.Jobs(str(tmp_path / "jobs.db"))

    @jobs.type("Fails")
    async def fails(job: roq.Job) -> None:
        raise ValueError("no")

    async def scene() -> None:
        async with jobs:
            job = await fails.submit(unique="u")
            with pytest.raises(roq.JobExists):
                await fails.submit(unique="u")
            with pytest.raises(roq.Unavailable, match=r"CREATED after 0\.01 s"):
                await job.wait(0.01)
            assert await job.status() is roq.JobStatus.CREATED
            await jobs.start(threads=1)
            with pytest.raises(roq.JobFailed, match="ValueError: no"):
                await job.result()
            with pytest.raises(roq.JobNotFound):
                await jobs.handle(job.id + 1, fails).wait(30)

    asyncio.run(scene())


def test_cancelled_work_interrupts_its_jobs_and_waits_for_them(tmp_path: Path) -> None:
    jobs = roq.aio.Jobs(str(tmp_path / "jobs.db"))
    begun, interrupted = asyncio.Event(), asyncio.Event()

    @jobs.type("Long", restartable=True)
    async def long(job: roq.Job) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.set()

    async def scene() -> None:
        job = await long.submit()
        working = asyncio.get_running_loop().create_task(jobs.work(threads=1))
        await begun.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert interrupted.is_set()
        assert await job.status() is roq.JobStatus.CREATED, "it goes on elsewhere"
        await jobs.close()

    asyncio.run(scene())


def test_work_raises_what_its_instance_does(tmp_path: Path) -> None:
    jobs = roq.aio.Jobs(str(tmp_path / "jobs.db"))
    with pytest.raises(roq.ConfigError, match="no type"):
        asyncio.run(jobs.work())


def test_an_instance_whose_loop_was_closed_ends(tmp_path: Path) -> None:
    jobs = roq.aio.Jobs(str(tmp_path / "jobs.db"))
    kind = jobs.type("A")(_nothing)
    worker = asyncio.run(jobs.start(threads=1))
    job = kind.sync.submit()
    (thread,) = (each for _, each in jobs.sync._workers)
    thread.join(30)
    assert not thread.is_alive()
    assert (worker.running, job.status()) == (0, roq.JobStatus.CREATED)
    jobs.sync.close()


async def _nothing(job: roq.Job) -> None: ...
