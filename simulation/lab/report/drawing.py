"""A chart in matplotlib, for pictures."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import TYPE_CHECKING, Final, NamedTuple

from roq.simulation.lab.archive.document import EventKind
from roq.simulation.lab.report import palette
from roq.simulation.lab.report.marks import Lane, Mark, room
from roq.simulation.lab.report.plot import Layer, Plot, Shape, Values, pieces, spread, time_label
from roq.simulation.lab.report.ticks import times
from roq.simulation.lab.report.wording import clean, tick_labels

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
_COLOURS: Final = {
    "q1": "#8fb2cf", "q2": "#5a8cb5", "q3": "#24547f", "q4": "#93637a", "single": SINGLE,
    "many": SINGLE, "offered": INK, "limit": BAD, "border": FAINT, "fault": BAD,
}  # fmt: skip
_DASHES: Final = {
    "offered": (0, (4, 3)), "limit": (0, (6, 2, 1, 2)), "border": (0, (1, 2)), "fault": (0, (4, 3)),
}  # fmt: skip
_WIDTHS: Final = {"q3": 1.9, "border": 0.7, "fault": 0.7, "offered": 1.1, "limit": 1.0, "most": 0.7,
                  "least": 0.7}  # fmt: skip
_LINE: Final = 1.3
_SHAPES: Final = {EventKind.SCALE_OUT: "^", EventKind.SCALE_IN: "v", EventKind.SERVES: "."}
_POINTS: Final = 72
_PIXELS: Final = 12
_LABEL_SHARE: Final = 0.055
_NAME_SHARES: Final = (0.018, 0.08)
"""From this width on the name of a hole fits upright, and lying."""
_TITLE_MAX: Final = 36
"""Letters of a title and its note that fit above a narrow chart."""


class Brush(NamedTuple):
    """How a layer looks."""

    colour: str
    width: float
    dashes: str | tuple[int, tuple[int, ...]]


def strips(axes: Axes, plot: Plot) -> None:
    """Phases as stretches, and what happened, above a chart."""
    lanes = ["phase" if plot.phases else "", *(lane.value for lane in plot.lanes)]
    axes.set_xlim(0, plot.span)
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.set_yticks(range(len(lanes)), lanes)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    for at, phase in enumerate(plot.phases):
        width = phase.ends - phase.begins
        axes.barh(0, width, left=phase.begins, height=0.86, color=TINT, edgecolor="white")
        if width > 0.04 * plot.span:
            name = clean(phase.name, max(3, int(110 * width / plot.span)))
            axes.text(
                phase.begins + 0.006 * plot.span, 0, name, va="center", fontsize=8, color=SOFT
            )
        if at:
            axes.axvline(phase.begins, color=FAINT, linewidth=0.7, linestyle=(0, (1, 2)))
    for at, (lane, row) in enumerate(plot.lanes.items(), start=1):
        total = sum(len(mark.events) for mark in row)
        axes.text(1.006 * plot.span, at, f"{total:,}", va="center", fontsize=8, color=FAINT)
        for mark, gap in zip(row, room(row, plot.span), strict=True):
            _mark(axes, lane, mark, at, plot.span, gap)


def draw(axes: Axes, plot: Plot, exchanges: Sequence[int]) -> None:
    """One chart.

    Args:
        axes: to draw on.
        plot: the chart.
        exchanges: those that have a colour each.
    """
    wide = axes.get_position().width > 0.5
    if plot.scale.log:
        axes.set_yscale("log")
    colours = palette.exchanges(exchanges)
    for layer in plot.layers:
        _draw(axes, plot, layer, _brush(layer.style, colours))
    title = f"{plot.title} – {plot.note}"
    narrow = plot.quiet_name and _hole_share(plot) < _NAME_SHARES[0] and plot.quiet
    hatched = f"; hatched: {plot.quiet_name}" if narrow else ""
    axes.set_title(title + hatched if wide or len(title) <= _TITLE_MAX else plot.title, pad=7)
    axes.set_xlim(0, plot.span)
    axes.set_ylim(plot.scale.low, plot.scale.high)
    ticks = plot.scale.ticks
    axes.set_yticks(ticks, tick_labels(ticks, log=plot.scale.log, unit=plot.axis_unit))
    axes.set_yticks([], minor=True)
    axes.grid(axis="y", color=LINE, linewidth=0.8)
    moments = times(plot.span, 10 if wide else 5)
    axes.set_xticks(moments, [time_label(moment, plot.span) for moment in moments])
    _holes(axes, plot)
    if wide:
        _name_ends(axes, plot, colours)


def nothing(axes: Axes, title: str) -> None:
    """The place of a chart for which nothing was measured."""
    axes.set_title(title, pad=7)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.0, 0.8, "not measured", transform=axes.transAxes, color=FAINT)


def _draw(axes: Axes, plot: Plot, layer: Layer, brush: Brush) -> None:
    colour, width, dashes = brush
    words = layer.style.split()
    match layer.shape:
        case Shape.AREA:
            alpha = 0.16 if "soft" in words else 1.0
            values, edges = _holed(layer.values), [plot.begins[0], *plot.ends]
            axes.stairs(values, edges, fill=True, color=colour, alpha=alpha, linewidth=0)
            if "seamed" in words:
                axes.stairs(values, edges, baseline=None, color="white", linewidth=0.6)
        case Shape.STEPS:
            axes.stairs(_holed(layer.values), [plot.begins[0], *plot.ends], baseline=None,
                        color=colour, linewidth=width, linestyle=dashes)  # fmt: skip
        case Shape.LINE:
            for piece in pieces(layer.values):
                moments, heights = zip(*plot.points(layer.values, piece), strict=True)
                axes.plot(moments, heights, color=colour, linewidth=width, linestyle=dashes)
        case Shape.BAND:
            for piece in pieces(layer.values):
                moments, high = zip(*plot.points(layer.values, piece), strict=True)
                low = [value for _, value in plot.points(layer.low, piece)]
                axes.fill_between(moments, low, high, color=colour, alpha=0.22, linewidth=0)
        case Shape.LEVEL:
            axes.axhline(layer.values[0] or 0.0, color=colour, linewidth=width, linestyle=dashes)
        case Shape.UPRIGHT:
            for when in layer.values:
                axes.axvline(when or 0.0, color=colour, linewidth=width, linestyle=dashes)


def _brush(style: str, colours: Sequence[str]) -> Brush:
    """What the classes of a page say, for pictures; `x2` is the colour of the third exchange."""
    found = Brush(INK, _LINE, "solid")
    for word in style.split():
        if word[1:].isdecimal() and word.startswith("x"):
            found = found._replace(colour=colours[int(word[1:])])
        found = Brush(
            _COLOURS.get(word, found.colour),
            _WIDTHS.get(word, found.width),
            _DASHES.get(word, found.dashes),
        )
    return found


def _mark(axes: Axes, lane: Lane, mark: Mark, at: int, span: float, gap: float) -> None:
    colour = BAD if mark.bad else SINGLE if lane is Lane.SCALING else SOFT
    shape = "D" if mark.bad else _SHAPES.get(mark.kind, "|")
    size = 4.5 if mark.bad else 8 if shape == "|" else 5.5
    axes.plot(mark.middle, at, shape, color=colour, markersize=size, clip_on=False)
    label = mark.label
    if label and gap > _LABEL_SHARE * (0.5 if len(label) <= 4 else 2):
        axes.text(mark.middle + 0.007 * span, at, label, va="center", fontsize=8, color=colour)


def _name_ends(axes: Axes, plot: Plot, colours: Sequence[str]) -> None:
    height = axes.get_position().height * axes.figure.bbox.height / axes.figure.dpi * _POINTS
    places = spread([label.place * height for label in plot.labels], height, _PIXELS)
    for label, place in zip(plot.labels, places, strict=True):
        colour = _brush(label.style, colours).colour
        axes.text(1.006, place / height, label.text, transform=axes.transAxes, va="center",
                  fontsize=8.5, weight="bold", color=colour)  # fmt: skip
    for across, up, text in plot.inside:
        axes.text(across, up, text, transform=axes.transAxes, ha="center", va="center",
                  fontsize=8.5, weight="bold", color="white")  # fmt: skip


def _holes(axes: Axes, plot: Plot) -> None:
    """Hatch what was not heard; the name stands in the widest stretch if that has room."""
    for begin, end in plot.quiet:
        axes.axvspan(
            begin, end, facecolor=TINT, edgecolor=HATCH, hatch="////", linewidth=0, zorder=0.5
        )
    share = _hole_share(plot)
    upright, lying = _NAME_SHARES
    if plot.quiet_name and share >= upright:
        middle = sum(plot.widest_hole()) / 2
        axes.text(middle, 0.5, plot.quiet_name, transform=axes.get_xaxis_transform(), ha="center",
                  va="center", fontsize=8.5, color=SOFT, rotation=0 if share > lying else 90,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 2})  # fmt: skip


def _hole_share(plot: Plot) -> float:
    """The part of the axis that the widest hole takes."""
    begin, end = plot.widest_hole()
    return (end - begin) / plot.span


def _holed(column: Values) -> list[float]:
    return [nan if value is None else value for value in column]
