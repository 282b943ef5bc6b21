"""What is broadcast comes to whoever waits in a loop: at once, when it comes, or not in time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from roq.aio.listening import Statistics, Watch
from roq.errors import Closed, InvalidRequest


class PaperStream:
    """Has these items, and then none, or is closed."""

    def __init__(self, *items: Any) -> None:
        self.items = deque(items)
        self.closed = False
        self.looks = 0
        self._on_ready: Callable[[], None] | None = None
        self.meanwhile: Callable[[], None] = lambda: None

    def receive(self, timeout: float) -> Any:
        assert timeout == 0, "a loop is not held up"
        self.looks += 1
        if self.items:
            return self.items.popleft()
        if self.closed:
            raise Closed("the stream is closed")
        self.meanwhile()
        return None

    def put(self, *items: Any, closed: bool = False) -> None:
        self.items.extend(items)
        self.closed = closed
        assert self._on_ready is not None
        self._on_ready()


async def made(stream: PaperStream) -> Watch:
    return Watch(cast("Any", stream))


def test_what_is_there_is_given_in_order_without_a_wait() -> None:
    async def scene() -> None:
        watch = await made(PaperStream(1, 2))
        assert [await watch.receive(), await watch.receive(0)] == [1, 2]

    asyncio.run(scene())


def test_who_waits_is_woken_from_another_thread() -> None:
    async def scene() -> None:
        stream = PaperStream()
        watch = await made(stream)
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            waits = tasks.create_task(cast("Any", watch.receive(60)))
            await asyncio.sleep(0)
            assert stream.looks == 1
            await asyncio.to_thread(stream.put, 7)
        assert waits.result() == 7

    asyncio.run(scene())


def test_what_comes_between_a_look_and_the_wait_is_not_missed() -> None:
    async def scene() -> None:
        stream = PaperStream()
        watch = await made(stream)
        stream.meanwhile = lambda: stream.put(7)
        async with asyncio.timeout(20):
            assert await watch.receive() == 7
        assert stream.looks == 2

    asyncio.run(scene())


def test_nothing_in_time_is_none_and_the_time_has_to_be_a_number() -> None:
    async def scene() -> None:
        stream = PaperStream()
        watch = await made(stream)
        assert await watch.receive(-1.0) is None
        assert stream.looks == 1
        assert await watch.receive(0.001) is None
        with pytest.raises(InvalidRequest):
            await watch.receive(float("nan"))

    asyncio.run(scene())


def test_a_loop_over_it_ends_when_it_is_closed_and_a_wait_says_so() -> None:
    async def scene() -> None:
        stream = PaperStream(1)
        watch = await made(stream)
        stream.meanwhile = lambda: stream.put(2, closed=True)
        assert [each async for each in watch] == [1, 2]
        with pytest.raises(Closed):
            await watch.receive()

    asyncio.run(scene())


def test_a_statistics_stream_tells_what_the_one_for_threads_tells() -> None:
    async def scene() -> None:
        told = {
            "queue": "q", "state": "live", "reason": "r", "limits": None, "foreign": 1,
            "malformed": 2, "dropped": 3,
        }  # fmt: skip
        stream = SimpleNamespace(**told, waiting=lambda: ["sample"])
        statistics = Statistics(cast("Any", stream))
        assert {name: getattr(statistics, name) for name in told} == told
        assert cast("Any", statistics.waiting()) == ["sample"]

    asyncio.run(scene())
