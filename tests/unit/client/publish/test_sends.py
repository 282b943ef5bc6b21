"""One message whose fate is waited for, with a publisher that does as the test says."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from roq.client.io.callbacks import NOTICES_MAX, Callbacks
from roq.client.publish import sends
from roq.client.publish.publisher import Publisher
from roq.client.publish.receipt import Outcome, Receipt, SendStatus
from roq.client.publish.sends import AsyncSend, send
from roq.errors import Closed, DeliveryError, InvalidRequest

OK = SendStatus(outcome=Outcome.OK, exchange="x2")
REFUSED = SendStatus(outcome=Outcome.REFUSED, exchange="x1", reason="too many topics")
UNKNOWN = SendStatus(outcome=Outcome.UNKNOWN, reason="nobody knows")


class Fates:
    """A publisher; each message that it publishes has the next fate."""

    def __init__(self, *fates: SendStatus | None, again: bool = True) -> None:
        self.fates = list(fates)
        self.again = again
        self.room: list[float] = []
        """Seconds that each may wait for room."""
        self.now = 100.0
        self.watched: list[int] = []
        self.left: list[str] = []
        self.calls: Callbacks | None = None

    def publish(self, seconds: float) -> Receipt:
        self.room.append(seconds)
        self.now += 1.0
        receipt = Receipt(self)
        fate = self.fates.pop(0)
        if fate is not None:
            receipt.settle(fate)
        return receipt

    def watch(self, receipt: Receipt, seconds: float, tries: int) -> None:
        assert seconds >= 0
        self.watched.append(tries)

    def tries_again(self, status: SendStatus, tries: int) -> bool:
        if self.again and tries > 0 and status.outcome is Outcome.REFUSED:
            self.left.append(status.exchange)
            return True
        return False

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        return condition()

    def attend(self) -> None:
        """Whoever tells the fate here does so at once."""

    def call_back(self, callback: Callable[[], object], left_out: Callable[[], object]) -> None:
        if self.calls is None:
            callback()
        else:
            self.calls.post(callback, left_out)


@pytest.mark.parametrize("given", [{"timeout": math.nan}, {"linger": math.nan}, {"timeout": -1.0}])
def test_a_publisher_is_told_no_seconds_that_are_none(given: dict[str, float]) -> None:
    engine: Any = None  # it is refused before anything is asked of it
    with pytest.raises(InvalidRequest, match="is a number of seconds from 0 on"):
        Publisher(engine, [], "orders", publisher_id=b"p" * 16, **given)  # type: ignore[arg-type]


def test_what_was_refused_is_published_once_more_elsewhere() -> None:
    fates = Fates(REFUSED, OK)
    assert send(fates, fates.publish, 9.0, 2) is OK
    assert (fates.watched, fates.left) == ([2, 1], ["x1"])


@pytest.mark.parametrize(
    ("given", "tries", "outcome"),
    [([REFUSED] * 3, 2, "refused"), ([UNKNOWN], 2, "unknown"), ([REFUSED], 0, "refused"),
     ([None], 2, "pending")],
)  # fmt: skip
def test_the_error_says_what_became_of_it(
    given: list[SendStatus | None], tries: int, outcome: str
) -> None:
    fates = Fates(*given)
    with pytest.raises(DeliveryError) as caught:
        send(fates, fates.publish, 9.0, tries)
    assert (caught.value.outcome, caught.value.messages) == (outcome, 1)
    assert fates.fates == [], "what may be there is not published once more"


def sent(fates: Fates, seconds: float) -> SendStatus:
    return send(fates, fates.publish, seconds, 2)


def sent_async(fates: Fates, seconds: float) -> SendStatus:
    return AsyncSend(fates, fates.publish, seconds, 2, None).future.result(0)


@pytest.mark.parametrize("begin", [sent, sent_async])
def test_each_try_waits_for_room_as_long_as_there_is_time_for_all_tries(
    begin: Callable[[Fates, float], SendStatus], monkeypatch: pytest.MonkeyPatch
) -> None:
    fates = Fates(REFUSED, REFUSED, OK)
    monkeypatch.setattr(sends, "monotonic", lambda: fates.now)
    assert begin(fates, 9.0) is OK
    assert fates.room == [9.0, 8.0, 7.0]


@pytest.mark.parametrize("begin", [sent, sent_async])
def test_when_the_time_is_over_nothing_is_tried_again(
    begin: Callable[[Fates, float], SendStatus], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would learn what becomes of it."""
    fates = Fates(REFUSED, OK)
    monkeypatch.setattr(sends, "monotonic", lambda: fates.now)
    with pytest.raises(DeliveryError, match="too many topics"):
        begin(fates, 1.0)
    assert (fates.fates, fates.left) == ([OK], [])


def test_a_future_and_a_callback_get_the_fate() -> None:
    fates, told = Fates(REFUSED, OK), list[SendStatus]()
    future = AsyncSend(fates, fates.publish, 9.0, 2, told.append).future
    assert future.result(0) is OK
    assert told == [OK]
    assert fates.left == ["x1"]


def test_a_future_raises_what_became_of_it() -> None:
    fates, told = Fates(UNKNOWN), list[SendStatus]()
    future = AsyncSend(fates, fates.publish, 9.0, 2, told.append).future
    with pytest.raises(DeliveryError, match="nobody knows"):
        future.result(0)
    assert told == [UNKNOWN]


@pytest.mark.parametrize("error", [Closed("the publisher was closed"), OSError("no descriptor")])
def test_what_cannot_be_published_once_more_has_its_first_fate(error: Exception) -> None:
    fates, told = Fates(REFUSED), list[SendStatus]()

    def publish(seconds: float) -> Receipt:
        if not fates.fates:
            raise error
        return fates.publish(seconds)

    future = AsyncSend(fates, publish, 9.0, 2, told.append).future
    with pytest.raises(DeliveryError, match="too many topics"):
        future.result(0)
    assert told == [REFUSED]


def test_what_has_no_exchange_to_leave_any_more_has_its_first_fate() -> None:
    class Ended(Fates):
        def tries_again(self, status: SendStatus, tries: int) -> bool:
            raise Closed("the connection to the cluster is closed")

    fates = Ended(REFUSED)
    future = AsyncSend(fates, fates.publish, 9.0, 2, None).future
    with pytest.raises(DeliveryError, match="too many topics"):
        future.result(0)


def test_a_future_ends_also_if_its_call_is_left_out_for_a_slow_callback() -> None:
    fates, begun, released = Fates(OK, REFUSED), threading.Event(), threading.Event()
    fates.calls, told = Callbacks(), list[SendStatus]()

    def hang() -> None:
        begun.set()
        released.wait(30)

    fates.calls.post(hang)
    assert begun.wait(30)
    futures = [AsyncSend(fates, fates.publish, 9.0, 2, told.append).future for _ in range(2)]
    for _ in range(NOTICES_MAX):
        fates.calls.post(lambda: None)
    assert futures[0].result(0) is OK
    with pytest.raises(DeliveryError, match="too many topics"):
        futures[1].result(0)
    released.set()
    fates.calls.close()
    assert (told, fates.calls.dropped) == ([], 2)


def test_a_future_ends_also_if_the_client_was_closed_before() -> None:
    fates = Fates(OK)
    fates.calls = Callbacks()
    fates.calls.close()
    assert AsyncSend(fates, fates.publish, 9.0, 2, None).future.result(0) is OK
