"""Transactions on the wire: how half messages travel, and what producers and exchanges say of them.

The messages of a transaction travel together, as one delayed message that is never due by itself
(`roq.protocol.delayed`): its time is `OPEN_US`, and its payload `Half`. So exchanges keep it as
they keep any delayed message, and show it to nobody. What decides about it is said to the exchange
that has acknowledged it.

    producer → exchange                         exchange → producer
    [FF T] Enroll, every half a minute          [FF T] Enrolled
    [FF U] Settle                               [FF U] Settled            when the log has it
                                                [FF V] CheckHead, Half    what has become of it?
    anybody → exchange                          exchange → anybody
    [FF Q] TransactionsQuery                    [FF Q] Transactions, Half if it is one

A Half is msgpack and stands right behind its document. A check is answered by a Settle. An exchange
says in the extension area of its own batches which transactions they end, beside what they settle:
so what has become of them is known after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from struct import Struct
from typing import Annotated, Final, Literal

import msgspec

from roq.errors import RemoteProtocolError
from roq.model import PUBLISHER_ID_BYTES, TOPIC_BYTES_MAX
from roq.number_ranges import NUMBER_MAX, UNREADABLE, Amount, ChildEpoch, Whole
from roq.protocol.attributes import NO_ATTRIBUTES, Attributes, BatchAttributes
from roq.protocol.channel import CONTROL
from roq.protocol.delayed import DELAYED_TOPIC, MESSAGE_ID_BYTES

ENROLL: Final = b"\xffT"
SETTLE: Final = b"\xffU"
CHECK: Final = b"\xffV"
TRANSACTIONS: Final = b"\xffQ"

OPEN_US: Final = NUMBER_MAX
"""When a half message is due: never by itself."""
MESSAGES_MAX: Final = 100
"""Messages of one transaction."""
GROUP_BYTES_MAX: Final = 128
ENDS_MAX: Final = 1_000
"""Transactions that one message settles."""
LISTED_MAX: Final = 1_000
"""Transactions that one answer lists."""
CHECK_SECONDS_MAX: Final = 86_400.0
ATTEMPTS_MAX: Final = 1_000
PATIENCE_SECONDS_MAX: Final = 366 * 86_400.0

ENDED: Final = 17
"""Kind in the extension area of a batch: transactions that it ends, each <8 bytes its id and one
byte, 1 if it is committed. Only in batches of an exchange, of link number 0."""
_ENDED: Final = Struct("<8sB")
_ENDED_MAX: Final = 255 // _ENDED.size


class Decision(StrEnum):
    """What is to become of a transaction, as a producer says."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"
    """It cannot be told yet: ask again."""
    BUSY = "busy"
    """Its local work goes on, in this process: ask again, and that was no attempt."""


class Fate(StrEnum):
    """What has become of a transaction, as its exchange says."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    OPEN = "open"
    NOT_HERE = "not_here"
    """It never was here, or has ended long ago."""
    FOREIGN = "foreign"
    """It is another producer group's."""
    FULL = "full"
    """There is no room to write the end down; say it again."""


Policy = Literal["rollback", "commit", "keep"]
Group = Annotated[str, msgspec.Meta(min_length=1, max_length=GROUP_BYTES_MAX)]
TransactionId = Annotated[
    bytes, msgspec.Meta(min_length=MESSAGE_ID_BYTES, max_length=MESSAGE_ID_BYTES)
]
_Topic = Annotated[bytes, msgspec.Meta(max_length=TOPIC_BYTES_MAX)]


class Half(msgspec.Struct, frozen=True, array_like=True):
    """The messages of a transaction, and what is done while nothing is heard of it."""

    group: Group
    """Of producers: any of them may be asked."""
    messages: Annotated[
        list[tuple[_Topic, bytes]], msgspec.Meta(min_length=1, max_length=MESSAGES_MAX)
    ]
    """(topic, payload)."""
    attributes: bytes = b""
    """Of the messages, as in the body of a batch; empty: none has any."""
    check_seconds: Annotated[float, msgspec.Meta(gt=0, le=CHECK_SECONDS_MAX)] = 60.0
    """When nothing is heard for so long a producer is asked; the next time after twice as long."""
    attempts: Annotated[int, msgspec.Meta(ge=1, le=ATTEMPTS_MAX)] = 16
    """So often are producers asked that do not know, or do not answer."""
    patience_seconds: Annotated[float, msgspec.Meta(gt=0, le=PATIENCE_SECONDS_MAX)] = 604_800.0
    """Nobody of the group was there for so long."""
    otherwise: Policy = "rollback"
    """What is done then; `keep`: it is left to a person."""


class Enroll(msgspec.Struct, frozen=True, kw_only=True):
    """Here is a producer of this group, which may be asked."""

    id: Whole
    queue: bytes
    group: Group
    publisher: Annotated[bytes, msgspec.Meta(max_length=PUBLISHER_ID_BYTES)] = b""
    """Under which it prepares: of what it has prepared it is asked first."""
    leave: bool = False
    """It goes."""


