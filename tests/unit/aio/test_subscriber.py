"""A subscriber in an event loop: whoever reads it, nothing of a batch is left out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

import pytest

from roq.aio.subscriber import Subscriber
from roq.client.subscribe.subscriber import Subscriber as SyncSubscriber
from roq.errors import Closed
from roq.model import PublisherId
from roq.read.message import Batch, Message

NAMES = [str(each).encode() for each in range(1, 7)]


class PaperSubscriber:
    """A sync subscriber, of which a test says what it has."""

    def __init__(self, *arrived: list[bytes]) -> None:
        publisher = PublisherId(b"p" * 16)
        self.arrived = deque(Batch(each, "t", publisher, 0, 0, 1, None) for each in arrived)
        self.ring: Callable[[], None] = lambda: None

    def _on_ready(self, hook: Callable[[], None]) -> None:
        self.ring = hook

    def _take(self, _most: int) -> list[Batch]:
        if not self.arrived:
            raise Closed("the subscriber is closed")
        return [self.arrived.popleft()]


@pytest.fixture
def paper() -> PaperSubscriber:
    return PaperSubscriber(NAMES[:1], NAMES[1:4], NAMES[4:])


async def received(subscriber: Subscriber, seconds: float | None = None) -> bytes:
    message = await subscriber.receive(seconds)
    assert isinstance(message, Message)
    return message.payload


def test_a_loop_leaves_out_nothing_of_a_batch_that_was_begun_by_receive(
    paper: PaperSubscriber,
) -> None:
    async def read() -> list[bytes]:
        subscriber, seen = Subscriber(cast("SyncSubscriber", paper)), list[bytes]()
        async for message in subscriber:
            seen.append(message.payload)
            if len(seen) == 1:
                seen.append(await received(subscriber))
        return seen

    assert asyncio.run(read()) == NAMES


@pytest.mark.parametrize("seconds", [None, 30.0])
def test_tasks_that_receive_at_once_leave_out_nothing_of_a_batch(
    paper: PaperSubscriber, seconds: float | None
) -> None:
    async def read() -> list[bytes]:
        subscriber = Subscriber(cast("SyncSubscriber", paper))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(received(subscriber, seconds)) for _ in NAMES]
        return [each.result() for each in tasks]

    assert sorted(asyncio.run(read())) == NAMES
