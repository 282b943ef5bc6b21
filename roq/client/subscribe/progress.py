"""How far a subscriber has read each exchange, and what its messages wait for: pure.

The monitor sends publishers to a new exchange when the subscribers are there, and stops one that it
has emptied when they have read it to its end. Both wait for what is said here, so it is to hear
some of it at once. People are told of the hole that has been there the longest, in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple

from roq.client.subscribe.stream import Stream
from roq.model import LogId, exchange_name
from roq.read.reader import Reader

NEWS_SECONDS: Final = 0.5
"""Between two reports that are made at once."""


class Progress:
    """What one subscriber tells about its reading."""

    def __init__(self) -> None:
        self._told: dict[LogId, int] = {}
        self._not_before = float("-inf")

    def is_news(self, readers: Mapping[LogId, Reader], now: float) -> bool:
        """Whether to report now.

        That is when an exchange was verified for the first time, or one that has become quiet was
        verified to its end; and not too often.
        """
        if now < self._not_before or not any(
            reader.verification.verified
            and (source not in self._told or (reader.at_rest and self._told[source] < _end(reader)))
            for source, reader in readers.items()
        ):
            return False
        self._not_before = now + NEWS_SECONDS
        return True

    def report(
        self, readers: Mapping[LogId, Reader], put_aside: Mapping[LogId, int]
    ) -> list[tuple[int, int, int]]:
        """(number, generation, offset below which everything is received or known to be gone).

        Args:
            readers: of all exchanges; those that were never verified are left out.
            put_aside: the lowest offset of each exchange that is to be fetched again.
        """
        self._told = {
            source: _end(reader)
            for source, reader in readers.items()
            if reader.verification.verified
        }
        return [
            (*source, min(end, put_aside.get(source, end))) for source, end in self._told.items()
        ]


def _end(reader: Reader) -> int:
    return reader.chain.verified or 0


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
