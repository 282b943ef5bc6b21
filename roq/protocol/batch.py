"""A batch: several messages of one publisher and one topic under one fixed header.

On the way from a publisher to an exchange a batch is two frames, `[topic][header + body]`; an
exchange never looks into the body. All integers are little-endian.

      0       2     3     4     5     6       8          12         16
      +-------+-----+-----+-----+-----+-------+----------+----------+
      | "RQ"  | ver | kind|codec|  0  |  ext  |  count   | checksum |
      +-------+-----+-----+-----+-----+-------+----------+----------+
    16|                    publisher id (128 bit)                   |
      +-----------------------------+-------------------------------+
    32|       publisher epoch       |          link number          |
      +-----------------------------+-------------------------------+
    48|       first sequence        |    creation time, µs UTC      |
      +-----------------------------+-------------------------------+
    64| `ext` bytes of extension area, then the body                |
      +-------------------------------------------------------------+

`checksum` is the low half of XXH3-64 over extension area and body; readers check it. The body of a
DATA batch is msgpack of `[payloads, attributes or nil]`, the attributes one byte string
(`roq.protocol.attributes`); the other kinds have an empty body:

* DATA: `count` messages with the sequences first, first + 1, ….
* VOID: stands in for `count` messages that were given up; nobody is to wait for them.
* MARKER: `count` is 0; the publisher's next message of this topic has the sequence `first`,
  whatever
  arrived before. The creation time holds the age (µs) of the newest message before it.
* FENCE: as MARKER, and the first record of a new publisher epoch in this log.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from itertools import islice
from struct import Struct
from typing import Final

import msgspec
import xxhash

from roq.errors import LocalProtocolError, RemoteProtocolError
from roq.model import LogId, PublisherId
from roq.number_ranges import UNREADABLE
from roq.protocol.version import WIRE_VERSION

# The extension area of a batch: what only some batches say about themselves.
#
#     +------+--------+-----------------+
#     | kind | length |  `length` bytes |  …repeated
#     +------+--------+-----------------+
#
# A reader skips kinds that it does not know.
#
# * FLOOR (1), 8 bytes: the lowest sequence of this (publisher, topic) that was not acknowledged
#   when the batch was sealed. A striped publisher says so, because its batches take several ways at
#   once: whatever is missing at or above the floor may still be on its way by another exchange.
# * LOGS (5), 12 bytes each: of a MARKER or FENCE: the other logs (exchange u32, generation u64)
#   into which the publisher had published before.

FLOOR: Final = 1
LOGS: Final = 5
_LOG: Final = Struct("<IQ")
LOGS_MAX: Final = 16
"""Logs that a MARKER or FENCE names at most."""
_FLOOR: Final = Struct("<BBQ")
_FLOOR_BYTES: Final = 8


def pack_floor(sequence: int) -> bytes:
    """The extension area of a striped publisher's batch."""
    return _FLOOR.pack(FLOOR, _FLOOR_BYTES, sequence)


def read_floor(area: bytes | memoryview) -> int | None:
    """The floor in an extension area; None if there is none, or the area is damaged."""
    at = 0
    while at + 2 <= len(area):
        kind, length = area[at], area[at + 1]
        at += 2
        if at + length > len(area):
            return None
        if kind == FLOOR and length == _FLOOR_BYTES:
            return int.from_bytes(area[at : at + length], "little")
        at += length
    return None


def pack_logs(logs: Iterable[LogId]) -> bytes:
    """The extension area of a MARKER or FENCE of a publisher that has published into these before;
    empty: into none."""
    body = b"".join(_LOG.pack(*log) for log in islice(logs, LOGS_MAX))
    return bytes((LOGS, len(body))) + body if body else b""


def read_logs(area: bytes | memoryview) -> list[LogId]:
    """The logs in the extension area of a MARKER or FENCE; none if it is damaged."""
    if len(area) < 2 or area[0] != LOGS or len(area) != 2 + area[1] or area[1] % _LOG.size:
        return []
    return [LogId(*each) for each in _LOG.iter_unpack(area[2:])]


