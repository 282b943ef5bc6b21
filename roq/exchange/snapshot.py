"""What an exchange writes into its log beside the batches: who publishes here, who consumes, and
how far each is.

It stands at the head of each segment, so that a process that goes on with the log reads only what
was appended behind the newest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from roq.errors import RemoteProtocolError
from roq.log.group_changes import GroupDelta
from roq.log.moved_publishers import Before, Stay
from roq.model import PUBLISHER_ID_BYTES
from roq.number_ranges import UNREADABLE, Whole

FORMAT: Final = 1


class PublisherState(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One publisher: its link, if it is known, and its streams."""

    publisher: bytes
    epoch: int
    """-1: of its link nothing is known any more, of its streams something is."""
    expected: Whole
    """The link number that comes next."""
    left: bool
    """It publishes elsewhere under this epoch, at these addresses as far as they are known."""
    addresses: tuple[str, ...]
    streams: list[tuple[bytes, Whole]]
    """(topic, sequence after the highest one in the log)."""
    incarnation: Whole = 0
    """Of a named publisher."""
    before: list[Before] = []
    ends: list[Stay] = []
    """Where it was before, and when it was here (`roq.log.moved_publishers`)."""
    places: list[tuple[Whole, Whole, Whole]] = []
    """Where its latest batches lie: runs of (link number, offset, how many)."""


class _Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    publishers: list[PublisherState]
    groups: list[GroupDelta] = []
    later: bytes = b""
    """Delayed messages that wait (`roq.log.timing_wheel`)."""
    ended: bytes = b""
    """How transactions have ended (`roq.exchange.transactions`)."""


def encode_snapshot(
    publishers: Sequence[PublisherState],
    groups: Sequence[GroupDelta] = (),
    later: bytes = b"",
    ended: bytes = b"",
) -> bytes:
    """The bytes of a snapshot."""
    snapshot = _Snapshot(
        format=FORMAT, publishers=list(publishers), groups=list(groups), later=later, ended=ended
    )
    return msgspec.msgpack.encode(snapshot)


def decode_snapshot(data: bytes) -> tuple[list[PublisherState], list[GroupDelta], bytes, bytes]:
    """What `encode_snapshot` was given.

    Raises:
        RemoteProtocolError: it is no snapshot, or one of a newer RoQ.
    """
    try:
        snapshot = msgspec.msgpack.decode(data, type=_Snapshot)
    except UNREADABLE as error:
        raise RemoteProtocolError(f"no snapshot of an exchange: {error}") from None
    if snapshot.format != FORMAT:
        raise RemoteProtocolError(
            f"a snapshot of format {snapshot.format}, and this RoQ reads format {FORMAT}"
        )
    for state in snapshot.publishers:
        if len(state.publisher) != PUBLISHER_ID_BYTES or state.epoch < -1 or state.expected < 1:
            raise RemoteProtocolError("a snapshot of a publisher that cannot be one")
    return snapshot.publishers, snapshot.groups, snapshot.later, snapshot.ended
