"""What came out of a run, and how the parts of a cluster are put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import nan
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import field

from roq.simulation.forecast.account import Totals
from roq.simulation.forecast.tally import Tally
from roq.simulation.forecast.windows import Window

HOUR_SECONDS: Final = 3_600.0
EVENTS_MAX: Final = 10_000
"""The first ones are kept, so that a large cluster does not fill the memory with them."""
METRICS: Final = (
    "overload_minutes", "moves", "exchange_hours", "imbalance_mean", "reaction_seconds",
    "latency_mean_ms",
)  # fmt: skip
"""Figures that people look at first."""


class Sums(msgspec.Struct, kw_only=True):
    """Of one cell: nothing but what can be added up, or joined.

    Attributes:
        seconds: how long the run is.
        exchanges: how many there were, sample by sample.
        uneven: sum of the imbalance of all queues with several exchanges and load, by sample.
        uneven_of: how many these are.
        windows: where they were wanted.
        cpu_seconds: processor time of the model.
    """

    seconds: float
    queues: int = 0
    hosts: int = 0
    publishers: int = 0
    used_host_seconds: float = 0.0
    cpu_seconds: float = 0.0
    totals: Totals = field(default_factory=Totals)
    tally: Tally = field(default_factory=Tally)
    exchanges: list[int] = []
    uneven: list[float] = []
    uneven_of: list[int] = []
    windows: list[Window] = []

    def join(self, other: Sums) -> None:
        """Put another cell of the same run to this one."""
        for name in ("queues", "hosts", "publishers", "used_host_seconds", "cpu_seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.totals.add(other.totals)
        self.tally.add(other.tally)
        self.tally.keep_first(EVENTS_MAX)
        for name in ("exchanges", "uneven", "uneven_of"):
            pairs = zip(getattr(self, name), getattr(other, name), strict=True)
            setattr(self, name, [mine + theirs for mine, theirs in pairs])
        for window, same in zip(self.windows, other.windows, strict=True):
            window.join(same)


def mean(values: Sequence[float]) -> float:
    """0 if there are none."""
    return sum(values) / len(values) if values else 0.0


def _mean_if_any(values: Sequence[float]) -> float:
    return mean(values) if values else nan


def _ratio(part: float, whole: float, otherwise: float = 0.0) -> float:
    return part / whole if whole > 0 else otherwise


def _imbalance_last(sums: Sums) -> float:
    return sums.uneven[-1] / sums.uneven_of[-1] if any(sums.uneven_of[-1:]) else 1.0


FIGURES: Final[Mapping[str, Callable[[Sums], float]]] = MappingProxyType({
    "seconds": lambda sums: sums.seconds,
    "hosts": lambda sums: sums.hosts,
    "queues": lambda sums: sums.queues,
    "publishers": lambda sums: sums.publishers,
    "moves": lambda sums: sums.tally.moves,
    "moves_failed": lambda sums: sums.tally.moves_failed,
    "scale_outs": lambda sums: sums.tally.scale_outs,
    "scale_ins": lambda sums: sums.tally.scale_ins,
    "scale_failed": lambda sums: sums.tally.scale_failed,
    "deaths": lambda sums: sums.tally.deaths,
    "exchanges_most": lambda sums: max(sums.exchanges, default=0),
    "exchanges_last": lambda sums: sums.exchanges[-1] if sums.exchanges else 0,
    # sum over exchanges of the time above 1.10 L
    "overload_minutes": lambda sums: sums.totals.overload_seconds / 60,
    # sum over exchanges of the time without a free processor
    "saturated_minutes": lambda sums: sums.totals.saturated_seconds / 60,
    # sum over publishers of the time without an exchange
    "unserved_minutes": lambda sums: sums.totals.unserved_seconds / 60,
    # busiest exchange over the mean, over time and queues with several
    "imbalance_mean": lambda sums: _ratio(
        sums.totals.imbalance_seconds, sums.totals.balanced_over, 1.0
    ),
    "imbalance_last": _imbalance_last,
    # from the beginning of an overload until a publisher had left; no number (NaN) if there was
    # none, as in the next three
    "reaction_seconds": lambda sums: _mean_if_any(sums.totals.reactions),
    "reaction_max_seconds": lambda sums: max(sums.totals.reactions, default=nan),
    # from its beginning to its end
    "relief_seconds": lambda sums: _mean_if_any(sums.totals.reliefs),
    # from a decision until the new exchange served
    "scale_out_seconds": lambda sums: _mean_if_any(sums.tally.serve_seconds),
    # by the formula in docs/simulation.md, over all messages
    "latency_mean_ms": lambda sums: _ratio(sums.totals.latency_messages, sums.totals.messages),
    "bytes": lambda sums: sums.totals.bytes,
    "messages": lambda sums: sums.totals.messages,
    "exchange_hours": lambda sums: sums.totals.exchange_seconds / HOUR_SECONDS,
    "host_hours": lambda sums: sums.hosts * sums.seconds / HOUR_SECONDS,
    "used_host_hours": lambda sums: sums.used_host_seconds / HOUR_SECONDS,
    "host_hours_per_million": lambda sums: _ratio(
        sums.used_host_seconds / HOUR_SECONDS, sums.totals.messages / 1e6
    ),
    "rounds": lambda sums: sums.tally.rounds,
    "asked": lambda sums: sums.tally.asked,
    "asked_ahead": lambda sums: sums.tally.asked_ahead,
    "policy_errors": lambda sums: sums.tally.policy_errors,
    "busy_seconds": lambda sums: sums.totals.busy_seconds,
    "cpu_seconds": lambda sums: sums.cpu_seconds,
    "events_left_out": lambda sums: sums.tally.events_left_out,
})  # fmt: skip
"""All that is said of a run in numbers, and how it follows from the sums of its cells."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run.

    Attributes:
        figures: by the names of `FIGURES`.
        events: (when, what, number of the exchange), the first ones.
        events_left_out: those that were too many to be kept.
        windows: where they were wanted.
    """

    seed: int
    figures: dict[str, float]
    events: list[tuple[float, str, int]]
    events_left_out: int
    windows: list[Window]


def outcome(sums: Sums, seed: int) -> Outcome:
    """What follows from the sums of a whole run."""
    return Outcome(
        seed=seed,
        figures={name: float(figure(sums)) for name, figure in FIGURES.items()},
        events=sums.tally.events,
        events_left_out=sums.tally.events_left_out,
        windows=sums.windows,
    )
