"""One fate for all messages of a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from roq import aio
from roq.client.publish.receipt import Outcome, Receipt, SendStatus
from roq.errors import DeliveryError

OK = SendStatus(outcome=Outcome.OK, exchange="x1", exchange_epoch=3)
NO = SendStatus(outcome=Outcome.FAILED, reason="too large")


class Waiter:
    """Settles the receipt when somebody waits for it, or lets the time pass."""

    def __init__(self, status: SendStatus | None) -> None:
        self.status = status
        self.timeouts: list[float | None] = []
        self.receipt: Receipt | None = None
        self.posted: list[Callable[[], object]] = []
        self.attended = 0

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        self.timeouts.append(timeout)
        if self.status is not None and self.receipt is not None:
            self.receipt.settle(self.status)
        return condition()

    def attend(self) -> None:
        self.attended += 1

    def call_back(self, callback: Callable[[], object], left_out: Callable[[], object]) -> None:
        self.posted.append(callback)


def receipt(status: SendStatus | None = None) -> tuple[Receipt, Waiter]:
    waiter = Waiter(status)
    waiter.receipt = Receipt(waiter)
    return waiter.receipt, waiter


def test_waiting_gives_the_fate() -> None:
    fresh, waiter = receipt(OK)
    assert not fresh.done()
    assert fresh.wait(2.0) == OK
    assert waiter.timeouts == [2.0]
    assert fresh.wait() == OK
    assert waiter.timeouts == [2.0], "nobody is asked once it is known"


def test_waiting_in_vain_says_pending() -> None:
    fresh, _ = receipt()
    assert fresh.wait(0.0).outcome is Outcome.PENDING


def test_a_result_that_is_not_success_is_raised_with_its_reason() -> None:
    failed, _ = receipt(NO)
    failed.count = 7
    with pytest.raises(DeliveryError, match="too large") as caught:
        failed.result()
    assert caught.value.messages == 7
    good, _ = receipt(OK)
    assert good.result().exchange == "x1"


def test_the_first_fate_stays() -> None:
    fresh, _ = receipt()
    fresh.settle(OK)
    fresh.settle(NO)
    assert fresh.status == OK


def test_callbacks_come_once_each_before_or_after() -> None:
    fresh, waiter = receipt()
    calls: list[int] = []
    fresh.on_settled(lambda: calls.append(1))
    fresh.on_settled(lambda: calls.append(2))
    fresh.settle(OK)
    fresh.settle(OK)
    fresh.on_settled(lambda: calls.append(3))
    assert calls == [], "never in the thread that learns the fate"
    for callback in waiter.posted:
        callback()
    assert calls == [1, 2, 3]


def test_it_says_what_it_knows() -> None:
    fresh, _ = receipt()
    assert repr(fresh) == "<roq.Receipt pending>"
    fresh.count = 3
    fresh.settle(OK)
    assert repr(fresh) == "<roq.Receipt ok by x1 3 messages>"
    failed, _ = receipt()
    failed.settle(NO)
    assert repr(failed) == "<roq.Receipt failed (too large)>"


def test_a_callback_that_comes_while_the_fate_is_fixed_is_called() -> None:
    class Late(Receipt):
        """The fate comes between the look at it and the callback's own place in the list."""

        def _ring_when_settled(self, ring: Callable[[], None]) -> None:
            self.settle(OK)
            super()._ring_when_settled(ring)

    waiter, rung = Waiter(None), list[int]()
    fresh = Late(waiter)
    fresh.on_settled(lambda: rung.append(1))
    assert len(waiter.posted) == 1


def test_what_arrives_is_read_at_once_for_who_is_called_or_awaits() -> None:
    waiter = Waiter(None)
    called, awaited = Receipt(waiter), aio.Receipt(waiter)
    called.on_settled(lambda: None)
    assert waiter.attended == 1

    async def told() -> SendStatus:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(awaited.settled())
            await asyncio.sleep(0)
            assert waiter.attended == 2
            awaited.settle(OK)
        return task.result()

    assert asyncio.run(told()) == OK
