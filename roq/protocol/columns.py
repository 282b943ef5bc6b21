"""What a batch says of its messages to exchanges, which do not look into its body. Pure.

Beside FLOOR (`roq.protocol.batch`) the extension area of a batch has, each only if some message
has such a thing:

* KEY_GROUPS (2): a byte for each message, the group of its key, 1 to 255; 0: it has none. Messages
  of one key are in one group, for ever and at every publisher: XXH3-64 of the key as UTF-8, modulo
  255, plus 1.
* PRIORITIES (3): a byte for each message, its priority, 0 to 9.
* TAGS (4), 8 bytes: bit `XXH3-64 of the tag modulo 64` is set for each tag of any message.
* LIFETIME (5), 8 bytes: so many milliseconds after the batch was appended none of its messages is
  handed to a consumer group any more.
* KEYS (6): 4 bytes for each of its keys, the low half of XXH3-64 of the key as UTF-8, for indexes
  of keys. Not if there are more than 4,000: then the keys themselves are looked at.
* SENT_AGAIN (7), no bytes, and the last record: some messages are requests that were sent once
  more. What they were known as before stands in their attributes, which the exchange reads
  (`roq.protocol.orphaned_answers`).

What is longer than a record may be (255 bytes) goes on in the next record of its kind. A column of
a single byte stands for all messages of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from struct import Struct, pack, unpack
from typing import Final

import xxhash

KEY_GROUPS: Final = 2
PRIORITIES: Final = 3
TAGS: Final = 4
LIFETIME: Final = 5
KEYS: Final = 6
SENT_AGAIN: Final = 7
KEYS_MAX: Final = 4_000
LIFETIME_MS_MAX: Final = 10 * 366 * 24 * 60 * 60 * 1_000
"""Ten years."""
KEY_GROUP_COUNT: Final = 255
PRIORITY_MAX: Final = 9
COLUMN_MAX: Final = 20_000
"""Messages of a batch: two columns and the rest fit into an extension area of 64 KiB."""

_LAST: Final = Struct("<H")
"""Kind and length of a record, if it has no bytes."""
_RECORD_MAX: Final = 255
_TAG_BITS: Final = 64
_TAGS_BYTES: Final = 8
_LIFETIME_BYTES: Final = 8
_hash = xxhash.xxh3_64_intdigest


def key_group(key: str | None) -> int:
    """The group of a key; 0: of none."""
    return 0 if key is None else _hash(key.encode()) % KEY_GROUP_COUNT + 1


def key_hash(key: str) -> int:
    """By which indexes know a key: 32 bits."""
    return _hash(key.encode()) & 0xFFFFFFFF


def tag_bits(tags: Iterable[str]) -> int:
    """The bits of these tags."""
    bits = 0
    for tag in tags:
        bits |= 1 << _hash(tag.encode()) % _TAG_BITS
    return bits


def pack_column(kind: int, values: bytes) -> bytes:
    """A column as part of an extension area; nothing if all of it is 0."""
    if not any(values):
        return b""
    if values.count(values[0]) == len(values):
        values = values[:1]
    return _in_records(kind, values)


def pack_keys(hashes: Set[int]) -> bytes:
    """The `key_hash` of each key as part of an extension area; nothing if there are none, or too
    many."""
    if not 0 < len(hashes) <= KEYS_MAX:
        return b""
    return _in_records(KEYS, pack(f"<{len(hashes)}I", *hashes))


def read_keys(area: bytes) -> tuple[int, ...]:
    """The `key_hash` of each key of a batch; nothing if it does not say."""
    told = b"".join(_records(area, KEYS))
    return () if len(told) % 4 else unpack(f"<{len(told) // 4}I", told)


def pack_tags(bits: int) -> bytes:
    """The tags as part of an extension area; nothing if there are none."""
    return bytes((TAGS, _TAGS_BYTES)) + bits.to_bytes(_TAGS_BYTES, "little") if bits else b""


def pack_lifetime(milliseconds: int) -> bytes:
    """The time to live as part of an extension area; nothing if it is 0."""
    if not milliseconds:
        return b""
    return bytes((LIFETIME, _LIFETIME_BYTES)) + milliseconds.to_bytes(_LIFETIME_BYTES, "little")


def pack_sent_again() -> bytes:
    """That there are requests that were sent once more, as part of an extension area."""
    return bytes((SENT_AGAIN, 0))


def read_sent_again(batch: bytes | memoryview, begin: int, end: int) -> bool:
    """Whether a batch says that.

    Args:
        begin, end: where its extension area is.
    """
    if _LAST.unpack_from(batch, end - _LAST.size)[0] != SENT_AGAIN:  # as nearly always
        return False
    return bool(_records(memoryview(batch)[begin:end], SENT_AGAIN))


def read_lifetime(area: bytes | memoryview) -> int:
    """The time to live of a batch, milliseconds; 0: it has none, or none that may be."""
    for record in _records(area, LIFETIME):
        told = int.from_bytes(record, "little") if len(record) == _LIFETIME_BYTES else 0
        return told if told <= LIFETIME_MS_MAX else 0
    return 0


def read_column(area: bytes | memoryview, kind: int, count: int) -> bytes:
    """A column of a batch of so many messages; zero if it has none, or not one that fits.

    A single byte stands for all messages here as well: `count` is what a publisher says, and costs
    nobody anything that it has not sent.
    """
    values = b"".join(_records(area, kind))
    return values if len(values) in {1, count} else b"\x00"


def value_at(column: bytes, index: int) -> int:
    """What a column says of one message."""
    return column[0] if len(column) == 1 else column[index]


def read_tags(area: bytes | memoryview) -> int:
    """The bits of all tags in a batch; 0: no message has any."""
    bits = 0
    for record in _records(area, TAGS):
        bits |= int.from_bytes(record[:_TAGS_BYTES], "little")
    return bits


def _in_records(kind: int, data: bytes) -> bytes:
    parts = [data[at : at + _RECORD_MAX] for at in range(0, len(data), _RECORD_MAX)]
    return b"".join(bytes((kind, len(part))) + part for part in parts)


def _records(area: bytes | memoryview, kind: int) -> list[bytes]:
    """The records of one kind; none if the area is damaged."""
    found: list[bytes] = []
    at, size = 0, len(area)
    while at + 2 <= size:
        end = at + 2 + area[at + 1]
        if end > size:
            return []
        if area[at] == kind:
            found.append(bytes(area[at + 2 : end]))
        at = end
    return found
