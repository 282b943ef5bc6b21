"""What a subscriber wants to fetch again: a few of each exchange at a time, the others wait: pure.

Nothing is given up for being one too many: its place in the log is kept where it waits, and it is
asked for when there is room.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from roq.client.subscribe.stream import Held
from roq.model import LogId

WISHES_MAX: Final = 1_024
"""Of one exchange, under way at the same time."""


@dataclass(frozen=True, slots=True)
class Recall:
    """A batch that was put aside is wanted again from this exchange."""

    source: LogId
    topic: bytes
    offset: int


class Recalls:
    """The wishes that are under way, and the streams that wait for room to have one.

    Args:
        most: under way at the same time, of one exchange.
    """

    def __init__(self, most: int = WISHES_MAX) -> None:
        self._most = most
        self._made: dict[tuple[LogId, bytes, int], bytes] = {}
        self._under_way: Counter[LogId] = Counter()
        self._queued: dict[LogId, OrderedDict[bytes, None]] = {}

    @property
    def queued(self) -> bool:
        """Whether any stream waits for room."""
        return bool(self._queued)

    def make(self, key: bytes, held: Held) -> Recall | None:
        """Wish for a batch of this stream; None: there is no room, and the stream is `ready` when
        there is."""
        if self._under_way[held.source] >= self._most:
            self._queued.setdefault(held.source, OrderedDict())[key] = None
            return None
        self._under_way[held.source] += 1
        self._made[held.source, held.topic, held.offset] = key
        return Recall(held.source, held.topic, held.offset)

    def done(self, source: LogId, topic: bytes, offset: int) -> bytes | None:
        """This wish is over; the stream that had it, if any had."""
        key = self._made.pop((source, topic, offset), None)
        if key is not None:
            self._under_way[source] -= 1
        return key

    def drop(self, source: LogId) -> None:
        """Nobody is asked for these any more."""
        for made in [made for made in self._made if made[0] == source]:
            del self._made[made]
        self._under_way.pop(source, None)
        self._queued.pop(source, None)

    def clear(self) -> None:
        """Begin anew."""
        self._made.clear()
        self._under_way.clear()
        self._queued.clear()

    def ready(self) -> Iterator[bytes]:
        """The streams for which there is room now: each may `make` wishes before the next."""
        for source, keys in list(self._queued.items()):
            while keys and self._under_way[source] < self._most:
                yield keys.popitem(last=False)[0]
            if not keys:
                self._queued.pop(source, None)