class Enrolled(msgspec.Struct, frozen=True, kw_only=True):
    """The answer."""

    id: Whole
    generation: ChildEpoch


class Settle(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of these transactions."""

    id: Whole
    queue: bytes
    group: Group
    """Whose they are."""
    ends: Annotated[list[tuple[TransactionId, Decision]], msgspec.Meta(max_length=ENDS_MAX)]


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, when that is kept: what has become of each, in the same order."""

    id: Whole
    generation: ChildEpoch
    fates: Annotated[list[Fate], msgspec.Meta(max_length=ENDS_MAX)]


class CheckHead(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of this transaction?"""

    transaction: TransactionId
    publisher: bytes
    prepared_us: Whole
    attempt: Whole
    """Counted from 1."""


class TransactionsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which transactions are open? Those first that are so for longest."""

    id: Whole
    queue: bytes
    transaction: Annotated[bytes, msgspec.Meta(max_length=MESSAGE_ID_BYTES)] = b""
    """This one alone, and its messages; empty: all."""
    group: str = ""
    """Of this group; empty: of all."""
    most: Annotated[int, msgspec.Meta(ge=0, le=LISTED_MAX)] = LISTED_MAX


class TransactionState(msgspec.Struct, frozen=True, kw_only=True):
    """How one transaction stands."""

    transaction: TransactionId
    fate: Fate
    group: str = ""
    """Empty: it was not looked at yet since the exchange has started, or has ended."""
    seconds: Amount = 0.0
    """For so long it is open, as far as this process of the exchange has seen it."""
    size: Whole = 0
    """Bytes that it takes."""
    attempts: Whole = 0
    """So often has a producer been asked by this process, and has not known it."""
    kept: bool = False
    """It is left to a person."""
    next_seconds: Amount = 0.0
    """Until it is looked at again."""


class TransactionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of an exchange, since its process has started but for the first four."""

    open: Whole = 0
    kept: Whole = 0
    oldest_seconds: Amount = 0.0
    producers: Whole = 0
    prepared: Whole = 0
    committed: Whole = 0
    rolled_back: Whole = 0
    checked: Whole = 0
    """Producers that were asked."""
    by_policy: Whole = 0
    """Of those that have ended: by what is done when nobody knows."""


class Transactions(msgspec.Struct, frozen=True, kw_only=True):
    """The answer."""

    id: Whole
    generation: ChildEpoch
    figures: TransactionFigures
    transactions: list[TransactionState]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Half).decode


def split_document(data: bytes) -> tuple[bytes, bytes]:
    """A document, and what stands behind it: a document says how long it is.

    Raises:
        RemoteProtocolError: it is longer than there is.
    """
    length = int.from_bytes(data[:4], "little")
    if not 4 < length <= len(data):
        raise RemoteProtocolError(f"a document of {length} bytes in {len(data)}")
    return data[:length], data[length:]


def encode_half(half: Half) -> bytes:
    """The payload of a half message."""
    return _encode(half)


def decode_half(payload: bytes) -> Half:
    """What `encode_half` was given.

    Raises:
        RemoteProtocolError: it is none, or its topics or attributes cannot be.
    """
    try:
        half = _decode(payload)
    except UNREADABLE as error:
        raise RemoteProtocolError(f"no half message: {error}") from None
    for topic, _ in half.messages:
        check_topic(topic)
    attributes_of_half(half)
    return half


def attributes_of_half(half: Half) -> list[Attributes]:
    """Those of its messages, in order.

    Raises:
        RemoteProtocolError: they cannot be read.
    """
    count = len(half.messages)
    if not half.attributes:
        return [NO_ATTRIBUTES] * count
    given = BatchAttributes(half.attributes, 0, count)
    return [given.of(index) for index in range(count)]


def check_topic(topic: bytes) -> None:
    """Whether the exchange may publish under it.

    Raises:
        RemoteProtocolError: it may not.
    """
    if topic[:1] == bytes((CONTROL,)) or topic == DELAYED_TOPIC:
        raise RemoteProtocolError("a message that the exchange publishes has a topic of its own")
    try:
        topic.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError("a topic is UTF-8") from None


def pack_ended(ended: Iterable[tuple[bytes, bool]]) -> bytes:
    """The extension area that says which transactions a batch ends: (id, whether committed)."""
    every = [_ENDED.pack(*each) for each in ended]
    parts = []
    for first in range(0, len(every), _ENDED_MAX):
        part = b"".join(every[first : first + _ENDED_MAX])
        parts.append(bytes((ENDED, len(part))) + part)
    return b"".join(parts)


def read_ended(area: bytes | memoryview) -> list[tuple[bytes, bool]]:
    """The transactions in an extension area, as `pack_ended`; what is damaged ends it."""
    found: list[tuple[bytes, bool]] = []
    at = 0
    while at + 2 <= len(area):
        kind, length = area[at], area[at + 1]
        at += 2
        if at + length > len(area):
            break
        if kind == ENDED and length % _ENDED.size == 0:
            found += [(each, bool(yes)) for each, yes in _ENDED.iter_unpack(area[at : at + length])]
        at += length
    return found
