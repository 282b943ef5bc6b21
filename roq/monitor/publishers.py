"""Publishers that ask where to publish: chosen by the rule, or waiting until an exchange serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from roq.monitor.events import Peer
from roq.monitor.exchanges import Exchange, Exchanges, Key
from roq.monitor.sessions import Session, Sessions
from roq.policy.assignment import Candidate, assign, expected_load
from roq.protocol.control import Attach
from roq.timing import MONITOR_ANSWERS_SECONDS

FAILED_MAX: Final = 256
"""Failed exchanges that are taken into account."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A publisher without an exchange."""

    peer: Peer
    message: Attach
    since: float

    @property
    def deadline(self) -> float:
        """When it is told that there is none."""
        return self.since + MONITOR_ANSWERS_SECONDS


class Publishers:
    """Who waits.

    Attributes:
        limit: of one exchange, payload bytes per minute.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._waiting: dict[bytes, Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Waiting]:
        """In the order of arrival."""
        return iter(list(self._waiting.values()))

    def wait(self, waiting: Waiting) -> Waiting | None:
        """Let a publisher wait; gives its older question, which this one replaces."""
        older = self._waiting.pop(waiting.message.publisher, None)
        self._waiting[waiting.message.publisher] = waiting
        return older

    def forget(self, publisher: bytes) -> Waiting | None:
        """It has been answered, or is gone."""
        return self._waiting.pop(publisher, None)

    def expire(self, now: float) -> list[Waiting]:
        """Those that have waited too long; they wait no more."""
        late = list(takewhile(lambda each: now >= each.deadline, self._waiting.values()))
        for waiting in late:
            self.forget(waiting.message.publisher)
        return late

    def next_deadline(self) -> float | None:
        """When the next one has waited too long: the oldest is the first."""
        return next((each.deadline for each in self._waiting.values()), None)

    def choose(
        self,
        waiting: Waiting,
        exchanges: Exchanges,
        sessions: Sessions,
        shift: Callable[[Exchange], float],
    ) -> Exchange | None:
        """The exchange for a publisher, which is counted there at once.

        It stays where it is if nothing speaks against that. An exchange that it calls failed counts
        as failed until it has reported once more: after that it is as good as any other, and
        perhaps the only one. So is one that is being emptied, if there is no other.

        Args:
            waiting: the publisher.
            exchanges, sessions: of the queue.
            shift: bytes per minute that moves under way will bring to an exchange.
        """
        named = set(waiting.message.failed[:FAILED_MAX])
        usable = exchanges.accepting() or [each for each in exchanges if not each.stopping]
        candidates = [
            each.candidate(sessions.publishers_at(each.key), shift(each)) for each in usable
        ]
        choice = self._stay(sessions.find(waiting.message.publisher), candidates, named)
        if choice is not None:
            return exchanges.find(choice.key)
        choice = assign(candidates, self.limit, named)
        if choice is None:
            unproven = {each.key for each in usable if each.seen <= waiting.since}
            choice = assign(candidates, self.limit, named & unproven)
        exchange = None if choice is None else exchanges.find(choice.key)
        if exchange is not None:
            exchange.count(expected_load(candidates))
        return exchange

    def _stay(
        self, session: Session | None, candidates: list[Candidate], failed: set[Key]
    ) -> Candidate | None:
        here = set(session.exchanges if session is not None else ()) - failed
        fit = [each for each in candidates if each.key in here and each.throughput <= self.limit]
        return min(fit, key=lambda each: (each.throughput, each.number), default=None)

    def check(self, now: float) -> None:
        """Assert the invariants."""
        assert all(each.deadline > now for each in self)  # noqa: S101
