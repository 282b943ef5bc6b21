"""Requests of readers that wait for their turn: publishers go first, and readers in turn."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final, NamedTuple

ROUTES_MAX: Final = 1_024
PER_ROUTE_MAX: Final = 16


class Request(NamedTuple):
    """One message of a reader, not yet looked at."""

    route: bytes
    letter: bytes
    document: bytes


class Requests:
    """A bounded queue per connection, served round by round."""

    def __init__(self) -> None:
        self._by_route: OrderedDict[bytes, deque[Request]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._by_route)

    def add(self, request: Request) -> bool:
        """Take a request in; False if this connection, or all together, has too many waiting."""
        waiting = self._by_route.get(request.route)
        if waiting is None:
            if len(self._by_route) >= ROUTES_MAX:
                return False
            waiting = self._by_route[request.route] = deque()
        elif len(waiting) >= PER_ROUTE_MAX:
            return False
        waiting.append(request)
        return True

    def take(self) -> Request:
        """The next one; only when there is one."""
        route, waiting = self._by_route.popitem(last=False)
        request = waiting.popleft()
        if waiting:
            self._by_route[route] = waiting
        return request

    def drop(self, route: bytes) -> None:
        """The connection is gone."""
        self._by_route.pop(route, None)

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self._by_route) <= ROUTES_MAX  # noqa: S101
        assert all(0 < len(queue) <= PER_ROUTE_MAX for queue in self._by_route.values())  # noqa: S101
