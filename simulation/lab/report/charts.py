"""The charts of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Final

from roq.model import exchange_name
from roq.simulation.lab.archive.document import LATENCIES, PhaseTime, Run, Series
from roq.simulation.lab.report.columns import OTHERS, Column, Columns, has, known
from roq.simulation.lab.report.marks import Lane, marks
from roq.simulation.lab.report.plot import End, Inside, Plot, Row
from roq.simulation.lab.report.ticks import Scale, linear, logarithmic
from roq.simulation.lab.report.wording import count, duration, moment, multiple, number, quantity

FEW: Final = 8
"""Up to so many exchanges are lines of their own; more are a band with its middle."""
_UPRIGHT_MAX: Final = 60
_LOG_FROM: Final = 30.0
"""A latency whose highest is so many times its least is drawn on a logarithmic axis."""
_TOO_FLAT: Final = 0.035
_TOO_SHORT: Final = 0.06
_LINE: Final = 15
_MINUTE: Final = 60


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a queue may have.

    Attributes:
        limit: of one exchange, bytes a second; 0: none is set.
        most: exchanges; 0: not known.
    """

    limit: float = 0.0
    most: int = 0


def bounds_of(run: Run) -> Bounds:
    """What the scenario of a run says of its queue."""
    rules, limits = run.scenario.queue.rules, run.scenario.queue.limits
    found = rules.get("exchange_bytes_per_minute", 0) or limits.get("throughput_bytes", 0)
    most = rules.get("exchanges_max", 0)
    return Bounds(
        found / _MINUTE if isinstance(found, int) else 0.0, most if isinstance(most, int) else 0
    )


def charts(
    series: Series, found: Columns, phases: Sequence[PhaseTime], bounds: Bounds
) -> list[Plot]:
    """All charts for which there is something to draw, the most important first."""
    bounds = Bounds() if _together(found) else bounds
    made = [_throughput(series, found, phases), _latency(found), _bytes(found, bounds.limit)]
    made += [_imbalance(found), _cpu(found), _serving(found, bounds.most), _publishers(found)]
    plots = [plot for plot in made if plot is not None]
    borders = [phase.begins for phase in phases[1:] if phase.begins > 0]
    trouble = [
        mark.middle for mark in marks(series.events, found.span)[Lane.TROUBLE]
    ][:_UPRIGHT_MAX]  # fmt: skip
    for at, plot in enumerate(plots):
        if plot.name != "latency":  # clients measure that
            plot.hole(found.quiet, "" if at else "not heard")
        plot.upright(borders[:_UPRIGHT_MAX], "border")
        plot.upright(trouble, "fault")
    return plots


def name_of(exchange: int) -> str:
    """An exchange as charts call it."""
    return "others" if exchange == OTHERS else exchange_name(exchange) if exchange else "all"


def _together(found: Columns) -> bool:
    """Whether the run does not tell its exchanges apart: they may be of many queues."""
    return found.exchanges == [0]


def _whose(found: Columns) -> str:
    return "all exchanges" if _together(found) else "each exchange"


def exchange_style(found: Columns, exchange: int) -> str:
    """The class that gives an exchange its colour."""
    return f"x{found.exchanges.index(exchange)}"


def _throughput(series: Series, found: Columns, phases: Sequence[PhaseTime]) -> Plot | None:
    if not found.ends:
        return None
    total = found.total
    top = max([*known(total), *found.offered], default=0.0)
    stacked = len(found.exchanges) > 1
    plot = Plot(
        name="throughput",
        title="Throughput",
        note="messages per second into the queue"
        + (", stacked by exchange" if stacked else "")
        + ("; dashed: what the scenario wants" if found.offered else ""),
        span=found.span,
        begins=found.begins,
        ends=found.ends,
        scale=linear(top),
        unit="/s",
        height=260,
        summary=_throughput_summary(found, total),
    )
    plot.phases = phases
    plot.lanes = {lane: row for lane, row in marks(series.events, found.span).items() if row}
    _stack(plot, found, found.messages)
    if found.offered:
        plot.steps(found.offered, "offered")
        plot.rows.insert(0, Row("wanted by the scenario", "offered", found.offered))
    if stacked:
        plot.rows.insert(0, Row("all exchanges", "", total))
    if any(found.out):
        plot.rows.append(Row("out, to all subscribers", "", found.out))
    return plot


def _throughput_summary(found: Columns, total: Column) -> str:
    there = [
        (value, end) for value, end in zip(total, found.ends, strict=True) if value is not None
    ]
    if not there:
        return "The statistics were not heard."
    values = [value for value, _ in there]
    highest, when = max(there, key=lambda each: each[0])
    said = (
        f"Between {quantity(min(values), '/s')} and {quantity(highest, '/s')} messages, "
        f"most at {moment(when)}; over {duration(found.span)}, "
        f"{quantity(fmean(values), '/s')} on average, by {count(len(found.exchanges), 'exchange')}."
    )
    if found.offered:
        said += f" The scenario wants up to {quantity(max(found.offered), '/s')}."
    return said


