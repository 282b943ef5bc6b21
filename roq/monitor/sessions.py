"""The clients that are in touch: who, where to push to, and what they tell about themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from roq.errors import InvalidRequest, NoCapacity
from roq.model import LogId
from roq.monitor.events import Peer
from roq.monitor.exchanges import EXCHANGES_MAX, Key
from roq.protocol.control import Alive
from roq.timing import CLIENT_FORGOTTEN_SECONDS

SESSIONS_MAX: Final = 50_000
CLIENT_ID_BYTES_MAX: Final = 64
LANES_MAX: Final = 64
"""Exchanges that one publisher may publish at."""
LATENCY_END: Final = 1e9
"""Milliseconds; a client that tells more has a wrong clock, and decides nothing by it."""
PUBLISHER: Final = "publisher"
SUBSCRIBER: Final = "subscriber"
CONSUMER: Final = "consumer"
"""A member of a consumer group: how far that is, its exchanges know."""


@dataclass(slots=True)
class Session:
    """One client.

    Attributes:
        exchanges: where a publisher publishes, or was sent to.
        epoch: the highest under which it does.
        read: by log, up to which offset a subscriber has everything.
        received, lost: totals that a subscriber has told.
        reported: `received` at the time of the last KPI about it, and when that was.
        fresh: it has told something since then.
        name: as a publisher calls itself.
    """

    client: bytes
    role: str
    peer: Peer
    seen: float
    since: float
    exchanges: tuple[Key, ...] = ()
    epoch: int = 0
    read: dict[LogId, int] = field(default_factory=dict)
    received: int = 0
    latency_ms: float = 0.0
    lost: int = 0
    reported: tuple[int, float] = (0, 0.0)
    fresh: bool = False
    name: str = ""


class Sessions:
    """All clients that are in touch, by client id."""

    def __init__(self) -> None:
        self._sessions: dict[bytes, Session] = {}
        self._placed: defaultdict[Key, set[bytes]] = defaultdict(set)

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
        if role not in {PUBLISHER, SUBSCRIBER, CONSUMER}:
            raise InvalidRequest("a client's role is publisher, subscriber or consumer")
        if len(self._sessions) >= SESSIONS_MAX:
            raise NoCapacity(f"this monitor has {SESSIONS_MAX} clients, which is the most")
        session = self._sessions[client] = Session(client, role, peer, now, now, reported=(0, now))
        return session, True

    def told(self, session: Session, message: Alive) -> None:
        """Take in what a client tells about itself; where a publisher is, `learn` takes in."""
        session.received = max(0, message.received)
        session.latency_ms = message.latency_ms if 0 <= message.latency_ms < LATENCY_END else 0.0
        session.lost = max(0, message.lost)
        session.name = message.name or session.name
        session.fresh = True
        if session.role == SUBSCRIBER:
            read = message.read[:EXCHANGES_MAX]
            session.read = {LogId(*log): offset for *log, offset in read}

    def learn(self, session: Session, message: Alive) -> None:
        """Believe a publisher where it is, unless it has been given a higher epoch since."""
        if session.role == PUBLISHER and message.at and message.epoch >= session.epoch:
            self.place(session, message.at[:LANES_MAX], message.epoch)

    def place(self, session: Session, exchanges: Sequence[Key], epoch: int) -> None:
        """This publisher publishes there, under this epoch, from now on."""
        for key in session.exchanges:
            self._placed[key].discard(session.client)
            if not self._placed[key]:
                del self._placed[key]
        session.exchanges = tuple(dict.fromkeys((key[0], key[1]) for key in exchanges))
        session.epoch = max(session.epoch, epoch)
        for key in session.exchanges:
            self._placed[key].add(session.client)

    def publishers_at(self, exchange: Key) -> int:
        """How many publishers were sent to this exchange and are still in touch."""
        return len(self._placed.get(exchange, ()))

    def placed_at(self, exchange: Key) -> list[Session]:
        """Those publishers."""
        return [self._sessions[client] for client in self._placed.get(exchange, ())]

    def leave(self, client: bytes) -> bool:
        """Forget a client; False if it was not known."""
        session = self._sessions.pop(client, None)
        if session is None:
            return False
        self.place(session, (), 0)
        return True

    def expire(self, now: float) -> list[bytes]:
        """Forget and give the clients that were silent for too long."""
        gone = [each.client for each in self if now - each.seen >= CLIENT_FORGOTTEN_SECONDS]
        for client in gone:
            self.leave(client)
        return gone

    def peers(self) -> tuple[Peer, ...]:
        """Where to push to: clients of one process may share a connection."""
        return tuple(dict.fromkeys(session.peer for session in self._sessions.values()))

    def subscribers(self) -> list[Session]:
        """The subscribers among the clients."""
        return [each for each in self._sessions.values() if each.role == SUBSCRIBER]

    def publishers(self) -> list[Session]:
        """The publishers among the clients."""
        return [each for each in self._sessions.values() if each.role == PUBLISHER]

    def latency_ms(self) -> float:
        """The mean of what subscribers tell; 0 if none tells anything."""
        told = [each.latency_ms for each in self.subscribers() if each.latency_ms > 0]
        return sum(told) / len(told) if told else 0.0

    def behind(self, log: LogId, offset: int) -> int:
        """How many subscribers have not everything of this log up to an offset."""
        if offset <= 0:
            return 0
        return sum(each.read.get(log, 0) < offset for each in self.subscribers())

    def unaware(self, log: LogId) -> bool:
        """Whether some subscriber has not found this log yet."""
        return any(log not in each.read for each in self.subscribers())

    def check(self) -> None:
        """Assert the invariants."""
        placed: defaultdict[Key, set[bytes]] = defaultdict(set)
        for session in self:
            for key in session.exchanges:
                placed[key].add(session.client)
        assert placed == self._placed  # noqa: S101
        assert len(self._sessions) <= SESSIONS_MAX  # noqa: S101
