"""Who publishes where: exchanges and publishers of one queue, and the loads that follow.

All changes go through here, so that sums of weights and places always agree (`check`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import fsum

from roq.policy.assignment import Candidate, assign, expected_load
from roq.simulation.forecast.exchange import NOWHERE, Exchange, Place, Publishers
from roq.simulation.forecast.flights import Flight
from roq.simulation.forecast.reports import Reports


class Population:
    """Exchanges and publishers of one queue.

    Args:
        publishers: all that there will ever be.
        groups: how many groups they have.
        reports: of another exchange.
    """

    def __init__(self, publishers: Publishers, groups: int, reports: Callable[[], Reports]) -> None:
        self.publishers = publishers
        self.exchanges: dict[int, Exchange] = {}
        """By number; those too whose death their monitor does not know yet."""
        self._groups = groups
        self._reports = reports
        self._next = 1

    def add(self, host: str, now: float, *, scaled: bool, number: int = 0) -> Exchange:
        """One exchange more, or one that has died again."""
        if not number:
            number = self._next
            self._next += 1
        zero = [0.0] * self._groups
        exchange = Exchange(number, host, now, self._reports(), zero, list(zero), scaled=scaled)
        self.exchanges[number] = exchange
        self.exchanges = dict(sorted(self.exchanges.items()))
        return exchange

    def remove(self, number: int) -> None:
        """An exchange is no more."""
        del self.exchanges[number]

    def living(self) -> list[Exchange]:
        """Those that serve."""
        return [each for each in self.exchanges.values() if each.died is None]

    def assign(self, publisher: int, means: dict[int, float], limit: float, tick: int) -> bool:
        """Give a newcomer its exchange, by the rule of the monitor; whether there is one.

        Args:
            publisher: that is nowhere.
            means: what exchanges are known to carry, by the last reports.
            limit: of one exchange.
            tick: the present period: those who came in it are counted by what they will bring.
        """
        living = self.living()
        usable = [each for each in living if not each.leaving] or living
        if not usable:
            return False
        if len(usable) == 1:
            self._settle(publisher, (usable[0].number,))
            return True
        candidates = [_candidate(each, means, tick) for each in usable]
        chosen = assign(candidates, limit)
        assert chosen is not None  # noqa: S101 - none of them has failed
        exchange = self.exchanges[chosen.number]
        expected = exchange.arrivals[1] if exchange.arrivals[0] == tick else 0.0
        exchange.arrivals = (tick, expected + expected_load(candidates))
        self._settle(publisher, (chosen.number,))
        return True

    def leave(self, publisher: int, flight: Flight | None) -> None:
        """A publisher is nowhere any more.

        Args:
            publisher: who.
            flight: its move, if it is on its way.
        """
        place = self.publishers.place[publisher]
        self._weigh(publisher, place, -1, planned=flight is None, actual=True)
        if flight is not None:
            self._weigh(publisher, flight.targets, -1, planned=True, actual=False)
        for exchange in self._at(place):
            exchange.members.discard(publisher)
            exchange.newcomers.pop(publisher, None)
        self.publishers.place[publisher] = NOWHERE

    def set_off(self, flight: Flight) -> None:
        """It counts where it will be."""
        self._weigh(flight.publisher, flight.sources, -1, planned=True, actual=False)
        self._weigh(flight.publisher, flight.targets, 1, planned=True, actual=False)

    def turn_back(self, flight: Flight) -> None:
        """It stays where it was."""
        self._weigh(flight.publisher, flight.targets, -1, planned=True, actual=False)
        self._weigh(flight.publisher, flight.sources, 1, planned=True, actual=False)

    def land(self, flight: Flight, now: float) -> None:
        """It is there."""
        publisher = flight.publisher
        self._weigh(publisher, flight.sources, -1, planned=False, actual=True)
        self._weigh(publisher, flight.targets, 1, planned=False, actual=True)
        for exchange in self._at(flight.sources):
            exchange.members.discard(publisher)
            exchange.newcomers.pop(publisher, None)
        for exchange in self._at(flight.targets):
            exchange.members.add(publisher)
            exchange.newcomers[publisher] = now
        self.publishers.place[publisher] = flight.targets

    def alive(self, targets: Sequence[int]) -> bool:
        """Whether all these exchanges serve."""
        for number in targets:
            exchange = self.exchanges.get(number)
            if exchange is None or exchange.died is not None:
                return False
        return True

    def check(self) -> None:
        """Assert that places and sums say the same."""
        for exchange in self.living():
            for group in range(self._groups):
                publishers = self.publishers
                true = fsum(
                    publishers.weight[each] / len(publishers.place[each])
                    for each in exchange.members
                    if publishers.group[each] == group
                )
                assert abs(true - exchange.actual[group]) < 1e-6  # noqa: S101
            for publisher in exchange.members:
                assert exchange.number in self.publishers.place[publisher]  # noqa: S101

    def _settle(self, publisher: int, place: Place) -> None:
        self.publishers.place[publisher] = place
        self._weigh(publisher, place, 1, planned=True, actual=True)
        for exchange in self._at(place):
            exchange.members.add(publisher)

    def _weigh(
        self, publisher: int, place: Place, sign: int, *, planned: bool, actual: bool
    ) -> None:
        """Count somebody, or count him no more; whoever changes is another version."""
        if not place:
            return
        group = self.publishers.group[publisher]
        share = sign * self.publishers.weight[publisher] / len(place)
        for number in place:
            exchange = self.exchanges.get(number)
            if exchange is None:
                continue
            if planned:
                exchange.planned[group] += share
            if actual:
                exchange.actual[group] += share
            exchange.version += 1

    def _at(self, numbers: Iterable[int]) -> list[Exchange]:
        exchanges = self.exchanges
        return [exchanges[number] for number in numbers if number in exchanges]


def _candidate(exchange: Exchange, means: dict[int, float], tick: int) -> Candidate:
    expected = exchange.arrivals[1] if exchange.arrivals[0] == tick else 0.0
    load = max(0.0, means.get(exchange.number, 0.0) + expected)
    return Candidate(exchange.number, 1, len(exchange.members), load)
