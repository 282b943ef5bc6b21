"""A log entry: what an exchange puts before each batch on its way out.

Readers get topic, entry and batch (`roq.protocol.framing`). All integers are little-endian.

     0      2     3      4            8                          24
     +------+-----+------+------------+--------------------------+
     | "RX" | ver | kind |  exchange  |         queue id         |
     +------+-----+------+------------+--------------------------+
   24|    generation of log    |          offset               |
     +-------------------------+-------------------------------+
   40|   previous of topic     |     append time, µs UTC       |
     +-------------------------+-------------------------------+
   56

* ENTRY: a batch follows. `previous` is the offset of the batch before it in the same topic, or
  NONE.
* ANNOUNCE: as ENTRY, but the batch is too large for the fan-out; fetch it over the data socket.
* FORGOTTEN: as ENTRY, but the topic was forgotten meanwhile: `previous` holds the log's floor, and
  what the topic had before was below it.
* END: `offset` is the end of the log (the offset that the next batch will get), `previous` its
  floor.
* PRESENCE: as END, the answer to one reader's presence subscription.

Queue id, exchange and generation stand in each entry, so a reader never takes another queue behind
a reused port for its own, or another log for the one that it reads. The append time never decreases
within one log.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from roq.errors import RemoteProtocolError
from roq.number_ranges import NUMBER_MAX, OFFSET_MAX
from roq.protocol.version import WIRE_VERSION

MAGIC: Final = b"RX"
ENTRY: Final = Struct("<2sBBI16sQQQQ")
ENTRY_BYTES: Final = ENTRY.size
_APPENDED: Final = Struct("<Q")
IDENTITY: Final = slice(4, 32)
"""Of an entry frame: exchange, queue and generation, the same in all entries of one log."""
NONE: Final = (1 << 64) - 1
"""`previous` of the first batch of a topic."""

assert ENTRY_BYTES == 56  # noqa: S101 - the drawing above is the law


class EntryKind(IntEnum):
    """What an entry frame says."""

    ENTRY = 0
    ANNOUNCE = 1
    FORGOTTEN = 2
    END = 3
    PRESENCE = 4
    FORGOTTEN_ANNOUNCE = 5


FIRST_KINDS: Final = frozenset({int(EntryKind.ENTRY), int(EntryKind.ANNOUNCE)})
"""Kinds whose `previous` may be `NONE`."""
ENTRY_KINDS: Final = frozenset(int(kind) for kind in EntryKind)


class Entry(NamedTuple):
    """An entry frame, decoded."""

    kind: int
    exchange: int
    queue: bytes
    generation: int
    offset: int
    previous: int
    appended_us: int


def appended_us(frame: bytes) -> int:
    """When an entry was appended, µs UTC; of a frame that comes out of a log."""
    time_us: int = _APPENDED.unpack_from(frame, ENTRY_BYTES - _APPENDED.size)[0]
    return time_us


def pack_entry(
    kind: int,
    exchange: int,
    queue: bytes,
    generation: int,
    offset: int,
    previous: int,
    appended_us: int,
) -> bytes:
    """Build an entry frame."""
    return ENTRY.pack(
        MAGIC, WIRE_VERSION, kind, exchange, queue, generation, offset, previous, appended_us
    )


def with_kind(frame: bytes, kind: EntryKind) -> bytes:
    """The same entry frame, saying something else."""
    return frame[:3] + bytes((kind,)) + frame[4:]


def announcement(frame: bytes) -> bytes:
    """The entry frame that announces a batch without bringing it."""
    forgotten = frame[3] == EntryKind.FORGOTTEN
    return with_kind(frame, EntryKind.FORGOTTEN_ANNOUNCE if forgotten else EntryKind.ANNOUNCE)


def read_entry(frame: bytes) -> Entry:
    """Decode and validate an entry frame.

    Raises:
        RemoteProtocolError: wrong size, foreign, another version or unknown kind.
    """
    if len(frame) != ENTRY_BYTES:
        raise RemoteProtocolError(f"an entry has {ENTRY_BYTES} bytes, this one {len(frame)}")
    magic, version, kind, *fields = ENTRY.unpack(frame)
    if magic != MAGIC or version != WIRE_VERSION or kind not in ENTRY_KINDS:
        raise RemoteProtocolError(f"no entry of format {WIRE_VERSION}: {frame[:4]!r}")
    entry = Entry(kind, *fields)
    previous = 0 if entry.previous == NONE and kind in FIRST_KINDS else entry.previous
    if (
        max(entry.offset, previous) > OFFSET_MAX
        or max(entry.generation, entry.appended_us) > NUMBER_MAX
    ):
        raise RemoteProtocolError("an entry with generation, offset or time out of range")
    return entry
