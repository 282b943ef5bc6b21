"""Sends old batches to those who missed them, one batch at a time, fairly between readers.

The shell asks for the next piece, sends it, and says what became of it. A reader whose queue is
full waits without holding others up; one that never reads is given up. One fetch per reader: a
newer one replaces the older.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from roq.log.cursors import Cursor, cursor
from roq.log.log import Log
from roq.protocol import documents
from roq.protocol.channel import (
    FETCH,
    FETCH_BYTES_MAX,
    FETCHED_ENTRY,
    NUMBER,
    Fetched,
    FetchRequest,
)
from roq.timing import FETCH_GIVE_UP_SECONDS

B = TypeVar("B")

FETCHES_MAX: Final = 1_024
"""Readers that may be fetching at once."""
RETRY_SECONDS: Final = 0.005


@dataclass(frozen=True, slots=True)
class Piece(Generic[B]):
    """One message to send to a reader: its parts, and the batch if there is one."""

    route: bytes
    parts: tuple[bytes, ...]
    batch: B | None
    size: int
    """Bytes of the batch."""


class _Fetch:
    """One request under way."""

    __slots__ = ("blocked_since", "bytes_left", "cursor", "id", "retry_at", "route")

    def __init__(self, route: bytes, request: FetchRequest, cursor: Cursor) -> None:
        self.route = route
        self.id = request.id
        self.cursor = cursor
        self.bytes_left = max(1, min(request.max_bytes, FETCH_BYTES_MAX))
        self.blocked_since = 0.0
        self.retry_at = 0.0


class Fetches(Generic[B]):
    """All fetches under way."""

    def __init__(self, log: Log[B], epoch: int) -> None:
        self._log = log
        self._epoch = epoch
        self._by_route: dict[bytes, _Fetch] = {}
        self._ready: deque[_Fetch] = deque()
        self._blocked: list[_Fetch] = []

    def __len__(self) -> int:
        return len(self._by_route)

    def start(self, route: bytes, request: FetchRequest) -> bool:
        """Take a request in; False if too many readers are fetching already."""
        self.cancel(route)
        if len(self._by_route) >= FETCHES_MAX:
            return False
        fetch = _Fetch(route, request, cursor(self._log, request))
        self._by_route[route] = fetch
        self._ready.append(fetch)
        return True

    def cancel(self, route: bytes) -> None:
        """The reader is gone, or wants something else."""
        fetch = self._by_route.pop(route, None)
        if fetch is None:
            return
        if fetch in self._ready:
            self._ready.remove(fetch)
        else:
            self._blocked.remove(fetch)

    def runnable(self, now: float) -> bool:
        """Whether there is a piece to send now; takes back those who waited long enough."""
        if self._blocked and any(fetch.retry_at <= now for fetch in self._blocked):
            self._ready.extend(fetch for fetch in self._blocked if fetch.retry_at <= now)
            self._blocked = [fetch for fetch in self._blocked if fetch.retry_at > now]
        return bool(self._ready)

    def next_deadline(self) -> float | None:
        """When the first blocked reader is to be tried again."""
        return min((fetch.retry_at for fetch in self._blocked), default=None)

    def next_piece(self) -> Piece[B]:
        """What to send now; only when `runnable`. Answer with `sent`, `blocked` or `gone`."""
        fetch = self._ready[0]
        offset = fetch.cursor.offset()
        if offset is None or fetch.bytes_left <= 0:
            return Piece(fetch.route, (FETCH, documents.encode(self._fetched(fetch))), None, 0)
        log, frame, batch, size = self._log.record(offset)
        return Piece(
            fetch.route, (FETCHED_ENTRY, NUMBER.pack(fetch.id), log.name, frame), batch, size
        )

    def sent(self, piece: Piece[B]) -> None:
        """The piece is on its way; the next reader's turn."""
        fetch = self._ready.popleft()
        fetch.blocked_since = 0.0
        if piece.batch is None:
            del self._by_route[fetch.route]
            return
        fetch.cursor.advance()
        fetch.bytes_left -= piece.size
        self._ready.append(fetch)

    def blocked(self, now: float) -> bool:
        """The reader's queue is full: try again a little later. False: it was given up."""
        fetch = self._ready.popleft()
        if not fetch.blocked_since:
            fetch.blocked_since = now
        if now - fetch.blocked_since >= FETCH_GIVE_UP_SECONDS:
            del self._by_route[fetch.route]
            return False
        fetch.retry_at = now + RETRY_SECONDS
        self._blocked.append(fetch)
        return True

    def gone(self) -> None:
        """The reader's connection is gone."""
        del self._by_route[self._ready.popleft().route]

    def check(self) -> None:
        """Assert the invariants."""
        queued = [*self._ready, *self._blocked]
        assert len(queued) == len(self._by_route) <= FETCHES_MAX  # noqa: S101
        assert all(self._by_route[fetch.route] is fetch for fetch in queued)  # noqa: S101

    def _fetched(self, fetch: _Fetch) -> Fetched:
        return Fetched(
            id=fetch.id,
            epoch=self._epoch,
            reached=fetch.cursor.reached,
            floor=self._log.floor,
            done=fetch.cursor.done,
            evicted=fetch.cursor.evicted,
        )
