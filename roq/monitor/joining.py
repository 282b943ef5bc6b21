"""Subscribers that wait until a new monitor knows all exchanges."""

from __future__ import annotations

from typing import NamedTuple

from roq.monitor.answers import failure
from roq.monitor.events import Effect, Peer, Send


class Asker(NamedTuple):
    """Who waits, and for the answer to what."""

    peer: Peer
    request: int


class Joining:
    """One open question for each client; bounded by the sessions."""

    def __init__(self) -> None:
        self._askers: dict[bytes, Asker] = {}

    def __len__(self) -> int:
        return len(self._askers)

    def wait(self, client: bytes, peer: Peer, request: int) -> list[Effect]:
        """Let a client wait; its older question is answered by that."""
        older = self._askers.get(client)
        self._askers[client] = Asker(peer, request)
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
