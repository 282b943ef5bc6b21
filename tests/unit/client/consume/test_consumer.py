"""What a consumer gives its user, and what it makes of what the user says."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from roq.client.consume import consumer as module
from roq.client.consume.consumer import Consumer, start_of
from roq.client.consume.holding import ACKED, RETURNED, ConsumerStats, Holding
from roq.client.consume.message import ConsumedBatch, Settlement
from roq.client.consume.seat import Membership
from roq.client.io.engine import Engine
from roq.client.session.events import SessionState
from roq.errors import (
    Closed,
    InvalidRequest,
    LeaseLost,
    QueueNotFound,
    RoQError,
    Unavailable,
)
from roq.model import LogId, PublisherId
from roq.read.message import Batch


def holding(*payloads: bytes, attempt: int = 1) -> Holding:
    batch = Batch(list(payloads), "t", PublisherId(b"p" * 16), 0, 0, 1, None)
    return Holding(LogId(1, 1), 0, 1, 0, attempt, batch)


class PaperShell:
    """A shell, of which a test says what it has."""

    attempts = 2
    joins = True

    def __init__(
        self, _engine: object, member: Membership, *, on_joined: Callable[[], None], on_refused: Any
    ) -> None:
        self.member = member
        self.arrived: deque[Holding] = deque()
        self.take = lambda: self.arrived.popleft() if self.arrived else None
        self.condition = threading.Condition()
        self.waiting = self.unsettled = 0
        self.error: RoQError | None = None
        self.on_ready: Any = None
        self.joined = False
        self.counters = ConsumerStats()
        self.extended: list[tuple[int, int]] = []
        self.answers = True
        self.settled: list[tuple[bytes, str]] = []
        self.ranked = False
        self.put_aside = lambda _holding: False
        self.closed = False
        self.refuse = on_refused
        if self.joins:
            on_joined()

    @property
    def ready(self) -> bool:
        return bool(self.arrived) or self.error is not None

    def topology(self, _topology: object) -> None: ...

    def settle(self, held: Holding, index: int, count: int, verdict: Settlement) -> None:
        if held.lost:
            raise LeaseLost
        word = "ack" if verdict.acked else verdict.reason
        for at in range(index, index + count):
            if held.settle(at, 1, ACKED if verdict.acked else RETURNED):
                self.settled.append((held.batch.payloads[at], word))

    def extend(self, _held: Holding, index: int, count: int, seconds: float) -> Future[float]:
        self.extended.append((index, count))
        future: Future[float] = Future()
        if self.answers:
            future.set_result(seconds)
        return future

    def done(self, held: Holding, index: int) -> None:
        self.settle(held, index, 1, Settlement(acked=True))

    def stats(self) -> ConsumerStats:
        return self.counters

    def places(self) -> list[tuple[str, str]]:
        return [] if self.joins else [("x1", "no route")]

    def take_no_more(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    def end(self, error: RoQError) -> None:
        self.error = self.error or error


class PaperSession:
    def __init__(self, *_: object, on_state: Callable[[str, str], None], **__: object) -> None:
        self.on_state = on_state

    def start(self) -> None: ...

    def close(self) -> None: ...

    def facts(self) -> SimpleNamespace:
        return SimpleNamespace(reason="")


ENGINE = SimpleNamespace(
    forked=False, at_end=lambda _: None, not_at_end=lambda _: None, check=lambda: None,
    check_outside=lambda: None, check_process=lambda: None,
    run_sync=lambda function, *_: function(), end=Closed("ended"),
    reactor=SimpleNamespace(now=lambda: 0.0),
)  # fmt: skip


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Consumer, PaperShell]]:
    monkeypatch.setattr(module, "ConsumerShell", PaperShell)
    monkeypatch.setattr(module, "MonitorSession", PaperSession)

    def make(*arrived: Holding, **options: Any) -> tuple[Consumer, PaperShell]:
        options = {"bury": lambda _batch, _reason: None} | options
        consumer = Consumer(cast("Engine", ENGINE), [], "orders", "billing", **options)
        shell = cast("PaperShell", consumer._shell)
        shell.arrived.extend(arrived)
        return consumer, shell

    return make


def test_messages_come_one_by_one(made: Any) -> None:
    consumer, shell = made(holding(b"a", b"b"))
    with consumer:
        first, second = consumer.receive(1), consumer.receive(1)
        second.ack()
        first.nack(reason="no")
        assert consumer.receive(0.0) is None
    assert shell.settled == [(b"b", "ack"), (b"a", "no")]
    assert shell.closed
    with pytest.raises(Closed):
        consumer.receive(0.0)


def test_a_loop_acknowledges_what_its_body_has_ended_and_gives_back_the_rest(made: Any) -> None:
    consumer, shell = made(holding(b"a", b"b", b"c"))
    with consumer:
        for message in consumer:
            if message.payload == b"b":
                break
    assert shell.settled == [(b"a", "ack"), (b"b", "its handler did not end")]


def test_the_body_of_a_loop_may_take_messages_itself(made: Any) -> None:
    consumer, shell = made(holding(b"a", b"b", b"c"), holding(b"d", b"e"))
    seen = []
    with consumer:
        for message in consumer:
            seen.append(message.payload)
            if message.payload == b"b":
                assert [consumer.receive(1).payload for _ in range(2)] == [b"c", b"d"]
            if message.payload == b"e":
                break
    assert seen == [b"a", b"b", b"e"]
    assert shell.settled == [(b"a", "ack"), (b"b", "ack"), (b"e", "its handler did not end")]


def test_batches_begin_with_what_was_not_taken_by_message(made: Any) -> None:
    consumer, _ = made(holding(b"a", b"b"), holding(b"c", b"d", b"e"))
    with consumer:
        assert consumer.receive(1).payload == b"a"
        payloads = [batch.payloads for batch in consumer.batches(most=2, wait=0.0)]
    assert payloads == [[b"b"], [b"c", b"d"], [b"e"]]


def test_what_was_tried_too_often_is_buried_and_not_seen(made: Any) -> None:
    buried: list[tuple[list[bytes], str]] = []

    def bury(batch: ConsumedBatch, reason: str) -> None:
        buried.append((batch.payloads, reason))

    consumer, shell = made(holding(b"old", attempt=3), holding(b"new", attempt=2), bury=bury)
    with consumer:
        message = consumer.receive(1)
        assert message.payload == b"new"
        message.reject("bad")
    assert buried == [([b"old"], "tried 2 times"), ([b"new"], "bad")]
    assert shell.settled == [(b"old", "ack"), (b"new", "ack")]


def test_what_cannot_be_buried_is_tried_again(made: Any) -> None:
    full = True

    def bury(_batch: ConsumedBatch, _reason: str) -> None:
        if full:
            raise Unavailable("it is full")

    consumer, shell = made(holding(b"old", attempt=3), holding(b"new"), bury=bury)
    with consumer:
        message = consumer.receive(1)
        with pytest.raises(Unavailable):
            message.reject("bad")
        assert message.open, "and is still held"
        assert consumer.stats().unburied == 2
        assert consumer.trouble == "no dead letter could be written: it is full"
        full = False
        message.reject("bad")
        assert consumer.trouble == ""
    assert shell.settled == [
        (b"old", "no dead letter could be written: it is full"), (b"new", "ack")
    ]  # fmt: skip


def test_flush_says_what_is_late_and_what_is_lost(made: Any) -> None:
    consumer, shell = made()
    with consumer:
        consumer.flush(0.0)
        shell.unsettled = 3
        with pytest.raises(Unavailable, match="acknowledgements of 3 messages"):
            consumer.flush(0.0)
        shell.unsettled = 0
        shell.counters.lost = 2
        with pytest.raises(LeaseLost, match="2 messages were taken"):
            consumer.flush(0.0)
        consumer.flush(0.0)


def test_a_queue_that_is_removed_ends_it(made: Any) -> None:
    consumer, _ = made(holding(b"a"))
    with consumer:
        consumer._session.on_state(SessionState.REMOVED, "orders is gone")
        assert consumer.receive(0.0).payload == b"a", "first what had come"
        with pytest.raises(QueueNotFound, match="orders is gone"):
            consumer.receive(0.0)


def test_who_is_not_taken_in_within_the_time_says_where(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PaperShell, "joins", False)
    with pytest.raises(Unavailable, match=r"within 0\.01 s: exchange x1: no route"):
        made(timeout=0.01)


@pytest.mark.parametrize(
    ("options", "text"),
    [({"mode": "some"}, "use one of shared"), ({"prefetch": 0}, "prefetch is a whole number"),
     ({"prefetch_bytes": 1.5}, "prefetch_bytes is a whole number"), ({"lease": 0.1}, "lease is"),
     ({"attempts": -1}, "attempts"), ({"start": "noon"}, "'noon' is no place")],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_is_opened(
    made: Any, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidRequest, match=text):
        made(**options)


def test_a_place_to_begin_is_a_word_or_an_aware_time() -> None:
    assert start_of("earliest") == (0, False)
    assert start_of("latest") == (0, True)
    assert start_of(datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)) == (2_000_000, False)
    assert start_of(datetime(1960, 1, 1, tzinfo=UTC)) == (0, False)
    with pytest.raises(InvalidRequest, match="time zone"):
        start_of(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


def test_what_is_left_of_a_batch_comes_when_its_loop_was_left(made: Any) -> None:
    consumer, _ = made(holding(b"a", b"b", b"c", b"d", b"e"))
    for batch in consumer.batches(most=2):
        assert batch.payloads == [b"a", b"b"]
        break
    message = consumer.receive(0)
    assert message is not None
    assert message.payload == b"c"
    assert [batch.payloads for batch in consumer.batches(wait=0)] == [[b"d", b"e"]]
    with pytest.raises(InvalidRequest, match="most is a whole number"):
        next(consumer.batches(most=0))


def test_what_another_one_has_by_now_is_passed_over(made: Any) -> None:
    one = holding(b"a", b"b", b"c")
    consumer, _ = made(one)
    first = consumer.receive(0)
    assert first is not None
    one.lose([one.first + 1])
    second = consumer.receive(0)
    assert second is not None
    assert second.payload == b"c"


def test_more_time_is_granted_until_an_instant_within_bounds(made: Any) -> None:
    consumer, shell = made()
    shell.arrived.append(holding(b"a", b"b"))
    (batch,) = [next(consumer.batches())]
    before = datetime.now(UTC)
    assert consumer.extend(batch, 60.0) >= before + timedelta(seconds=60)
    assert consumer.extend(list(batch)[1], 1.0).tzinfo is UTC
    assert shell.extended == [(0, 2), (1, 1)]
    for seconds in (0.0, -1.0, 86_401.0, float("nan")):
        with pytest.raises(InvalidRequest, match="seconds is a number of seconds"):
            consumer.extend(batch, seconds)
    shell.answers = False
    with pytest.raises(Unavailable, match="not granted within 0 s"):
        consumer.extend(batch, 60.0, timeout=0.0)


def test_what_is_overdue_is_buried_with_that_reason_and_not_seen(made: Any) -> None:
    buried: list[tuple[list[bytes], str]] = []
    consumer, shell = made(bury=lambda batch, reason: buried.append((batch.payloads, reason)))
    old = holding(b"a", b"b")
    old.overdue = True
    shell.arrived.extend([old, holding(b"c")])
    assert consumer.receive(0).payload == b"c"
    assert buried == [([b"a", b"b"], "expired")]
    assert shell.settled == [(b"a", "ack"), (b"b", "ack")]