def _stack(plot: Plot, found: Columns, columns: dict[int, Column]) -> None:
    """Bands upon each other: each is drawn down to the axis and covered by those below it."""
    ground: Column = [0.0 if heard else None for heard in found.heard]
    below = ground
    edges: list[tuple[int, Column]] = []
    for exchange in found.exchanges:
        below = [
            None if base is None else base + (value or 0.0)
            for base, value in zip(below, columns[exchange], strict=True)
        ]
        edges.append((exchange, below))
    for exchange, edge in reversed(edges):
        style = exchange_style(found, exchange)
        seam = "seamed " if len(edges) <= 2 * FEW else ""
        plot.area(edge, f"{seam}{style}")
        plot.rows.append(Row(name_of(exchange), style, columns[exchange]))
    if len(edges) < 2:
        return
    under = ground
    for exchange, edge in edges:
        _name_band(plot, found, exchange, under, edge)
        under = edge


def _name_band(plot: Plot, found: Columns, exchange: int, under: Column, edge: Column) -> None:
    """Beside a band that lasts until the end, else inside of it where it is thickest."""
    style, name = exchange_style(found, exchange), name_of(exchange)
    low = [plot.scale.place(value or 0.0) for value in under]
    high = [plot.scale.place(value or 0.0) for value in edge]
    thick = [b - a for a, b in zip(low, high, strict=True)]
    last = max((at for at, heard in enumerate(found.heard) if heard), default=0)
    if thick[last] > _TOO_FLAT:
        plot.labels.append(End((low[last] + high[last]) / 2, name, style))
        return
    at = max(range(len(thick)), key=lambda row: thick[row])
    lasts = sum(1 for each in thick if each * plot.height > _LINE) / len(thick)
    if thick[last] <= 0 and thick[at] * plot.height > _LINE and lasts > _TOO_SHORT:
        middle = (low[at] + high[at]) / 2
        place = (found.begins[at] + found.ends[at]) / 2 / found.span
        plot.inside.append(Inside(place, middle, name))


def _latency(found: Columns) -> Plot | None:
    measured = [v for column in found.latency.values() for v in column if v is not None]
    if not measured:
        return None
    tops = [value for value in found.latency["p999"] if value is not None] or measured
    lows = [value for value in found.latency["p50"] if value is not None] or measured
    scale = _latency_scale(max(1e-4, min(lows)), max(tops))
    plot = Plot(
        name="latency",
        title="Latency",
        note="milliseconds from when a message was meant to be sent until a subscriber had it"
        + (", logarithmic" if scale.log else ""),
        span=found.span,
        begins=found.begins,
        ends=found.ends,
        scale=scale,
        unit="ms",
        height=200,
        summary=_latency_summary(found),
    )
    plot.band(found.latency["p50"], found.latency["p99"], "q1")
    for name, style in (("p50", "q1"), ("p90", "q2"), ("p99", "q3"), ("p999", "q4")):
        column = found.latency[name]
        plot.line(column, style)
        last = next((value for value in reversed(column) if value is not None), None)
        if last is not None:
            plot.labels.append(End(scale.place(last), LATENCIES[name], style))
    styles = {"p50": "q1", "p90": "q2", "p99": "q3", "p999": "q4"}
    for name in ("most", "p999", "p99", "p90", "p50", "mean"):
        plot.rows.append(Row(LATENCIES[name], styles.get(name, ""), found.latency[name]))
    return plot


def _latency_scale(low: float, high: float) -> Scale:
    high = max(high, low * 1.001)
    return logarithmic(low, high) if high / low >= _LOG_FROM else linear(high)


def _latency_summary(found: Columns) -> str:
    def span(name: str) -> str:
        values = [value for value in found.latency[name] if value is not None]
        return f"{quantity(min(values), 'ms')} to {quantity(max(values), 'ms')}"

    holes = sum(value is None for value in found.latency["p50"])
    said = f"Median {span('p50')}, 99th percentile {span('p99')}, window by window."
    return said + (f" Nothing was measured in {count(holes, 'window')}." if holes else "")


def _bytes(found: Columns, limit: float) -> Plot | None:
    if not has(found.bytes) or not found.ends:
        return None
    top = max(value for column in found.bytes.values() for value in column if value is not None)
    plot = Plot(
        name="bytes",
        title=f"Load of {_whose(found)}",
        note="payload bytes per second",
        span=found.span,
        begins=found.begins,
        ends=found.ends,
        scale=_byte_scale(max(top, limit if top > limit / 20 else 0.0)),
        unit="kB/s",
        axis_unit="B",
        summary=f"At most {quantity(top, 'B/s')} into one exchange."
        + (f" The limit is {quantity(limit, 'B/s')}." if limit else ""),
    )
    if limit and limit <= plot.scale.high:
        plot.level(limit, "limit")
        plot.labels.append(End(plot.scale.place(limit), "limit", "limit"))
    _lines(plot, found, found.bytes, factor=1e-3)
    return plot


