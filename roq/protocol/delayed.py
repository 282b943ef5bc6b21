"""Delayed messages on the wire: how they travel, how they are listed and cancelled.

A delayed message travels under a topic of its own, `DELAYED_TOPIC`, in an ordinary batch: so it is
acknowledged, sent again and taken once as any other. Each payload of such a batch is msgpack of
`[due, topic, payload, id, publisher, published]`; key, tags and properties are attributes as ever.
Exchanges show batches of this topic to nobody. When a message is due the exchange publishes it
itself, and says in the extension area of that batch which messages it has settled by it.

    reader → exchange                           exchange → reader
    [FF z] DelayedRequest                       [FF z] DelayedList
    [FF Z] CancelDelayed                        [FF Z] CancelledDelayed   when the log has it
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Annotated, Final

import msgspec

from roq.errors import RemoteProtocolError
from roq.model import PUBLISHER_ID_BYTES, TOPIC_BYTES_MAX
from roq.number_ranges import UNREADABLE, ChildEpoch, Whole

DELAYED: Final = b"\xffz"
CANCEL_DELAYED: Final = b"\xffZ"

DELAYED_TOPIC: Final = b"\x00roq.later"
"""Nobody is given what is under it; as text it is a topic that a publisher may name."""
DELAY_SECONDS_MAX: Final = 10 * 366 * 24 * 60 * 60
"""Ten years."""
MESSAGE_ID_BYTES: Final = 8
ROWS_MAX: Final = 1_000
"""Delayed messages that one answer lists."""

SETTLED: Final = 16
"""Kind in the extension area of a batch: places of delayed messages that it settles, each <u64 the
offset of its batch and <u32 its index there. Only in batches of an exchange, of link number 0."""
_PLACE: Final = Struct("<QI")
_PLACES_MAX: Final = 255 // _PLACE.size
Place = tuple[int, int]
"""Offset of the batch in the log, and index in the batch."""


class Delayed(msgspec.Struct, frozen=True, array_like=True):
    """One delayed message, as a payload under `DELAYED_TOPIC`."""

    due_us: Whole
    """When it is to be published, µs UTC by the publisher's clock."""
    topic: Annotated[bytes, msgspec.Meta(max_length=TOPIC_BYTES_MAX)]
    payload: bytes
    id: Annotated[bytes, msgspec.Meta(min_length=MESSAGE_ID_BYTES, max_length=MESSAGE_ID_BYTES)]
    """Random; by it the message is cancelled."""
    publisher: Annotated[bytes, msgspec.Meta(max_length=PUBLISHER_ID_BYTES)] = b""
    """Who has published it; empty: whose batch it is."""
    published_us: Whole = 0
    """When; 0: when the batch was made."""
    transaction: Annotated[bytes, msgspec.Meta(max_length=MESSAGE_ID_BYTES)] = b""
    """It was committed in this one; empty: in none. Only in batches of an exchange."""


class DelayedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which delayed messages wait here? The soonest of them."""

    id: Whole
    queue: bytes
    most: Annotated[int, msgspec.Meta(ge=0, le=ROWS_MAX)] = ROWS_MAX


class DelayedList(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: how many wait, and the soonest of them."""

    id: Whole
    generation: ChildEpoch
    pending: Whole
    size: Whole
    """Bytes that all messages that wait take, as the exchange counts them against its bound."""
    messages: list[tuple[bytes, Whole]]
    """(id, when it is due in µs UTC), the soonest first."""


class CancelDelayed(msgspec.Struct, frozen=True, kw_only=True):
    """This message is not to be published."""

    id: Whole
    queue: bytes
    message: Annotated[
        bytes, msgspec.Meta(min_length=MESSAGE_ID_BYTES, max_length=MESSAGE_ID_BYTES)
    ]


class CancelledDelayed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, when that is kept."""

    id: Whole
    generation: ChildEpoch
    found: bool
    """False: it does not wait here; it was published, or cancelled, or is at another exchange."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Delayed).decode


def encode_delayed(message: Delayed) -> bytes:
    """The payload that stands for a delayed message."""
    return _encode(message)


def decode_delayed(payload: bytes) -> Delayed:
    """What `encode_delayed` was given.

    Raises:
        RemoteProtocolError: it is none.
    """
    try:
        return _decode(payload)
    except UNREADABLE as error:
        raise RemoteProtocolError(f"no delayed message: {error}") from None


def pack_settled(places: Iterable[Place]) -> bytes:
    """The extension area that says which delayed messages a batch settles."""
    every = [_PLACE.pack(*place) for place in places]
    parts = []
    for first in range(0, len(every), _PLACES_MAX):
        part = b"".join(every[first : first + _PLACES_MAX])
        parts.append(bytes((SETTLED, len(part))) + part)
    return b"".join(parts)


def read_settled(area: bytes | memoryview) -> list[Place]:
    """The places in an extension area; what is damaged ends it."""
    places: list[Place] = []
    at = 0
    while at + 2 <= len(area):
        kind, length = area[at], area[at + 1]
        at += 2
        if at + length > len(area):
            break
        if kind == SETTLED and length % _PLACE.size == 0:
            places += _PLACE.iter_unpack(area[at : at + length])
        at += length
    return places
