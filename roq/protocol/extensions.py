"""The extension area of a batch: what only some batches say about themselves.

    +------+--------+-----------------+
    | kind | length |  `length` bytes |  …repeated
    +------+--------+-----------------+

A reader skips kinds that it does not know.

* FLOOR (1), 8 bytes: the lowest sequence of this (publisher, topic) that was not acknowledged when
  the batch was sealed. A striped publisher says so, because its batches take several ways at once:
  whatever is missing at or above the floor may still be on its way by another exchange.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

FLOOR: Final = 1
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
