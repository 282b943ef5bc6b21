"""A delayed message in memory: read from the batch that its publisher has sent, and made into what
the exchange publishes when it is due. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, cast

from roq.errors import RemoteProtocolError
from roq.log.timing_wheel import SIZE_MAX, Row
from roq.model import Limits
from roq.protocol.attributes import (
    NO_ATTRIBUTES,
    Attributes,
    BatchAttributes,
    packed_size,
)
from roq.protocol.batch import Kind, read_body, read_header
from roq.protocol.channel import CONTROL
from roq.protocol.columns import (
    KEY_GROUPS,
    PRIORITIES,
    key_group,
    pack_column,
    pack_tags,
    tag_bits,
)
from roq.protocol.later import LATER_TOPIC, Delayed, decode_delayed

OBJECTS_BYTES: Final = 200
TEXT_BYTES: Final = 50
"""Of a text in memory, beside its characters."""


class KeptMessage(NamedTuple):
    """A delayed message in memory."""

    message: Delayed
    attributes: Attributes
    bytes: int
    """What it takes, about; on a disk it is less."""


def kept(message: Delayed, given: Attributes) -> KeptMessage:
    """This one, with what it takes."""
    size = len(message.payload) + len(message.topic) + OBJECTS_BYTES
    if given is not NO_ATTRIBUTES:
        texts = 1 + len(given.tags) + 2 * len(given.properties)
        size += packed_size(given) + TEXT_BYTES * texts
    return KeptMessage(message, given, min(size, SIZE_MAX))


def messages_of(batch: object) -> list[KeptMessage]:
    """The delayed messages of a batch; none, if it has none.

    Raises:
        RemoteProtocolError: it is no batch of delayed messages.
    """
    data = cast("bytes", batch)
    header = read_header(data)
    if header.kind != Kind.DATA:
        return []
    payloads, packed = read_body(data, header)
    if not header.link_number and payloads == [b""]:
        return []  # it stands for a message that was cancelled
    given = None if packed is None else BatchAttributes(packed, 0, header.count)
    found = []
    for index, payload in enumerate(payloads):
        message = decode_delayed(payload)
        _check_topic(message.topic)
        if not message.publisher:
            message = Delayed(
                message.due_us, message.topic, message.payload, message.id, header.publisher,
                header.created_us,
            )  # fmt: skip
        found.append(kept(message, NO_ATTRIBUTES if given is None else given.of(index)))
    return found


def _check_topic(topic: bytes) -> None:
    if topic[:1] == bytes((CONTROL,)) or topic == LATER_TOPIC:
        raise RemoteProtocolError("a delayed message has a topic of its own")
    try:
        topic.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError("a topic is UTF-8") from None


def row_of(held: KeptMessage, offset: int, index: int) -> Row:
    """What is noted of it, at this place of the log."""
    message = held.message
    return Row(message.due_us, offset, index, held.bytes, message.id)


def in_batches(
    found: list[tuple[Row, KeptMessage]], limits: Limits
) -> Iterable[list[tuple[Row, KeptMessage]]]:
    """As many batches as these need."""
    part: list[tuple[Row, KeptMessage]] = []
    size = 0
    for each in found:
        more = each[1].bytes
        if part and (len(part) >= limits.batch_messages or size + more > limits.batch_bytes):
            yield part
            part, size = [], 0
        part.append(each)
        size += more
    if part:
        yield part


def delivered(held: KeptMessage) -> Attributes:
    """With what tells where it comes from."""
    message, given = held.message, held.attributes
    mine = {
        "roq.delayed.id": message.id.hex(),
        "roq.delayed.publisher": message.publisher.hex(),
        "roq.delayed.published": str(message.published_us),
        "roq.delayed.due": str(message.due_us),
    }
    return Attributes(given.key, given.tags, {**given.properties, **mine}, given.priority)


def columns_of(given: list[Attributes]) -> bytes:
    """What the batch says of its messages to the exchange, as that of a publisher does."""
    return (
        pack_column(KEY_GROUPS, bytes(key_group(each.key) for each in given))
        + pack_column(PRIORITIES, bytes(each.priority for each in given))
        + pack_tags(tag_bits(tag for each in given for tag in each.tags))
    )
