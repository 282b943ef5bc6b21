"""Sizes of messages and their topics, drawn from distributions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from math import exp, log
from random import Random
from statistics import NormalDist
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from roq.simulation.scenario.rates import Kind

Bytes: TypeAlias = Annotated[int, Meta(ge=0, le=64 * 1024 * 1024)]
Weight: TypeAlias = Annotated[float, Meta(gt=0, le=1e9)]
T = TypeVar("T")
Count: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]


class Uniform(Kind, frozen=True, tag="uniform", rename={"least": "min", "most": "max"}):
    """Every size between two is as likely as any other."""

    least: Bytes
    most: Bytes

    def __post_init__(self) -> None:
        if self.most < self.least:
            raise ValueError("`max` is not below `min`")


class LogNormal(Kind, frozen=True, tag="lognormal", rename={"most": "max"}):
    """Many small ones and few that are large, as payloads of programs are."""

    median: Annotated[int, Meta(ge=1, le=64 * 1024 * 1024)]
    sigma: Annotated[float, Meta(gt=0, le=5)] = 1.0
    """Spread: at 1, one in six is more than 2.7 times the median."""
    most: Bytes = 1024 * 1024


class Choice(Kind, frozen=True, tag="choice"):
    """Some sizes, each with its weight."""

    values: Annotated[list[Bytes], Meta(min_length=1)]
    weights: list[Weight] = msgspec.field(default_factory=list)
    """None: all alike."""

    def __post_init__(self) -> None:
        _check_weights(len(self.values), self.weights)


Size: TypeAlias = Bytes | Uniform | LogNormal | Choice


SHARES_MAX: Final = 1_000
"""Topics whose shares are told one by one."""


class Topics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which topics a publisher publishes under: names with weights, or many by their rank."""

    names: Annotated[list[str], Meta(min_length=1, max_length=100_000)] = msgspec.field(
        default_factory=lambda: ["t"]
    )
    weights: list[Weight] = []
    """Of the names; none: all alike."""
    count: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Instead of names: so many topics `<prefix>0`, `<prefix>1`, …"""
    prefix: str = "t"
    zipf: Annotated[float, Meta(ge=0, le=5)] = 0.0
    """With `count`: the topic of rank n has a weight of n to the power of -zipf."""

    def __post_init__(self) -> None:
        _check_weights(len(self.names), self.weights)
        if self.count and self.weights:
            raise ValueError("`weights` are those of `names`; `count` goes with `zipf`")
        if self.zipf and not self.count:
            raise ValueError("`zipf` needs `count`")

    @property
    def all(self) -> list[str]:
        """The topics."""
        if self.count:
            return [f"{self.prefix}{index}" for index in range(self.count)]
        return self.names

    @property
    def shares(self) -> dict[float, int]:
        """Shares of the messages, and how many topics have each of them; the rare ones of very many
        topics are taken for alike."""
        if self.count and self.zipf:
            each = [rank**-self.zipf for rank in range(1, self.count + 1)]
        elif self.weights:
            each = self.weights
        else:
            return {1.0 / max(1, self.count or len(self.names)): self.count or len(self.names)}
        whole = sum(each)
        each = sorted((weight / whole for weight in each), reverse=True)
        found, rare = Counter(each[:SHARES_MAX]), each[SHARES_MAX:]
        if rare:
            found[sum(rare) / len(rare)] += len(rare)
        return found


def sizes(size: Size, random: Random) -> Callable[[], int]:
    """A function that draws the size of the next message, in bytes."""
    match size:
        case Uniform(least, most):
            return lambda: random.randint(least, most)
        case LogNormal(median, sigma, most):
            middle = log(median)
            return lambda: min(most, int(exp(random.gauss(middle, sigma))))
        case Choice(values, weights):
            return _among(values, weights, random)
        case _:
            return lambda: size


def topics(given: Topics, random: Random) -> Callable[[], str]:
    """A function that draws the topic of the next message."""
    names = given.all
    if given.count and given.zipf:
        weights = [rank**-given.zipf for rank in range(1, given.count + 1)]
    else:
        weights = [] if given.count else given.weights
    if len(names) == 1:
        return lambda: names[0]
    return _among(names, weights, random)


def mean_size(size: Size) -> float:
    """The mean of what `sizes` draws, in bytes."""
    match size:
        case Uniform(least, most):
            return (least + most) / 2
        case LogNormal(median, sigma, most):
            return _mean_at_most(median, sigma, most)
        case Choice(values, weights):
            each = weights or [1.0] * len(values)
            return sum(a * b for a, b in zip(values, each, strict=True)) / sum(each)
        case _:
            return float(size)


def _mean_at_most(median: int, sigma: float, most: int) -> float:
    """Of a log-normal distribution of which what is above `most` counts as `most`."""
    if not most:
        return 0.0
    reach = (log(most) - log(median)) / sigma
    share = NormalDist().cdf
    whole = median * exp(sigma * sigma / 2)
    return whole * share(reach - sigma) + most * share(-reach)


def _among(values: list[T], weights: list[float], random: Random) -> Callable[[], T]:
    if not weights:
        return lambda: random.choice(values)
    cumulative = list(accumulate(weights))
    return lambda: random.choices(values, cum_weights=cumulative)[0]


def _check_weights(values: int, weights: list[float]) -> None:
    if weights and len(weights) != values:
        raise ValueError(f"there are {len(weights)} `weights` for {values} values")
