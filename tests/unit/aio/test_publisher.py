"""A publisher in a loop waits for room, for receipts and for a flush without holding it up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from roq.aio import publisher as module
from roq.aio.publisher import Publisher, Receipt
from roq.client.publish.receipt import Outcome, SendStatus
from roq.errors import DeliveryError, InvalidRequest, Unavailable

OK = SendStatus(outcome=Outcome.OK)
REFUSED = SendStatus(outcome=Outcome.REFUSED, reason="full", exchange="x1")


class Waiter:
    """In the place of the publisher that a receipt belongs to."""

    attended = 0

    def attend(self) -> None:
        self.attended += 1


class PaperPublisher:
    """Has room for so many messages; whoever waits for more is given some, or nothing."""

    timeout, delivery_timeout, retry_times = 0.05, 20.0, 2
    failed = False

    def __init__(self, room: int = 1_000, *fates: SendStatus, gives: int = 0) -> None:
        self.room, self.gives, self.fates = room, gives, [*fates]
        self.published: list[tuple[Any, ...]] = []
        self.watched: list[int] = []
        self.asked = 0
        self.waiter = Waiter()

    def publish(
        self, payload: bytes, topic: str, *more: Any, priority: int, ttl: float | None
    ) -> Receipt:
        self.published.append((payload, topic, *more, priority, ttl))
        receipt = Receipt(cast("Any", self.waiter))
        if self.fates:
            receipt.settle(self.fates.pop(0))
        return receipt

    def publish_from(
        self, payloads: list[Any], position: int, _topic: str, receipts: list[Any]
    ) -> int:
        taken = payloads[position : position + self.room]
        self.room -= len(taken)
        self.published.append(tuple(taken))
        receipts.append(len(taken))
        return position + len(taken)

    def has_room(self) -> bool:
        return self.room > 0

    def is_flushed(self) -> bool:
        return self.room > 0

    def attempt(self, condition: Callable[[], bool], wake: Callable[[], None]) -> bool:
        self.asked += 1
        if condition():
            return True
        self.room += self.gives
        if self.gives:
            wake()
        return False

    def watch(self, _receipt: Receipt, _seconds: float, tries: int) -> None:
        self.watched.append(tries)

    def tries_again(self, status: SendStatus, tries: int) -> bool:
        return status is REFUSED and tries > 0

    def raise_no_room(self, waited: float) -> None:
        raise Unavailable(f"nothing for {waited:g} s")

    def flushed(self, waited: float, *, done: bool) -> None:
        if not done:
            raise Unavailable(f"not within {waited:g} s")


def played(scene: Callable[[Publisher], Any], paper: PaperPublisher) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(20):
            return await scene(Publisher(cast("Any", paper)))

    return asyncio.run(main())


def test_a_receipt_is_waited_for_until_another_thread_settles_it() -> None:
    async def scene() -> None:
        waiter = Waiter()
        receipt = Receipt(cast("Any", waiter))

        async def waits() -> SendStatus:
            return await receipt

        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            both = [tasks.create_task(waits()) for _ in range(2)]
            await asyncio.sleep(0)
            assert waiter.attended == 2
            await asyncio.to_thread(receipt.settle, OK)
        assert [each.result() for each in both] == [OK, OK]
        assert await receipt is OK
        assert waiter.attended == 2, "whose fate is known asks nobody"

    asyncio.run(scene())


def test_a_message_is_published_with_all_that_it_has_and_its_fate_given() -> None:
    paper = PaperPublisher(1_000, OK)
    sent = played(
        lambda made: made.send(b"1", "t", "k", ["a"], {"b": "c"}, priority=4, ttl=5.0), paper
    )
    assert sent is OK
    assert paper.published == [(b"1", "t", "k", ["a"], {"b": "c"}, 4, 5.0)]


def test_what_was_refused_is_tried_again_so_often_and_then_raised() -> None:
    assert played(lambda made: made.send(b"1"), PaperPublisher(9, REFUSED, OK)) is OK
    paper = PaperPublisher(9, REFUSED, REFUSED, REFUSED, OK)
    with pytest.raises(DeliveryError, match="full"):
        played(lambda made: made.send(b"1"), paper)
    assert paper.watched == [2, 1, 0]


def test_a_message_waits_for_room_before_it_is_published() -> None:
    paper = PaperPublisher(0, OK, gives=1)
    assert played(lambda made: made.send(b"1"), paper) is OK
    assert (paper.asked, len(paper.published)) == (2, 1)


@pytest.mark.parametrize(("timeout", "waits"), [(0.01, 0.01), (0.0, 0.0), (20.0, 0.05)])
def test_a_message_waits_for_room_no_longer_than_its_own_time(timeout: float, waits: float) -> None:
    paper = PaperPublisher(0, OK)
    with pytest.raises(Unavailable, match=f"nothing for {waits:g} s"):
        played(lambda made: made.send(b"1", timeout=timeout), paper)
    assert paper.published == []


def test_when_its_time_is_over_a_message_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paper = PaperPublisher(9, REFUSED, OK)
    monkeypatch.setattr(module, "monotonic", lambda: 100.0 * len(paper.published))
    with pytest.raises(DeliveryError, match="full"):
        played(lambda made: made.send(b"1", timeout=99.0), paper)
    assert paper.fates == [OK]


def test_a_fate_that_is_not_known_in_time_is_pending() -> None:
    paper = PaperPublisher()
    with pytest.raises(DeliveryError) as met:
        played(lambda made: made.send(b"1", timeout=0.01), paper)
    assert (met.value.outcome, len(paper.published)) == ("pending", 1)


def test_many_wait_for_room_as_often_as_needed() -> None:
    paper = PaperPublisher(3, gives=2)
    receipts = played(lambda made: made.publish_many([b"x"] * 7), paper)
    assert (sum(receipts), max(receipts)) == (7, 3)
    played(lambda made: made.publish_many([b"x"], "t", "k", ttl=2.0), paper)
    (given,) = paper.published[-1]
    assert (given, given.beside.attributes.key, given.beside.lifetime_ms) == (b"x", "k", 2_000)


def test_room_that_does_not_come_in_time_is_an_error_with_the_time() -> None:
    paper = PaperPublisher(0)
    for seconds, text in ((None, "nothing for 0.05 s"), (0.01, "nothing for 0.01 s")):
        with pytest.raises(Unavailable, match=text):
            played(lambda made, seconds=seconds: made.drain(seconds), paper)
    with pytest.raises(InvalidRequest):
        played(lambda made: made.drain(float("nan")), paper)


def test_one_that_has_failed_for_good_waits_no_longer() -> None:
    paper = PaperPublisher(0)
    paper.failed = True
    with pytest.raises(Unavailable):
        played(lambda made: made.drain(60), paper)
    assert paper.asked == 1


def test_a_flush_ends_with_the_last_acknowledgement_or_says_that_it_did_not() -> None:
    assert played(lambda made: made.flush(), PaperPublisher(0, gives=1)) is None
    with pytest.raises(Unavailable, match=r"not within 0\.01 s"):
        played(lambda made: made.flush(0.01), PaperPublisher(0))
