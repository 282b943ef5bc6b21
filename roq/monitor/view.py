"""A queue as its policy is shown it, made from what the monitor knows."""

from __future__ import annotations

from collections.abc import Collection

from roq.model import PublisherId
from roq.monitor.exchanges import Exchange, Exchanges
from roq.monitor.moves import Moves
from roq.monitor.scaling_rules import Rules
from roq.monitor.sessions import Session, Sessions
from roq.policy.snapshot import ExchangeView, PublisherView, QueueView


class Viewer:
    """Makes views of one queue.

    A move that is under way counts where it leads to. A publisher that cannot be told anything
    counts as moving: it is to be left alone.
    """

    def __init__(self, exchanges: Exchanges, sessions: Sessions, moves: Moves) -> None:
        self._exchanges = exchanges
        self._sessions = sessions
        self._moves = moves

    def queue(
        self, rules: Rules, *, scaling: bool, now: float, without: Collection[int] = ()
    ) -> QueueView:
        """The queue at this moment.

        Args:
            without: exchanges that do not count.
        """
        return QueueView(
            now=now,
            limit=rules.limit,
            rules=rules.in_force,
            exchanges=tuple(
                self._exchange(each, rules, now)
                for each in self._exchanges
                if each.number not in without
            ),
            hosts=rules.hosts,
            latency_ms=self._sessions.latency_ms(),
            scaling=scaling,
            missing=len(rules.wanted - self._exchanges.numbers()),
        )

    def publishers_at(self, exchange: Exchange, now: float) -> list[PublisherView]:
        """All publishers of an exchange that can be told to go, the busiest first."""
        found = []
        for session in self._sessions.placed_at(exchange.key):
            rate = exchange.window.publisher_rate(PublisherId(session.client)) or 0.0
            found.append(self._publisher(session, rate * 60, now))
        return sorted(found, key=lambda each: (-each.throughput, each.id))

    def _exchange(self, exchange: Exchange, rules: Rules, now: float) -> ExchangeView:
        info, window = exchange.info, exchange.window
        takes = self._exchanges.accepts(exchange) and exchange.open and not exchange.doubted
        last = window.last().bytes_in * 60 + self._moves.shift_last(exchange)
        mean = window.mean().bytes_in * 60 + self._moves.shift(exchange)
        return ExchangeView(
            number=info.number,
            host=info.host,
            throughput=max(0.0, last),
            mean=max(0.0, mean),
            publishers=exchange.publishers(self._sessions.publishers_at(exchange.key)),
            top=tuple(self._top(exchange, now)),
            accepting=takes,
            removable=info.number in rules.scaled,
            age=now - exchange.since,
        )

    def _top(self, exchange: Exchange, now: float) -> list[PublisherView]:
        """The busiest, and those who came a moment ago with what they are known to bring."""
        told = exchange.window.top()
        rates = {PublisherId(each.load.publisher): each.bytes * 60 for each in told}
        rates.update(self._moves.newcomers(exchange))
        found = []
        for publisher, throughput in rates.items():
            session = self._sessions.find(publisher)
            if session is None or not session.exchanges:
                alone = (exchange.number,)
                found.append(PublisherView(publisher, throughput, alone, moving=True))
            elif exchange.key in session.exchanges:
                found.append(self._publisher(session, throughput, now))
        return sorted(found, key=lambda each: (-each.throughput, each.id))

    def _publisher(self, session: Session, throughput: float, now: float) -> PublisherView:
        return PublisherView(
            id=PublisherId(session.client),
            throughput=throughput,
            exchanges=tuple(number for number, _ in session.exchanges),
            moving=self._moves.busy(session.client, now),
        )
