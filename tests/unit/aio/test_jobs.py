"""Jobs in an event loop: what is submitted, waited for, run and interrupted there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

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


def test_a_job_that_cannot_be_is_nothing_to_the_others(tmp_path: Path) -> None:
    jobs = roq.aio.Jobs(str(tmp_path / "jobs.db"))
    kind = jobs.type("A")(_nothing)

    async def scene() -> None:
        async with jobs:
            job = await kind.submit()
            waits = asyncio.get_running_loop().create_task(job.wait(30))
            for number in (2**70, 0, -1):
                with pytest.raises(roq.JobNotFound):
                    await jobs.handle(number, kind).wait(30)
            await jobs.start(threads=1)
            assert await waits is roq.JobStatus.COMPLETE

    asyncio.run(scene())


def test_who_waits_is_told_whatever_goes_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = roq.aio.Jobs(str(tmp_path / "jobs.db"))
    kind = jobs.type("A")(_nothing)

    def ended_of(ids: tuple[int, ...]) -> set[int]:
        raise LookupError("no")

    monkeypatch.setattr(jobs.sync, "ended_of", ended_of)

    async def scene() -> None:
        async with jobs:
            job = await kind.submit()
            with pytest.raises(LookupError):
                await job.wait(5)

    asyncio.run(scene())


def test_a_loop_that_was_left_is_nothing_to_the_next_one(tmp_path: Path) -> None:
    jobs = roq.aio.Jobs(str(tmp_path / "jobs.db"))
    kind = jobs.type("A")(_nothing)

    async def left() -> None:
        job = await kind.submit()
        asyncio.get_running_loop().create_task(job.wait())
        for _ in range(2):
            await asyncio.sleep(0)
        assert jobs._waiting._looking is not None

    async def scene() -> None:
        async with jobs:
            job = await kind.submit()
            await jobs.start(threads=1)
            assert await asyncio.wait_for(job.wait(), 30) is roq.JobStatus.COMPLETE

    loop = asyncio.new_event_loop()
    loop.run_until_complete(left())
    loop.close()
    asyncio.run(scene())


def test_what_is_cancelled_is_not_left_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = roq.aio.Jobs(str(tmp_path / "jobs.db"))
    kind = jobs.type("A")(_nothing)
    go, there = threading.Event(), threading.Event()
    opened = jobs.sync.open

    def slowly() -> object:
        there.set()
        assert go.wait(30)
        return opened()

    async def cancelled(what: Coroutine[Any, Any, object]) -> None:
        go.clear()
        there.clear()
        doing = asyncio.get_running_loop().create_task(what)
        assert await asyncio.to_thread(there.wait, 30)
        doing.cancel()
        await asyncio.sleep(0)
        assert not doing.done(), "its transaction is in use"
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await doing

    async def scene() -> None:
        await jobs.open()
        monkeypatch.setattr(jobs.sync, "open", slowly)
        batch = jobs.batch("b")
        await cancelled(kind.submit())
        await cancelled(kind.submit_many([None]))
        await cancelled(batch.then(kind))
        with pytest.raises(roq.InvalidRequest, match="is submitted"):
            await batch.then(kind)
        await cancelled(jobs.start(threads=1))
        ((_, thread),) = jobs.sync._workers
        await asyncio.to_thread(thread.join, 30)  # it may have begun one that needs this loop
        assert not thread.is_alive()
        await jobs.close()

    asyncio.run(scene())


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
