"""Sends old batches to those who missed them, one batch at a time, fairly between readers.

The shell asks for the next piece, sends it, and says what became of it. Connections take turns, and
so do the readers that share one. A connection that is full waits without holding others up; one
that takes nothing for long is given up. One fetch per reader: a newer one replaces the older.

An answer for which a full connection had no room waits here as well, and goes first: who fetches
much does not keep those who share the connection from being answered.

A connection whose next piece has to be read from the disk waits, too, while others are served. A
reader whose next piece the disk refuses is tried again a while later, and holds up no other.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from roq.log.cursors import Cursor, cursor
from roq.log.log import Log, NotGiven
from roq.log.patient_reads import AGAIN_SECONDS, PatientReads
from roq.protocol import documents
from roq.protocol.channel import (
    FETCH,
    FETCH_BYTES_MAX,
    FETCHED_ENTRY,
    NUMBER,
    READERS_PER_CONNECTION_MAX,
    Fetched,
    FetchRequest,
)
from roq.timing import FETCH_GIVE_UP_SECONDS

B = TypeVar("B")

FETCHES_MAX: Final = 1_024
"""Readers that may be fetching at once."""
ANSWERS_BYTES_MAX: Final = 1024 * 1024
"""Of answers that wait for one connection; what comes on top is dropped, and asked for again."""
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

    __slots__ = ("bytes_left", "cursor", "id", "reader", "retry_at")

    def __init__(self, reader: bytes, request: FetchRequest, cursor: Cursor) -> None:
        self.reader = reader
        self.id = request.id
        self.cursor = cursor
        self.bytes_left = max(1, min(request.max_bytes, FETCH_BYTES_MAX))
        self.retry_at = 0.0
        """The disk has refused what comes next, and is asked again then."""


class _Line:
    """What is to be sent to one connection."""

    __slots__ = ("answers", "answers_bytes", "blocked_since", "fetches", "retry_at", "route")

    def __init__(self, route: bytes) -> None:
        self.route = route
        self.answers: deque[tuple[bytes, ...]] = deque()
        self.answers_bytes = 0
        self.fetches: OrderedDict[bytes, _Fetch] = OrderedDict()
        """By reader, in the order of their turns."""
        self.blocked_since = 0.0
        self.retry_at = 0.0


class Fetches(Generic[B]):
    """All fetches under way.

    Attributes:
        reads: how the log is read, for all of them.
    """

    def __init__(self, log: Log[B]) -> None:
        self.reads = PatientReads(log)
        self._log = log
        self._now = 0.0
        self._by_route: dict[bytes, _Line] = {}
        self._ready: deque[_Line] = deque()
        self._blocked: list[_Line] = []
        self._reading: deque[_Line] = deque()
        """These wait for the disk, in the order in which they have begun to."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return bool(self._by_route)

    def start(self, route: bytes, request: FetchRequest, reader: bytes = b"") -> bool:
        """Take a request in; False if too many readers are fetching already."""
        line = self._by_route.get(route)
        if line is not None and line.fetches.pop(reader, None) is not None:
            self._count -= 1
        others = len(line.fetches) if line is not None else 0
        if self._count >= FETCHES_MAX or others >= READERS_PER_CONNECTION_MAX:
            return False
        fetch = _Fetch(reader, request, cursor(self._log, self.reads, request))
        self._line(route).fetches[reader] = fetch
        self._count += 1
        return True

    def answer_later(self, route: bytes, parts: tuple[bytes, ...]) -> bool:
        """Send this as soon as the connection has room for it; False if too much waits for that."""
        size = sum(map(len, parts))
        line = self._line(route)
        if line.answers_bytes + size > ANSWERS_BYTES_MAX:
            return False
        line.answers.append(parts)
        line.answers_bytes += size
        return True

    def cancel(self, route: bytes) -> int:
        """The connection is gone; how many fetches it had."""
        line = self._by_route.pop(route, None)
        if line is None:
            return 0
        self._count -= len(line.fetches)
        for lines in (self._ready, self._reading, self._blocked):
            if line in lines:
                lines.remove(line)
        return len(line.fetches)

    def runnable(self, now: float) -> bool:
        """Whether there is a piece to send now; takes back those who waited long enough."""
        self._now = now
        if self._blocked and any(line.retry_at <= now for line in self._blocked):
            self._ready.extend(line for line in self._blocked if line.retry_at <= now)
            self._blocked = [line for line in self._blocked if line.retry_at > now]
        return bool(self._ready)

    def next_deadline(self) -> float | None:
        """When the first connection that waits for its time is to be tried again."""
        return min((line.retry_at for line in self._blocked), default=None)

    def next_piece(self) -> Piece[B] | None:
        """What to send now; only when `runnable`. Answer with `sent`, `blocked` or `cancel`.

        None: the disk refuses what comes next for this connection. Answer with `wait`.

        Raises:
            NotAtHand: it has to be read first. Answer with `wait`, and `go_on` when it was.
        """
        line = self._ready[0]
        if line.answers:
            return Piece(line.route, line.answers[0], None, 0)
        for _ in range(len(line.fetches)):
            reader, fetch = next(iter(line.fetches.items()))
            if fetch.retry_at <= self._now:
                try:
                    return self._piece(line.route, fetch)
                except NotGiven:
                    fetch.retry_at = self._now + AGAIN_SECONDS
            line.fetches.move_to_end(reader)
        line.retry_at = min(fetch.retry_at for fetch in line.fetches.values())
        return None

    def _piece(self, route: bytes, fetch: _Fetch) -> Piece[B]:
        if fetch.cursor.offset(self._now) is None or fetch.bytes_left <= 0:
            document = documents.encode(self._fetched(fetch))
            return Piece(route, (FETCH + fetch.reader, document), None, 0)
        assert self.reads.last is not None  # noqa: S101 - the cursor has just read it
        topic, frame, batch, size = self.reads.last
        parts = (FETCHED_ENTRY + fetch.reader, NUMBER.pack(fetch.id), topic.name, frame)
        return Piece(route, parts, batch, size)

    def sent(self, piece: Piece[B]) -> None:
        """The piece is on its way; the next one's turn."""
        line = self._ready.popleft()
        line.blocked_since = 0.0
        if line.answers:
            line.answers_bytes -= sum(map(len, line.answers.popleft()))
        else:
            reader, fetch = line.fetches.popitem(last=False)
            if piece.batch is None:
                self._count -= 1
            else:
                fetch.cursor.advance()
                fetch.bytes_left -= piece.size
                line.fetches[reader] = fetch
        if line.answers or line.fetches:
            self._ready.append(line)
        else:
            del self._by_route[line.route]

    def wait(self) -> None:
        """The next piece has to be read from the disk: this connection waits for that, or until the
        disk is asked again."""
        line = self._ready.popleft()
        if line.retry_at > self._now:
            self._blocked.append(line)
        else:
            self._reading.append(line)

    def go_on(self) -> None:
        """Something was read: whoever has waited longest comes first, and finds it."""
        self._reading.extend(self._ready)
        self._ready, self._reading = self._reading, deque()

    def blocked(self, now: float) -> int:
        """The connection is full: try again a little later. Gives how many fetches are given up."""
        line = self._ready[0]
        if not line.blocked_since:
            line.blocked_since = now
        if now - line.blocked_since >= FETCH_GIVE_UP_SECONDS:
            return self.cancel(line.route)
        self._ready.popleft()
        line.retry_at = now + RETRY_SECONDS
        self._blocked.append(line)
        return 0

    def check(self) -> None:
        """Assert the invariants."""
        queued = [*self._ready, *self._blocked, *self._reading]
        assert len(queued) == len(self._by_route)  # noqa: S101
        assert all(self._by_route[line.route] is line for line in queued)  # noqa: S101
        assert sum(len(line.fetches) for line in queued) == self._count <= FETCHES_MAX  # noqa: S101
        for line in queued:
            assert line.answers or line.fetches  # noqa: S101
            assert len(line.fetches) <= READERS_PER_CONNECTION_MAX  # noqa: S101
            size = sum(len(part) for parts in line.answers for part in parts)
            assert size == line.answers_bytes <= ANSWERS_BYTES_MAX  # noqa: S101

    def _line(self, route: bytes) -> _Line:
        line = self._by_route.get(route)
        if line is None:
            line = self._by_route[route] = _Line(route)
            self._ready.append(line)
        line.retry_at = min(line.retry_at, self._now + RETRY_SECONDS)  # there is something else
        return line

    def _fetched(self, fetch: _Fetch) -> Fetched:
        return Fetched(
            id=fetch.id,
            generation=self._log.generation,
            reached=fetch.cursor.reached,
            floor=self._log.floor,
            done=fetch.cursor.done,
            evicted=fetch.cursor.evicted,
        )
