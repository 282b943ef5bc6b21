"""A queue as its policy is shown it, worked out from the course of the load.

A monitor counts what is on its way where it will be, so an exchange is shown with what all
those bring who are to be there: over the last period, and over the window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from roq.monitor.window import TOP_MAX
from roq.policy.snapshot import ExchangeView, PublisherView
from roq.simulation.forecast.exchange import Exchange, Publishers
from roq.simulation.forecast.load import Group
from roq.simulation.forecast.reports import Told

AGE_MAX = 3_600.0


class Viewer:
    """Makes views of the exchanges of one queue.

    Args:
        groups: of publishers.
        publishers: of the queue.
        moment: of the load that is played at a time.
    """

    def __init__(
        self, groups: list[Group], publishers: Publishers, moment: Callable[[float], float]
    ) -> None:
        self._timelines = [group.bytes for group in groups]
        self._publishers = publishers
        self._moment = moment
        self.young: dict[int, float] = {}
        """Who was assigned a moment ago, and when: reports do not tell all of him yet."""

    def told(self, exchange: Exchange, now: float) -> Told:
        """What the last report of an exchange says."""
        report = exchange.reports.last(now)
        if report.last:
            return report
        end = self._moment(report.end)
        recent, lasting = (end - report.end + each for each in (report.recent, report.lasting))
        told = exchange.reports.told = report._replace(
            last=tuple(each.mean(recent, end) for each in self._timelines),
            mean=tuple(each.mean(lasting, end) for each in self._timelines),
        )
        return told

    def oldest(self, exchanges: dict[int, Exchange], now: float) -> float:
        """The moment before which nothing counts in what the last reports say."""
        return min((self.told(each, now).lasting for each in exchanges.values()), default=now)

    def grow_up(self, before: float) -> None:
        """Forget since when those are there who have been there since a moment."""
        for publisher in [each for each, when in self.young.items() if when <= before]:
            del self.young[publisher]

    def loads(self, exchanges: dict[int, Exchange], now: float) -> dict[int, list[float]]:
        """[throughput, mean] of each exchange, bytes per minute."""
        found = {}
        for number, each in exchanges.items():
            if each.died is not None:
                found[number] = list(each.frozen)
                continue
            told = self.told(each, now)
            last = mean = 0.0
            for weight, recent, lasting in zip(each.planned, told.last, told.mean, strict=True):
                last += weight * recent
                mean += weight * lasting
            found[number] = [last, mean]
        for publisher in self.young:
            self._without_before(publisher, found, exchanges, now)
        return found

    def exchange(
        self, exchange: Exchange, load: list[float], now: float, busy: set[int]
    ) -> ExchangeView:
        """One exchange.

        Args:
            exchange: it.
            load: as `loads` gives it.
            now: the present time.
            busy: publishers that are on their way, or rest.
        """
        return ExchangeView(
            number=exchange.number,
            host=exchange.host,
            throughput=max(0.0, load[0]),
            mean=max(0.0, load[1]),
            publishers=len(exchange.members),
            top=self._top(exchange, self.told(exchange, now), busy),
            accepting=exchange.accepting,
            removable=exchange.scaled,
            age=min(now - exchange.since, AGE_MAX),
        )

    def everybody(self, exchange: Exchange, now: float, busy: set[int]) -> list[PublisherView]:
        """All publishers of an exchange, as for one that is emptied."""
        told = self.told(exchange, now)
        return self._shown(exchange, sorted(exchange.members), told, busy)

    def _share(self, publisher: int, told: Told) -> float:
        """What a publisher brings to each of its exchanges, bytes per minute."""
        publishers = self._publishers
        group = publishers.group[publisher]
        rate = publishers.weight[publisher] * told.last[group]
        if publisher in self.young:
            rate *= _part(self.young[publisher], told.recent, told.end)
        return rate / (len(publishers.place[publisher]) or 1)

    def _top(self, exchange: Exchange, told: Told, busy: set[int]) -> tuple[PublisherView, ...]:
        made_of = (exchange.version, told.last)
        if exchange.top_of == made_of and not self.young:
            return exchange.top
        chosen = self._busiest(exchange, told)
        late = [each for each, when in exchange.newcomers.items() if when <= told.recent]
        for publisher in late:
            del exchange.newcomers[publisher]
        listed = set(chosen)
        further = [each for each in exchange.newcomers if each not in listed]
        views = self._shown(exchange, chosen + further, told, busy)
        views.sort(key=_busiest_first)
        exchange.top, exchange.top_of = tuple(views), made_of
        return exchange.top

    def _busiest(self, exchange: Exchange, told: Told) -> list[int]:
        """Those that the report lists."""
        publishers = self._publishers
        if len(self._timelines) == 1:
            return sorted(exchange.members, key=publishers.rank.__getitem__)[:TOP_MAX]
        if len(exchange.members) <= TOP_MAX:
            return list(exchange.members)
        weight, group, last = publishers.weight, publishers.group, told.last
        return sorted(exchange.members, key=lambda each: (-weight[each] * last[group[each]], each))[
            :TOP_MAX
        ]

    def _shown(
        self, exchange: Exchange, chosen: Iterable[int], told: Told, busy: set[int]
    ) -> list[PublisherView]:
        """Views of publishers; those of the round before, where nothing is different."""
        if told.last != exchange.views_of or self.young:
            exchange.views, exchange.views_of = {}, told.last
        known, places, ids = exchange.views, self._publishers.place, self._publishers.ids
        found = []
        for publisher in chosen:
            view = known.get(publisher)
            place, moving = places[publisher], publisher in busy
            if view is None or view.exchanges is not place or view.moving is not moving:
                share = self._share(publisher, told)
                view = known[publisher] = PublisherView(ids[publisher], share, place, moving)
            found.append(view)
        return found

    def _without_before(
        self,
        publisher: int,
        found: dict[int, list[float]],
        exchanges: dict[int, Exchange],
        now: float,
    ) -> None:
        """Take out what a newcomer would have brought before it came."""
        publishers = self._publishers
        place = publishers.place[publisher]
        group, since = publishers.group[publisher], self.young[publisher]
        whole = publishers.weight[publisher] / max(1, len(place))
        for number in place:
            if number in found:
                told = self.told(exchanges[number], now)
                for index, (rate, begin) in enumerate(
                    ((told.last[group], told.recent), (told.mean[group], told.lasting))
                ):
                    found[number][index] -= whole * rate * (1 - _part(since, begin, told.end))


def _busiest_first(view: PublisherView) -> tuple[float, bytes]:
    return -view.throughput, view.id


def _part(since: float, begin: float, end: float) -> float:
    """The part of a period after a moment."""
    return min(1.0, max(0.0, (end - max(since, begin)) / (end - begin)))
