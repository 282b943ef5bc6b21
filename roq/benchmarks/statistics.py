"""From samples to figures: medians over rounds, percentiles over messages, paired ratios."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence

import msgspec

from roq.benchmarks.case import Case, CaseSample

PERCENTILES = (50.0, 99.0, 99.9)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that `percent` of all values do not exceed (nearest rank).

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("a percentile needs at least one value")
    ordered = sorted(values)
    rank = math.ceil(percent / 100 * len(ordered))
    return ordered[max(rank, 1) - 1]


class Figure(msgspec.Struct, frozen=True):
    """What one contender reached in one case, over all rounds."""

    contender: str
    case: Case
    rounds: int
    rate: float
    """Messages per second, median."""
    rate_low: float
    rate_high: float
    bytes_rate: float
    """Payload bytes per second to one subscriber, median."""
    cpu_us: dict[str, float]
    """CPU µs per published message (= seconds per million) by role, median."""
    rss: dict[str, int]
    """Resident bytes by role, the largest of all rounds."""
    latency_us: dict[str, float] = {}
    """Percentiles (`p50`, `p99`, `p99.9`) over the messages of all rounds."""


def figure(samples: Sequence[CaseSample]) -> Figure:
    """Sum up the samples of one contender in one case."""
    first, rates = samples[0], [sample.rate for sample in samples]
    ages = [age for sample in samples for age in sample.latencies_us]
    roles, parts = list(first.cpu), list(first.rss)
    return Figure(
        contender=first.contender,
        case=first.case,
        rounds=len(samples),
        rate=statistics.median(rates),
        rate_low=min(rates),
        rate_high=max(rates),
        bytes_rate=statistics.median(sample.bytes_rate for sample in samples),
        cpu_us={role: statistics.median(cpu_us(one, role) for one in samples) for role in roles},
        rss={part: max(one.rss.get(part, 0) for one in samples) for part in parts},
        latency_us={f"p{p:g}": percentile(ages, p) for p in PERCENTILES} if ages else {},
    )


def figures(samples: Iterable[CaseSample]) -> list[Figure]:
    """Sum up all samples, in the order in which contenders and cases first appear."""
    groups: dict[tuple[str, Case], list[CaseSample]] = {}
    for sample in samples:
        groups.setdefault((sample.contender, sample.case), []).append(sample)
    return [figure(group) for group in groups.values()]


class Ratio(msgspec.Struct, frozen=True):
    """One contender against another: the median of the ratios of each round."""

    median: float
    low: float
    high: float
    rounds: int


def ratio(
    samples: Iterable[CaseSample],
    ours: tuple[str, Case],
    theirs: tuple[str, Case],
    measure: Callable[[CaseSample], float],
) -> Ratio | None:
    """Compare round by round what was measured within seconds of each other.

    The machine changes over minutes (other guests, temperature); a ratio within a round does not
    see that. None if there is no round in which both were measured.
    """
    by_round: dict[int, dict[tuple[str, Case], float]] = {}
    for sample in samples:
        key = (sample.contender, sample.case)
        if key in (ours, theirs):
            by_round.setdefault(sample.round, {})[key] = measure(sample)
    values = [
        both[ours] / both[theirs] for both in by_round.values() if ours in both and both.get(theirs)
    ]
    if not values:
        return None
    return Ratio(statistics.median(values), min(values), max(values), len(values))


def rate(sample: CaseSample) -> float:
    """Messages per second."""
    return sample.rate


def cpu_us(sample: CaseSample, role: str) -> float:
    """CPU microseconds that one role spent per published message."""
    return sample.cpu.get(role, 0.0) * 1e6 / sample.messages


def exchange_cpu(sample: CaseSample) -> float:
    """CPU microseconds per message of the process in the middle."""
    return cpu_us(sample, "exchange")


def p50(sample: CaseSample) -> float:
    """Median latency in microseconds."""
    return percentile(sample.latencies_us, 50.0)
