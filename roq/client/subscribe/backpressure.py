"""Which exchanges are not read for the moment, because they are ahead of others: pure.

Where a publisher is striped, what has come by one exchange waits until what precedes it has come by
another. An exchange that is far ahead is left alone meanwhile: what it has still to say keeps in
the sockets and in its ring. Read now, it would have to be put aside and fetched once more, which
costs the time that the others need, so that a reader that has fallen behind would never catch up.

Nobody is left alone for the sake of one that does not get on: an exchange may hang, or be dead. But
where it comes back with its log, what waits for that may fill the memory: then those that bring
more of it are left alone until it is back, or given up. Their logs keep what they have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from roq.client.subscribe.stream import Stream
from roq.model import LogId

AHEAD_BYTES: Final = 8 * 1024 * 1024
"""What may wait for its turn before exchanges that are ahead are not read."""
STALL_SECONDS: Final = 0.5
"""Everybody is read again when the stream that holds most has not moved for so long."""
_LOOK_SECONDS: Final = 0.000_002
"""For each batch that waits: how long it is not looked at again. Many take long to look at."""


class MergeBackpressure:
    """Decides who is held back, for all streams of one subscriber.

    Args:
        ahead_bytes: what may wait before exchanges that are ahead are not read; all are read again
            below half of it. Smaller only in simulations, where less is published.

    Attributes:
        held_back: exchanges whose fan-out is not to be read, and whose log is read no further.
        wanted: as of when exchanges should be verified, so that nobody waits for one that has
            nothing; None if nothing depends on it.
    """

    def __init__(self, ahead_bytes: int = AHEAD_BYTES) -> None:
        self.ahead_bytes = ahead_bytes
        self.held_back: frozenset[LogId] = frozenset()
        self.wanted: float | None = None
        self._look_at = float("-inf")
        self._mark: tuple[bytes, str, int] | None = None
        self._moved_at = 0.0

    def look(
        self,
        streams: Iterable[Stream],
        held_bytes: int,
        verified: Mapping[LogId, float],
        now: float,
        *,
        absent: Collection[LogId] = (),
    ) -> frozenset[LogId]:
        """Who is held back from now on.

        Args:
            streams: those that hold something.
            held_bytes: what they hold together.
            verified: as of when each exchange of the topology was verified.
            now: the present time.
            absent: no more may wait, and it waits for these, whose logs come back.
        """
        if absent:
            if now >= self._look_at:
                sources = [held.source for stream in streams for held in stream.held]
                self.held_back = frozenset(sources).intersection(verified).difference(absent)
                self._look_at = now + _LOOK_SECONDS * len(sources)
            return self.held_back
        if held_bytes < (self.ahead_bytes // 2 if self.held_back else self.ahead_bytes):
            self.held_back, self.wanted = frozenset(), None
        elif now >= self._look_at:
            self._weigh(streams, verified, now)
        return self.held_back

    def _weigh(
        self, streams: Iterable[Stream], verified: Mapping[LogId, float], now: float
    ) -> None:
        """An exchange is ahead when its waiting bytes exceed the bytes that wait for it."""
        brought = dict.fromkeys(verified, 0)
        awaited = dict.fromkeys(verified, 0)
        most, batches = 0, 0
        mark = self._mark
        self.wanted = None
        for stream in streams:
            sizes = _sizes(stream)
            size = sum(sizes.values())
            batches += len(stream.held)
            if size > most:
                most, mark = size, (stream.publisher, stream.topic, stream.expected)
            for source, part in sizes.items():
                if source in brought:
                    brought[source] += part
            for source in self._awaited(stream, sizes.keys(), verified):
                if source in awaited:
                    awaited[source] += size
        self._look_at = now + _LOOK_SECONDS * batches
        if mark != self._mark:
            self._mark, self._moved_at = mark, now
        if now >= self._moved_at + STALL_SECONDS:
            self.held_back = frozenset()
        else:
            self.held_back = frozenset(
                source for source, size in brought.items() if size > awaited[source]
            )

    def _awaited(
        self, stream: Stream, ahead: Iterable[LogId], verified: Mapping[LogId, float]
    ) -> Iterable[LogId]:
        """The exchanges that may bring what this stream lacks: they are to be read.

        Each brings a stream in order, so those are none that have brought what comes later.
        """
        if stream.held[0].first <= stream.expected:
            return ()  # it was put aside, and a fetch will bring it
        behind = stream.ways.difference(ahead)
        if behind:
            return behind
        since = min(held.arrived for held in stream.held)
        unknown = {source for source, as_of in verified.items() if as_of < since}.difference(ahead)
        if unknown:
            self.wanted = since if self.wanted is None else max(self.wanted, since)
            return unknown
        # It is lost. Who has not brought yet what proves that (see `roq.client.subscribe.losses`)?
        end = min(max(held.bound for held in stream.held), stream.held[0].first)
        if end <= stream.expected:
            return ahead
        return set(ahead).difference(held.source for held in stream.held if held.bound >= end)


def _sizes(stream: Stream) -> dict[LogId, int]:
    """What of a stream waits, in bytes, by the exchange that has brought it."""
    sizes: dict[LogId, int] = {}
    for held in stream.held:
        sizes[held.source] = sizes.get(held.source, 0) + held.size
    return sizes
