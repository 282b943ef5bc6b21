"""What a `Reader` is told and what it wants done: its events and effects."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from roq.machine import Tick
from roq.read.offset_chain import LogGap


class From(StrEnum):
    """Where reading begins."""

    LATEST = "latest"
    EARLIEST = "earliest"
    OFFSET = "offset"
    TIME = "time"
    """The value is a time of the exchange, microseconds since 1970 (UTC)."""
    NEW = "new"
    """An exchange that appeared after the subscriber's start: from offset 0."""


class BelowFloor(StrEnum):
    """What becomes of a reader that begins at an offset that is not kept any more."""

    EARLIEST = "earliest"
    """It begins with the oldest batch that is, and is told of the others as lost."""
    LATEST = "latest"
    """It begins with what comes now, and is told of everything before as lost."""
    ERROR = "error"
    """It does not begin."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where reading begins, with the offset or time that belongs to it."""

    at: From = From.LATEST
    value: int = 0
    below: BelowFloor = BelowFloor.EARLIEST
    """If it is an offset."""


# --- events ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DataUp:
    """The data connection works (again)."""


@dataclass(frozen=True, slots=True)
class DataDown:
    """The data connection has ended, and with it whatever was asked."""


@dataclass(frozen=True, slots=True)
class Answered:
    """Frames came over the data connection."""

    frames: list[bytes]


@dataclass(frozen=True, slots=True)
class Verify:
    """The merge wants this log verified as of `since` or later."""

    since: float


@dataclass(frozen=True, slots=True)
class Refetch:
    """One batch that was passed on before is wanted again."""

    topic: bytes
    offset: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Ask for nothing more: the user is slow."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on after a `Pause`."""


Event = DataUp | DataDown | Answered | Verify | Refetch | Pause | Resume | Tick


# --- effects --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """Send these frames over the data connection."""

    frames: list[bytes]


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Add a filter at the fan-out."""

    topic: bytes


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Remove a filter at the fan-out."""

    topic: bytes


@dataclass(frozen=True, slots=True)
class StreamsFound:
    """Streams that the exchange knows: (publisher, topic, next sequence)."""

    streams: list[tuple[bytes, bytes, int]]


@dataclass(frozen=True, slots=True)
class Confirmed:
    """From now on nothing is missed."""


@dataclass(frozen=True, slots=True)
class Gone:
    """What `Refetch` has asked for has left the log."""

    topic: bytes
    offset: int


Effect = Ask | Subscribe | Unsubscribe | StreamsFound | Confirmed | Gone | LogGap
