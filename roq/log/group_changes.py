"""What of a consumer group outlives its process: the changes that stand in a log as records.

A group writes what has changed since the last time, or all of itself. Applying all changes of a log
twice, in order, gives the same as once.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import msgspec

from roq.errors import RemoteProtocolError
from roq.number_ranges import UNREADABLE, Offset, Whole
from roq.protocol.consuming import GroupName, GroupSettings
from roq.protocol.requesting import Position, RequestEnd, RequestState

DELTA_RUNS_MAX: Final = 100_000


class Mask(NamedTuple):
    """Messages of a batch that is done in part: bits, lowest first."""

    offset: Offset
    done: bytes


class BegunBy(NamedTuple):
    """Requests of a batch that a member has begun, and that must not be begun again: bits, lowest
    first."""

    offset: Offset
    member: bytes
    bits: bytes


class Known(NamedTuple):
    """What is known of a request whose outcome is not stored."""

    position: Position
    state: RequestState


class Tried(NamedTuple):
    """Messages that were tried before."""

    offset: Offset
    first: Whole
    length: Whole
    attempts: Whole
    reason: str


class GroupDelta(msgspec.Struct, frozen=True, array_like=True):
    """What has changed of one group since the last delta; or all of it, if `settings` are there."""

    name: GroupName
    base: Offset
    whole: list[tuple[Offset, Whole]] = []
    """Stretches of batches above `base` that are done: (first offset, how many)."""
    parts: list[Mask] = []
    tried: list[Tried] = []
    settings: GroupSettings | None = None
    """All of the group: what was known of it before does not count."""
    created_us: Whole = 0
    paused: bool = False
    deleted: bool = False
    ends: list[RequestEnd] = []
    """Of a service: how requests have ended; they are done."""
    known: list[Known] = []
    """Of a service: requests that are done, and whose outcomes are not stored, or not any more."""
    begun: list[BegunBy] = []
    """By batch and member, all requests that were begun and must not be begun again."""
    sought_us: Whole = 0
    """When an operator has moved it last; 0: never. With `settings`."""


_Deltas = Annotated[list[GroupDelta], msgspec.Meta(max_length=DELTA_RUNS_MAX)]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Deltas).decode


def encode_deltas(deltas: list[GroupDelta]) -> bytes:
    """The bytes in which changes of groups stand in a log."""
    return _encode(deltas)


def decode_deltas(data: bytes) -> list[GroupDelta]:
    """What `encode_deltas` was given.

    Raises:
        RemoteProtocolError: it is none.
    """
    try:
        return _decode(data)
    except UNREADABLE as error:
        raise RemoteProtocolError(f"no changes of consumer groups: {error}") from None


def stretches_of(offsets: list[int]) -> list[tuple[int, int]]:
    """Consecutive numbers as (first, how many)."""
    stretches: list[tuple[int, int]] = []
    for offset in offsets:
        if stretches and sum(stretches[-1]) == offset:
            stretches[-1] = stretches[-1][0], stretches[-1][1] + 1
        else:
            stretches.append((offset, 1))
    return stretches


def mask_of(offset: int, bits: int) -> Mask:
    """These bits of a batch are done."""
    return Mask(offset, bytes_of(bits))


def bytes_of(bits: int) -> bytes:
    """Bits as they stand in a log."""
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")
