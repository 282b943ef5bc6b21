"""What is made in a thread is there for whoever waits, or is undone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from roq.aio.cluster import made


def test_whoever_waits_gets_it() -> None:
    undone: list[int] = []
    assert asyncio.run(made(lambda: 7, undone.append)) == 7
    assert undone == []


def test_what_goes_wrong_is_raised() -> None:
    def fail() -> int:
        raise KeyError("k")

    with pytest.raises(KeyError):
        asyncio.run(made(fail, lambda _: None))


def test_what_is_made_after_nobody_waits_any_more_is_undone() -> None:
    undone: list[int] = []
    go_on = threading.Event()

    async def main() -> None:
        loop, begun = asyncio.get_running_loop(), asyncio.Event()

        def make() -> int:
            loop.call_soon_threadsafe(begun.set)
            assert go_on.wait(30)
            return 7

        async with asyncio.TaskGroup() as group:
            task = group.create_task(made(make, undone.append))
            await begun.wait()
            task.cancel()
        assert task.cancelled()
        assert undone == []
        go_on.set()

    asyncio.run(main())  # waits for its threads
    assert undone == [7]


def test_what_was_made_before_the_loop_has_heard_of_it_is_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    undone: list[int] = []

    async def not_heard_of(work: Callable[[], None]) -> None:
        work()
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "to_thread", not_heard_of)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(made(lambda: 7, undone.append))
            await asyncio.sleep(0)
            task.cancel()
        assert task.cancelled()

    asyncio.run(main())
    assert undone == [7]
