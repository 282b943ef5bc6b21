"""What a dead letter says of where it comes from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from roq.client.consume.dead_letters import (
    REASON_MAX,
    DeadLetter,
    DeadLetters,
    of_letters,
    read_letter,
)
from roq.client.consume.holding import ACKED, Holding
from roq.client.consume.message import ConsumedBatch, Settlement
from roq.client.publish.batching import Attributed, size_of
from roq.client.publish.publisher import Publisher
from roq.errors import MessageTooLarge, Unavailable
from roq.model import Limits, LogId, PublisherId
from roq.protocol.attributes import (
    PROPERTIES_MAX,
    RESERVED_MAX,
    Attributes,
    BatchAttributes,
    attributes_of,
    pack_attributes,
)
from roq.protocol.public_answers import QueueDescription
from roq.read.message import Batch, Message


class PaperPublisher:
    def __init__(self) -> None:
        self.published: list[tuple[bytes, str]] = []
        self.flushes = 0
        self.full = self.aborted = False
        self.limit = 1 << 20

    def publish_raw(self, data: bytes, topic: str) -> None:
        assert isinstance(data, Attributed)
        if size_of(data) > self.limit:
            error = MessageTooLarge("too large")
            error.limit = self.limit
            raise error
        self.published.append((data, topic))

    def abort(self) -> None:
        self.aborted = True

    def flush(self, _timeout: float) -> None:
        self.flushes += 1
        if self.full:
            raise Unavailable("full")


class Queue:
    """The queue for dead letters; opened when it is needed."""

    def __init__(self) -> None:
        self.publisher = PaperPublisher()
        self.opened = 0
        self.letters = DeadLetters("orders", "billing", self.open)

    def open(self) -> Publisher:
        self.opened += 1
        return cast("Publisher", self.publisher)


def settle(_holding: Holding, _index: int, _count: int, _verdict: Settlement) -> None:
    raise AssertionError("the caller settles")


def holding(*payloads: bytes, packed: bytes | None = None, attempt: int = 3) -> Holding:
    count = len(payloads)
    attributes = None if packed is None else BatchAttributes(packed, 0, count)
    batch = Batch(list(payloads), "eu", PublisherId(b"p" * 16), 0, 0, 1, attributes)
    return Holding(LogId(2, 5), 9, 1, 0, attempt, batch)


def whole(held: Holding) -> ConsumedBatch:
    return ConsumedBatch(held, 0, len(held.batch), settle)


def letters_of(publisher: PaperPublisher) -> list[Attributes]:
    return [
        data.beside.attributes for data, _ in publisher.published if isinstance(data, Attributed)
    ]


def test_a_letter_keeps_what_the_message_has_said_and_names_its_origin() -> None:
    given = attributes_of("k", ["red"], {"a": "b"})
    assert given is not None
    queue = Queue()
    queue.letters.bury(whole(holding(b"m", packed=pack_attributes({0: given}))), "bad" * 100)
    assert queue.publisher.published == [(b"m", "eu")]
    (letter,) = letters_of(queue.publisher)
    assert (letter.key, letter.tags) == ("k", ("red",))
    assert letter.properties == {
        "a": "b", "roq.dead.queue": "orders", "roq.dead.topic": "eu", "roq.dead.group": "billing",
        "roq.dead.id": "x2-5-9-0", "roq.dead.attempts": "2",
        "roq.dead.reason": ("bad" * 100)[:REASON_MAX],
    }  # fmt: skip


def test_the_queue_is_opened_once_and_each_burial_waits_until_it_is_kept() -> None:
    queue = Queue()
    assert queue.opened == 0
    queue.letters.bury(whole(holding(b"a", b"b")), "r")
    queue.letters.bury(whole(holding(b"c")), "r")
    assert (queue.opened, queue.publisher.flushes) == (1, 2)


def test_what_is_settled_already_is_not_buried() -> None:
    queue, held = Queue(), holding(b"a", b"b", b"c")
    held.settle(1, 1, ACKED)
    queue.letters.bury(whole(held), "r")
    assert [data for data, _ in queue.publisher.published] == [b"a", b"c"]


def test_after_a_failure_the_queue_is_opened_anew() -> None:
    queue = Queue()
    queue.publisher.full = True
    with pytest.raises(Unavailable):
        queue.letters.bury(whole(holding(b"a")), "r")
    assert queue.publisher.aborted
    queue.publisher.full = False
    queue.letters.bury(whole(holding(b"a")), "r")
    assert queue.opened == 2


def test_a_message_whose_attributes_nobody_can_read_is_buried_without_them() -> None:
    queue = Queue()
    queue.letters.bury(whole(holding(b"a", packed=b"\xc1")), "r")
    (letter,) = letters_of(queue.publisher)
    assert letter.key is None
    assert "cannot be read" in letter.properties["roq.dead.unreadable"]


def test_a_letter_of_a_message_with_all_properties_that_may_be_can_be_read() -> None:
    given = attributes_of(None, None, {f"p{n}": "" for n in range(PROPERTIES_MAX)})
    assert given is not None
    queue = Queue()
    queue.letters.bury(whole(holding(b"m", packed=pack_attributes({0: given}))), "r")
    read = BatchAttributes(pack_attributes({0: letters_of(queue.publisher)[0]}), 0, 1).of(0)
    assert len(read.properties) == PROPERTIES_MAX + 6


def test_a_message_with_more_properties_than_may_be_makes_no_other_letter_unreadable() -> None:
    given = Attributes("k", properties={f"p{n}": "" for n in range(PROPERTIES_MAX + RESERVED_MAX)})
    queue = Queue()
    queue.letters.bury(whole(holding(b"m", b"n", packed=pack_attributes({0: given}))), "r")
    letters = dict(enumerate(letters_of(queue.publisher)))
    read = BatchAttributes(pack_attributes(letters), 0, 2)
    assert read.of(0).properties["roq.dead.unreadable"] == "it has 144 properties"
    assert read.of(1).properties["roq.dead.reason"] == "r"


@pytest.mark.parametrize(("limit", "kept"), [(1_000, 1_000), (500, 300), (200, 60)])
def test_a_letter_that_is_too_large_goes_without_properties_and_is_cut(
    limit: int, kept: int
) -> None:
    given = attributes_of("k" * 100, ["red"], {"a": "b" * 500})
    assert given is not None
    queue = Queue()
    queue.publisher.limit = limit
    held = holding(b"m" * min(limit, 400), packed=pack_attributes({0: given}))
    queue.letters.bury(whole(held), "bad")
    ((data, _),) = queue.publisher.published
    assert isinstance(data, Attributed)
    assert size_of(data) <= limit
    letter = read_letter(message(data.beside.attributes))
    assert letter is not None
    assert (letter.queue, letter.reason, letter.properties) == ("orders", "bad", {})
    assert letter.cut == min(limit, 400)
    assert len(data) <= kept
    assert (data.beside.attributes.key is None) == (limit == 200)


def test_a_queue_that_has_no_room_for_a_letters_origin_refuses_it() -> None:
    queue = Queue()
    queue.publisher.limit = 20
    with pytest.raises(MessageTooLarge):
        queue.letters.bury(whole(holding(b"m" * 20)), "bad")


def message(attributes: Attributes) -> Message:
    packed = BatchAttributes(pack_attributes({0: attributes}), 0, 1)
    batch = Batch([b"m"], "eu", PublisherId(b"p" * 16), 0, 0, 1, packed)
    return next(batch.messages())


def test_a_letter_is_read_back() -> None:
    given = attributes_of("k", ["red"], {"a": "b"})
    assert given is not None
    queue = Queue()
    queue.letters.bury(whole(holding(b"m", packed=pack_attributes({0: given}))), "bad")
    letter = read_letter(message(letters_of(queue.publisher)[0]))
    assert letter == DeadLetter("orders", "eu", "billing", "x2-5-9-0", 2, "bad", {"a": "b"})


def test_another_message_is_no_dead_letter() -> None:
    assert read_letter(message(Attributes("k"))) is None
    odd = {"roq.dead.queue": "q", "roq.dead.attempts": "many"}
    assert read_letter(message(Attributes(None, (), odd))) is None


def test_letters_outlive_the_messages_that_they_come_from() -> None:
    limits = Limits(message_seconds=5, message_bytes=1_000, log_until_done=1)
    origin = SimpleNamespace(durability="async", limits=limits)
    assert of_letters(cast("QueueDescription", origin)) == ("async", Limits(message_bytes=1_000))
