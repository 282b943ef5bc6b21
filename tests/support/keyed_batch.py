"""Batches whose messages have keys."""

from __future__ import annotations

from roq.client.publish.batching import Attributed, part_attributes
from roq.model import PublisherId
from roq.protocol.attributes import Attributes
from roq.protocol.batch import pack


def batch_of(keys: list[str | None], payload: bytes = b"x") -> bytes:
    """A batch as a publisher makes it, of one message for each key."""
    given = [Attributed.of(payload, Attributes(key=key)) for key in keys]
    plain, packed, area = part_attributes(list(given))
    return pack(
        plain, publisher=PublisherId(b"p" * 16), epoch=1, link_number=1, first_sequence=0,
        created_us=5, extensions=area, attributes=packed,
    )  # fmt: skip
