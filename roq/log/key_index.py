"""Which batches of a segment have a message of a key: a file beside the segment, by hashes. Pure.

It is made when the segment is complete, of what the batches hold, and is a help and no truth: who
finds a batch by it looks at the keys themselves, and a file that is missing or not whole is made
again. Of a hash (the low half of XXH3-64 of the key as UTF-8) the first bits name a bucket, the low
16 stand in it; of 1,000 strangers about three are found in a segment. All integers are
little-endian.

     0  "RQKX"   4  u16 format   6  u16 bits of a bucket's number, at most 12
     8  u64 base   16  u32 entries   20  u32 places
    24  u64 sum of all before and of the table
    32  the table, for each bucket: u32 places up to its end, u32 sum of its places
        the places, u32 each: << 16 what stands of the hash, and the distance of the batch from base
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Collection, Iterable
from struct import Struct
from typing import Final, TypeVar, cast

from xxhash import xxh3_64_intdigest

from roq.errors import RemoteProtocolError
from roq.log.files import Files, keys_name
from roq.log.log import Record
from roq.log.records import HEAD_BYTES, RecordKind, claimed_bytes, read_record
from roq.log.segment_reader import Segment, load_index
from roq.protocol.attributes import keys_of
from roq.protocol.batch import HEADER_BYTES, Kind, read_attributes, read_header
from roq.protocol.columns import KEY_GROUPS, key_hash, read_column, read_keys
from roq.protocol.delayed import DELAYED_TOPIC

B = TypeVar("B")

FORMAT: Final = 1
ENTRIES_MAX: Final = 1 << 16
"""A segment of more entries has no such index; none is so large, but for a group of its own."""
_MAGIC: Final = b"RQKX"
_HEAD: Final = Struct("<4sHHQII")
_SUM: Final = Struct("<Q")
_TABLE_AT: Final = _HEAD.size + _SUM.size
_BUCKET: Final = Struct("<II")
_BITS_MAX: Final = 12
_BUCKETS: Final = 1 << _BITS_MAX
_SHIFT: Final = 32 - _BITS_MAX
_IN_BUCKET: Final = 128
"""Places of a bucket, about."""
_U32: Final = next(code for code in "IL" if array(code).itemsize == 4)
_PIECE: Final = 1 << 18
"""What is read of a segment at once."""
_read_start = cast("Callable[[object], tuple[int, int]]", Struct("<3xBxxH").unpack_from)
"""The kind of a batch, and the bytes of its extension area."""
_KIND_AT: Final = 3
_EXT_BYTES: Final = slice(6, 8)
"""Of the header of a batch (`roq.protocol.batch`)."""
PAUSE_MESSAGES: Final = 256
"""After about so many messages whoever makes an index lets others do something."""


class KeyIndex:
    """One that is being made.

    Args:
        base: the offset of the segment's first entry.
        entries: how many it has, at most `ENTRIES_MAX`.
    """

    def __init__(self, base: int, entries: int) -> None:
        self._base = base
        self._entries = entries
        self._places: list[array[int]] = []

    def add(self, hashes: Collection[int], offset: int) -> None:
        """The batch at this offset has messages of keys with these hashes."""
        places, behind = self._places, offset - self._base
        if not places:
            places += (array(_U32) for _ in range(_BUCKETS))
        for each in hashes:
            places[each >> _SHIFT].append((each & 0xFFFF) << 16 | behind)

    def pack(self) -> bytes:
        """The bytes of its file."""
        count = sum(map(len, self._places))
        bits = min(_BITS_MAX, (count // _IN_BUCKET).bit_length())
        step = _BUCKETS >> bits
        table, parts, end = [], [], 0
        for first in range(0, _BUCKETS, step):
            bucket = b"".join(map(_bytes, self._places[first : first + step]))
            end += len(bucket) // 4
            table.append(_BUCKET.pack(end, _low_sum(bucket)))
            parts.append(bucket)
        head = _HEAD.pack(_MAGIC, FORMAT, bits, self._base, self._entries, count)
        packed = b"".join(table)
        return b"".join((head, _SUM.pack(_sum(head, packed)), packed, *parts))


def make_keys(files: Files, segment: Segment, pause: Callable[[], None]) -> bytes | None:
    """Read a complete segment; gives the file of its keys, None if it has too many entries.

    Args:
        pause: called every few batches: others want to work as well.

    Raises:
        OSError: the segment cannot be read.
    """
    entries = segment.end - segment.base
    if entries > ENTRIES_MAX:
        return None
    made, index = KeyIndex(segment.base, entries), load_index(files, segment)
    at, data, seen = HEAD_BYTES, b"", 0
    for offset in range(segment.base, segment.end):
        position = index.position(offset)
        if not position:
            continue
        size = claimed_bytes(data, position - at) if position >= at else 0
        if not size or position + size > at + len(data):
            at, data = position, files.read(segment.name, position, max(_PIECE, size))
            size = claimed_bytes(data, 0)
            if size > len(data):
                data = files.read(segment.name, position, size)
        record = read_record(data, position - at)
        if record is None or record.kind != RecordKind.BATCH or record.topic == DELAYED_TOPIC:
            continue
        seen += 8  # a batch itself is some work, too
        hashes = hashes_in(record.body)
        if hashes:
            seen += len(hashes)
            made.add(hashes, offset)
        if seen >= PAUSE_MESSAGES:
            seen = 0
            pause()
    return made.pack()


def hashes_in(batch: bytes) -> Collection[int]:
    """The `key_hash` of each key of the messages of a batch; none if nobody can read it."""
    ext_bytes = int.from_bytes(batch[_EXT_BYTES], "little")
    if not ext_bytes:  # most have none
        return ()
    if batch[_KIND_AT] != Kind.DATA:
        return ()
    told = read_keys(batch[HEADER_BYTES : HEADER_BYTES + ext_bytes])
    return told or {key_hash(key) for key in keys_in(batch)}


def may_have_keys(records: Iterable[Record[B]]) -> bool:
    """Whether `hashes_in` may find any in one of these batches, as far as headers tell."""
    for _, _, batch, size in records:
        if size >= HEADER_BYTES:
            kind, ext_bytes = _read_start(batch)
            if ext_bytes and kind == Kind.DATA:
                return True
    return False


def keys_in(batch: bytes) -> set[str]:
    """The keys of the messages of a batch; none if nobody can read it."""
    try:
        header = read_header(batch)
        area = batch[HEADER_BYTES : HEADER_BYTES + header.ext_bytes]
        if header.kind != Kind.DATA or not any(read_column(area, KEY_GROUPS, header.count)):
            return set()
        packed = read_attributes(batch, header)
        return set() if packed is None else keys_of(packed)
    except RemoteProtocolError:
        return set()


def look_up(files: Files, segment: Segment, key: int) -> list[int] | None:
    """The offsets of the batches that may have a message of a key, in order.

    Args:
        key: `key_hash` of it.

    Returns:
        None: the index is missing, or not whole.
    """
    name, base, entries = keys_name(segment.name), segment.base, segment.end - segment.base
    try:
        head = _read_head(files.read(name, 0, _TABLE_AT + _BUCKETS * _BUCKET.size), base, entries)
        if head is None:
            return None
        bits, table = head
        number = key >> 32 - bits
        first = _BUCKET.unpack_from(table, (number - 1) * _BUCKET.size)[0] if number else 0
        end, told = _BUCKET.unpack_from(table, number * _BUCKET.size)
        at = _TABLE_AT + len(table) + 4 * first
        bucket = files.read(name, at, 4 * (end - first)) if end > first else b""
    except OSError:
        return None
    if first > end or len(bucket) != 4 * (end - first) or _low_sum(bucket) != told:
        return None
    low = key & 0xFFFF
    found = {each & 0xFFFF for each in _numbers(bucket) if each >> 16 == low}
    return None if found and max(found) >= entries else sorted(base + each for each in found)


def is_whole(data: bytes, base: int, entries: int) -> bool:
    """Whether this is all of the file of the keys of a segment."""
    head = _read_head(data, base, entries)
    if head is None:
        return False
    at, before = _TABLE_AT + len(head[1]), 0
    for end, told in _BUCKET.iter_unpack(head[1]):
        behind = at + 4 * (end - before)
        if behind < at or _low_sum(data[at:behind]) != told:
            return False
        at, before = behind, end
    return at == len(data)


def _read_head(data: bytes, base: int, entries: int) -> tuple[int, bytes] | None:
    """The bits of a bucket's number and the table, if they are whole and of this segment."""
    if len(data) < _TABLE_AT:
        return None
    magic, number, bits, told_base, told_entries, count = _HEAD.unpack_from(data)
    if (magic, number, told_base, told_entries) != (_MAGIC, FORMAT, base, entries):
        return None
    table = data[_TABLE_AT : _TABLE_AT + (_BUCKET.size << bits)]
    if len(table) != _BUCKET.size << bits or (
        _SUM.unpack_from(data, _HEAD.size)[0] != _sum(data[: _HEAD.size], table)
    ):
        return None
    return (
        (bits, table) if _BUCKET.unpack_from(table, len(table) - _BUCKET.size)[0] == count else None
    )


def _sum(head: bytes, rest: bytes) -> int:
    return xxh3_64_intdigest(rest, seed=xxh3_64_intdigest(head))


def _low_sum(bucket: bytes) -> int:
    return xxh3_64_intdigest(bucket) & 0xFFFFFFFF


def _bytes(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _numbers(bucket: bytes) -> array[int]:
    numbers = array(_U32, bucket)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
