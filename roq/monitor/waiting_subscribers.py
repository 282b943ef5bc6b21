"""Subscribers that wait until a new monitor knows all exchanges."""

from __future__ import annotations

from itertools import takewhile
from typing import NamedTuple

from roq.monitor.events import Effect, Peer, Send
from roq.protocol.control import failure
from roq.timing import MONITOR_ANSWERS_SECONDS


class Asker(NamedTuple):
    """Who waits, for the answer to what, and how long at most."""

    peer: Peer
    request: int
    deadline: float


class WaitingSubscribers:
    """One open question for each client; bounded by the sessions."""

    def __init__(self) -> None:
        self._askers: dict[bytes, Asker] = {}

    def __len__(self) -> int:
        return len(self._askers)

    def wait(self, client: bytes, peer: Peer, request: int, now: float) -> list[Effect]:
        """Let a client wait; its older question is answered by that."""
        older = self._askers.pop(client, None)
        self._askers[client] = Asker(peer, request, now + MONITOR_ANSWERS_SECONDS)
        if older is None:
            return []
        return [Send(older.peer, failure(older.request, "this client has asked again since"))]

    def forget(self, client: bytes) -> None:
        """It has gone."""
        self._askers.pop(client, None)

    def take(self) -> list[Asker]:
        """All who wait; they wait no more."""
        askers = list(self._askers.values())
        self._askers.clear()
        return askers

    def expire(self, now: float) -> list[Effect]:
        """Answer those who have waited long enough."""
        items = self._askers.items()
        late = [client for client, _ in takewhile(lambda item: now >= item[1].deadline, items)]
        askers = [self._askers.pop(client) for client in late]
        text = "this monitor has just taken over and does not know all exchanges yet: ask again"
        return [Send(each.peer, failure(each.request, text)) for each in askers]

    def next_deadline(self) -> float | None:
        """When the next one has waited long enough: the oldest is the first."""
        return next((each.deadline for each in self._askers.values()), None)
