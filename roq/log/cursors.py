"""Where a fetch stands in the log: the next batch that is wanted, found step by step."""

from __future__ import annotations

import heapq
from typing import Final, Generic, Protocol, TypeVar

from roq.log.log import Log
from roq.protocol.channel import FetchRequest

B = TypeVar("B")

SCAN_MAX: Final = 2_000
"""Entries of other topics that are passed over at once; then the reader asks again."""


class Cursor(Protocol):
    """Goes over what is wanted, in order of offset; what has left the log is passed over."""

    def offset(self) -> int | None:
        """The next batch that is wanted, and is there; None if there is none within reach."""
        ...

    def advance(self) -> None:
        """That batch is on its way."""
        ...

    @property
    def reached(self) -> int:
        """Everything wanted below was found or is gone."""
        ...

    @property
    def done(self) -> bool:
        """Whether nothing wanted is left at or above `reached`."""
        ...

    evicted: int
    """Offsets of a part of the log that had left it, or were lost, before they were looked at."""


class WantsCursor(Generic[B]):
    """Goes over ranges of single topics, which may overlap; a batch is found once."""

    def __init__(self, log: Log[B], wants: list[tuple[bytes, int, int]]) -> None:
        self._log = log
        self._wants = wants
        self._until = max((until for _, _, until in wants), default=0)
        self.evicted = 0
        self._heap: list[tuple[int, int]] = []
        """(next offset, index of the want), lowest first."""
        for index in range(len(wants)):
            self._push(index, 0)

    def offset(self) -> int | None:
        """The next batch that is wanted."""
        floor = self._log.floor
        while self._heap and self._heap[0][0] < floor:
            self._push(heapq.heappop(self._heap)[1], floor)
        while self._heap and self._log.record(self._heap[0][0]) is None:
            self.advance()
        return self._heap[0][0] if self._heap else None

    def advance(self) -> None:
        """That batch is on its way."""
        offset = self._heap[0][0]
        while self._heap and self._heap[0][0] == offset:
            self._push(heapq.heappop(self._heap)[1], offset + 1)

    @property
    def reached(self) -> int:
        """Everything wanted below was found or is gone."""
        return self._heap[0][0] if self._heap else max(0, min(self._until, self._log.committed))

    @property
    def done(self) -> bool:
        """Whether nothing wanted is left."""
        return not self._heap

    def _push(self, index: int, at_least: int) -> None:
        topic, first, until = self._wants[index]
        offset = self._log.next_of(topic, max(first, at_least))
        if offset is not None and offset < min(until, self._log.committed):
            heapq.heappush(self._heap, (offset, index))


class SpanCursor(Generic[B]):
    """Goes over a part of the log as it stands."""

    def __init__(self, log: Log[B], prefixes: tuple[bytes, ...], first: int, until: int) -> None:
        self._log = log
        self._prefixes = prefixes
        self._everything = b"" in prefixes
        self._next = first
        self._until = until
        self.evicted = 0

    def offset(self) -> int | None:
        """The next batch that is wanted, if it is near enough."""
        log = self._log
        end = min(self._until, log.committed)
        if self._next < min(log.floor, end):
            self.evicted += min(log.floor, end) - self._next
            self._next = min(log.floor, end)
        self._next = min(log.following(self._next), max(end, self._next))
        for offset in range(self._next, min(end, self._next + SCAN_MAX)):
            self._next = offset
            record = log.record(offset)
            if record is None:
                if log.following(offset) != offset:
                    return None  # the rest is looked at when it is asked again
                self.evicted += 1
            elif self._everything or record[0].name.startswith(self._prefixes):
                return offset
            self._next = offset + 1
        return None

    def advance(self) -> None:
        """That batch is on its way."""
        self._next += 1

    @property
    def reached(self) -> int:
        """Everything wanted below was found or is gone."""
        return min(self._next, max(self._until, 0), self._log.committed)

    @property
    def done(self) -> bool:
        """Whether nothing wanted is left."""
        return self._next >= min(self._until, self._log.committed)


def cursor(log: Log[B], request: FetchRequest) -> Cursor:
    """The cursor that a request asks for."""
    if request.prefixes:
        return SpanCursor(log, tuple(request.prefixes), request.first, request.until)
    return WantsCursor(log, request.wants)
