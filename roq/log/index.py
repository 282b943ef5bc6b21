"""Where the records of a segment stand, and which of them belong to a topic.

An index is kept in memory while its segment is written, and lies in a file of its own afterwards.
It is a help and no truth: a file that is missing or not whole is made again from the segment.

A file begins with what a start wants to know of the segment, so that it need not read the rest:

    0  "RQIH"   4  u16 format, 2   6  u16 bytes from 48 on
    8  u64 base   16  u32 entries   20  u32 of these that cannot be read
    24 u64 append time of the first one, µs UTC   32  u64 likewise of the last one
    40 u64 sum of all before and of all from 48 on
    48 u64 bytes that its batches count for; format 1 has not got this, and the whole segment counts
    56 the filter of its topics

Then follows (and with this files of earlier versions begin):

    0  "RQIX"   4  u16 format, 1   6  u16 0   8  u64 base   16  u32 entries   20  u32 topics
    24 u64 sum of all before and of all that follows
    32 per topic: u16 bytes of its name, u32 its entries, the name; then padding to 8
       u32 position of each entry in units of 8 bytes, 0 for one that cannot be read
       per topic: u32 distance from `base` of each of its entries
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error
from typing import Final, Self, TypeVar

from xxhash import xxh3_64_intdigest, xxh3_128_intdigest

from roq.log.log import Record
from roq.log.records import ALIGN, record_bytes

B = TypeVar("B")

INDEX_MAGIC: Final = b"RQIX"
FORMAT: Final = 1
_HEAD: Final = Struct("<4sHHQII")
_SUM: Final = Struct("<Q")
_HEAD_BYTES: Final = _HEAD.size + _SUM.size
_TOPIC: Final = Struct("<HI")
_U32: Final = next(code for code in "IL" if array(code).itemsize == 4)
LOST: Final = 0
"""The position of an entry that cannot be read: no record stands where the head of a segment is."""
BRIEF_MAGIC: Final = b"RQIH"
BRIEF_FORMAT: Final = 2
_BRIEF: Final = Struct("<4sHHQIIQQQ")
_KEPT: Final = Struct("<Q")
KEPT_MAX: Final = (1 << 64) - 1
"""More than any segment has: it counts as a whole."""
TOPICS_FILTERED_MAX: Final = 1_024
"""With more topics, a segment's filter lets everything pass."""
_FILTER_BITS: Final = 16
"""For each topic at least; with the hashes below, of 1,000 strangers one passes."""
_FILTER_HASHES: Final = 6
_FILTER_BYTES_MAX: Final = 2_048
BRIEF_BYTES_MAX: Final = _BRIEF.size + _KEPT.size + _FILTER_BYTES_MAX
"""So much of a file holds its brief in any case."""

assert TOPICS_FILTERED_MAX * _FILTER_BITS <= 8 * _FILTER_BYTES_MAX  # noqa: S101


class TopicFilter:
    """Which topics a segment may have: none of its own is denied, few others are let pass.

    Attributes:
        bits: its bytes, a power of two; none: everything passes.
    """

    __slots__ = ("bits",)

    def __init__(self, bits: bytes = b"") -> None:
        self.bits = bits

    @classmethod
    def of(cls, topics: Collection[bytes]) -> Self:
        """The filter of these topics."""
        if len(topics) > TOPICS_FILTERED_MAX:
            return cls()
        size = 8
        while size * 8 < len(topics) * _FILTER_BITS:
            size *= 2
        bits = bytearray(size)
        for topic in topics:
            for bit in _bits_of(topic, size):
                bits[bit >> 3] |= 1 << (bit & 7)
        return cls(bytes(bits))

    def __contains__(self, topic: bytes) -> bool:
        bits = self.bits
        return not bits or all(
            bits[bit >> 3] & 1 << (bit & 7) for bit in _bits_of(topic, len(bits))
        )


def _bits_of(topic: bytes, size: int) -> Iterator[int]:
    """The bits that stand for a topic in a filter of so many bytes."""
    digest = xxh3_128_intdigest(topic)
    first, step = digest & 0xFFFFFFFFFFFFFFFF, (digest >> 64) | 1
    return ((first + number * step) % (8 * size) for number in range(_FILTER_HASHES))


@dataclass(frozen=True, slots=True)
class IndexBrief:
    """What the file of an index says at its beginning.

    Attributes:
        base: the offset of the segment's first entry.
        entries: how many it has.
        lost: how many of these cannot be read.
        first_us, last_us: append times of its first and last entry that can, µs UTC; 0: there is
            none.
        kept: bytes that its batches count for, if the segment has so many.
        topics: which topics it may have.
    """

    base: int
    entries: int
    lost: int
    first_us: int
    last_us: int
    kept: int
    topics: TopicFilter

    def pack(self) -> bytes:
        """Its bytes."""
        rest = _KEPT.pack(self.kept) + self.topics.bits
        head = _BRIEF.pack(
            BRIEF_MAGIC, BRIEF_FORMAT, len(rest), self.base, self.entries, self.lost,
            self.first_us, self.last_us, 0,
        )[:-8]  # fmt: skip
        return head + _SUM.pack(_sum(head, rest)) + rest


