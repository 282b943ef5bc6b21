"""The streams that a subscriber remembers: a bounded number, the most recently used ones: pure.

Of a stream that is forgotten the position stays for a while, so that it goes on where it was: a
replay is still a duplicate, and a hole still a loss. Of those that were forgotten before them no
more is known than that there was such a stream: only they are not told of what they miss.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Final

from roq.client.subscribe.stream import Stream
from roq.model import PublisherId

STREAMS_MAX: Final = 100_000
POSITIONS_MAX: Final = 100_000
LOOKS_MAX: Final = 100
"""With each new stream so many are looked at, whether they have gone unused the longest."""
_ANYWHERE: Final = 1 << 63
_BITS: Final = 21
_MASK: Final = (1 << _BITS) - 1


class Streams:
    """All streams of one subscriber.

    Args:
        most: streams that are remembered; those that hold something are never forgotten.
        positions: of so many forgotten ones the position is remembered.

    Attributes:
        known: by publisher and topic.
        forgotten: how many were.
    """

    def __init__(self, most: int = STREAMS_MAX, positions: int = POSITIONS_MAX) -> None:
        self.known: dict[bytes, Stream] = {}
        self.forgotten = 0
        self._most = most
        self._positions_max = positions
        self._positions: OrderedDict[bytes, int] = OrderedDict()
        self._older: Sieve | None = None
        self._ages: list[tuple[int, int, bytes]] = []
        """Heap of when each stream was used last, or earlier; empty before any was forgotten."""
        self._order = count()

    def meet(self, key: bytes, publisher: PublisherId, topic: str, used: int) -> Stream:
        """A stream that is not known (any more).

        Args:
            used: as of now; see `Stream.used`.
        """
        if len(self.known) >= self._most:
            self._make_room(used)
        stream = self.known[key] = Stream(publisher, topic, used=used)
        if self._ages:
            heappush(self._ages, (used, next(self._order), key))
        position = self._positions.pop(key, None)
        if position is None:
            if self._older is not None and key in self._older:
                stream.before = _ANYWHERE
        elif position < 0:
            stream.before = -position
        elif position:
            stream.expected = position
            stream.begun = True
        return stream

    def _make_room(self, used: int) -> None:
        ages = self._ages
        if not ages:
            ages += ((stream.used, next(self._order), key) for key, stream in self.known.items())
            heapify(ages)
        for _ in range(LOOKS_MAX):
            if len(self.known) < self._most:
                return
            at, _, key = ages[0]
            stream = self.known[key]
            if stream.held:
                heapreplace(ages, (used, next(self._order), key))
            elif stream.used > at:
                heapreplace(ages, (stream.used, next(self._order), key))
            else:
                heappop(ages)
                self._forget(key, stream)

    def _forget(self, key: bytes, stream: Stream) -> None:
        del self.known[key]
        self.forgotten += 1
        self._positions[key] = stream.expected or -stream.before
        if len(self._positions) > self._positions_max:
            oldest, _ = self._positions.popitem(last=False)
            if self._older is None:
                self._older = Sieve()
            self._older.add(oldest)


class Sieve:
    """Tells whether a key was added, at times wrongly that it was: of one in a hundred others when
    there are half a million, of one in ten when there are 1.3 million. Takes 768 KiB."""

    def __init__(self) -> None:
        self._bits = [bytearray(1 << _BITS - 3) for _ in range(3)]

    def add(self, key: bytes) -> None:
        """Remember it."""
        mixed = hash(key)
        for bits in self._bits:
            at = mixed & _MASK
            bits[at >> 3] |= 1 << (at & 7)
            mixed >>= _BITS

    def __contains__(self, key: bytes) -> bool:
        mixed = hash(key)
        for bits in self._bits:
            at = mixed & _MASK
            if not bits[at >> 3] & 1 << (at & 7):
                return False
            mixed >>= _BITS
        return True