def _byte_scale(top: float) -> Scale:
    """Round in the multiple that is written."""
    scale, _ = multiple(top)
    found = linear(top / scale, count=4)
    return Scale(found.low, found.high * scale, [tick * scale for tick in found.ticks])


def _lines(plot: Plot, found: Columns, columns: dict[int, Column], factor: float = 1.0) -> None:
    """A line for each of few exchanges; of many the least, the middle and the most."""
    told = {
        exchange: [None if value is None else value * factor for value in columns[exchange]]
        for exchange in found.exchanges
    }
    if len(found.exchanges) > FEW:
        _many_lines(plot, found, columns)
    for exchange in found.exchanges:
        style = exchange_style(found, exchange)
        plot.rows.append(Row(name_of(exchange), style, told[exchange]))
        if len(found.exchanges) <= FEW:
            plot.line(columns[exchange], style)
            last = columns[exchange][-1]
            if last is not None and len(found.exchanges) > 1:
                plot.labels.append(End(plot.scale.place(last), name_of(exchange), style))


def _many_lines(plot: Plot, found: Columns, columns: dict[int, Column]) -> None:
    there = [
        sorted(v for column in columns.values() if (v := column[at]) is not None)
        for at in range(len(found.ends))
    ]
    least, middle, most = (
        [choose(values) if values else None for values in there] for choose in (min, median, max)
    )
    plot.band(least, most, "many")
    for name, column in (("most", most), ("median", middle), ("least", least)):
        plot.line(column, f"many {name}")
        if column and (last := column[-1]) is not None:
            plot.labels.append(End(plot.scale.place(last), name, "many"))


def _imbalance(found: Columns) -> Plot | None:
    values = [value for value in found.imbalance if value is not None]
    if not values:
        return None
    plot = Plot(
        name="imbalance",
        title="Imbalance",
        note="load of the busiest exchange over the mean; 1 is even",
        span=found.span,
        begins=found.begins,
        ends=found.ends,
        scale=linear(max(1.5, *values), count=4, low=1.0),
        summary=f"From {number(min(values))} to {number(max(values))}, "
        f"at last {number(values[-1])}.",
    )
    plot.line(found.imbalance, "single")
    plot.labels.append(End(plot.scale.place(values[-1]), number(values[-1]), "single"))
    plot.rows.append(Row("busiest over mean", "single", found.imbalance))
    return plot


def _cpu(found: Columns) -> Plot | None:
    values = [v for column in found.cpu.values() for v in column if v is not None]
    if not values:
        return None
    plot = Plot(
        name="cpu",
        title=f"CPU of {_whose(found)}",
        note="per cent of one core",
        span=found.span,
        begins=found.begins,
        ends=found.ends,
        scale=linear(max(2.0, *values), count=4),
        unit="%",
        axis_unit="%",
        summary=f"Up to {number(max(values))} % of a core, {number(fmean(values))} % on average.",
    )
    _lines(plot, found, found.cpu)
    return plot


def _serving(found: Columns, most: int) -> Plot | None:
    there = known(found.serving)
    if not there:
        return None
    top = max(there)
    plot = Plot(
        name="exchanges",
        title="Exchanges",
        note="that serve",
        span=found.span,
        begins=found.begins,
        ends=found.ends,
        scale=whole(max(top, 1)),
        summary=f"{count(there[0], 'exchange')} at first, {top:,} at most, "
        f"{there[-1]:,} in the end.",
    )
    serving: Column = [None if many is None else float(many) for many in found.serving]
    plot.area(serving, "single soft")
    plot.steps(serving, "single")
    plot.rows.append(Row("exchanges", "single", serving))
    plot.labels.append(End(plot.scale.place(there[-1]), f"{there[-1]:,}", "single"))
    if 0 < most <= plot.scale.high:
        plot.level(most, "limit")
        if most != there[-1]:
            plot.labels.append(End(plot.scale.place(most), "limit", "limit"))
    return plot


def _publishers(found: Columns) -> Plot | None:
    if not has(found.publishers):
        return None
    total = found.together(found.publishers)
    there = known(total)
    plot = Plot(
        name="publishers",
        title="Publishers",
        note="attached" + (", stacked by exchange" if len(found.exchanges) > 1 else ""),
        span=found.span,
        begins=found.begins,
        ends=found.ends,
        scale=whole(max(there)),
        summary=f"Up to {max(there):,.0f} publishers, {there[-1]:,.0f} in the end.",
    )
    _stack(plot, found, found.publishers)
    if len(found.exchanges) > 1:
        plot.rows.insert(0, Row("all exchanges", "", total))
    return plot


def whole(top: float) -> Scale:
    """An axis on which things are counted: no half ones."""
    found = linear(max(top, 1.0), count=4)
    if any(after - before < 1 for before, after in pairwise(found.ticks)):
        return linear(max(top, 2.0), count=3)
    return found
