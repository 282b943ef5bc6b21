"""The clients that are in touch: who, where to push to, and what they tell about themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from roq.errors import InvalidRequest, NoCapacity
from roq.monitor.events import Peer
from roq.protocol.control import Alive

SESSION_SECONDS: Final = 10.0
"""A client that was silent for so long is forgotten; it says Alive every two seconds."""
SESSIONS_MAX: Final = 50_000
CLIENT_ID_BYTES_MAX: Final = 64
PUBLISHER: Final = "publisher"
SUBSCRIBER: Final = "subscriber"


@dataclass(slots=True)
class Session:
    """One client.

    Attributes:
        exchange: (number, epoch) of the exchange that a publisher was sent to.
        received, lost: totals that a subscriber has told.
        reported: `received` at the time of the last KPI about it, and when that was.
        fresh: it has told something since then.
    """

    client: bytes
    role: str
    peer: Peer
    seen: float
    since: float
    exchange: tuple[int, int] | None = None
    received: int = 0
    latency_ms: float = 0.0
    lost: int = 0
    reported: tuple[int, float] = (0, 0.0)
    fresh: bool = False


class Sessions:
    """All clients that are in touch, by client id."""

    def __init__(self) -> None:
        self._sessions: dict[bytes, Session] = {}
        self._placed: Counter[tuple[int, int]] = Counter()

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def find(self, client: bytes) -> Session | None:
        """The session of a client."""
        return self._sessions.get(client)

    def touch(self, client: bytes, role: str, peer: Peer, now: float) -> tuple[Session, bool]:
        """The session of a client that is heard of now, and whether it is a new one.

        Raises:
            InvalidRequest: no valid client id or role.
            NoCapacity: too many clients.
        """
        session = self._sessions.get(client)
        if session is not None:
            session.peer, session.seen = peer, now
            return session, False
        if not 0 < len(client) <= CLIENT_ID_BYTES_MAX:
            raise InvalidRequest(f"a client's id has 1 to {CLIENT_ID_BYTES_MAX} bytes")
        if role not in {PUBLISHER, SUBSCRIBER}:
            raise InvalidRequest("a client's role is publisher or subscriber")
        if len(self._sessions) >= SESSIONS_MAX:
            raise NoCapacity(f"this monitor has {SESSIONS_MAX} clients, which is the most")
        session = self._sessions[client] = Session(client, role, peer, now, now, reported=(0, now))
        return session, True

    def told(self, session: Session, message: Alive) -> None:
        """Take in what a client tells about itself."""
        session.received = max(0, message.received)
        session.latency_ms = max(0.0, message.latency_ms)
        session.lost = max(0, message.lost)
        session.fresh = True

    def place(self, session: Session, exchange: tuple[int, int] | None) -> None:
        """This publisher publishes there from now on."""
        if session.exchange is not None:
            self._placed[session.exchange] -= 1
            if not self._placed[session.exchange]:
                del self._placed[session.exchange]
        session.exchange = exchange
        if exchange is not None:
            self._placed[exchange] += 1

    def publishers_at(self, exchange: tuple[int, int]) -> int:
        """How many publishers were sent to this exchange and are still in touch."""
        return self._placed[exchange]

    def leave(self, client: bytes) -> bool:
        """Forget a client; False if it was not known."""
        session = self._sessions.pop(client, None)
        if session is None:
            return False
        self.place(session, None)
        return True

    def expire(self, now: float) -> list[bytes]:
        """Forget and give the clients that were silent for too long."""
        gone = [each.client for each in self if now - each.seen >= SESSION_SECONDS]
        for client in gone:
            self.leave(client)
        return gone

    def peers(self) -> tuple[Peer, ...]:
        """Where to push to."""
        return tuple(session.peer for session in self._sessions.values())

    def subscribers(self) -> list[Session]:
        """The subscribers among the clients."""
        return [each for each in self._sessions.values() if each.role == SUBSCRIBER]

    def check(self) -> None:
        """Assert the invariants."""
        placed = Counter(each.exchange for each in self if each.exchange is not None)
        assert placed == self._placed  # noqa: S101
        assert len(self._sessions) <= SESSIONS_MAX  # noqa: S101
