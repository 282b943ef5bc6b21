"""What a reader has asked an exchange and is waiting for: pure.

Every question has a deadline; one that is not answered in time is given up, and the part that needs
the answer asks again, with more patience. An exchange serves one fetch per connection.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec

from roq.protocol import documents
from roq.protocol.channel import (
    FETCH,
    FIND,
    HEADS,
    SEEK,
    STREAMS,
    FetchRequest,
    FindRequest,
    HeadsRequest,
    SeekRequest,
    StreamsRequest,
)
from roq.read.events import Ask
from roq.read.offset_chain import Want
from roq.timing import FETCH_PATIENCE_SECONDS

PATIENCE_SECONDS: Final = 1.0
PATIENCE_SECONDS_MAX: Final = 8.0
_REQUESTS: Final[dict[bytes, type[msgspec.Struct]]] = {
    HEADS: HeadsRequest,
    STREAMS: StreamsRequest,
    SEEK: SeekRequest,
    FETCH: FetchRequest,
    FIND: FindRequest,
}


@dataclass(slots=True)
class Inquiry:
    """One question under way."""

    kind: bytes
    number: int
    deadline: float
    wants: list[Want] = field(default_factory=list)
    """What a fetch wants for the chain."""
    again: list[tuple[bytes, int]] = field(default_factory=list)
    """What a fetch wants again for the merge: (topic, offset)."""


class LogRequests:
    """At most one question of each kind is under way.

    Attributes:
        timeouts: questions that were not answered in time.
    """

    def __init__(self, queue: bytes) -> None:
        self.timeouts = 0
        self._queue = queue
        self._under_way: dict[bytes, Inquiry] = {}
        self._numbers = 0
        self._patience = PATIENCE_SECONDS

    def __contains__(self, kind: bytes) -> bool:
        return kind in self._under_way

    def __len__(self) -> int:
        return len(self._under_way)

    def ask(self, kind: bytes, now: float, **fields: object) -> tuple[Inquiry, Ask]:
        """A new question, and the effect that sends it."""
        self._numbers += 1
        request = _REQUESTS[kind](id=self._numbers, queue=self._queue, **fields)
        inquiry = Inquiry(kind, self._numbers, now + self._patience_for(kind))
        self._under_way[kind] = inquiry
        return inquiry, Ask([kind, documents.encode(request)])

    def find(self, kind: bytes, number: int, now: float) -> Inquiry | None:
        """The question that this is part of an answer to; None if it was given up."""
        inquiry = self._under_way.get(kind)
        if inquiry is None:
            return None
        # Also part of an older answer shows that the exchange is sending.
        inquiry.deadline = now + self._patience_for(kind)
        return inquiry if inquiry.number == number else None

    def close(self, kind: bytes, number: int) -> Inquiry | None:
        """The question that this is the end of an answer to; None if it was given up."""
        inquiry = self._under_way.get(kind)
        if inquiry is None or inquiry.number != number:
            return None
        self._patience = PATIENCE_SECONDS
        return self._under_way.pop(kind)

    def abandon(self) -> list[Inquiry]:
        """The connection has ended: nothing is under way any more."""
        abandoned = list(self._under_way.values())
        self._under_way.clear()
        return abandoned

    def expired(self, now: float) -> list[Inquiry]:
        """Give up what was not answered in time."""
        late = [inquiry for inquiry in self._under_way.values() if inquiry.deadline <= now]
        for inquiry in late:
            del self._under_way[inquiry.kind]
        if late:
            self.timeouts += len(late)
            self._patience = min(self._patience * 2, PATIENCE_SECONDS_MAX)
        return late

    def extend(self, now: float) -> None:
        """Nobody has looked for answers for a while: begin to wait anew."""
        for inquiry in self._under_way.values():
            inquiry.deadline = now + self._patience

    def hurry(self, now: float) -> None:
        """Something was refused: ask again soon."""
        for inquiry in self._under_way.values():
            inquiry.deadline = min(inquiry.deadline, now + self._patience)

    def _patience_for(self, kind: bytes) -> float:
        return max(self._patience, FETCH_PATIENCE_SECONDS if kind == FETCH else 0.0)

    def deadlines(self) -> list[float]:
        """When the questions under way are given up."""
        return [inquiry.deadline for inquiry in self._under_way.values()]
