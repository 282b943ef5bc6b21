"""What stands in a log beside its entries, so that going on with it means to read only its end.

The log's part says which topics are remembered, in the order of their newest entries; the
exchange's part is what `roq.exchange.snapshot` makes of it, and bytes here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec

from roq.errors import RemoteProtocolError
from roq.number_ranges import UNREADABLE, Whole

FORMAT: Final = 1


class LogSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A log as it stood when it ended at the offset of the record that holds this."""

    format: int = FORMAT
    topics: list[tuple[bytes, Whole]]
    """Each topic that is remembered, and the offset of its newest entry, in order of these."""
    forgotten_below: Whole
    """Of topics that are not remembered, everything stands below."""
    exchange: bytes
    """What the exchange wants to know again."""


@dataclass(slots=True)
class Recovered:
    """What an earlier process has left.

    Attributes:
        snapshot: the exchange's part of the newest snapshot; None: there is none.
        since: where the log ended when it was taken, or where it begins.
        changes: of consumer groups, written behind it, in order.
        problems: what could not be read, or was cut off, in sentences.
        lost: ranges of offsets [first, behind the last) that cannot be read.
        indexes: files that were made again, and that nobody has synced.
    """

    snapshot: bytes | None = None
    since: int = 0
    changes: list[bytes] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    indexes: list[str] = field(default_factory=list)


def encode_snapshot(snapshot: LogSnapshot) -> bytes:
    """The bytes of a snapshot."""
    return msgspec.msgpack.encode(snapshot)


def decode_snapshot(data: bytes) -> LogSnapshot:
    """What `encode_snapshot` was given.

    Raises:
        RemoteProtocolError: it is none, or one of a newer RoQ.
    """
    try:
        snapshot = msgspec.msgpack.decode(data, type=LogSnapshot)
    except UNREADABLE as error:
        raise RemoteProtocolError(f"no snapshot of a log: {error}") from None
    if snapshot.format != FORMAT:
        raise RemoteProtocolError(
            f"a snapshot of format {snapshot.format}, and this RoQ reads format {FORMAT}"
        )
    return snapshot