MAGIC: Final = b"RQ"
HEADER: Final = Struct("<2sBBBBHII16sQQQQ")
HEADER_BYTES: Final = HEADER.size
COUNT_MAX: Final = 1 << 20
SEQUENCE_MAX: Final = (1 << 63) - 1
_LINK_NUMBER_AT: Final = 40
_LINK_NUMBER: Final = Struct("<QQ")

assert HEADER_BYTES == 64  # noqa: S101 - the drawing above is the law


class Kind(IntEnum):
    """What a batch stands for."""

    DATA = 0
    VOID = 1
    MARKER = 2
    FENCE = 3


class Codec(IntEnum):
    """How the body is compressed."""

    NONE = 0


KINDS: Final = frozenset(int(kind) for kind in Kind)
SCRATCH_BYTES_MAX: Final = 1 << 20
"""So much memory is kept to build batches in."""
CODECS: Final = frozenset({int(Codec.NONE)})
"""The codecs that this version can read."""

_encode_body_into = msgspec.msgpack.Encoder().encode_into
_decode_body = msgspec.msgpack.Decoder(tuple[list[bytes], bytes | None]).decode
_decode_without_payloads = msgspec.msgpack.Decoder(tuple[msgspec.Raw, bytes | None]).decode
_checksum = xxhash.xxh3_64_intdigest


class Header(msgspec.Struct, frozen=True, gc=False):
    """The fixed part of a batch, decoded."""

    kind: int
    codec: int
    ext_bytes: int
    count: int
    checksum: int
    publisher: PublisherId
    epoch: int
    link_number: int
    first_sequence: int
    created_us: int

    @property
    def next_sequence(self) -> int:
        """The sequence that follows the last message of this batch."""
        return self.first_sequence + self.count


def pack(
    payloads: list[bytes],
    *,
    publisher: PublisherId,
    epoch: int,
    link_number: int,
    first_sequence: int,
    created_us: int,
    extensions: bytes = b"",
    attributes: bytes | None = None,
    scratch: bytearray | None = None,
) -> bytes:
    """Build a DATA batch out of the payloads of consecutive messages.

    Args:
        extensions: the extension area, see `pack_floor`.
        attributes: of its messages, see `roq.protocol.attributes`; None: none has any.
        scratch: at least `HEADER_BYTES` to build it in, the same each time: memory that was just
            used is faster.
    """
    made = bytearray(HEADER_BYTES) if scratch is None else scratch
    at = HEADER_BYTES
    if extensions:
        at += len(extensions)
        made[HEADER_BYTES:at] = extensions
    _encode_body_into((payloads, attributes), made, at)
    checksum = _checksum(memoryview(made)[HEADER_BYTES:]) & 0xFFFFFFFF
    HEADER.pack_into(
        made, 0, MAGIC, WIRE_VERSION, 0, 0, 0, len(extensions), len(payloads),
        checksum, publisher, epoch, link_number, first_sequence, created_us,
    )  # fmt: skip
    data = bytes(made)
    if len(made) > SCRATCH_BYTES_MAX:
        del made[HEADER_BYTES:]  # a large message is not to be paid for until the next one
    return data


def pack_empty(
    kind: Kind,
    *,
    publisher: PublisherId,
    epoch: int,
    link_number: int,
    first_sequence: int,
    count: int = 0,
    created_us: int = 0,
    extensions: bytes = b"",
) -> bytes:
    """Build a VOID, MARKER or FENCE batch: a header and no body.

    Args:
        extensions: of a MARKER or FENCE, see `pack_logs`.
    """
    if kind is Kind.DATA:
        raise LocalProtocolError("a DATA batch has a body: use pack()")
    return HEADER.pack(
        MAGIC, WIRE_VERSION, kind, 0, 0, len(extensions), count,
        _checksum(extensions) & 0xFFFFFFFF, publisher, epoch, link_number, first_sequence,
        created_us,
    ) + extensions  # fmt: skip


def renumber(batch: bytes, *, epoch: int, link_number: int) -> bytes:
    """The same batch on another link: only epoch and link number change."""
    at = _LINK_NUMBER_AT - 8
    return batch[:at] + _LINK_NUMBER.pack(epoch, link_number) + batch[at + 16 :]


