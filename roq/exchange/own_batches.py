"""What an exchange appends to its log itself, as a publisher of its own. Pure."""

from __future__ import annotations

from hashlib import blake2b
from typing import Generic, TypeVar

from roq.exchange.counters import Counters
from roq.exchange.delayed_message import Outgoing
from roq.log.log import Log
from roq.log.streams import Stream, StreamTable
from roq.model import PUBLISHER_ID_BYTES, PublisherId
from roq.protocol.batch import pack

B = TypeVar("B")


class OwnBatches(Generic[B]):
    """Appends batches under an id that belongs to this process of the exchange.

    Args:
        queue, number, epoch: of the exchange.
        log: where they are appended.
        streams, counters: of the exchange.

    Attributes:
        publisher: that id. It is of the process and not of the exchange, because a log that runs
            ahead of its disk may lose what others have seen: no sequence stands for two messages.
    """

    def __init__(
        self,
        queue: bytes,
        number: int,
        epoch: int,
        log: Log[B | bytes],
        streams: StreamTable,
        counters: Counters,
    ) -> None:
        name = queue + number.to_bytes(4, "little") + epoch.to_bytes(8, "little")
        self.publisher = PublisherId(blake2b(name, digest_size=PUBLISHER_ID_BYTES).digest())
        self._log = log
        self._streams = streams
        self._counters = counters

    def append(
        self, topic: bytes, messages: Outgoing, extensions: bytes, created_us: int
    ) -> tuple[bytes, bytes, bytes] | None:
        """Append one batch; gives topic, entry and batch, or None: no room for its topic."""
        stream: Stream | None = self._streams.of(self.publisher).get(topic)
        if stream is None:
            if not self._log.make_room(topic, spare=True):
                return None
            stream = self._streams.add(self.publisher, topic)
            if stream is None:
                return None
        batch = pack(
            messages.payloads, publisher=self.publisher, epoch=0, link_number=0,
            first_sequence=stream.next, created_us=max(0, created_us),
            extensions=messages.columns + extensions, attributes=messages.attributes,
        )  # fmt: skip
        frame = self._log.append_spare(stream.topic, batch, len(batch))
        if frame is None:
            return None
        stream.next += len(messages.payloads)
        self._counters.own_entries += 1
        return stream.topic, frame, batch
