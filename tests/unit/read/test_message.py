import pytest

from roq.model import PublisherId
from roq.read.message import Batch, Message

BATCH = Batch([b"a", b"b"], "eu.be", PublisherId(b"p" * 16), 7, 1_500_000, 100)


def test_a_batch_gives_its_messages_in_order_with_their_sequences() -> None:
    messages = list(BATCH.messages())
    assert [(m.payload, m.sequence) for m in messages] == [(b"a", 7), (b"b", 8)]
    assert {m.topic for m in messages} == {"eu.be"}
    assert messages[0].publisher == b"p" * 16
    assert messages[0].timestamp == BATCH.timestamp == 1.5
    assert messages[0].key is None
    assert len(BATCH) == 2


def test_messages_are_small_and_cannot_be_changed() -> None:
    message = Message(b"a", BATCH, 7)
    assert not hasattr(message, "__dict__")
    with pytest.raises(AttributeError):
        message.payload = b"b"  # type: ignore[misc]


def test_a_message_shows_itself_in_one_short_line() -> None:
    assert repr(Message(b"x" * 1_000, BATCH, 7)) == (
        f"<Message {b'x' * 40!r}, topic 'eu.be', publisher 70707070, sequence 7>"
    )
    assert repr(BATCH) == "<Batch of 2 messages, topic 'eu.be', publisher 70707070, sequence 7>"
