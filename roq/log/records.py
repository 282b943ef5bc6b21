"""The bytes of a log on disk: segment heads and records.

A segment is a head and records, one behind the other, each beginning at a multiple of eight. All
integers are little-endian; sums are XXH3 (64 bits).

    segment head                                   record
     0  "RQSG"            magic                     0  u32  size of the record, padding included
     4  u16  format       1                         4  u16  bytes of the topic
     6  u16  left out >> 32                         6  u8   kind: 1 BATCH, 2 SNAPSHOT, 3 GROUPS
     8  16 B queue id                               7  u8   bytes of padding, 0 to 7
    24  u32  exchange                               8  u64  sum of all other bytes of the record
    28  u32  left out                              16  u64  synced: below it all was on the disk
    32  u64  generation of the log                 24  56 B entry frame (`roq.protocol.entry`)
    40  u64  epoch of the process                  80  topic, then the batch as it came, then
    48  u64  base: the first offset                    padding
    56  u64  made at, µs UTC
    64  u64  sum of all before
    72

Also in a later format a head begins with the magic and the number of the format, and has at 64 the
sum of all before: by these three a RoQ that does not know a format tells it from a head that is
damaged.

The entry frame says queue, exchange, generation and offset, and the sum covers it: a record that
stands where it does not belong, or was left by another log, is not taken for an entry. A SNAPSHOT
has the frame of an END, whose offset is that of the next batch; its body is read by
`roq.log.snapshot`. So has a record of GROUPS, which holds what has changed of consumer groups since
the one before (`roq.log.groups`).

`left out` is how many offsets before the base belong to no entry: a log that commits ahead of the
disk goes on so far behind what it finds, as others may have been shown more than that.

`synced` is what was known when the group of the record was written: every record below that offset
was on the disk. So the records at or above the newest claim are those that a power cut, or a failed
sync, may have taken back or torn, and all others are whole unless the disk rots.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple, cast

from xxhash import xxh3_64_intdigest

from roq.protocol.entry import ENTRY, ENTRY_BYTES
from roq.protocol.entry import MAGIC as ENTRY_MAGIC
from roq.protocol.version import WIRE_VERSION

SEGMENT_MAGIC: Final = b"RQSG"
FORMAT: Final = 1
HEAD: Final = Struct("<4sHH16sIIQQQQQ")
HEAD_BYTES: Final = HEAD.size
FRAME_AT: Final = 24
"""In a record, its entry frame."""
RECORD_BYTES: Final = FRAME_AT + ENTRY_BYTES
ALIGN: Final = 8
RECORD_MAX: Final = (1 << 32) - ALIGN

_START: Final = Struct("<IHBB")
_SUM_AT: Final = 8
_REST_AT: Final = 16
_RECORD: Final = Struct("<IHBBQQ2sBBI16sQQQQ")
_SUM: Final = Struct("<Q")
_PADDING: Final = tuple(bytes(count) for count in range(ALIGN))

# Entry frames say the version of the wire, and those of another one are not read: with a new one
# goes a new format, or each start would take old logs for damaged, and cut them off.
assert (FORMAT, WIRE_VERSION) == (1, 2)  # noqa: S101
assert HEAD_BYTES == 72  # noqa: S101 - the drawing above is the law
assert _RECORD.size == RECORD_BYTES == 80  # noqa: S101
assert ENTRY.size == ENTRY_BYTES  # noqa: S101


class RecordKind(IntEnum):
    """What a record is."""

    BATCH = 1
    SNAPSHOT = 2
    GROUPS = 3


_FIRST_KIND: Final = int(RecordKind.BATCH)
_LAST_KIND: Final = int(RecordKind.GROUPS)


@dataclass(frozen=True, slots=True)
class SegmentHead:
    """What a segment says of itself."""

    queue: bytes
    exchange: int
    generation: int
    epoch: int
    base: int
    created_us: int
    left_out: int = 0


class Found(NamedTuple):
    """A record that was read, whole; a tuple, as starts make many of them."""

    at: int
    size: int
    kind: int
    offset: int
    synced: int
    topic: bytes
    frame: bytes
    body: bytes


def record_bytes(topic: bytes, size: int) -> int:
    """Bytes that the record of a body of `size` bytes takes."""
    return (RECORD_BYTES + len(topic) + size + ALIGN - 1) & -ALIGN


def pack_head(head: SegmentHead) -> bytes:
    """The bytes of a segment head."""
    packed = HEAD.pack(
        SEGMENT_MAGIC, FORMAT, head.left_out >> 32, head.queue, head.exchange,
        head.left_out & 0xFFFFFFFF, head.generation, head.epoch, head.base, head.created_us, 0,
    )[:-8]  # fmt: skip
    return packed + _SUM.pack(xxh3_64_intdigest(packed))


def read_head(data: bytes) -> SegmentHead | None:
    """The head at the beginning of a segment; None if it is not whole, or of another format."""
    if len(data) < HEAD_BYTES:
        return None
    magic, number, more, queue, exchange, left_out, generation, epoch, base, created_us, told = (
        HEAD.unpack_from(data)
    )
    if magic != SEGMENT_MAGIC or number != FORMAT:
        return None
    if told != xxh3_64_intdigest(data[: HEAD_BYTES - 8]):
        return None
    left_out += more << 32
    return SegmentHead(queue, exchange, generation, epoch, base, created_us, left_out)


def other_format(data: bytes) -> int | None:
    """The format that a segment head names, if it is one that this RoQ does not know. One that is
    damaged names none."""
    if len(data) < HEAD_BYTES or data[:4] != SEGMENT_MAGIC:
        return None
    _, number, *_, told = HEAD.unpack_from(data)
    if number == FORMAT or told != xxh3_64_intdigest(data[: HEAD_BYTES - 8]):
        return None
    return int(number)


def pack_record(
    kind: RecordKind, topic: bytes, frame: bytes, body: object, size: int, synced: int
) -> tuple[bytes, bytes]:
    """What stands before the body of a record, and the padding behind it. The body is not copied.

    Args:
        body: bytes, or anything else with a buffer.
        size: its bytes.
    """
    unpadded = RECORD_BYTES + len(topic) + size
    padding = -unpadded % ALIGN
    start = _START.pack(unpadded + padding, len(topic), kind, padding)
    rest = _SUM.pack(synced) + frame + topic
    return start + _SUM.pack(_sum(start + rest, body)) + rest, _PADDING[padding]


def read_record(data: bytes, at: int = 0, first: int = 0) -> Found | None:
    """The record that begins at `at` of these bytes; None if none does, or not all of it.

    Args:
        first: where in the file these bytes begin.
    """
    there = len(data) - at
    if there < RECORD_BYTES:
        return None
    size, topic_bytes, kind, padding, told, synced, magic, version, *_, offset, _, _ = (
        _RECORD.unpack_from(data, at)
    )
    body_at = RECORD_BYTES + topic_bytes
    end = size - padding
    if (
        magic != ENTRY_MAGIC
        or version != WIRE_VERSION
        or size % ALIGN
        or padding >= ALIGN
        or end < body_at
        or size > there
        or not _FIRST_KIND <= kind <= _LAST_KIND
    ):
        return None
    start = data[at : at + body_at]
    body = data[at + body_at : at + end]
    if told != _sum(start[:_SUM_AT] + start[_REST_AT:], body):
        return None
    if padding and any(data[at + end : at + size]):
        return None
    return Found(
        first + at, size, kind, offset, synced, start[RECORD_BYTES:],
        start[FRAME_AT:RECORD_BYTES], body,
    )  # fmt: skip


def claimed_bytes(data: bytes, at: int) -> int:
    """The size that a record claims to have, whether it is whole or not; 0: none can begin here."""
    if len(data) - at < RECORD_BYTES:
        return 0
    size, _, kind, padding = _START.unpack_from(data, at)
    known = _FIRST_KIND <= kind <= _LAST_KIND
    return size if known and padding < ALIGN and size >= RECORD_BYTES and not size % ALIGN else 0


def _sum(prefix: bytes, body: object) -> int:
    return xxh3_64_intdigest(cast("bytes", body), seed=xxh3_64_intdigest(prefix))
