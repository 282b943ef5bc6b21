"""Requests of readers that wait for their turn: publishers go first, and readers in turn.

Connections take turns, and so do the readers that share one: who asks for much holds up nobody.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, NamedTuple

from roq.protocol.channel import READERS_PER_CONNECTION_MAX

READERS_MAX: Final = 1_024
"""Those that wait at once, of all connections together."""
PER_READER_MAX: Final = 16
REQUEST_BYTES_MAX: Final = 1_500_000
"""Of one request: a Join of a member that holds much, or the moves of a group at thousands of
exchanges. To read more would hold up everybody."""


class Request(NamedTuple):
    """One message of a reader, not yet looked at."""

    route: bytes
    letter: bytes
    document: bytes
    reader: bytes = b""
    """Which of those that share the connection; empty: the only one."""


class Requests:
    """A bounded queue per reader, served round by round."""

    def __init__(self) -> None:
        self._by_route: OrderedDict[bytes, OrderedDict[bytes, deque[Request]]] = OrderedDict()
        self._readers = 0

    def __bool__(self) -> bool:
        return bool(self._by_route)

    def add(self, request: Request) -> bool:
        """Take a request in; False if this reader, its connection, or all have too many waiting."""
        readers = self._by_route.get(request.route) or OrderedDict()
        waiting = readers.get(request.reader)
        if waiting is not None:
            if len(waiting) >= PER_READER_MAX:
                return False
            waiting.append(request)
            return True
        if self._readers >= READERS_MAX or len(readers) >= READERS_PER_CONNECTION_MAX:
            return False
        self._by_route.setdefault(request.route, OrderedDict())[request.reader] = deque([request])
        self._readers += 1
        return True

    @property
    def next(self) -> Request:
        """What `take` gives."""
        readers = next(iter(self._by_route.values()))
        return next(iter(readers.values()))[0]

    def take(self) -> Request:
        """The next one; only when there is one."""
        route, readers = self._by_route.popitem(last=False)
        reader, waiting = readers.popitem(last=False)
        request = waiting.popleft()
        if waiting:
            readers[reader] = waiting
        else:
            self._readers -= 1
        if readers:
            self._by_route[route] = readers
        return request

    def put_back(self, request: Request) -> None:
        """What was taken last cannot be answered yet: it is the next one again."""
        readers = self._by_route.setdefault(request.route, OrderedDict())
        waiting = readers.get(request.reader)
        if waiting is None:
            waiting = readers[request.reader] = deque()
            self._readers += 1
        waiting.appendleft(request)
        readers.move_to_end(request.reader, last=False)
        self._by_route.move_to_end(request.route, last=False)

    def drop(self, route: bytes) -> None:
        """The connection is gone."""
        self._readers -= len(self._by_route.pop(route, ()))

    def check(self) -> None:
        """Assert the invariants."""
        lines = list(self._by_route.values())
        assert sum(map(len, lines)) == self._readers <= READERS_MAX  # noqa: S101
        assert all(0 < len(readers) <= READERS_PER_CONNECTION_MAX for readers in lines)  # noqa: S101
        queues = [queue for readers in lines for queue in readers.values()]
        assert all(0 < len(queue) <= PER_READER_MAX for queue in queues)  # noqa: S101
