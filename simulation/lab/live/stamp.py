"""What every message of a live run begins with: when it was meant to be sent, and its number.

    microseconds since 1970 by the clock of the driver · tag of the run and stay · number

The number counts what one stay of a publisher publishes under one topic, from 0.
"""

from __future__ import annotations

import struct
from typing import Final

STAMP: Final = struct.Struct("!QQQ")
STAMP_BYTES: Final = STAMP.size
TAG_BITS: Final = 32
SOURCE_MASK: Final = (1 << TAG_BITS) - 1


def identity(tag: int, source: int) -> int:
    """The second field.

    Args:
        tag: of the run, 32 bits; messages with another one are foreign.
        source: number of the stay.
    """
    return tag << TAG_BITS | source
