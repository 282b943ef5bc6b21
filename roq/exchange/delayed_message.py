"""A delayed message in memory: read from the batch that its publisher has sent, and made into what
the exchange publishes when it is due. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple, cast

from roq.log.timing_wheel import SIZE_MAX, Row
from roq.model import Limits
from roq.protocol.attributes import (
    NO_ATTRIBUTES,
    PROPERTIES_MAX,
    RESERVED_MAX,
    Attributes,
    BatchAttributes,
    pack_attributes,
    packed_size,
)
from roq.protocol.batch import HEADER_BYTES, Kind, read_body, read_header
from roq.protocol.columns import (
    KEY_GROUPS,
    PRIORITIES,
    key_group,
    key_hash,
    pack_column,
    pack_keys,
    pack_tags,
    tag_bits,
)
from roq.protocol.delayed import Delayed, Place, decode_delayed, encode_delayed, read_settled
from roq.protocol.transaction import (
    OPEN_US,
    attributes_of_half,
    check_topic,
    decode_half,
    read_ended,
)

ROOM: Final = PROPERTIES_MAX + RESERVED_MAX - 4
"""Properties of a message at most: `delivered` adds four, and with more than can be read those of
its whole batch could not be."""
OBJECTS_BYTES: Final = 200
TEXT_BYTES: Final = 50
"""Of a text in memory, beside its characters."""


class KeptMessage(NamedTuple):
    """A delayed message in memory."""

    message: Delayed
    attributes: Attributes
    bytes: int
    """What it takes, about; on a disk it is less."""


class Wanted:
    """Which of the messages that waited are published: all of them."""

    def topic_of(self, row: Row, held: KeptMessage) -> bytes:  # noqa: ARG002 - others look at it
        """Under which topic it is published; `DELAYED_TOPIC`: it is not, and the log is told so."""
        return held.message.topic

    def left(self, messages: list[tuple[Row, KeptMessage]]) -> int:
        """These were not published; gives how many."""
        return len(messages)


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
        check_topic(message.topic)
        if message.due_us == OPEN_US:
            decode_half(message.payload)
        if header.link_number or not message.publisher:
            message = Delayed(
                message.due_us, message.topic, message.payload, message.id,
                message.publisher or header.publisher,
                message.published_us if message.publisher else header.created_us,
                b"" if header.link_number else message.transaction,
            )  # fmt: skip
        found.append(kept(message, NO_ATTRIBUTES if given is None else given.of(index)))
    return found


def crowded(held: KeptMessage) -> bool:
    """Whether a message, or one of its transaction, has more than `ROOM` properties."""
    message, given = held.message, [held.attributes]
    if message.due_us == OPEN_US and len(message.payload) > ROOM:
        given = attributes_of_half(decode_half(message.payload))
    return any(len(each.properties) > ROOM for each in given)


def settled_by(batch: object) -> tuple[list[Place], list[tuple[bytes, bool]]]:
    """What a batch of an exchange itself says to wait no more, and which transactions have ended,
    and whether they were committed.

    Raises:
        RemoteProtocolError: it is no batch, or says it wrongly.
    """
    data = cast("bytes", batch)
    header = read_header(data)
    if header.link_number or not header.ext_bytes:
        return [], []
    area = bytes(memoryview(data)[HEADER_BYTES:][: header.ext_bytes])
    return list(read_settled(area)), list(read_ended(area))


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
    of = "transaction" if message.transaction else "delayed"
    mine = {
        f"roq.{of}.id": (message.transaction or message.id).hex(),
        f"roq.{of}.publisher": message.publisher.hex(),
        f"roq.{of}.published": str(message.published_us),
    }
    if not message.transaction:
        mine["roq.delayed.due"] = str(message.due_us)
    # Others are in its batch, which nobody could read if one message had more than there may be.
    room = PROPERTIES_MAX + RESERVED_MAX - len(mine)
    properties = dict(islice(given.properties.items(), room)) | mine
    return Attributes(given.key, given.tags, properties, given.priority)


class Outgoing(NamedTuple):
    """What a batch of the exchange has of its messages."""

    payloads: list[bytes]
    attributes: bytes | None
    columns: bytes = b""


NOTHING: Final = Outgoing([b""], None)
"""For a batch that is appended for what it settles alone."""


def waiting(messages: Iterable[KeptMessage]) -> Outgoing:
    """These as what waits."""
    kept_here = list(messages)
    given = {index: each.attributes for index, each in enumerate(kept_here)}
    return Outgoing([encode_delayed(each.message) for each in kept_here], pack_attributes(given))


def published(messages: Iterable[KeptMessage]) -> Outgoing:
    """These as they are published, with what such a batch says of them to exchanges."""
    due = list(messages)
    given = [delivered(each) for each in due]
    attributes = pack_attributes(dict(enumerate(given)))
    return Outgoing([each.message.payload for each in due], attributes, columns_of(given))


def columns_of(given: list[Attributes]) -> bytes:
    """What the batch says of its messages to the exchange, as that of a publisher does."""
    return (
        pack_column(KEY_GROUPS, bytes(key_group(each.key) for each in given))
        + pack_column(PRIORITIES, bytes(each.priority for each in given))
        + pack_tags(tag_bits(tag for each in given for tag in each.tags))
        + pack_keys({key_hash(each.key) for each in given if each.key is not None})
    )
