"""What a subscriber's messages wait for, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from roq.client.subscribe.stream import Stream
from roq.model import LogId, exchange_name

_STREAMS_MAX = 1_000
"""So many are looked at: who waits in more is told of one of these."""


class Hole(NamedTuple):
    """Where messages wait for older ones."""

    since: float
    """When the last thing has moved there."""
    stream: Stream

    def text(self, verified: Mapping[LogId, float]) -> str:
        """What is missing, and who may have it.

        Args:
            verified: as of when each exchange was read to its end.
        """
        stream = self.stream
        first = stream.held[0].first
        where = f"publisher {stream.publisher.hex()[:8]}, topic {stream.topic!r}"
        if first > stream.expected:
            what = f"{first - stream.expected} messages from sequence {stream.expected} are missing"
        else:
            name = exchange_name(stream.held[0].source[0])
            what = f"sequence {stream.expected} was put aside and is being fetched from {name}"
        unread = [exchange_name(source[0]) for source, at in verified.items() if at < self.since]
        who = f"; not read to the end since: {', '.join(sorted(unread))}" if unread else ""
        return f"{where}: {what}{who}"


def oldest(streams: Iterable[Stream]) -> Hole | None:
    """The hole that has been there the longest, if there is any."""
    holes = (
        Hole(max(stream.filled_at, stream.held[0].arrived), stream)
        for stream in islice(streams, _STREAMS_MAX)
        if stream.held
    )
    return min(holes, key=lambda hole: hole.since, default=None)
