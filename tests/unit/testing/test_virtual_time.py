"""A clock that a test moves, and what takes turns on it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from datetime import UTC, datetime

import pytest

import roq
from roq.testing.virtual_time import LONGEST_SECONDS, GivenUp, VirtualEventLoop, VirtualTime

SEEN = contextvars.ContextVar("seen", default="nothing")


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime(datetime(2030, 1, 1, tzinfo=UTC), 20.0)


def test_what_is_due_happens_in_order(time: VirtualTime) -> None:
    seen: list[tuple[float, str]] = []
    began = time.now()

    def note(what: str) -> None:
        seen.append((time.now() - began, what))

    time.call_later(2, lambda: note("late"))
    time.call_later(1, lambda: (note("early"), time.call_soon(lambda: note("soon"))))  # type: ignore[arg-type, return-value]
    time.call_later(1, lambda: note("beside"))
    time.call_later(1.5, lambda: note("never")).cancel()
    time.call_at(0, lambda: note("over"))
    wall = time.wall_clock()
    time.run(began + 1.5)
    assert seen == [(0, "over"), (1, "early"), (1, "beside"), (1, "soon")]
    assert time.wall_clock() - wall == time.now() - began == 1.5
    time.run(began + 5, lambda: len(seen) == 5)
    assert time.now() == began + 2, "no more time passes than has to"


def test_turns_wait_side_by_side(time: VirtualTime) -> None:
    seen: list[tuple[float, str]] = []
    began, stop = time.now(), threading.Event()

    def work(name: str, seconds: float) -> None:
        assert not time.wait_for(lambda: False, seconds)
        seen.append((time.now() - began, name))

    def waits() -> None:
        assert time.wait_for(stop.is_set, 60)
        seen.append((time.now() - began, "told"))

    time.call_soon(lambda: time.begin(lambda: work("slow", 5)))
    time.call_later(1, lambda: time.begin(lambda: work("quick", 1)))
    time.call_soon(lambda: time.begin(waits))
    time.call_later(3, stop.set)
    assert time.wait_for(lambda: len(seen) == 3, 10)
    assert seen == [(2, "quick"), (3, "told"), (5, "slow")]


def test_those_whose_process_is_gone_are_ended_and_so_are_all_in_the_end(
    time: VirtualTime,
) -> None:
    seen: list[str] = []
    alive, threads = True, threading.active_count()

    def work(name: str) -> None:
        try:
            time.wait_for(lambda: False, 60)
        except GivenUp:
            seen.append(name)
            time.wait_for(lambda: False, 60)  # as a `finally` may: it ends there, too
            raise AssertionError from None

    time.call_soon(lambda: time.begin(lambda: work("killed"), lambda: alive))
    time.call_soon(lambda: time.begin(lambda: work("left")))
    time.run(time.now() + 1)
    alive = False
    time.call_soon(lambda: None)
    time.run(time.now() + 1)
    assert seen == ["killed"]
    time.end()
    assert seen == ["killed", "left"]
    assert threading.active_count() == threads
    with pytest.raises(roq.Closed):
        time.run(time.now())


def test_what_never_comes_is_not_waited_for(time: VirtualTime) -> None:
    def again() -> None:
        time.call_later(3_600, again)

    again()
    began = time.now()
    with pytest.raises(roq.InvalidRequest, match="it was waited for 86400 s"):
        time.wait_for(lambda: False, None)
    assert time.now() - began == LONGEST_SECONDS
    time.call_soon(lambda: time.run(time.now()))
    with pytest.raises(roq.InvalidRequest, match="lets no time pass"):
        time.run(time.now())

    def spin() -> None:
        time.call_soon(spin)

    spin()
    with pytest.raises(roq.RoQError, match="time stands still"):
        time.run(time.now())


def test_handlers_do_not_see_the_variables_of_the_test(time: VirtualTime) -> None:
    seen: list[str] = []
    SEEN.set("the test's")
    time.call_soon(lambda: seen.append(SEEN.get()))
    time.call_soon(lambda: time.begin(lambda: seen.append(SEEN.get())))
    time.run(time.now())
    assert seen == ["nothing", "nothing"]


def test_an_event_loop(time: VirtualTime) -> None:
    loop = VirtualEventLoop(time, time.begin)
    began = time.now()

    def waits(seconds: float) -> float:
        time.wait_for(lambda: False, seconds)
        if seconds > 5:
            raise ValueError
        return time.now() - began

    async def work() -> list[float]:
        assert asyncio.get_running_loop() is loop
        async with asyncio.TaskGroup() as group:
            told = [group.create_task(asyncio.to_thread(waits, seconds)) for seconds in (2, 1)]
        both = [each.result() for each in told]
        with pytest.raises(ValueError):  # noqa: PT011 - that one
            await asyncio.to_thread(waits, 6)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(60), 1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(waits, 2), 1)
        with pytest.raises(roq.InvalidRequest, match="await it"):
            time.wait_for(lambda: False, 1)
        return both

    task = loop.create_task(work())
    assert time.wait_for(task.done, 60)
    assert task.result() == [2, 1]
    assert time.now() - began == 10
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
