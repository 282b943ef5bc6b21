"""What subscribers and consumers get: batches as they travelled, and messages that look into them.

A `Message` is a position in its `Batch`: topic, publisher and time are worked out when they are
asked for, so a message that is only looked at for its payload costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import repeat
from types import MappingProxyType

import msgspec

from roq.model import PublisherId
from roq.protocol.attributes import NO_ATTRIBUTES, Attributes, BatchAttributes

MICROSECONDS = 1_000_000


class Batch(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Consecutive messages of one publisher and one topic.

    Attributes:
        payloads: the messages, in order.
        topic: their topic.
        publisher: 16 bytes that name the publisher.
        sequence: position of the first payload in the publisher's stream of this topic; the others
            follow without a gap.
        created_us: when the publisher made the batch, microseconds since 1970 (UTC).
        size: bytes that the batch had on the wire.
        attributes: keys, tags and properties of its messages; None: none has any.
    """

    payloads: list[bytes]
    topic: str
    publisher: PublisherId
    sequence: int
    created_us: int
    size: int
    attributes: BatchAttributes | None = None

    @property
    def timestamp(self) -> float:
        """When the publisher made the batch, in seconds since 1970 (UTC)."""
        return self.created_us / MICROSECONDS

    def __len__(self) -> int:
        return len(self.payloads)

    def __repr__(self) -> str:
        return (
            f"<Batch of {len(self.payloads)} messages, topic {self.topic!r}, "
            f"publisher {self.publisher.hex()[:8]}, sequence {self.sequence}>"
        )

    def messages(self) -> Iterator[Message]:
        """The messages one by one."""
        return map(Message, self.payloads, repeat(self), range(self.sequence, 1 << 63))


class Message(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One message.

    Attributes:
        payload: what was published.
        batch: the batch that it arrived in.
        sequence: its position in the publisher's stream of this topic, from 0.
    """

    payload: bytes
    batch: Batch
    sequence: int

    @property
    def topic(self) -> str:
        """The topic that it was published under."""
        return self.batch.topic

    @property
    def key(self) -> str | None:
        """The key that the publisher gave; None if there was none.

        Raises:
            RemoteProtocolError: what the publisher has sent as attributes cannot be read.
        """
        return self._attributes.key

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that the publisher gave; raises as `key`."""
        return self._attributes.tags

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties that the publisher gave; raises as `key`."""
        return MappingProxyType(self._attributes.properties)

    @property
    def priority(self) -> int:
        """The priority that the publisher gave, 0 to 9; raises as `key`."""
        return self._attributes.priority

    @property
    def _attributes(self) -> Attributes:
        packed = self.batch.attributes
        return NO_ATTRIBUTES if packed is None else packed.of(self.sequence)

    @property
    def publisher(self) -> PublisherId:
        """16 bytes that name the publisher."""
        return self.batch.publisher

    @property
    def timestamp(self) -> float:
        """When the publisher made the batch of this message, in seconds since 1970 (UTC)."""
        return self.batch.created_us / MICROSECONDS

    def __repr__(self) -> str:
        return (
            f"<Message {self.payload[:40]!r}, topic {self.topic!r}, "
            f"publisher {self.publisher.hex()[:8]}, sequence {self.sequence}>"
        )


class Gap(msgspec.Struct, frozen=True):
    """Something that a subscriber did not get and will not get any more.

    Either messages of one stream are missing (`messages` > 0), or part of an exchange's log is gone
    before it was read and nobody can say how many messages of this topic it held (`messages` is 0;
    what was in it and is not found elsewhere is counted per stream as soon as a later message
    shows).

    Attributes:
        topic: the topic.
        text: what happened, in a sentence.
        publisher: 16 bytes, None if not known.
        sequence: the first missing sequence.
        messages: how many are missing.
        exchange: the exchange whose log has lost the batches; empty if a stream is meant.
        first_offset: the first offset that may be missing there.
        end_offset: the first offset that is there again.
    """

    topic: str
    text: str
    publisher: PublisherId | None = None
    sequence: int = 0
    messages: int = 0
    exchange: str = ""
    first_offset: int = 0
    end_offset: int = 0
