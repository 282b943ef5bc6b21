"""What follows from a record: pure functions from documents with times to figures.

Rates are taken from the totals of successive documents, not from the smoothed rates that the
documents carry as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from roq.client.admin.statistics import Sample
from roq.protocol.kpi import ExchangeKpi, SubscriberKpi
from roq.simulation.real.record import Record

Series: TypeAlias = list[tuple[float, float]]
"""(seconds on the monotonic clock, value)"""

BALANCED = 1.25
"""Highest load over mean load at which exchanges count as balanced."""
OF_BEST = 1.1
"""Or so many times the best that is possible without striping, where that is more."""


class Window(NamedTuple):
    """From when to when."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long."""
        return self.end - self.begin


class Period(NamedTuple):
    """What happened at one exchange between two of its documents."""

    begin: float
    end: float
    per_second: float


def periods(samples: Iterable[Sample], figure: str = "bytes_in") -> dict[int, list[Period]]:
    """How a total of each exchange has grown, by its number."""
    seen: dict[int, list[tuple[float, ExchangeKpi]]] = {}
    for when, document in samples:
        if isinstance(document, ExchangeKpi):
            seen.setdefault(document.number, []).append((when, document))
    return {
        number: [
            Period(then, when, (getattr(now, figure) - getattr(before, figure)) / (when - then))
            for (then, before), (when, now) in pairwise(documents)
            if when > then and now.epoch == before.epoch
        ]
        for number, documents in seen.items()
    }


def throughput(samples: Iterable[Sample], figure: str = "bytes_in") -> dict[int, Series]:
    """What came in (or another total) per second at each exchange, by number; over each period."""
    return {
        number: [(period.end, period.per_second) for period in found]
        for number, found in periods(samples, figure).items()
    }


def rate(samples: Iterable[Sample], window: Window, figure: str = "bytes_in") -> float:
    """What came in at all exchanges together per second, within a window."""
    return sum(within(found, window) for found in periods(samples, figure).values())


def within(found: Iterable[Period], window: Window) -> float:
    """What came in per second within a window, as far as it was told."""
    if window.seconds <= 0:
        return 0.0
    shares = (
        max(0.0, min(each.end, window.end) - max(each.begin, window.begin)) * each.per_second
        for each in found
    )
    return sum(shares) / window.seconds


def loads(samples: Iterable[Sample], numbers: Sequence[int]) -> list[tuple[float, list[float]]]:
    """The throughput of these exchanges side by side, at each period of the first of them.

    An exchange that has not been heard of twice by then counts as 0.
    """
    series = throughput(samples)
    times = sorted({when for number in numbers for when, _ in series.get(number, [])})
    rows = []
    first = numbers[0]
    for when in [when for when in times if when in dict(series.get(first, []))]:
        row = []
        for number in numbers:
            past = [value for then, value in series.get(number, []) if then <= when]
            row.append(past[-1] if past else 0.0)
        rows.append((when, row))
    return rows


def imbalance(row: Sequence[float]) -> float:
    """The highest load over the mean one; 1.0: all alike."""
    mean = sum(row) / len(row) if row else 0.0
    return max(row) / mean if mean > 0 else 1.0


def best_imbalance(publishers: Sequence[float], exchanges: int) -> float:
    """The lowest that placing whole publishers can reach, nearly: the busiest first, each to the
    exchange that has least."""
    row = [0.0] * exchanges
    for size in sorted(publishers, reverse=True):
        row[row.index(min(row))] += size
    return imbalance(row)


def periods_until_balanced(
    rows: Sequence[tuple[float, Sequence[float]]], since: float, wanted: float, period: float
) -> float | None:
    """KPI periods from `since` until the first row that is balanced; None if none is."""
    for when, row in rows:
        if when > since and imbalance(row) <= wanted:
            return (when - since) / period
    return None


def first_move_after(record: Record, when: float) -> float | None:
    """Seconds from this moment until the first publisher had moved; None if none has."""
    later = [then for then, _ in record.moves() if then >= when]
    return later[0] - when if later else None


def serve_seconds(record: Record) -> list[float]:
    """For each exchange that scaling has added: from the decision until it was heard of."""
    first: dict[int, float] = {}
    for when, document in record.samples:
        if isinstance(document, ExchangeKpi):
            first.setdefault(document.number, when)
    starts = [when for when, _ in record.scalings("out", "started")]
    seconds = []
    for when, document in record.scalings("out", "done"):
        began = [start for start in starts if start <= when]
        # The word that it is done and its first report come one after the other, either way.
        heard = max(when, first.get(document.number, when))
        if began:
            seconds.append(heard - began[-1])
    return seconds


def publishers_at(samples: Iterable[Sample], when: float) -> dict[int, int]:
    """How many publishers each exchange had at a moment, by the last documents before."""
    found: dict[int, int] = {}
    for then, document in samples:
        if then > when:
            break
        if isinstance(document, ExchangeKpi):
            found[document.number] = document.publishers
    return found


def quiet_windows(
    moves: Sequence[Window], whole: Window, distance: float, period: float
) -> list[tuple[Window, Window]]:
    """For each window of a move an equally long one between moves, where there is one.

    It lies whole KPI periods later, because at the same moment of each period exchanges report,
    which has its price as well.

    Args:
        moves: of one publisher.
        whole: nothing outside this is taken.
        distance: at least so far from any move, seconds.
        period: between two reports, seconds.
    """
    pairs = []
    taken: list[Window] = list(moves)
    for move in sorted(moves):
        later = Window(move.begin + period, move.end + period)
        while later.end <= whole.end and any(_touches(later, each, distance) for each in taken):
            later = Window(later.begin + period, later.end + period)
        if later.end <= whole.end:
            taken.append(later)
            pairs.append((move, later))
    return pairs


def _touches(one: Window, other: Window, distance: float) -> bool:
    return one.begin < other.end + distance and other.begin < one.end + distance


def latency_of(record: Record) -> Series:
    """Mean latency over all subscribers that receive, as they tell it: milliseconds, second by
    second."""
    told: dict[int, list[float]] = {}
    for when, document in record.samples:
        if isinstance(document, SubscriberKpi) and document.received_per_second > 0:
            told.setdefault(int(when - record.began), []).append(document.latency_ms)
    return [
        (record.began + second + 0.5, sum(values) / len(values))
        for second, values in sorted(told.items())
    ]


def places(samples: Iterable[Sample]) -> dict[str, int]:
    """Publisher → number of the exchange to which it brings most, by the last documents."""
    last: dict[int, ExchangeKpi] = {}
    for _, document in samples:
        if isinstance(document, ExchangeKpi):
            last[document.number] = document
    found: dict[str, tuple[float, int]] = {}
    for number, document in last.items():
        for each in document.top:
            here = (each.bytes_per_second, number)
            found[each.publisher] = max(here, found.get(each.publisher, here))
    return {publisher: number for publisher, (_, number) in found.items()}
