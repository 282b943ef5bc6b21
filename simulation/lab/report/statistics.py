"""Means with confidence intervals, and whether two of them differ: Student t, Welch; pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import exp, inf, lgamma, log, sqrt
from statistics import fmean, variance
from typing import Final, NamedTuple

CONFIDENCE: Final = 0.95
_TINY: Final = 1e-300
_STEPS_MAX: Final = 300
_EPSILON: Final = 1e-12


class Mean(NamedTuple):
    """What several runs say of a figure.

    Attributes:
        runs: how many.
        value: their mean.
        half: half the confidence interval; None with less than two runs.
        least, most: of the runs.
    """

    runs: int
    value: float
    half: float | None
    least: float
    most: float


class Difference(NamedTuple):
    """The difference of two means.

    Attributes:
        value: the one minus the other.
        half: half its confidence interval; None if either has less than two runs.
    """

    value: float
    half: float | None

    @property
    def clear(self) -> bool:
        """Whether the interval says that there is one: zero is not in it."""
        return self.half is not None and abs(self.value) > self.half


def mean(values: Sequence[float], confidence: float = CONFIDENCE) -> Mean:
    """Mean and confidence interval.

    Args:
        values: one for each run; at least one.
        confidence: that the interval holds the mean of all runs there could be.
    """
    values = _rounded(values)
    count = len(values)
    half = None
    if count > 1:
        half = t_quantile(count - 1, confidence) * sqrt(variance(values) / count)
    return Mean(count, fmean(values), half, min(values), max(values))


def difference(
    one: Sequence[float], other: Sequence[float], confidence: float = CONFIDENCE
) -> Difference:
    """`one` minus `other`, with the interval of Welch: spreads need not be the same.

    Args:
        one: values of one group.
        other: of the other.
        confidence: of the interval.
    """
    one, other = _rounded(one), _rounded(other)
    value = fmean(one) - fmean(other)
    if len(one) < 2 or len(other) < 2:
        return Difference(value, None)
    a, b = variance(one) / len(one), variance(other) / len(other)
    if a + b == 0:
        return Difference(value, 0.0)
    freedom = (a + b) ** 2 / (a * a / (len(one) - 1) + b * b / (len(other) - 1))
    return Difference(value, t_quantile(freedom, confidence) * sqrt(a + b))


def _rounded(values: Sequence[float]) -> list[float]:
    """To twelve digits: sums in another order differ in the last ones, which is no spread."""
    return [float(f"{value:.12g}") for value in values]


@lru_cache(maxsize=1024)
def t_quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """The t such that a share of `confidence` of Student's distribution lies within -t and t.

    Args:
        freedom: degrees of freedom, above 0; need not be whole.
        confidence: above 0, below 1.
    """
    low, high = 0.0, 1.0
    while _within(high, freedom) < confidence and high < inf:
        low, high = high, 2 * high
    while high - low > _EPSILON * high:
        middle = (low + high) / 2
        if middle in {low, high}:
            break
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return (low + high) / 2


def _within(t: float, freedom: float) -> float:
    """The share of Student's distribution between -t and t."""
    return 1 - _beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def _beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by the continued fraction of Lentz."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1 - x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    value = d
    for step in range(1, _STEPS_MAX):
        even = step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step))
        odd = -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1))
        change = 1.0
        for part in (even, odd):
            d = 1 / _not_zero(1 + part * d)
            c = _not_zero(1 + part / c)
            change = c * d
            value *= change
        if abs(change - 1) < _EPSILON:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
