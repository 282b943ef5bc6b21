"""A consumer in an event loop: it waits without a thread, and writes dead letters in one."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from roq.aio.consumer import Consumer
from roq.client.consume.consumer import Consumer as SyncConsumer
from roq.client.consume.holding import ACKED, RETURNED, Holding
from roq.client.consume.message import ConsumedBatch, Settlement
from roq.errors import Closed, LeaseLost, RoQError, Unavailable
from roq.model import LogId, PublisherId
from roq.read.message import Batch


def holding(*payloads: bytes, attempt: int = 1) -> Holding:
    batch = Batch(list(payloads), "t", PublisherId(b"p" * 16), 0, 0, 1, None)
    return Holding(LogId(1, 1), 0, 1, 0, attempt, batch)


class PaperShell:
    def __init__(self) -> None:
        self.error: RoQError | None = None
        self.settled: list[tuple[int, int, str]] = []
        self.put_aside = lambda _holding: False

    def put_aside(self, _held: Holding) -> bool:
        return False

    def settle(self, held: Holding, index: int, count: int, verdict: Settlement) -> None:
        if held.lost:
            raise LeaseLost
        if held.settle(index, count, ACKED if verdict.acked else RETURNED):
            self.settled.append((index, count, "ack" if verdict.acked else verdict.reason))


class PaperConsumer:
    """A sync consumer, of which a test says what it has."""

    queue = "orders"

    def __init__(self, *arrived: Holding) -> None:
        self.arrived = deque(arrived)
        self._shell = PaperShell()
        self.ring: Callable[[], None] = lambda: None
        self.buried: list[tuple[list[bytes], str, bool]] = []
        self.full = False
        self.closed = False

    def _on_ready(self, hook: Callable[[], None]) -> None:
        self.ring = hook

    def _take(self) -> Holding | None:
        if self.arrived:
            return self.arrived.popleft()
        if self._shell.error is not None:
            raise self._shell.error
        return None

    def _dead(self, held: Holding) -> str:
        return f"tried {held.attempt - 1} times" if held.attempt > 2 else ""

    def _bury(self, batch: ConsumedBatch, reason: str) -> None:
        inside = threading.current_thread() is threading.main_thread()
        if self.full:
            raise Unavailable("the disk is full")
        self.buried.append((batch.payloads, reason, inside))

    def flush(self, _timeout: float) -> None:
        return None

    def close(self, _timeout: float) -> None:
        self.closed = True

    def end(self) -> None:
        self._shell.error = Closed("closed")
        self.ring()


def run(there: PaperConsumer, body: Callable[[Consumer], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with Consumer(cast("SyncConsumer", there)) as consumer:
            await asyncio.wait_for(body(consumer), 30)

    asyncio.run(main())
    assert there.closed


def test_messages_come_one_by_one_and_are_acknowledged_by_hand() -> None:
    there = PaperConsumer(holding(b"a", b"b"))

    async def body(consumer: Consumer) -> None:
        first, second = await consumer.receive(1), await consumer.receive(1)
        assert first is not None
        assert second is not None
        assert (first.payload, second.payload) == (b"a", b"b")
        second.ack()
        first.nack(reason="no")
        assert await consumer.receive(0.01) is None

    run(there, body)
    assert there._shell.settled == [(1, 1, "ack"), (0, 1, "no")]


def test_a_loop_that_is_begun_anew_at_once_gives_back_what_the_first_one_was_at() -> None:
    """The event loop ends the first one later, when the second one is at another message."""
    there = PaperConsumer(holding(b"a", b"b"))
    seen: list[bytes] = []

    async def fail(consumer: Consumer) -> None:
        async for message in consumer:
            seen.append(message.payload)
            raise ZeroDivisionError

    async def body(consumer: Consumer) -> None:
        with pytest.raises(ZeroDivisionError):
            await fail(consumer)
        async for message in consumer:
            seen.append(message.payload)
            await asyncio.sleep(0.01)
            there.end()

    run(there, body)
    assert seen == [b"a", b"b"]
    assert sorted(there._shell.settled) == [(0, 1, "its handler did not end"), (1, 1, "ack")]


def test_two_loops_over_one_consumer_give_back_what_each_of_them_was_at() -> None:
    there = PaperConsumer(holding(b"a", b"b"))

    async def loop(consumer: Consumer) -> None:
        async for _ in consumer:
            await asyncio.sleep(10)

    async def body(consumer: Consumer) -> None:
        async with asyncio.TaskGroup() as group:
            loops = [group.create_task(loop(consumer)) for _ in range(2)]
            await asyncio.sleep(0.01)
            await consumer.close()
            for each in loops:
                each.cancel()

    run(there, body)
    assert [(at, why) for at, _, why in sorted(there._shell.settled)] == [
        (0, "its handler did not end"), (1, "its handler did not end"),
    ]  # fmt: skip


def test_tasks_that_share_a_consumer_get_all_of_what_comes() -> None:
    there = PaperConsumer()
    got: list[bytes] = []

    async def receive(consumer: Consumer) -> None:
        for _ in range(4):
            message = await consumer.receive(0.05)
            if message is not None:
                got.append(message.payload)
                message.ack()
                await asyncio.sleep(0.1)  # the others wait in vain meanwhile, and go on

    async def body(consumer: Consumer) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(receive(consumer))
            await asyncio.sleep(0.01)
            there.arrived += [holding(b"a", b"b"), holding(b"c"), holding(b"d", b"e")]
            there.ring()

    run(there, body)
    assert sorted(got) == [b"a", b"b", b"c", b"d", b"e"]


def test_what_is_rejected_in_a_loop_is_acknowledged_when_its_dead_letter_is_kept() -> None:
    there = PaperConsumer(holding(b"a"), holding(b"b"))
    there.full = True

    async def body(consumer: Consumer) -> None:
        async for message in consumer:
            message.reject("no")
            message.reject("again")
            if message.payload == b"b":
                there.end()

    run(there, body)
    why = "no dead letter could be written: the disk is full"
    assert [each[2] for each in there._shell.settled] == [why, why]


def test_of_a_batch_what_becomes_dead_letters_is_left_out() -> None:
    there = PaperConsumer(holding(b"a", b"b", b"c", b"d"))

    async def body(consumer: Consumer) -> None:
        async for batch in consumer.batches(wait=0.01):
            next(each for each in batch if each.payload == b"b").reject("no")
            batch.ack()
            await consumer.flush(5)

    run(there, body)
    assert there._shell.settled == [(0, 1, "ack"), (2, 2, "ack"), (1, 1, "ack")]
    assert there.buried == [([b"b"], "no", False)]


def test_a_flush_says_that_a_dead_letter_is_not_kept_yet() -> None:
    there = PaperConsumer(holding(b"a"))
    kept = threading.Event()
    there._bury = lambda batch, reason: kept.wait(20)  # type: ignore[method-assign, assignment, misc]

    async def body(consumer: Consumer) -> None:
        message = await consumer.receive(1)
        assert message is not None
        message.reject("no")
        try:
            with pytest.raises(Unavailable, match=r"not kept after 0\.01 s"):
                await consumer.flush(0.01)
        finally:
            kept.set()
        await consumer.flush(5)

    run(there, body)
    assert there._shell.settled == [(0, 1, "ack")]


def test_who_waits_is_woken_from_another_thread() -> None:
    there = PaperConsumer()

    async def body(consumer: Consumer) -> None:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(consumer.receive())
            await asyncio.sleep(0)
            there.arrived.append(holding(b"a"))
            await asyncio.to_thread(there.ring)
        message = waiting.result()
        assert message is not None
        assert message.payload == b"a"

    run(there, body)


def test_a_loop_acknowledges_what_its_body_has_done() -> None:
    there = PaperConsumer(holding(b"a", b"b"))

    async def body(consumer: Consumer) -> None:
        seen = []
        async for message in consumer:
            seen.append(message.payload)
            if len(seen) == 2:
                there.end()
        assert seen == [b"a", b"b"]

    run(there, body)
    assert there._shell.settled == [(0, 1, "ack"), (1, 1, "ack")]


def test_a_loop_gives_back_what_its_body_has_failed_at() -> None:
    there = PaperConsumer(holding(b"a", b"b"))

    async def body(consumer: Consumer) -> None:
        async for message in consumer:
            if message.payload == b"b":
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(there, body)
    assert there._shell.settled == [(0, 1, "ack"), (1, 1, "its handler did not end")]


def test_what_is_lost_meanwhile_does_not_end_the_loop() -> None:
    lost = holding(b"a")
    there = PaperConsumer(lost, holding(b"b"))

    async def body(consumer: Consumer) -> None:
        async for message in consumer:
            lost.lost = True
            if message.payload == b"b":
                there.end()

    run(there, body)
    assert there._shell.settled == [(0, 1, "ack")]


def test_batches_are_split_and_end_after_a_while() -> None:
    there = PaperConsumer(holding(*[b"%d" % n for n in range(5)]))

    async def body(consumer: Consumer) -> None:
        sizes = []
        async for batch in consumer.batches(most=2, wait=0.01):
            sizes.append(len(batch))
            batch.ack()
        assert sizes == [2, 2, 1]

    run(there, body)


def test_a_rejected_message_is_buried_by_a_thread_and_then_done() -> None:
    there = PaperConsumer(holding(b"a", b"b"))

    async def body(consumer: Consumer) -> None:
        message = await consumer.receive(1)
        assert message is not None
        message.reject("no JSON")
        assert there._shell.settled == [], "it is not done before it is buried"
        await consumer.flush()

    run(there, body)
    assert there.buried == [([b"a"], "no JSON", False)]
    assert there._shell.settled == [(0, 1, "ack")]


def test_what_was_tried_too_often_is_buried_and_never_seen() -> None:
    there = PaperConsumer(holding(b"old", attempt=3), holding(b"new"))

    async def body(consumer: Consumer) -> None:
        message = await consumer.receive(1)
        assert message is not None
        assert message.payload == b"new"

    run(there, body)
    assert there.buried == [([b"old"], "tried 2 times", False)]


def test_what_cannot_be_buried_is_tried_again() -> None:
    there = PaperConsumer(holding(b"a"))
    there.full = True

    async def body(consumer: Consumer) -> None:
        message = await consumer.receive(1)
        assert message is not None
        message.reject("bad")

    run(there, body)
    assert there._shell.settled == [(0, 1, "no dead letter could be written: the disk is full")]


def test_a_closed_consumer_rejects_nothing() -> None:
    there = PaperConsumer(holding(b"a"))

    async def body(consumer: Consumer) -> None:
        message = await consumer.receive(1)
        assert message is not None
        there.end()
        message._holding.lost = True
        with pytest.raises(LeaseLost):
            message.reject("bad")
        with pytest.raises(Closed):
            await consumer.receive(1)

    run(there, body)
    assert there.buried == []
