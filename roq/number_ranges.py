"""Which numbers a document may hold: every integer that arrives has its range here.

A number out of its range is refused where it is decoded, by a sentence that names its field, so
nothing behind a decoder has to fear for its arithmetic: a sum, a shift or an answer that repeats
the number stays within what the wire can say.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, MsgspecError

UNREADABLE: Final = (
    MsgspecError, ValueError, TypeError, OverflowError, RecursionError, MemoryError,
)  # fmt: skip
"""What decoders raise about bytes that are none of theirs: msgspec alone all of these, for deep
nesting, bad UTF-8 and lengths that nobody has memory for. A decoder makes one error of it."""

NUMBER_MAX: Final = (1 << 63) - 1
"""Largest integer of a BSON document, and of anything that is counted."""
CHILD_EPOCH_MAX: Final = (1 << 36) - 1
"""Largest epoch of a process: 20 bits of its host manager, 16 of the manager's own count."""
OFFSET_MAX: Final = 1 << 62
"""Largest offset of a log: one may ask for what comes after it."""
SIZE_MAX: Final = (1 << 53) - 1
"""Largest integer that a JavaScript client can say."""
TIME_US_MAX: Final = 253_402_300_799_999_999
"""Latest time of a message, µs since 1970: the end of the year 9999, which is the last that Python,
Arrow and Spark can say."""
FLOAT_MAX: Final = 1e18

Whole = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
"""A count, an offset, a sequence, the epoch of a publisher, the number of a request."""
WholeOrUnknown = Annotated[int, Meta(ge=-1, le=NUMBER_MAX)]
"""As `Whole`; -1: nobody knows."""
Offset = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]
"""A place in a log, as an exchange tells it."""
ExchangeNumber = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
"""Number of an exchange in its queue; 0: none."""
ExchangeOrAll = Annotated[int, Meta(ge=-1, le=(1 << 32) - 1)]
"""As `ExchangeNumber`; -1: all of them."""
ChildEpoch = Annotated[int, Meta(ge=0, le=CHILD_EPOCH_MAX)]
"""Epoch of a monitor or an exchange."""
HostEpoch = Annotated[int, Meta(ge=0, le=(1 << 20) - 1)]
"""Epoch of a host manager or of a leading configuration manager; 0: none."""
Port = Annotated[int, Meta(ge=0, le=65_536)]
"""A TCP port, or the first number that is none."""
Int32 = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
"""A result, a process id."""
Size = Annotated[int, Meta(ge=0, le=SIZE_MAX)]
"""What a user has set: bytes, messages, seconds."""
Amount = Annotated[float, Meta(ge=0, le=FLOAT_MAX)]
"""A measure that is finite and not negative."""
Real = Annotated[float, Meta(ge=-FLOAT_MAX, le=FLOAT_MAX)]
"""A finite measure; a difference of two clocks may be negative."""


def in_range(value: int, low: int = 0, high: int = NUMBER_MAX) -> int:
    """The number in the range that is nearest."""
    return max(low, min(value, high))


def saturated(count: int) -> int:
    """A counter as it may travel."""
    return min(count, NUMBER_MAX)
