"""A queue as its policy is shown it, worked out from the course of the load.

A monitor counts what is on its way where it will be, so an exchange is shown with what all
those bring who are to be there: over the last period, and over the window.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import NamedTuple

from roq.monitor.window import RECENT_SECONDS, TOP_MAX, WINDOW_SECONDS
from roq.policy.snapshot import ExchangeView, PublisherView
from roq.simulation.forecast.exchange import Exchange, Publishers
from roq.simulation.forecast.load import Group
from roq.simulation.forecast.parameters import Parameters

AGE_MAX = 3_600.0


class Factors(NamedTuple):
    """What a publisher of weight 1 has brought, bytes per minute, by group."""

    end: float
    """When the last period ended."""
    last: tuple[float, ...]
    mean: tuple[float, ...]


class Viewer:
    """Makes views of the exchanges of one queue.

    Args:
        groups: of publishers.
        publishers: of the queue.
        parameters: of the model.
    """

    def __init__(self, groups: list[Group], publishers: Publishers, parameters: Parameters) -> None:
        self._groups = groups
        self._publishers = publishers
        self.period = parameters.kpi_seconds * ceil(RECENT_SECONDS / parameters.kpi_seconds)
        self.window = parameters.kpi_seconds * ceil(WINDOW_SECONDS / parameters.kpi_seconds)
        self._views: dict[int, PublisherView] = {}
        self._views_of: tuple[float, ...] = ()
        self.young: dict[int, float] = {}
        """Who was assigned within the window, and when: reports do not tell all of him yet."""

    def factors(self, end: float, moment: float) -> Factors:
        """What reports say.

        Args:
            end: when they were made.
            moment: of the load that was played then.
        """
        timelines = [group.bytes for group in self._groups]
        return Factors(
            end,
            tuple(timeline.mean(moment - self.period, moment) for timeline in timelines),
            tuple(timeline.mean(moment - self.window, moment) for timeline in timelines),
        )

    def grow_up(self, end: float) -> None:
        """Forget since when those are there who have been there for a whole window."""
        grown = [each for each, when in self.young.items() if end - when >= self.window]
        for publisher in grown:
            del self.young[publisher]

    def loads(self, exchanges: dict[int, Exchange], factors: Factors) -> dict[int, list[float]]:
        """[throughput, mean] of each exchange, bytes per minute."""
        found = {}
        for number, each in exchanges.items():
            if each.died is not None:
                found[number] = list(each.frozen)
                continue
            last = mean = 0.0
            for weight, recent, lasting in zip(
                each.planned, factors.last, factors.mean, strict=True
            ):
                last += weight * recent
                mean += weight * lasting
            found[number] = [last, mean]
        for publisher in self.young:
            self._without_before(publisher, found, factors)
        return found

    def exchange(
        self, exchange: Exchange, load: list[float], factors: Factors, now: float, busy: set[int]
    ) -> ExchangeView:
        """One exchange.

        Args:
            exchange: it.
            load: as `loads` gives it.
            factors: of this round.
            now: the present time.
            busy: publishers that are on their way, or rest.
        """
        return ExchangeView(
            number=exchange.number,
            host=exchange.host,
            throughput=max(0.0, load[0]),
            mean=max(0.0, load[1]),
            publishers=len(exchange.members),
            top=self._top(exchange, factors, busy),
            accepting=exchange.accepting,
            removable=exchange.scaled,
            age=min(now - exchange.since, AGE_MAX),
        )

    def everybody(
        self, exchange: Exchange, factors: Factors, busy: set[int]
    ) -> list[PublisherView]:
        """All publishers of an exchange, as for one that is emptied."""
        return self._shown(sorted(exchange.members), factors, busy)

    def share(self, publisher: int, factors: Factors) -> float:
        """What a publisher brings to each of its exchanges, bytes per minute."""
        publishers = self._publishers
        group = publishers.group[publisher]
        rate = publishers.weight[publisher] * factors.last[group]
        if publisher in self.young:
            begin = factors.end - self.period
            rate *= _part(self.young[publisher], begin, factors.end)
        return rate / (len(publishers.place[publisher]) or 1)

    def _top(
        self, exchange: Exchange, factors: Factors, busy: set[int]
    ) -> tuple[PublisherView, ...]:
        made_of = (exchange.version, factors.last)
        if exchange.top_of == made_of and not self.young:
            return exchange.top
        chosen = self._busiest(exchange, factors)
        recent = factors.end - self.period
        late = [each for each, when in exchange.newcomers.items() if when <= recent]
        for publisher in late:
            del exchange.newcomers[publisher]
        listed = set(chosen)
        further = [each for each in exchange.newcomers if each not in listed]
        views = self._shown(chosen + further, factors, busy)
        views.sort(key=_busiest_first)
        exchange.top, exchange.top_of = tuple(views), made_of
        return exchange.top

    def _busiest(self, exchange: Exchange, factors: Factors) -> list[int]:
        """Those that the report lists."""
        publishers = self._publishers
        if len(self._groups) == 1:
            return sorted(exchange.members, key=publishers.rank.__getitem__)[:TOP_MAX]
        if len(exchange.members) <= TOP_MAX:
            return list(exchange.members)
        weight, group, last = publishers.weight, publishers.group, factors.last
        return sorted(exchange.members, key=lambda each: (-weight[each] * last[group[each]], each))[
            :TOP_MAX
        ]

    def _shown(
        self, chosen: Iterable[int], factors: Factors, busy: set[int]
    ) -> list[PublisherView]:
        """Views of publishers; those of the round before, where nothing is different."""
        if factors.last != self._views_of or self.young:
            self._views, self._views_of = {}, factors.last
        known, places, ids = self._views, self._publishers.place, self._publishers.ids
        found = []
        for publisher in chosen:
            view = known.get(publisher)
            place, moving = places[publisher], publisher in busy
            if view is None or view.exchanges is not place or view.moving is not moving:
                share = self.share(publisher, factors)
                view = known[publisher] = PublisherView(ids[publisher], share, place, moving)
            found.append(view)
        return found

    def _without_before(
        self, publisher: int, found: dict[int, list[float]], factors: Factors
    ) -> None:
        """Take out what a newcomer would have brought before it came."""
        publishers = self._publishers
        place = publishers.place[publisher]
        group, since = publishers.group[publisher], self.young[publisher]
        whole = publishers.weight[publisher] / max(1, len(place))
        for number in place:
            if number in found:
                for index, (rate, span) in enumerate(
                    ((factors.last[group], self.period), (factors.mean[group], self.window))
                ):
                    there = _part(since, factors.end - span, factors.end)
                    found[number][index] -= whole * rate * (1 - there)


def _busiest_first(view: PublisherView) -> tuple[float, bytes]:
    return -view.throughput, view.id


def _part(since: float, begin: float, end: float) -> float:
    """The part of a period after a moment."""
    return min(1.0, max(0.0, (end - max(since, begin)) / (end - begin)))
