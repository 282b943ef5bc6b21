"""A subscriber in a loop: messages one by one or by batches, none lost where a loop is left."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pytest

from roq.aio.subscriber import TAKE_BATCHES, Subscriber
from roq.errors import Closed
from roq.read.message import Batch


def batch(*payloads: bytes, sequence: int = 1) -> Batch:
    return Batch([*payloads], "t", b"p" * 16, sequence, 0, sum(map(len, payloads)), None)


class PaperSubscriber:
    """Has these batches; afterwards it waits, or is closed."""

    def __init__(self, *batches: Batch, closed: bool = False) -> None:
        self.batches = deque(batches)
        self.closed = closed
        self.most: list[int] = []
        self.ring: Callable[[], None] = lambda: None
        self.meanwhile: Callable[[], None] = lambda: None

    def _on_ready(self, ring: Callable[[], None]) -> None:
        self.ring = ring

    def _take(self, most: int) -> list[Batch]:
        self.most.append(most)
        taken = [self.batches.popleft() for _ in range(min(most, len(self.batches)))]
        if not taken and self.closed:
            raise Closed("the subscriber is closed")
        if not taken:
            self.meanwhile()
        return taken

    def put(self, *batches: Batch) -> None:
        self.batches.extend(batches)
        self.ring()


def played(scene: Callable[[Subscriber], Any], paper: PaperSubscriber) -> None:
    async def main() -> None:
        async with asyncio.timeout(20):
            await scene(Subscriber(cast("Any", paper)))

    asyncio.run(main())


def test_messages_come_one_by_one_in_order() -> None:
    async def scene(subscriber: Subscriber) -> None:
        got = [await subscriber.receive() for _ in range(3)]
        assert [each.payload for each in got if each is not None] == [b"1", b"2", b"3"]
        assert await subscriber.receive(0) is None

    played(scene, PaperSubscriber(batch(b"1", b"2"), batch(b"3", sequence=3)))


def test_who_waits_is_woken_from_another_thread() -> None:
    paper = PaperSubscriber()

    async def scene(subscriber: Subscriber) -> None:
        async with asyncio.TaskGroup() as tasks:
            waits = tasks.create_task(cast("Any", subscriber.receive()))
            await asyncio.sleep(0)
            assert len(paper.most) == 1
            await asyncio.to_thread(paper.put, batch(b"1"))
        assert waits.result().payload == b"1"

    played(scene, paper)


def test_what_comes_between_a_look_and_the_wait_is_not_missed() -> None:
    paper = PaperSubscriber()
    paper.meanwhile = lambda: paper.put(batch(b"1"))

    async def scene(subscriber: Subscriber) -> None:
        message = await subscriber.receive()
        assert message is not None
        assert message.payload == b"1"

    played(scene, paper)


def test_a_loop_that_is_left_loses_nothing_and_one_over_batches_goes_on_with_the_rest() -> None:
    async def scene(subscriber: Subscriber) -> None:
        async for message in subscriber:
            assert message.payload == b"1"
            break
        async for message in subscriber:
            assert message.payload == b"2"
            break
        runs = [each async for each in subscriber.batches()]
        assert [each.payloads for each in runs] == [[b"3"], [b"4"]]
        assert [each.sequence for each in runs] == [3, 4]

    played(scene, PaperSubscriber(batch(b"1", b"2", b"3"), batch(b"4", sequence=4), closed=True))


def test_a_loop_ends_when_it_is_closed_and_a_wait_says_so() -> None:
    async def scene(subscriber: Subscriber) -> None:
        assert [each.payload async for each in subscriber] == [b"1"]
        with pytest.raises(Closed):
            await subscriber.receive()

    played(scene, PaperSubscriber(batch(b"1"), closed=True))


def test_others_in_the_loop_have_their_turn_however_much_arrives() -> None:
    paper = PaperSubscriber(*(batch(b"x", sequence=n) for n in range(3 * TAKE_BATCHES)))

    async def scene(subscriber: Subscriber) -> None:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(other())  # noqa: TID251 - ended below
        for _ in range(3 * TAKE_BATCHES):
            await subscriber.receive()
        task.cancel()
        assert turns >= 3
        assert paper.most == [TAKE_BATCHES] * 3

    played(scene, paper)


NAMES = [str(each).encode() for each in range(1, 7)]


def of_three() -> PaperSubscriber:
    """Six messages, in batches of one, three and two."""
    one, three, two = (
        batch(*NAMES[:1]),
        batch(*NAMES[1:4], sequence=2),
        batch(*NAMES[4:], sequence=5),
    )
    return PaperSubscriber(one, three, two, closed=True)


def test_a_loop_leaves_out_nothing_of_a_batch_that_was_begun_by_receive() -> None:
    async def scene(subscriber: Subscriber) -> None:
        seen = list[bytes]()
        async for message in subscriber:
            seen.append(message.payload)
            if len(seen) == 1:
                other = await subscriber.receive()
                assert other is not None
                seen.append(other.payload)
        assert seen == NAMES

    played(scene, of_three())


@pytest.mark.parametrize("seconds", [None, 30.0])
def test_tasks_that_receive_at_once_leave_out_nothing_of_a_batch(seconds: float | None) -> None:
    async def scene(subscriber: Subscriber) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(cast("Any", subscriber.receive(seconds))) for _ in NAMES]
        assert sorted(each.result().payload for each in tasks) == NAMES

    played(scene, of_three())
