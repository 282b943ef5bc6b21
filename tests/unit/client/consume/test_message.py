"""Messages and batches that are to be acknowledged."""

from __future__ import annotations

from roq.client.consume.holding import Holding
from roq.client.consume.message import ConsumedBatch, Settlement, messages_of, part_of
from roq.model import LogId, PublisherId
from roq.read.message import Batch


class User:
    """A holding of five messages, and what was said of them."""

    def __init__(self) -> None:
        batch = Batch([b"%d" % n for n in range(5)], "eu", PublisherId(b"p" * 16), 40, 0, 1, None)
        self.held = Holding(LogId(2, 6), 7, 3, 10, 2, batch)
        self.said: list[tuple[int, int, Settlement]] = []

    def settle(self, holding: Holding, index: int, count: int, verdict: Settlement) -> None:
        assert holding is self.held
        self.said.append((index, count, verdict))


def test_a_message_knows_its_place_and_its_attempt() -> None:
    user = User()
    messages = list(messages_of(user.held, 3, 2, user.settle))
    assert [(each.payload, each.sequence) for each in messages] == [(b"3", 43), (b"4", 44)]
    assert (messages[0].id, messages[0].attempt, messages[0].topic) == ("x2-6-7-13", 2, "eu")
    assert messages[0].open


def test_what_is_said_of_a_message_is_passed_on() -> None:
    user = User()
    (message,) = messages_of(user.held, 1, 1, user.settle)
    message.ack()
    message.nack(delay=2.0, reason="busy")
    message.reject("bad")
    assert [(index, count) for index, count, _ in user.said] == [(1, 1)] * 3
    ack, nack, reject = (verdict for _, _, verdict in user.said)
    assert (ack.acked, ack.dead) == (True, False)
    assert (nack.acked, nack.counted, nack.delay, nack.reason) == (False, True, 2.0, "busy")
    assert (reject.dead, reject.reason) == (True, "bad")


def test_a_batch_is_settled_whole_or_message_by_message() -> None:
    user = User()
    batch = ConsumedBatch(user.held, 1, 3, user.settle)
    assert (batch.payloads, batch.topic, batch.attempt, len(batch)) == (
        [b"1", b"2", b"3"],
        "eu",
        2,
        3,
    )
    assert [each.payload for each in batch] == [b"1", b"2", b"3"]
    batch.ack()
    batch.nack()
    batch.reject()
    list(batch)[2].ack()
    assert [each[:2] for each in user.said] == [(1, 3), (1, 3), (1, 3), (3, 1)]
    assert "3 messages, topic 'eu'" in repr(batch)


def test_all_of_a_batch_is_the_batch_itself() -> None:
    batch = User().held.batch
    assert part_of(batch, 0, 5) is batch
    assert part_of(batch, 2, 1).sequence == 42