def read_header(batch: bytes | memoryview) -> Header:
    """Decode and validate the fixed part.

    Raises:
        RemoteProtocolError: too short, foreign, another version, or values out of range.
    """
    size = len(batch)
    if size < HEADER_BYTES:
        raise RemoteProtocolError(f"a batch has at least {HEADER_BYTES} bytes, this one {size}")
    (
        magic, version, kind, codec, _, ext_bytes, count, checksum,
        publisher, epoch, link_number, first_sequence, created_us,
    ) = HEADER.unpack_from(batch)  # fmt: skip
    if magic != MAGIC:
        raise RemoteProtocolError(f"no batch: it begins with {magic!r}")
    if version != WIRE_VERSION:
        raise RemoteProtocolError(f"batch format {version}; this side speaks {WIRE_VERSION}")
    if kind not in KINDS or codec not in CODECS or HEADER_BYTES + ext_bytes > size:
        raise RemoteProtocolError(f"batch with kind {kind}, codec {codec}, extension {ext_bytes}")
    if count > COUNT_MAX or first_sequence + count > SEQUENCE_MAX:
        raise RemoteProtocolError(f"batch of {count} messages from sequence {first_sequence}")
    area = ext_bytes if kind > Kind.VOID else 0
    if (count == 0) is (kind <= Kind.VOID) or (kind != Kind.DATA and size != HEADER_BYTES + area):
        raise RemoteProtocolError(f"batch of kind {kind} with {count} messages in {size} bytes")
    return Header(
        kind, codec, ext_bytes, count, checksum, PublisherId(publisher),
        epoch, link_number, first_sequence, created_us,
    )  # fmt: skip


def read_payloads(batch: bytes | memoryview, header: Header) -> list[bytes]:
    """Unpack the messages of a DATA batch and check them against its header.

    Raises:
        RemoteProtocolError: checksum, encoding or count do not fit.
    """
    return read_body(batch, header)[0]


def read_body(batch: bytes | memoryview, header: Header) -> tuple[list[bytes], bytes | None]:
    """As `read_payloads`, and the attributes of the messages as they travelled.

    Raises:
        RemoteProtocolError: checksum, encoding or count do not fit.
    """
    return unpack_body(batch, header.ext_bytes, header.checksum, header.count)


def unpack_body(
    batch: bytes | memoryview, ext_bytes: int, checksum: int, count: int
) -> tuple[list[bytes], bytes | None]:
    """As `read_body`, for a caller that has unpacked `HEADER` and needs no `Header`.

    Raises:
        RemoteProtocolError: checksum, encoding or count do not fit.
    """
    try:
        payloads, attributes = _decode_body(checked_body(batch, ext_bytes, checksum))
    except UNREADABLE as error:
        raise RemoteProtocolError(
            f"body of a batch: {str(error) or type(error).__name__}"
        ) from None
    if len(payloads) != count:
        raise RemoteProtocolError(f"batch of {count} messages holds {len(payloads)}")
    return payloads, attributes


def checked_body(batch: bytes | memoryview, ext_bytes: int, checksum: int) -> memoryview:
    """The body of a DATA batch, as it travelled.

    Raises:
        RemoteProtocolError: the checksum does not fit.
    """
    body = memoryview(batch)[HEADER_BYTES:]
    if _checksum(body) & 0xFFFFFFFF != checksum:
        raise RemoteProtocolError("checksum of a batch does not match its body")
    return body[ext_bytes:]


def read_attributes(batch: bytes, header: Header) -> bytes | None:
    """The attributes of a DATA batch as they travelled; its payloads are passed over.

    Raises:
        RemoteProtocolError: the encoding does not fit. The checksum is not looked at.
    """
    try:
        body = memoryview(batch)[HEADER_BYTES + header.ext_bytes :]
        return _decode_without_payloads(body)[1]
    except UNREADABLE as error:
        raise RemoteProtocolError(f"body of a batch: {error}") from None
