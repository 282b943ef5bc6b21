"""Publishers that ask where to publish: chosen by the rule, or waiting until an exchange serves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from roq.model import publisher_epoch
from roq.monitor.events import Peer
from roq.monitor.exchanges import Exchange, Exchanges
from roq.monitor.sessions import Sessions
from roq.policy.assignment import assign, expected_load
from roq.protocol.control import Attach

WAIT_SECONDS: Final = 2.5
"""A publisher waits so long for an exchange; less than clients wait for an answer."""
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
        return self.since + WAIT_SECONDS


class Publishers:
    """Who waits, and the epochs that were given out."""

    def __init__(self, monitor_epoch: int, limit: float) -> None:
        self._monitor_epoch = monitor_epoch
        self._limit = limit
        self._counter = 0
        self._waiting: dict[bytes, Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Waiting]:
        """In the order of arrival."""
        return iter(list(self._waiting.values()))

    def next_epoch(self) -> int:
        """Higher than any that this monitor or an earlier one has given out."""
        self._counter += 1
        return publisher_epoch(self._monitor_epoch, self._counter)

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

    def choose(self, waiting: Waiting, exchanges: Exchanges, sessions: Sessions) -> Exchange | None:
        """The exchange for a publisher, which is counted there at once.

        One that the publisher calls failed counts as failed until it has reported once more: after
        that it is as good as any other, and perhaps the only one.
        """
        usable = exchanges.accepting()
        candidates = [each.candidate(sessions.publishers_at(each.key), 0.0) for each in usable]
        named = {(number, epoch) for number, epoch in waiting.message.failed[:FAILED_MAX]}
        here = sessions.find(waiting.message.publisher)
        stay = exchanges.find(here.exchange) if here is not None and here.exchange else None
        if stay is not None and not stay.stopping and stay.key not in named:
            return stay
        choice = assign(candidates, self._limit, named)
        if choice is None:
            unproven = {each.key for each in usable if each.seen <= waiting.since}
            choice = assign(candidates, self._limit, named & unproven)
        exchange = None if choice is None else exchanges.find(choice.key)
        if exchange is not None:
            exchange.count(expected_load(candidates))
        return exchange

    def check(self, now: float) -> None:
        """Assert the invariants."""
        assert all(each.deadline > now for each in self)  # noqa: S101
