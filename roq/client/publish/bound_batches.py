"""What must not be in two logs, at exchanges that were left. Pure.

    left --its log is served again--> asked under its numbers --> acknowledged, or sent there again
      +-- passed by a newer link, its log is gone for good, or the delivery time-out is over
                                                              --> unknown

A batch that has left for a durable exchange may be in its log although nobody has acknowledged it.
Of topics that say so (requests that must not be begun twice) such a batch is sent to no other
exchange: the link that it left on stays, and its exchange is asked as soon as it serves its log.

Delayed messages, which nobody recognises in a second log, are bound as well, but not for long:
late is worse than twice, so what its exchange has not answered for by then goes to others.
"""

from __future__ import annotations

from collections.abc import Container, Set
from typing import Final

from roq.client.publish.link import Link, LinkEffect, LinkPhase
from roq.client.publish.pending_batch import PendingBatch
from roq.model import ExchangeInfo, LogId
from roq.protocol.delayed import DELAYED_TOPIC

LINKS_MAX: Final = 16
"""Exchanges that are waited for; with more, what is bound to the first is unknown."""
PATIENCE_SECONDS: Final = 5.0
"""So long what is bound only for a while waits for an exchange to come back: one that was killed or
hangs serves again by then."""
PATIENCE_PARTS: Final = 4
"""It is this part of the delivery time-out at most."""
FOR_A_WHILE: Final = frozenset({DELAYED_TOPIC.decode()})
"""Topics that are bound only for a while, unless they are of those that must not be in two logs: a
publisher of transactions says so of its half messages."""
NAMED_MAX: Final = 1_000
"""Logs that are known to have been there; with more, those that serve."""
AGAIN_SECONDS: Final = 1.0
"""An exchange that does not answer is asked again after so long."""


class BoundLinks:
    """The links that stay for what must not be in two logs.

    Args:
        delivery_seconds: what is not acknowledged for so long is given up.

    Attributes:
        topics: of what must not be; any thread may add some.
        links: the one that was left first at the front.
    """

    def __init__(self, delivery_seconds: float) -> None:
        self.topics: set[str] = set()
        self.links: tuple[Link, ...] = ()
        self._patience = min(PATIENCE_SECONDS, delivery_seconds / PATIENCE_PARTS)
        self._left: dict[int, float] = {}
        """By number of a link: when it was left."""
        self._ask_at = 0.0
        self._named: set[LogId] = set()
        """Logs that a topology has named, and"""
        self._gone: set[LogId] = set()
        """those of them that the last one says to be gone for good."""

    def topology(self, exchanges: tuple[ExchangeInfo, ...], logs: frozenset[int]) -> None:
        """Which exchanges serve, and the numbers of all that come back; none: that is not known."""
        serving = {exchange.log for exchange in exchanges}
        numbers = {log.number for log in serving}
        self._named |= serving
        if logs:
            self._gone = {
                log
                for log in self._named - serving
                if log.number not in logs or log.number in numbers  # with another log by now
            }
        if len(self._named) > NAMED_MAX:
            self._named = serving

    def binds(self, link: Link) -> bool:
        """Whether this link has what would be bound to it if it were left."""
        window = link.window
        return window.buffer.durable and any(
            sealed.stream.topic in self._bound and not sealed.void for sealed in window
        )

    def waits(self, link: Link) -> bool:
        """Whether this link has to go on, as a newer one to its exchange would pass it."""
        return link in self.links or (link.phase is LinkPhase.IDLE and self.binds(link))

    def take(self, link: Link, now: float) -> list[PendingBatch]:
        """A link is left: what others are to send. The rest stays, and the link with it."""
        if not link.window.buffer.durable:
            return link.window.take_all()
        batches = link.window.take_unbound(self._bound)
        if link.log in self._gone:
            batches += link.window.take_out(self._for_a_while)
        self._give_up(link)
        if len(link.window):
            link.reason = f"exchange {link.name} may have it, and was left" + (
                f": {link.reason}" if link.reason else ""
            )
            self.links = (*self.links, link)
            self._left[link.number] = now
            for oldest in self.links[:-LINKS_MAX]:
                batches += oldest.window.take_out(self._for_a_while)
                oldest.window.abandon(f"exchange {oldest.name} may have it, and so have others")
        return batches

    def take_late(self, now: float) -> list[PendingBatch]:
        """What was bound for a while that is over: others are to send it now."""
        late = [
            link
            for link in self._impatient()
            if link.passed or link.log in self._gone or now >= self._until(link)
        ]
        return [sealed for link in late for sealed in link.window.take_out(self._for_a_while)]

    def take_back(self, exchange: ExchangeInfo) -> Link | None:
        """The link that waits for the log of this exchange, if there is one; it does no more."""
        found = next((link for link in self.links if link.goes_on_at(exchange)), None)
        self._keep([link for link in self.links if link is not found])
        return found

    def take_over(self) -> list[Link]:
        """The links at which nothing is waited for any more; they do not stay."""
        over = []
        for link in self.links:
            self._give_up(link)
            owed = any(sealed.owed and not sealed.void for sealed in link.window)
            if not (owed or link.window.owes(self._for_a_while)):
                over.append(link)
        self._keep([link for link in self.links if link not in over])
        return over

    def ask(
        self, serving: Container[LogId] | None, ready_seconds: float, now: float
    ) -> list[LinkEffect]:
        """Ask the exchanges that serve now, if it is time."""
        away = self._away(serving)
        if not away or now < self._ask_at:
            return []
        self._ask_at = now + AGAIN_SECONDS
        return [
            effect
            for link in away
            if link.exchange is not None
            for effect in link.go_on(link.exchange, ready_seconds, now)
        ]

    def next_deadline(self, serving: Container[LogId] | None) -> float | None:
        """When `ask` or `take_late` is wanted; None: not before something happens."""
        times = [self._until(link) for link in self._impatient()]
        if self._away(serving):
            times.append(self._ask_at)
        return min(times, default=None)

    @property
    def _bound(self) -> Set[str]:
        return self.topics | FOR_A_WHILE

    @property
    def _for_a_while(self) -> Set[str]:
        return FOR_A_WHILE - self.topics  # a delayed request must not be begun twice either

    def _keep(self, links: list[Link]) -> None:
        self.links = tuple(links)
        self._left = {link.number: self._left[link.number] for link in links}

    def _until(self, link: Link) -> float:
        return self._left[link.number] + self._patience

    def _impatient(self) -> list[Link]:
        """The links that do not work and have something that is bound only for a while."""
        away = [link for link in self.links if link.phase is not LinkPhase.READY]
        return [link for link in away if link.window.owes(self._for_a_while)]

    def _give_up(self, link: Link) -> None:
        """What is bound to this link is unknown, if nobody will say more."""
        if link.passed:
            link.window.abandon(f"exchange {link.name} may have it: {link.reason}")
        elif link.log in self._gone:
            why = "is gone with its log, and may have had it"
            link.window.abandon(f"exchange {link.name} {why}")

    def _away(self, serving: Container[LogId] | None) -> list[Link]:
        idle = [link for link in self.links if link.phase is LinkPhase.IDLE]
        return [link for link in idle if serving is not None and link.log in serving]
