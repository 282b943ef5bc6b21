"""What objects for event loops are made of; what is made in a thread is there, or is undone."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable

import pytest

from roq.aio.twin import CALLBACKS, Leaving, Told, awaited, called, made, opened


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


class Thing:
    """For threads."""

    limit = 3

    def __init__(self) -> None:
        self.left: list[object] = []

    @property
    def size(self) -> int:
        """How large it is."""
        return 7

    def where(self, name: str, *, tell: Callable[[str], None] | None = None) -> tuple[str, int]:
        """In which thread this runs.

        Args:
            tell: is told.
        """
        if tell is not None:
            tell(name)
        return name, threading.get_ident()

    def __exit__(self, *raised: object) -> None:
        self.left = list(raised)


class AsyncThing(Leaving[Thing]):
    """For loops."""

    size = Told[int](Thing.size)
    limit = Told[int]("How much it may be.")
    here = called(Thing.where)
    where = awaited(Thing.where, callback="tell")
    opened = opened(Thing.where, lambda found: found[0].upper(), lambda _: None)


def test_a_property_is_that_of_the_object_for_threads_and_cannot_be_set() -> None:
    thing = AsyncThing(Thing())
    assert (thing.size, thing.limit) == (7, 3)
    assert (AsyncThing.size.__doc__, AsyncThing.limit.__doc__) == (
        "How large it is.",
        "How much it may be.",
    )
    with pytest.raises(AttributeError, match="size"):
        setattr(thing, "size", 8)  # noqa: B010 - the type forbids it


def test_what_may_wait_runs_in_another_thread_and_calls_back_in_the_loop() -> None:
    async def main() -> None:
        told = asyncio.get_running_loop().create_future()
        name, thread = await AsyncThing(Thing()).where(
            "a", tell=lambda name: told.set_result((name, threading.get_ident()))
        )
        assert (name, await told) == ("a", ("a", threading.get_ident()))
        assert thread != threading.get_ident()
        assert await AsyncThing(Thing()).opened("b") == "B"

    asyncio.run(main())
    assert AsyncThing(Thing()).here("c") == ("c", threading.get_ident())


def test_signatures_and_docstrings_are_those_of_the_object_for_threads() -> None:
    assert inspect.iscoroutinefunction(AsyncThing.where)
    assert inspect.signature(AsyncThing.where) == inspect.signature(Thing.where)
    said = inspect.getdoc(AsyncThing.where) or ""
    assert said == f"{inspect.getdoc(Thing.where)}\n\n{CALLBACKS}"
    assert inspect.getdoc(AsyncThing.here) == inspect.getdoc(Thing.where)


def test_it_is_left_as_the_object_for_threads_is() -> None:
    thing = Thing()
    error = KeyError("k")

    async def main() -> None:
        async with AsyncThing(thing):
            raise error

    with pytest.raises(KeyError):
        asyncio.run(main())
    assert thing.left[:2] == [KeyError, error]
