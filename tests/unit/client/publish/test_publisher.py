"""What a publisher tells its user: refusals, waits for room, flushes and its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from roq.client.io.engine import Engine
from roq.client.publish import publisher as module
from roq.client.publish.publisher import CLOSE_SECONDS_MAX, DELIVERY_SECONDS_MAX, Publisher
from roq.client.publish.receipt import Outcome, Receipt, SendStatus
from roq.errors import (
    DeliveryError,
    InvalidName,
    InvalidRequest,
    QueueNotFound,
    QueueStopped,
    Reentered,
    RoQError,
    Unavailable,
    WouldBlock,
)


class PaperShell:
    """A queue that takes `room` batches; who waits finds what `meanwhile` has made of it."""

    made: list[PaperShell]
    ready, stopped, why, room = True, False, "no exchange serves", 9
    trouble: RoQError | None = None

    def __init__(self, *_: Any, new_receipt: Callable[[], Receipt], name: str, **__: Any) -> None:
        self.name, self._new = name, new_receipt
        self.calls: list[Any] = []
        self.failure, self.unacked = None, 0
        self.meanwhile: Callable[[], None] = lambda: None
        self.tally = SimpleNamespace(failed_messages=0, unknown_messages=0, last_reason="full")
        self.fast: dict[str, Any] = {}
        self.machine = SimpleNamespace(
            packer=SimpleNamespace(
                fast=self.fast, keyed=lambda *_: None, keeps=lambda *_: True,
                withdraw=lambda _, item: self.calls.append(("withdraw", item)),
            ),
            links=SimpleNamespace(ready=self.ready, tally=self.tally, owed_batches=2),
            stats=lambda **more: SimpleNamespace(unacked_batches=self.unacked, **more), messages=5,
            next_sequence=lambda _: 5, unacknowledged=0,
        )  # fmt: skip
        self.lock = nullcontext()
        self.guard = SimpleNamespace(
            check=lambda: None, held=lambda: False, renew=lambda: None, lock=self.lock
        )
        self.made.append(self)

    def start(self) -> None: ...

    def check(self) -> None:
        if self.trouble is not None:
            raise self.trouble

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        self.calls.append(("wait", timeout))
        self.meanwhile()
        return condition()

    def has_room(self) -> bool:
        return self.room > 0

    def is_flushed(self) -> bool:
        return not self.unacked

    def publish(self, data: bytes, topic: str) -> Receipt | None:
        if not self.room:
            return None
        self.room -= 1
        self.calls.append((data, topic))
        return self._new()

    def publish_chunk(self, payloads: Any, position: int, _topic: str) -> tuple[int, Any]:
        count = min(2, len(payloads) - position)
        return count, self.publish(b"".join(payloads[position : position + count]), "")

    def leave_exchange(self, *given: str) -> None:
        self.calls.append(given)

    def look_at(self, batch: Any) -> None:
        self.calls.append(("look at", batch.items[:]))

    def attend(self) -> None:
        self.calls.append("attend")

    def close(self, reason: str) -> None:
        self.calls.append(("close", reason))


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> type[PaperShell]:
    class Shell(PaperShell):
        made: list[PaperShell] = []  # noqa: RUF012 - of this test

    class PaperReporter(SimpleNamespace):
        def __init__(self, *_: Any) -> None:
            super().__init__(start=lambda: None, close=lambda _: None, look_soon=lambda: None)

    monkeypatch.setattr(module, "PublisherShell", Shell)
    monkeypatch.setattr(module, "StatusReporter", PaperReporter)
    return Shell


@pytest.fixture
def make(engine: Engine, shell: type[PaperShell]) -> Callable[..., tuple[Publisher, Any]]:
    def made(**given: Any) -> tuple[Publisher, PaperShell]:
        queue = given.pop("queue", "q")
        publisher = Publisher(engine, ["a"], queue, publisher_id=b"p" * 16, **given)
        return publisher, shell.made[-1]

    return made


Make = Callable[..., tuple[Publisher, Any]]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"timeout": float("nan")}, InvalidRequest),
        ({"timeout": -1.0}, InvalidRequest),
        ({"connect_timeout": 0.0}, InvalidRequest),
        ({"linger": -1.0}, InvalidRequest),
        ({"delivery_timeout": 0.0}, InvalidRequest),
        ({"delivery_timeout": DELIVERY_SECONDS_MAX + 1}, InvalidRequest),
        ({"retry_times": -1}, InvalidRequest),
        ({"retry_times_async": -1}, InvalidRequest),
        ({"avoid_slower_than": 0.0}, InvalidRequest),
        ({"name": ""}, InvalidName),
        ({"group": "g" * 60, "name": "a-name"}, InvalidName),
        ({"queue": "a/b"}, InvalidName),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_opened(
    given: dict[str, Any], error: type[RoQError], make: Make, shell: type[PaperShell]
) -> None:
    with pytest.raises(error):
        make(**given)
    assert shell.made == []


def test_people_see_the_group_before_the_name(make: Make) -> None:
    publisher, shell = make(group="tills", name="till-7")
    assert (publisher.name, publisher.group, shell.name) == ("till-7", "tills", "tills/till-7")
    assert publisher.next_sequence("t") == 5
    assert make(name="till-7")[1].name == "till-7"


@pytest.mark.parametrize(
    ("stopped", "trouble", "error", "text"),
    [
        (False, None, Unavailable, "no exchange of queue q could be reached in 2 s: no exchange"),
        (True, None, QueueStopped, "no exchange serves"),
        (True, QueueNotFound("no queue q"), QueueNotFound, "no queue q"),
    ],
)
def test_without_an_exchange_it_is_not_opened_and_leaves_nothing_open(
    stopped: bool, trouble: RoQError | None, error: type[RoQError], text: str, make: Make,
    shell: type[PaperShell],
) -> None:  # fmt: skip
    shell.ready, shell.stopped, shell.trouble = False, stopped, trouble
    with pytest.raises(error, match=text):
        make(connect_timeout=2.0)
    assert [each[0] for each in shell.made[0].calls] == ["wait", "close"]
    assert shell.made[0].calls[0] == ("wait", 2.0)


def test_a_small_message_joins_an_open_batch_and_a_full_one_is_looked_at(make: Make) -> None:
    publisher, shell = make()
    batch = shell.fast["t"] = SimpleNamespace(small=3, items=[], limit=2, receipt=object())
    assert publisher.publish(b"1", "t") is batch.receipt
    assert shell.calls == [("wait", 10.0)]
    assert publisher.publish(b"2", "t") is batch.receipt
    assert shell.calls[1:] == [("look at", [b"1", b"2"])]
    for given in ({"priority": 1}, {"tags": ["a"]}, {"properties": {"a": "b"}}, {"ttl": 5.0}):
        publisher.publish(b"3", "t", **given)
    publisher.publish(b"long", "t")
    assert batch.items == [b"1", b"2"], "what has more to it, or is longer, goes another way"
    assert len(shell.calls) == 2 + 5


def test_a_signal_handler_in_the_middle_of_a_call_is_refused_and_takes_its_message_back(
    make: Make,
) -> None:
    def refuse() -> None:
        raise Reentered("in the middle of another call")

    publisher, shell = make()
    shell.fast["t"] = SimpleNamespace(small=3, items=[], limit=1, receipt=object())
    shell.guard.held, shell.guard.check = lambda: True, refuse
    with pytest.raises(Reentered):
        publisher.publish(b"1", "t")
    assert shell.calls[-1] == ("withdraw", b"1")
    shell.guard.check = lambda: None


def test_without_room_one_that_does_not_block_says_so_and_has_what_arrives_read(
    make: Make,
) -> None:
    publisher, shell = make(block=False)
    shell.room = 0
    with pytest.raises(WouldBlock, match="the window of queue q is full: no exchange serves"):
        publisher.publish(b"1")
    assert shell.calls[-1] == "attend"


def test_without_room_one_that_blocks_waits_and_counts_it(make: Make) -> None:
    publisher, shell = make(timeout=3.0)
    shell.room, shell.unacked = 0, 4

    def give() -> None:
        shell.room = 1

    shell.meanwhile = give
    assert isinstance(publisher.publish(b"1"), Receipt)
    shell.meanwhile = lambda: None
    with pytest.raises(Unavailable, match=r"queue q took nothing for 3 s \(4 batches are waiting"):
        publisher.publish(b"2")
    waits = [each[1] for each in shell.calls if each[0] == "wait"]
    assert waits[1:] == [pytest.approx(3.0, abs=1.0)] * 2
    assert (publisher.stats().window_waits, publisher.failed) == (2, False)
    shell.trouble = QueueNotFound("no queue q")
    with pytest.raises(QueueNotFound):
        publisher.publish(b"2")


@pytest.mark.parametrize(("timeout", "waits"), [(0.25, 0.25), (0.0, 0.0), (60.0, 3.0), (None, 3.0)])
def test_what_is_sent_waits_for_room_no_longer_than_its_own_time(
    timeout: float | None, waits: float, make: Make
) -> None:
    publisher, shell = make(timeout=3.0)
    shell.room = 0
    with pytest.raises(Unavailable, match=rf"queue q took nothing for {waits:g} s"):
        publisher.send(b"1", timeout=timeout)
    assert shell.calls[-1] == ("wait", pytest.approx(waits, abs=0.2))


def test_what_is_sent_with_a_callback_waits_for_room_no_longer_than_delivery_may_take(
    make: Make,
) -> None:
    publisher, shell = make(timeout=3.0, delivery_timeout=0.5)
    shell.room = 0
    with pytest.raises(Unavailable, match=r"queue q took nothing for 0.5 s"):
        publisher.send_async(b"1")


def test_many_wait_for_room_between_batches_and_have_a_receipt_for_each(make: Make) -> None:
    publisher, shell = make()
    shell.room = 2

    def give() -> None:
        shell.room = 1

    shell.meanwhile = give
    receipts = publisher.publish_many([b"1", b"2", b"3", b"4", b"5", b"6", b"7"])
    assert len({id(each) for each in receipts}) == 4
    assert [each[0] for each in shell.calls if each[0] != "wait"] == [b"12", b"34", b"56", b"7"]


def test_a_flush_tells_of_what_was_given_up_since_the_last_one(make: Make) -> None:
    publisher, shell = make()
    publisher.flush()
    shell.tally.failed_messages, shell.tally.unknown_messages = 3, 1
    with pytest.raises(DeliveryError, match=r"4 messages to queue q .*\(whether 1 of them.*full"):
        publisher.flush()
    publisher.flush()
    shell.unacked = 2
    with pytest.raises(Unavailable, match="2 batches to queue q were not acknowledged within 1 s"):
        publisher.flush(1.0)


@pytest.mark.parametrize(
    ("outcome", "wanted", "tries", "again"),
    [
        (Outcome.REFUSED, True, 1, True),
        (Outcome.REFUSED, True, 0, False),
        (Outcome.REFUSED, False, 1, False),
        (Outcome.UNKNOWN, True, 1, False),
    ],
)
def test_only_what_is_certainly_not_delivered_is_published_again_and_elsewhere(
    outcome: Outcome, wanted: bool, tries: int, again: bool, make: Make
) -> None:
    publisher, shell = make(retry_refused=wanted)
    status = SendStatus(outcome=outcome, exchange="x1", reason="full")
    assert publisher.tries_again(status, tries) is again
    assert (("x1", "full") in shell.calls) is again


def test_closing_flushes_for_so_long_and_happens_once(make: Make) -> None:
    publisher, shell = make()
    publisher.close(2.0)
    publisher.close()
    publisher.abort()
    assert shell.calls[1:] == [("wait", 2.0), ("close", "the publisher of queue q was closed")]


def test_closing_tells_what_was_not_delivered_but_not_that_nothing_was_open(make: Make) -> None:
    publisher, shell = make()
    shell.unacked = 1
    publisher.close()
    assert "were not acknowledged within 30 s" in shell.calls[-1][1]
    publisher, shell = make()
    shell.unacked, shell.close = 1, lambda _: setattr(shell.tally, "failed_messages", 2)
    with pytest.raises(DeliveryError, match="2 messages"):
        publisher.close()
    publisher, shell = make()
    shell.unacked, shell.trouble = 1, QueueNotFound("no queue q")
    publisher.close()
    assert shell.calls[-1][0] == "close"
    publisher, shell = make()
    shell.tally.failed_messages = 1
    with pytest.raises(DeliveryError, match="1 messages"):
        publisher.close()
    assert shell.calls[-1][0] == "close"


def test_an_error_in_the_block_is_the_one_to_see_and_the_other_one_is_logged(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    publisher, shell = make()

    def block() -> None:
        with publisher:
            shell.tally.failed_messages = 1
            raise KeyError

    with caplog.at_level(logging.WARNING), pytest.raises(KeyError):
        block()
    assert ("wait", CLOSE_SECONDS_MAX) in shell.calls
    assert "closing the publisher of queue q: 1 messages" in caplog.text


def test_what_a_callback_raises_is_counted(make: Make) -> None:
    publisher, _ = make()
    called = threading.Event()

    def fail() -> None:
        raise KeyError

    publisher.call_back(fail, lambda: None)
    publisher.call_back(called.set, lambda: None)
    assert called.wait(30)
    assert publisher.stats().callback_errors == 1


def test_it_is_shown_in_any_state_also_half_made(make: Make) -> None:
    publisher, _ = make(name="till")
    publisher._reporter.status = SimpleNamespace(state="connected", reason="")
    shown = "<roq.Publisher 'till' of q: connected, 5 messages sent, 2 batches unacknowledged>"
    assert repr(publisher) == shown
    assert repr(object.__new__(Publisher)) == "<roq.Publisher>"
