"""The charts of a run in matplotlib, for pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from math import nan
from typing import TYPE_CHECKING, Final

from roq.simulation.archive.document import EventKind, PhaseTime, Run, Series
from roq.simulation.report import palette
from roq.simulation.report.charts import FEW, limit_of, name_of, whole
from roq.simulation.report.course import LATENCIES, Column, Course, has, known
from roq.simulation.report.marks import Lane, Mark, marks, room
from roq.simulation.report.plot import spread, time_label
from roq.simulation.report.ticks import Scale, linear, logarithmic, times
from roq.simulation.report.wording import clean, tick_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.typing import RcKeyType

INK: Final = "#17202b"
SOFT: Final = "#5c6773"
FAINT: Final = "#8b95a1"
LINE: Final = "#e4e8ec"
TINT: Final = "#f1f4f6"
SINGLE: Final = "#2f6690"
BAD: Final = "#b3401d"
HATCH: Final = "#cfd6dd"
LATENCY: Final = {"p50": "#8fb2cf", "p90": "#5a8cb5", "p99": "#24547f", "p999": "#93637a"}
STYLE: Final[dict[RcKeyType, object]] = {
    "font.size": 9.0,
    "font.family": "sans-serif",
    "font.sans-serif": ["Inter", "Helvetica Neue", "Arial", "Liberation Sans", "DejaVu Sans"],
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "xtick.color": FAINT,
    "xtick.labelcolor": SOFT,
    "ytick.color": FAINT,
    "ytick.labelcolor": SOFT,
    "ytick.left": False,
    "hatch.linewidth": 0.7,
    "svg.hashsalt": "roq",
}
_LOG_FROM: Final = 30.0
_POINTS: Final = 72
_PIXELS: Final = 12
_LABEL_SHARE: Final = 0.055
_TOO_FLAT: Final = 0.03
_NAME_SHARES: Final = (0.018, 0.08)
"""From this width on the name of a hole fits upright, and lying."""


def strips(axes: Axes, series: Series, found: Course, phases: Sequence[PhaseTime]) -> None:
    """Phases as stretches, and what happened, above the throughput."""
    rows = {lane: row for lane, row in marks(series.events, found.span).items() if row}
    lanes = ["phase", *(lane.value for lane in rows)]
    axes.set_xlim(0, found.span)
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.set_yticks(range(len(lanes)), lanes)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    for at, phase in enumerate(phases):
        width = phase.ends - phase.begins
        axes.barh(0, width, left=phase.begins, height=0.86, color=TINT, edgecolor="white")
        if width > 0.04 * found.span:
            name = clean(phase.name, max(3, int(110 * width / found.span)))
            axes.text(
                phase.begins + 0.006 * found.span, 0, name, va="center", fontsize=8, color=SOFT
            )
        if at:
            axes.axvline(phase.begins, color=FAINT, linewidth=0.7, linestyle=(0, (1, 2)))
    for at, (lane, row) in enumerate(rows.items(), start=1):
        total = sum(len(mark.events) for mark in row)
        axes.text(1.006 * found.span, at, f"{total:,}", va="center", fontsize=8, color=FAINT)
        for mark, gap in zip(row, room(row, found.span), strict=True):
            _mark(axes, lane, mark, at, found.span, gap)


def throughput(axes: Axes, found: Course) -> None:
    """Messages in per second, stacked by exchange, beside what the scenario wants."""
    colours = palette.exchanges(found.exchanges)
    below = [0.0 if heard else nan for heard in found.heard]
    last = max((at for at, heard in enumerate(found.heard) if heard), default=0)
    scale = linear(max([*known(found.total), *found.offered], default=0.0))
    ends = []
    for exchange, colour in zip(found.exchanges, colours, strict=True):
        column = found.messages[exchange]
        above = [base + (value or 0.0) for base, value in zip(below, column, strict=True)]
        axes.stairs(above, _edges(found), baseline=below, fill=True, color=colour, linewidth=0)
        if len(found.exchanges) <= 2 * FEW:
            axes.stairs(above, _edges(found), baseline=None, color="white", linewidth=0.6)
        if scale.place(above[last]) - scale.place(below[last]) > _TOO_FLAT:
            ends.append(((above[last] + below[last]) / 2, name_of(exchange), colour))
        below = above
    if found.offered:
        axes.stairs(found.offered, _edges(found), baseline=None, color=INK, linewidth=1.1,
                    linestyle=(0, (4, 3)))  # fmt: skip
    wanted = "; dashed: wanted by the scenario" if found.offered else ""
    narrow = found.quiet and _widest(found)[2] < _NAME_SHARES[0]
    hatched = "; hatched: not heard" if narrow else ""
    _finish(axes, found, scale, f"Messages in per second, by exchange{wanted}{hatched}")
    _name_ends(axes, ends if len(found.exchanges) > 1 else [], scale)
    _holes(axes, found, "not heard")


def latency(axes: Axes, found: Course) -> None:
    """Percentiles over time."""
    shown = {name: found.latency[name] for name in LATENCY}
    values = [value for column in shown.values() for value in column if value is not None]
    if not values:
        _nothing(axes, "Latency in ms")
        return
    low, high = max(1e-4, min(values)), max(*values, 2e-4)
    scale = logarithmic(low, high) if high / low >= _LOG_FROM else linear(high)
    if scale.log:
        axes.set_yscale("log")
    lows, highs = (_stretches(found, shown[name]) for name in ("p50", "p99"))
    for (moments, below), (_, above) in zip(lows, highs, strict=True):
        axes.fill_between(moments, below, above, color=LATENCY["p50"], alpha=0.22, linewidth=0)
    ends = []
    for name, column in shown.items():
        _line(axes, found, column, LATENCY[name], 1.9 if name == "p99" else 1.2)
        if last := [value for value in column if value is not None]:
            ends.append((last[-1], LATENCIES[name], LATENCY[name]))
    _finish(axes, found, scale, "Latency in ms, from when a message was meant to be sent")
    _name_ends(axes, ends, scale)


def serving(axes: Axes, run: Run, found: Course) -> None:
    """How many exchanges serve."""
    del run
    title = "Exchanges that serve"
    there = known(found.serving)
    if not there:
        _nothing(axes, title)
        return
    many = _holed(found.serving)
    axes.stairs(many, _edges(found), fill=True, color=SINGLE, alpha=0.16)
    axes.stairs(many, _edges(found), baseline=None, color=SINGLE, linewidth=1.4)
    _finish(axes, found, whole(max(there)), title)
    _holes(axes, found)


def imbalance(axes: Axes, run: Run, found: Course) -> None:
    """Busiest exchange over the mean."""
    del run
    values = [value for value in found.imbalance if value is not None]
    title = "Imbalance: busiest over mean"
    if not values:
        _nothing(axes, title)
        return
    _line(axes, found, found.imbalance, SINGLE, 1.4)
    _finish(axes, found, linear(max(1.5, *values), count=4, low=1.0), title)
    _holes(axes, found)


def load(axes: Axes, run: Run, found: Course) -> None:
    """CPU of each exchange; of a run that does not measure it, their bytes."""
    columns, title, limit = found.cpu, "CPU of each exchange, % of a core", 0.0
    if not has(columns):
        columns, title, limit = found.bytes, "Bytes into each exchange per second", limit_of(run)
    values = [value for column in columns.values() for value in column if value is not None]
    if not values:
        _nothing(axes, title)
        return
    few = len(found.exchanges) <= FEW
    colours = palette.exchanges(found.exchanges)
    for exchange, colour in zip(found.exchanges, colours, strict=True):
        _line(axes, found, columns[exchange], colour, 1.2 if few else 0.6)
    top = max(values)
    if limit and limit < 3 * top:
        axes.axhline(limit, color=BAD, linewidth=1, linestyle=(0, (6, 2, 1, 2)))
        top = max(top, limit)
    _finish(axes, found, linear(top, count=4), title)
    _holes(axes, found)


SMALL: Final[tuple[Callable[[Axes, Run, Course], None], ...]] = (serving, imbalance, load)
"""Those that stand side by side."""
_SHAPES: Final = {EventKind.SCALE_OUT: "^", EventKind.SCALE_IN: "v", EventKind.SERVES: "."}


def _mark(axes: Axes, lane: Lane, mark: Mark, at: int, span: float, gap: float) -> None:
    colour = BAD if mark.bad else SINGLE if lane is Lane.SCALING else SOFT
    shape = "D" if mark.bad else _SHAPES.get(mark.kind, "|")
    size = 4.5 if mark.bad else 8 if shape == "|" else 5.5
    axes.plot(mark.middle, at, shape, color=colour, markersize=size, clip_on=False)
    label = mark.label
    if label and gap > _LABEL_SHARE * (0.5 if len(label) <= 4 else 2):
        axes.text(mark.middle + 0.007 * span, at, label, va="center", fontsize=8, color=colour)


def _finish(axes: Axes, found: Course, scale: Scale, title: str) -> None:
    """Axes with round numbers, a title, and the unit of time."""
    axes.set_title(title, pad=7)
    axes.set_xlim(0, found.span)
    axes.set_ylim(scale.low, scale.high)
    axes.set_yticks(scale.ticks, tick_labels(scale.ticks, log=scale.log))
    axes.set_yticks([], minor=True)
    axes.grid(axis="y", color=LINE, linewidth=0.8)
    room_for = 10 if axes.get_position().width > 0.5 else 5
    moments = times(found.span, room_for)
    axes.set_xticks(moments, [time_label(moment, found.span) for moment in moments])


def _name_ends(axes: Axes, ends: Sequence[tuple[float, str, str]], scale: Scale) -> None:
    height = axes.get_position().height * axes.figure.bbox.height / axes.figure.dpi * _POINTS
    places = spread([scale.place(value) * height for value, _, _ in ends], height, _PIXELS)
    for (_, name, colour), place in zip(ends, places, strict=True):
        axes.text(1.006, place / height, name, transform=axes.transAxes, va="center",
                  fontsize=8.5, weight="bold", color=colour)  # fmt: skip


def _nothing(axes: Axes, title: str) -> None:
    axes.set_title(title, pad=7)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.0, 0.8, "not measured", transform=axes.transAxes, color=FAINT)


def _holes(axes: Axes, found: Course, name: str = "") -> None:
    """Hatch what nobody heard; `name` stands in the widest stretch if that has room."""
    for begin, end in found.quiet:
        axes.axvspan(
            begin, end, facecolor=TINT, edgecolor=HATCH, hatch="////", linewidth=0, zorder=0.5
        )
    begin, end, share = _widest(found)
    upright, lying = _NAME_SHARES
    if name and share >= upright:
        axes.text((begin + end) / 2, 0.5, name, transform=axes.get_xaxis_transform(), ha="center",
                  va="center", fontsize=8.5, color=SOFT, rotation=0 if share > lying else 90,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 2})  # fmt: skip


def _widest(found: Course) -> tuple[float, float, float]:
    """The widest hole, and its share of the axis."""
    begin, end = max(found.quiet, key=lambda each: each[1] - each[0], default=(0.0, 0.0))
    return begin, end, (end - begin) / found.span


def _line(axes: Axes, found: Course, column: Column, colour: str, width: float) -> None:
    """A line, open where nothing was measured; it begins and ends with its windows."""
    for moments, values in _stretches(found, column):
        axes.plot(moments, values, "-", color=colour, linewidth=width)


def _stretches(found: Course, column: Column) -> list[tuple[list[float], list[float]]]:
    """Moments and values of each stretch that was measured: middles of windows, and its edges."""
    rows = [(at, value) for at, value in enumerate(column) if value is not None]
    stretches = []
    for _, group in groupby(enumerate(rows), key=lambda each: each[1][0] - each[0]):
        piece = [row for _, row in group]
        (first, begin), (last, end) = piece[0], piece[-1]
        middles = [(found.begins[at] + found.ends[at]) / 2 for at, _ in piece]
        stretches.append((
            [found.begins[first], *middles, found.ends[last]],
            [begin, *(value for _, value in piece), end],
        ))  # fmt: skip
    return stretches


def _holed(column: Sequence[float | None]) -> list[float]:
    return [nan if value is None else value for value in column]


def _edges(found: Course) -> list[float]:
    return [found.begins[0], *found.ends]
