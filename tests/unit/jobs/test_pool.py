"""Threads and the event loop that run jobs."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from msgspec.structs import replace

from roq.jobs.handle import JobHandle
from roq.jobs.pool import RunLoop, Running, RunThreads
from roq.jobs.rows import Claimed, Ended, NewJob
from roq.jobs.run import Job, unbegun
from roq.jobs.states import Attempts, RunEnd
from roq.jobs.types import JobType

RUN = Claimed(
    id=1, token=2, type="A", priority=100, created=5, sequence=0, attempts=Attempts(),
    restartable=True, items=0, saved=0,
)  # fmt: skip


class Nobody:
    def submit(
        self, type_: JobType[Any], jobs: Sequence[NewJob], connection: sa.Connection | None
    ) -> list[JobHandle[Any]]:
        raise AssertionError


def running(handler: Any, **given: Any) -> Running:
    kind: JobType[Any] = JobType(Nobody(), handler, name="A")
    return Running(Job(replace(RUN, **given), kind, lambda *_: False), kind, 1)


def test_the_first_in_order_goes_first_whenever_it_came() -> None:
    ends: queue.SimpleQueue[int] = queue.SimpleQueue()
    threads = RunThreads(1, lambda each, _ended: ends.put(each.job.id))
    begun, go = threading.Event(), threading.Event()

    def blocks(job: Job) -> None:
        begun.set()
        go.wait(30)

    threads.put([running(blocks, id=0)])
    assert begun.wait(30)
    threads.put([running(lambda job: None, id=3, priority=1000)])
    threads.put([running(lambda job: None, id=1, priority=10), running(lambda job: None, id=2)])
    go.set()
    assert [ends.get(timeout=30) for _ in range(4)] == [0, 1, 2, 3]
    threads.close()


def test_what_was_not_begun_is_taken_back() -> None:
    ends: queue.SimpleQueue[Ended] = queue.SimpleQueue()
    threads = RunThreads(1, lambda _each, ended: ends.put(ended))
    begun, go = threading.Event(), threading.Event()

    def blocks(job: Job) -> None:
        begun.set()
        go.wait(30)

    threads.put([running(blocks)])
    assert begun.wait(30)
    threads.put([running(blocks, id=2)])
    (left,) = threads.take_back()
    assert unbegun(left.job).end is RunEnd.UNSTARTED
    go.set()
    assert ends.get(timeout=30).run.id == 1
    threads.close()


def test_a_commit_waits_for_a_while_until_each_has_its_thread() -> None:
    ends: queue.SimpleQueue[int] = queue.SimpleQueue()
    threads = RunThreads(1, lambda each, _ended: ends.put(each.job.id))
    begun, go = threading.Event(), threading.Event()

    def blocks(job: Job) -> None:
        begun.set()
        go.wait(30)

    threads.put([running(blocks)])
    assert begun.wait(30)
    threads.put([running(lambda job: None, id=2)])
    threads.wait_begun(0.001)
    assert ends.empty()
    go.set()
    threads.wait_begun(30)
    assert threads.take_back() == []
    assert [ends.get(timeout=30) for _ in range(2)] == [1, 2]
    threads.close()


def test_a_coroutine_is_cancelled_even_before_its_first_step() -> None:
    ends: queue.SimpleQueue[Ended] = queue.SimpleQueue()
    loop = RunLoop(lambda _each, ended: ends.put(ended))
    waits = asyncio.Event()

    async def handler(job: Job) -> None:
        await waits.wait()

    for _ in range(20):
        each = running(handler)
        loop.put(each)
        each.job.stop = RunEnd.STOPPED
        loop.cancel(each)
        assert ends.get(timeout=30).end in {RunEnd.UNSTARTED, RunEnd.STOPPED}
    loop.close()
    assert ends.empty()


def test_what_waits_for_a_thread_for_long_or_is_to_stop_is_taken_back() -> None:
    ends: queue.SimpleQueue[Ended] = queue.SimpleQueue()
    threads = RunThreads(1, lambda _each, ended: ends.put(ended))
    begun, go = threading.Event(), threading.Event()

    def blocks(job: Job) -> None:
        begun.set()
        go.wait(30)

    threads.put([running(blocks)])
    assert begun.wait(30)
    old, stopped, new = (running(blocks, id=each) for each in (2, 3, 4))
    stopped.job.stop = RunEnd.INTERRUPTED
    old.claimed -= 10
    threads.put([new, old, stopped])
    assert {each.job.id for each in threads.take_back(new.claimed - 5)} == {2, 3}
    go.set()
    assert [ends.get(timeout=30).run.id for _ in range(2)] == [1, 4]
    threads.close()


def test_a_task_that_ends_the_loop_ends_no_more_than_it() -> None:
    ends: queue.SimpleQueue[Ended] = queue.SimpleQueue()
    loop = RunLoop(lambda _each, ended: ends.put(ended))
    tasks: list[asyncio.Task[None]] = []

    async def leaves() -> None:
        raise SystemExit(3)

    async def handler(job: Job) -> None:
        tasks.append(asyncio.create_task(leaves()))  # noqa: TID251 - as handlers may
        await asyncio.Event().wait()

    loop.put(running(handler))
    assert ends.get(timeout=30).end is RunEnd.RAISED
    loop.close()
    assert not loop.alive
    loop.put(running(handler))
    assert ends.get(timeout=30).end is RunEnd.UNSTARTED
