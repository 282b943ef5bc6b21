"""Damaged runs hold numbers that no run has: within bounds their sums are numbers, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from roq.simulation.lab.archive.document import (
    LATENCIES,
    RATES,
    Event,
    ExchangeWindow,
    LatencyWindow,
    PhaseTime,
    Series,
    Window,
)

MOST: Final = 1e15
"""Of anything that is measured."""
LATEST: Final = 1e10
"""Seconds since the load began: three hundred years."""


def bounded(series: Series) -> Series:
    """The same, every number within bounds and none below nought; a sound series as it is."""
    return replace(
        series,
        windows=[_window(window) for window in series.windows],
        events=[_event(event) for event in series.events],
    )


def bounded_phases(phases: Sequence[PhaseTime]) -> list[PhaseTime]:
    """The same for phases, each of which ends after it begins."""
    return [
        replace(phase, begins=(begins := _within(phase.begins, LATEST)),
                ends=max(begins, _within(phase.ends, LATEST)))
        for phase in phases
    ]  # fmt: skip


def _window(window: Window) -> Window:
    return replace(
        window,
        at=_within(window.at, LATEST),
        exchanges=[_exchange(one) for one in window.exchanges],
        serving=max(0, window.serving),
        latency=None if window.latency is None else _latency(window.latency),
        imbalance=None if window.imbalance is None else _within(window.imbalance),
        offered=_within(window.offered),
        covered=_within(window.covered, 1.0),
    )


def _exchange(one: ExchangeWindow) -> ExchangeWindow:
    rates = {name: getattr(one, name) for name in RATES}
    told = (*rates.values(), one.publishers, one.cpu_percent or 0.0)
    if min(told) >= 0 and max(told) <= MOST:
        return one
    return replace(
        one,
        publishers=int(_within(one.publishers)),
        cpu_percent=None if one.cpu_percent is None else _within(one.cpu_percent),
        **{name: _within(rate) for name, rate in rates.items()},
    )


def _latency(found: LatencyWindow) -> LatencyWindow:
    told = {name: _within(getattr(found, name)) for name in LATENCIES}
    return replace(found, count=max(0, found.count), **told)


def _event(event: Event) -> Event:
    return event if 0 <= event.at <= LATEST else replace(event, at=_within(event.at, LATEST))


def _within(value: float, most: float = MOST) -> float:
    return min(most, max(0.0, value))
