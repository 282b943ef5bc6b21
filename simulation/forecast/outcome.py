"""What came out of a run, and how the parts of a cluster are put together."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Final

import msgspec

from roq.simulation.forecast.account import Totals
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
    """Of one cell: nothing but what can be added up, or joined."""

    seconds: float
    queues: int = 0
    hosts: int = 0
    publishers: int = 0
    totals: dict[str, float] = {}
    used_host_seconds: float = 0.0
    moves: int = 0
    moves_failed: int = 0
    scale_outs: int = 0
    scale_ins: int = 0
    scale_failed: int = 0
    deaths: int = 0
    rounds: int = 0
    asked: int = 0
    asked_ahead: int = 0
    policy_errors: int = 0
    serve_seconds: list[float] = []
    reactions: list[float] = []
    reliefs: list[float] = []
    times: list[float] = []
    exchanges: list[int] = []
    load: list[float] = []
    """Bytes per minute."""
    overloaded: list[int] = []
    moved: list[int] = []
    """Since the beginning."""
    uneven: list[float] = []
    """Sum of the imbalance of all queues with several exchanges and load."""
    uneven_of: list[int] = []
    """How many these are."""
    events: list[tuple[float, str, int]] = []
    events_left_out: int = 0
    windows: list[Window] = []
    cpu_seconds: float = 0.0

    def join(self, other: Sums) -> None:
        """Put another cell of the same run to this one."""
        for name in self.__struct_fields__:
            mine, theirs = getattr(self, name), getattr(other, name)
            if name == "seconds":
                continue
            if name == "times":
                self.times = mine or theirs
            elif name == "totals":
                both = mine.keys() | theirs.keys()
                self.totals = {key: mine.get(key, 0.0) + theirs.get(key, 0.0) for key in both}
            elif name == "events":
                self.events = first_events([*mine, *theirs])
                self.events_left_out += len(mine) + len(theirs) - len(self.events)
            elif name == "windows" and mine:
                for window, same in zip(mine, theirs, strict=True):
                    window.join(same)
            elif name in _SERIES and mine:
                setattr(self, name, [a + b for a, b in zip(mine, theirs, strict=True)])
            else:
                setattr(self, name, mine + theirs)


_NO_FIGURES: Final = {"series", "events", "windows"}
_SERIES: Final = ("exchanges", "load", "overloaded", "moved", "uneven", "uneven_of")


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Side by side, one value for each of the times."""

    times: list[float]
    exchanges: list[int]
    bytes_per_minute: list[float]
    overloaded: list[int]
    moves: list[int]
    imbalance: list[float]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run.

    Attributes:
        moves: publishers that moved.
        scale_failed: exchanges for which no host had room, or that would be one too many.
        overload_minutes: sum over exchanges of the time above 1.10 L.
        saturated_minutes: sum over exchanges of the time without a free processor.
        unserved_minutes: sum over publishers of the time without an exchange.
        imbalance_mean: busiest exchange over the mean, over time and queues with several.
        reaction_seconds, reaction_max_seconds: mean and longest from the beginning of an overload
            until a publisher had left; no number (NaN) if there was none. The same holds for the
            next two.
        relief_seconds: mean from its beginning to its end.
        scale_out_seconds: mean from a decision until the new exchange served.
        latency_mean_ms: by the formula in docs/simulation.md, over all messages.
        exchange_hours: sum over exchanges.
        host_hours: hosts that are there, times the time.
        used_host_hours: those with an exchange.
        host_hours_per_million: used host-hours per million messages.
        rounds: KPI periods that were looked at.
        asked: how often a policy was asked; and about the future, to know when to ask again.
        busy_seconds: of cores, by all exchanges.
        cpu_seconds: processor time of the model.
        events_left_out: those that were too many to be kept.
        windows: where they were wanted.
    """

    seed: int
    seconds: float
    hosts: int
    queues: int
    publishers: int
    moves: int
    moves_failed: int
    scale_outs: int
    scale_ins: int
    scale_failed: int
    deaths: int
    exchanges_most: int
    exchanges_last: int
    overload_minutes: float
    saturated_minutes: float
    unserved_minutes: float
    imbalance_mean: float
    imbalance_last: float
    reaction_seconds: float
    reaction_max_seconds: float
    relief_seconds: float
    scale_out_seconds: float
    latency_mean_ms: float
    bytes: float
    messages: float
    exchange_hours: float
    host_hours: float
    used_host_hours: float
    host_hours_per_million: float
    rounds: int
    asked: int
    asked_ahead: int
    policy_errors: int
    busy_seconds: float
    cpu_seconds: float
    series: Series
    events: list[tuple[float, str, int]] = []
    events_left_out: int = 0
    windows: list[Window] = []

    @classmethod
    def figure_names(cls) -> list[str]:
        """Of all that is a number."""
        return [name for name in cls.__struct_fields__ if name not in _NO_FIGURES]

    def figures(self) -> dict[str, float]:
        """All that is a number, by name."""
        return {name: float(getattr(self, name)) for name in self.figure_names()}


def outcome(sums: Sums, seed: int) -> Outcome:
    """The figures that follow from the sums of a whole run."""
    totals = msgspec.convert(sums.totals, Totals)
    even = [part / of if of else 1.0 for part, of in zip(sums.uneven, sums.uneven_of, strict=True)]
    used = sums.used_host_seconds / HOUR_SECONDS
    return Outcome(
        seed=seed,
        seconds=sums.seconds,
        hosts=sums.hosts,
        queues=sums.queues,
        publishers=sums.publishers,
        moves=sums.moves,
        moves_failed=sums.moves_failed,
        scale_outs=sums.scale_outs,
        scale_ins=sums.scale_ins,
        scale_failed=sums.scale_failed,
        deaths=sums.deaths,
        exchanges_most=max(sums.exchanges, default=0),
        exchanges_last=sums.exchanges[-1] if sums.exchanges else 0,
        overload_minutes=totals.overload_seconds / 60,
        saturated_minutes=totals.saturated_seconds / 60,
        unserved_minutes=totals.unserved_seconds / 60,
        imbalance_mean=_ratio(totals.imbalance_seconds, totals.balanced_over, 1.0),
        imbalance_last=even[-1] if even else 1.0,
        reaction_seconds=_mean_if_any(sums.reactions),
        reaction_max_seconds=max(sums.reactions, default=nan),
        relief_seconds=_mean_if_any(sums.reliefs),
        scale_out_seconds=_mean_if_any(sums.serve_seconds),
        latency_mean_ms=_ratio(totals.latency_messages, totals.messages),
        bytes=totals.bytes,
        messages=totals.messages,
        exchange_hours=totals.exchange_seconds / HOUR_SECONDS,
        host_hours=sums.hosts * sums.seconds / HOUR_SECONDS,
        used_host_hours=used,
        host_hours_per_million=_ratio(used, totals.messages / 1e6),
        rounds=sums.rounds,
        asked=sums.asked,
        asked_ahead=sums.asked_ahead,
        policy_errors=sums.policy_errors,
        busy_seconds=totals.busy_seconds,
        cpu_seconds=sums.cpu_seconds,
        series=Series(
            times=sums.times,
            exchanges=sums.exchanges,
            bytes_per_minute=sums.load,
            overloaded=sums.overloaded,
            moves=sums.moved,
            imbalance=even,
        ),
        events=sums.events,
        events_left_out=sums.events_left_out,
        windows=sums.windows,
    )


def first_events(events: list[tuple[float, str, int]]) -> list[tuple[float, str, int]]:
    """In order of time, no more than are kept."""
    return sorted(events)[:EVENTS_MAX]


def mean(values: Sequence[float]) -> float:
    """0 if there are none."""
    return sum(values) / len(values) if values else 0.0


def _mean_if_any(values: Sequence[float]) -> float:
    return mean(values) if values else nan


def _ratio(part: float, whole: float, otherwise: float = 0.0) -> float:
    return part / whole if whole > 0 else otherwise
