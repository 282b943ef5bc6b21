"""Charts of several groups of runs over each other."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Final

from roq.simulation.lab.report.columns import Column, Columns
from roq.simulation.lab.report.groups import Group
from roq.simulation.lab.report.plot import End, Plot, Row
from roq.simulation.lab.report.ticks import Scale, linear, logarithmic
from roq.simulation.lab.report.wording import number

POINTS: Final = 240
"""Windows into which the time of all runs is divided; as many as there are, if they are fewer."""
_ALIKE: Final = 1.1
_LOG_FROM: Final = 30.0
_NAME_MAX: Final = 6


def overlay(made: Sequence[Group]) -> tuple[list[Plot], dict[str, object]]:
    """The charts, and what the script tells under the pointer.

    Runs of different lengths (a time-scaled one beside one in real time) are laid upon each other
    by the share of the run that has passed.
    """
    columns = [found for group in made for found in group.columns if found.ends]
    if not columns:
        return [], {"charts": []}
    spans = [found.span for found in columns]
    alike = max(spans) <= _ALIKE * min(spans)
    span, clock = (max(spans), "") if alike else (100.0, "%")
    points = min(POINTS, max(len(found.ends) for found in columns))
    begins = [span * at / points for at in range(points)]
    ends = [span * (at + 1) / points for at in range(points)]
    middles = [(a + b) / 2 for a, b in zip(begins, ends, strict=True)]
    plots = []
    for name, title, note, unit, height, column in _CHARTS:
        lines: list[tuple[Group, list[Column]]] = []
        for group in made:
            runs = [
                _sampled(
                    found, column(found), [m * (1 if alike else found.span / span) for m in middles]
                )
                for found in group.columns
                if found.ends
            ]
            lines.append((group, runs))
        values = [v for _, runs in lines for run in runs for v in run if v is not None]
        if not values or max(values) <= 0:
            continue
        plot = Plot(
            name=name, title=title, note=note, span=span, scale=_scale(name, values),
            begins=begins, ends=ends, unit=unit, height=height, clock=clock,
        )  # fmt: skip
        _draw(plot, lines)
        plots.append(plot)
    told = {
        "charts": [plot.told() for plot in plots],
        "span": span, "begins": begins, "ends": ends, "events": [], "clock": clock,
    }  # fmt: skip
    return plots, told


_CHARTS: Final[tuple[tuple[str, str, str, str, int, Callable[[Columns], Column]], ...]] = (
    ("throughput", "Throughput", "messages per second into the queue", "/s", 240,
     lambda found: found.total),
    ("latency", "Latency, 99th percentile", "milliseconds", "ms", 170,
     lambda found: found.latency["p99"]),
    ("median", "Latency, median", "milliseconds", "ms", 170, lambda found: found.latency["p50"]),
    ("exchanges", "Exchanges", "that serve", "", 150,
     lambda found: [None if many is None else float(many) for many in found.serving]),
    ("imbalance", "Imbalance", "load of the busiest exchange over the mean; 1 is even", "", 150,
     lambda found: found.imbalance),
)  # fmt: skip


def _scale(name: str, values: Sequence[float]) -> Scale:
    top, least = max(values), min(value for value in values if value > 0)
    if name == "imbalance":
        return linear(max(1.5, top), count=4, low=1.0)
    if name in {"latency", "median"} and top / least >= _LOG_FROM:
        return logarithmic(least, top)
    return linear(top, count=4)


def _draw(plot: Plot, lines: Sequence[tuple[Group, list[Column]]]) -> None:
    """The mean of each group as a line, and what its runs span around it."""
    said = []
    for at, (group, runs) in enumerate(lines):
        if not runs:
            continue
        rows = [[v for v in row if v is not None] for row in zip(*runs, strict=True)]
        means, least, most = (
            [choose(row) if row else None for row in rows] for choose in (fmean, min, max)
        )
        if len(runs) > 1:
            plot.band(least, most, f"x{at}")
        plot.line(means, f"x{at}")
        plot.rows.append(Row(group.name, f"x{at}", means))
        there = [value for value in means if value is not None]
        if there:
            if len(group.name) <= _NAME_MAX:
                plot.labels.append(End(plot.scale.place(there[-1]), group.name, f"x{at}"))
            said.append(f"{group.name}: {number(min(there))} to {number(max(there))}")
    plot.summary = "; ".join(said)


def _sampled(found: Columns, column: Column, moments: Sequence[float]) -> Column:
    """The value of the window in which each moment lies; None before, after and in holes."""
    sampled: Column = []
    for moment in moments:
        at = bisect_left(found.ends, moment)
        inside = at < len(found.ends) and found.begins[at] <= moment
        sampled.append(column[at] if inside else None)
    return sampled