def read_brief(data: bytes, base: int) -> IndexBrief | None:
    """What the file of an index begins with; None: nothing of this segment, or it is not whole."""
    if len(data) < _BRIEF.size:
        return None
    magic, number, size, told_base, entries, lost, first_us, last_us, told = _BRIEF.unpack_from(
        data
    )
    if (magic, told_base) != (BRIEF_MAGIC, base) or not 0 < number <= BRIEF_FORMAT:
        return None
    rest = data[_BRIEF.size : _BRIEF.size + size]
    if len(rest) != size or told != _sum(data[: _BRIEF.size - 8], rest):
        return None
    kept, bits = KEPT_MAX, rest
    if number == BRIEF_FORMAT:
        kept, bits = int.from_bytes(rest[: _KEPT.size], "little"), rest[_KEPT.size :]
    if len(bits) & (len(bits) - 1):
        return None
    return IndexBrief(base, entries, lost, first_us, last_us, kept, TopicFilter(bits))


class SegmentIndex:
    """The index of one segment.

    Attributes:
        base: the offset of its first entry.
        kept: bytes that its batches count for, where they were gone over.
    """

    __slots__ = ("_positions", "_topics", "base", "kept")

    def __init__(self, base: int) -> None:
        self.base = base
        self.kept = KEPT_MAX
        self._positions = array(_U32)
        self._topics: dict[bytes, array[int]] = {}

    @property
    def end(self) -> int:
        """The offset behind its last entry."""
        return self.base + len(self._positions)

    def add(self, topic: bytes, position: int) -> None:
        """The next entry stands at this position of the file."""
        offsets = self._topics.get(topic)
        if offsets is None:
            offsets = self._topics[topic] = array(_U32)
        offsets.append(len(self._positions))
        self._positions.append(position // ALIGN)

    def add_all(self, records: Sequence[Record[B]], position: int) -> int:
        """The next entries stand here, one behind the other; gives where they end."""
        for topic, _, _, size in records:
            self.add(topic.name, position)
            position += record_bytes(topic.name, size)
        return position

    def add_lost(self) -> None:
        """The next entry cannot be read."""
        self._positions.append(LOST)

    def lose(self, offset: int) -> None:
        """This entry cannot be read any more."""
        self._positions[offset - self.base] = LOST

    def brief(self, first_us: int, last_us: int, kept: int) -> IndexBrief:
        """What its file is to say at its beginning; the arguments as there."""
        return IndexBrief(
            self.base, len(self._positions), self._positions.count(LOST), first_us, last_us,
            kept, TopicFilter.of(self._topics),
        )  # fmt: skip

    def lost(self) -> list[int]:
        """The entries that cannot be read."""
        if LOST not in self._positions:
            return []
        return [self.base + index for index, at in enumerate(self._positions) if at == LOST]

    def position(self, offset: int) -> int:
        """Where an entry stands in the file; 0 if it cannot be read."""
        return self._positions[offset - self.base] * ALIGN

    def next_of(self, topic: bytes, at_least: int) -> int | None:
        """The first entry of a topic at or above an offset that can be read."""
        offsets = self._topics.get(topic)
        if offsets is None:
            return None
        for index in range(bisect_left(offsets, max(0, at_least - self.base)), len(offsets)):
            if self._positions[offsets[index]] != LOST:
                return self.base + offsets[index]
        return None

    def pack(self) -> bytes:
        """The bytes of its file that follow the brief."""
        names = b"".join(
            _TOPIC.pack(len(name), len(offsets)) + name for name, offsets in self._topics.items()
        )
        parts = [names, bytes(-len(names) % ALIGN), _bytes(self._positions)]
        parts += [_bytes(offsets) for offsets in self._topics.values()]
        rest = b"".join(parts)
        head = _HEAD.pack(
            INDEX_MAGIC, FORMAT, 0, self.base, len(self._positions), len(self._topics)
        )
        return head + _SUM.pack(_sum(head, rest)) + rest

    @classmethod
    def read(cls, data: bytes, base: int) -> Self | None:
        """The index in a file; None if it is not whole, or of another segment."""
        if data[:4] == BRIEF_MAGIC and len(data) >= _BRIEF.size:
            data = data[_BRIEF.size + _BRIEF.unpack_from(data)[2] :]
        if len(data) < _HEAD_BYTES:
            return None
        magic, number, _, told_base, entries, topics = _HEAD.unpack_from(data)
        if (magic, number, told_base) != (INDEX_MAGIC, FORMAT, base):
            return None
        view = memoryview(data)
        (told,) = _SUM.unpack_from(data, _HEAD.size)
        if told != _sum(view[: _HEAD.size], view[_HEAD_BYTES:]):
            return None
        index = cls(base)
        at, counts = _HEAD_BYTES, []
        try:
            for _ in range(topics):
                size, count = _TOPIC.unpack_from(data, at)
                at += _TOPIC.size
                counts.append((data[at : at + size], count))
                at += size
            at += -(at - _HEAD_BYTES) % ALIGN
            index._positions, at = _array(data, at, entries)
            for name, count in counts:
                index._topics[name], at = _array(data, at, count)
        except (struct_error, ValueError):
            return None
        if at != len(data) or any(
            not each or max(each) >= entries for each in index._topics.values()
        ):
            return None
        return index


def _sum(head: bytes | memoryview, rest: bytes | memoryview) -> int:
    return xxh3_64_intdigest(rest, seed=xxh3_64_intdigest(head))


def _bytes(numbers: array[int]) -> bytes:
    return _little(numbers).tobytes()


def _array(data: bytes, at: int, count: int) -> tuple[array[int], int]:
    numbers = array(_U32)
    numbers.frombytes(data[at : at + 4 * count])
    if len(numbers) != count:
        raise ValueError("the file ends before its numbers")
    return _little(numbers), at + 4 * count


def _little(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers
