"""Where a fetch stands in the log: the next batch that is wanted, found step by step."""

from __future__ import annotations

import heapq
from typing import Final, Generic, Protocol, TypeVar

from roq.log.log import Log
from roq.log.patient_reads import PatientReads
from roq.protocol.channel import FetchRequest
from roq.protocol.delayed import DELAYED_TOPIC

B = TypeVar("B")

SCAN_MAX: Final = 2_000
"""Entries of other topics that are passed over at once; then the reader asks again."""


class Cursor(Protocol):
    """Goes over what is wanted, in order of offset; what has left the log is passed over.

    Where the log raises `NotAtHand`, so does `offset`, and `NotGiven` where the disk refuses; it
    goes on from there when it is called again.
    """

    def offset(self, now: float) -> int | None:
        """The next batch that is wanted, and was read; None if there is none within reach."""
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

    def __init__(
        self, log: Log[B], reads: PatientReads[B], wants: list[tuple[bytes, int, int]]
    ) -> None:
        self._log = log
        self._reads = reads
        self._wants = list(wants)
        self._until = max((until for _, _, until in wants), default=0)
        self.evicted = 0
        self._heap: list[tuple[int, int]] = []
        """(next offset, index of the want), lowest first."""
        self._looked_at = 0
        """Wants that were looked for; the others not yet, as the log may have to read for them."""
        self._behind = 0
        """What stands below was found, or is gone."""

    def offset(self, now: float) -> int | None:
        """The next batch that is wanted."""
        while self._looked_at < len(self._wants):
            self._push(self._looked_at, now)
            self._looked_at += 1
        while True:
            at_least = max(self._log.floor, self._behind)
            while self._heap and self._heap[0][0] < at_least:
                self._next(at_least, now)
            if not self._heap:
                return None
            offset = self._heap[0][0]
            if self._reads.demand(offset, now) is not None:
                return offset
            self._behind = offset + 1

    def advance(self) -> None:
        """That batch is on its way."""
        self._behind = self._heap[0][0] + 1

    @property
    def reached(self) -> int:
        """Everything wanted below was found or is gone."""
        return self._heap[0][0] if self._heap else max(0, min(self._until, self._log.committed))

    @property
    def done(self) -> bool:
        """Whether nothing wanted is left."""
        return not self._heap and self._looked_at == len(self._wants)

    def _next(self, at_least: int, now: float) -> None:
        """The first of the heap goes on to what is at or above this."""
        index = self._heap[0][1]
        offset = self._find(index, at_least, now)
        heapq.heappop(self._heap)
        if offset is not None:
            heapq.heappush(self._heap, (offset, index))

    def _push(self, index: int, now: float) -> None:
        offset = self._find(index, 0, now)
        if offset is not None:
            heapq.heappush(self._heap, (offset, index))

    def _find(self, index: int, at_least: int, now: float) -> int | None:
        topic, first, until = self._wants[index]
        at_least = max(first, at_least)
        while True:
            offset, reached = self._reads.next_of(topic, at_least, now)
            if reached == at_least:
                break
            at_least = reached
            self._wants[index] = topic, reached, until  # what was passed over is not asked again
        return offset if offset is not None and offset < min(until, self._log.committed) else None


class SpanCursor(Generic[B]):
    """Goes over a part of the log as it stands."""

    def __init__(
        self,
        log: Log[B],
        reads: PatientReads[B],
        prefixes: tuple[bytes, ...],
        first: int,
        until: int,
    ) -> None:
        self._log = log
        self._reads = reads
        self._prefixes = prefixes
        self._everything = b"" in prefixes
        self._next = first
        self._until = until
        self.evicted = 0

    def offset(self, now: float) -> int | None:
        """The next batch that is wanted, if it is near enough."""
        log = self._log
        end = min(self._until, log.committed)
        if self._next < min(log.floor, end):
            self.evicted += min(log.floor, end) - self._next
            self._next = min(log.floor, end)
        self._next = min(log.following(self._next), max(end, self._next))
        for offset in range(self._next, min(end, self._next + SCAN_MAX)):
            self._next = offset
            record = self._reads.demand(offset, now)
            if record is None:
                if log.following(offset) != offset:
                    return None  # the rest is looked at when it is asked again
                self.evicted += 1
            elif record[0].name != DELAYED_TOPIC and (
                self._everything or record[0].name.startswith(self._prefixes)
            ):
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


def cursor(log: Log[B], reads: PatientReads[B], request: FetchRequest) -> Cursor:
    """The cursor that a request asks for.

    Args:
        log, reads: the log, and how it is read.
    """
    if request.prefixes:
        return SpanCursor(log, reads, tuple(request.prefixes), request.first, request.until)
    return WantsCursor(log, reads, request.wants)
