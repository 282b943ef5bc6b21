"""Publishers that ask where to publish: chosen by the rule, or waiting until an exchange serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from roq.model import monitor_epoch, publisher_epoch
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
        perhaps the only one. So is one whose disk has no room, if there is no other. One that is
        being emptied is not: that is called off if nothing else takes publishers, but for one that
        was told to accept nothing, as it is about to be stopped. It would hold them up.

        Args:
            waiting: the publisher.
            exchanges, sessions: of the queue.
            shift: bytes per minute that moves under way will bring to an exchange.
        """
        named = set(waiting.message.failed[:FAILED_MAX])
        usable = exchanges.accepting() or exchanges.staying()
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


# The epochs of publishers: given out rising, and those of another monitor noticed.

EPOCH_END: Final = 1 << 62
SUPERSEDED_SECONDS: Final = 30.0
"""A monitor that has met the epoch of a newer one holds still until it has met none for so long."""


class PublisherEpochs:
    """A higher epoch of a publisher always wins, and a newer monitor gives out higher ones.

    Two monitors of one queue may both believe that they are the one, for a while. The older of them
    meets publishers that the newer one has placed, and then decides nothing but what publishers ask
    it for.
    """

    def __init__(self, own: int) -> None:
        self._own = own
        self._counter = 0
        self._superseded_until = float("-inf")

    def next(self, above: int = 0) -> int:
        """Higher than any that this monitor or an earlier one has given out, and than `above`."""
        self._counter += 1
        return max(publisher_epoch(self._own, self._counter), above + 1)

    def plausible(self, epoch: int) -> bool:
        """Whether some monitor can have given this epoch out."""
        if not 0 < epoch < EPOCH_END:
            return False
        given = publisher_epoch(self._own, self._counter)
        return monitor_epoch(epoch) != self._own or epoch <= given

    def told(self, epoch: int, now: float) -> bool:
        """A publisher that is served publishes under this epoch; True if that is bad news.

        Bad news is the epoch of a newer monitor, told for the first time for a while.
        """
        if monitor_epoch(epoch) <= self._own:
            return False
        news = not self.superseded(now)
        self._superseded_until = now + SUPERSEDED_SECONDS
        return news

    def superseded(self, now: float) -> bool:
        """Whether there seems to be a newer monitor of this queue."""
        return now < self._superseded_until
