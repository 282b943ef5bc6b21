"""Figures of daemons, as systems that watch many machines want them: named, with labels.

A daemon says once which metrics it has and, every second, how they stand. Names follow the
conventions of Prometheus: base units in the name, `_total` for what only grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate


class MetricKind(StrEnum):
    """What a metric does."""

    GAUGE = "gauge"
    """Goes up and down."""
    COUNTER = "counter"
    """Only grows, until its process is started again."""
    HISTOGRAM = "histogram"
    """Counts durations up to each of some bounds; only grows, as a counter does."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: a name, and what it means.

    Attributes:
        name: `roq_…`, with the unit and, for a counter, `_total` at the end.
        kind: gauge, counter or histogram.
        help: one sentence for people.
        labels: names of what tells its samples apart.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """How a metric stands.

    Attributes:
        metric: which one.
        value: in the unit of its name; of a histogram the sum.
        labels: one value for each of its labels.
        buckets: of a histogram: each bound, and how many were not above it. The last is `+Inf`.
    """

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()
    buckets: tuple[tuple[str, float], ...] = ()


def gauge(name: str, text: str, *labels: str) -> Metric:
    """A metric that goes up and down."""
    return Metric(name, MetricKind.GAUGE, text, labels)


def counter(name: str, text: str, *labels: str) -> Metric:
    """A metric that only grows."""
    return Metric(name, MetricKind.COUNTER, text, labels)


def histogram(name: str, text: str, *labels: str) -> Metric:
    """A metric that counts by bounds."""
    return Metric(name, MetricKind.HISTOGRAM, text, labels)


def buckets(bounds: Iterable[float], counts: Iterable[float]) -> tuple[tuple[str, float], ...]:
    """`Sample.buckets`, of how many were between each bound and the one before, and above all."""
    names = [*(f"{bound:g}" for bound in bounds), "+Inf"]
    return tuple(zip(names, accumulate(counts), strict=True))


def by_state(metric: Metric, states: Iterable[str], known: Iterable[str]) -> Iterator[Sample]:
    """How many of `states` there are of each kind; 0 for those of `known` that do not occur.

    A state that is not known has no sample of its own: the number of series stays bounded.
    """
    counts = dict.fromkeys(known, 0)
    for state in states:
        if state in counts:
            counts[state] += 1
    return (Sample(metric, count, (state,)) for state, count in counts.items())
