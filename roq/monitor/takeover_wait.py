"""How long a new monitor of an old queue waits before it shows a list of exchanges.

    nobody has told the exchanges --Elasticity--> some are missing --all have reported--> over
                                                        \\--in time or not--> over

An exchange that is missing in the list counts as gone for good. Exchanges learn where the new
monitor is from the same configuration managers as clients do, so until one of these has spoken
there is nobody who could be told anything.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import takewhile
from math import inf
from typing import Final, NamedTuple

from roq.model import exchange_name
from roq.monitor.events import Effect, Peer, Send
from roq.protocol.control import failure
from roq.timing import MONITOR_ANSWERS_SECONDS, TAKEOVER_MOST_SECONDS, TAKEOVER_SECONDS

NUMBERS_MAX: Final = 4_096
NAMES_MAX: Final = 10


class TakeoverWait:
    """The wait; see the module."""

    def __init__(self) -> None:
        self._since = inf
        self._wanted: frozenset[int] | None = None

    def told(self, numbers: Collection[int] | None, now: float) -> None:
        """A configuration manager that leads has spoken.

        Args:
            numbers: of all exchanges that the queue has; None if it has not said that.
            now: the present time.
        """
        self._since = min(self._since, now)
        if numbers is not None:
            self._wanted = frozenset(list(numbers)[:NUMBERS_MAX])

    def over(self, reported: Collection[int], now: float) -> bool:
        """Whether the list may be shown, with these exchanges in it."""
        if not self._wanted:
            return now >= self._since + TAKEOVER_SECONDS
        return self._wanted <= set(reported) or now >= self._since + TAKEOVER_MOST_SECONDS

    def missing(self, reported: Collection[int]) -> list[int]:
        """Numbers of the exchanges that the queue has and that have not reported."""
        return sorted((self._wanted or frozenset()) - set(reported))

    def outcome(self, reported: Collection[int]) -> str:
        """In a few words, who has reported and who has not."""
        missing = self.missing(reported)
        names = ", ".join(exchange_name(number) for number in missing[:NAMES_MAX])
        text = f"{len(reported)} exchanges have reported"
        return f"{text}, not {names}" if names else text

    def next_deadline(self) -> float | None:
        """When it is over at the latest; None before a leading manager has told of the queue."""
        if self._since == inf:
            return None
        return self._since + (TAKEOVER_MOST_SECONDS if self._wanted else TAKEOVER_SECONDS)


# Subscribers that wait until a new monitor knows all exchanges.


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
