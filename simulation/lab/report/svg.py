"""A chart as HTML around SVG: axes, lines, areas, labels beside them.

What is drawn is SVG that stretches with the page; what is read stands beside or above it as HTML,
so that letters keep their size on a phone and on a wide screen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from roq.simulation.lab.archive.document import EventKind, PhaseTime
from roq.simulation.lab.report.marks import Mark, room
from roq.simulation.lab.report.markup import Markup, joined, tag
from roq.simulation.lab.report.plot import Layer, Plot, Shape, Values, pieces, spread, time_label
from roq.simulation.lab.report.ticks import linear, times
from roq.simulation.lab.report.wording import moment, number, tick_labels

WIDTH: Final = 2_000
HEIGHT: Final = 1_000
_LINE_PIXELS: Final = 14
_LETTER, _FIELD, _PHONE = 6.2, 640, 240
"""Pixels of a letter, and of a chart on a small screen and on a phone."""
_SHAPES: Final = {
    EventKind.SCALE_OUT: "plus", EventKind.SCALE_IN: "minus", EventKind.SERVES: "serves",
    EventKind.MOVE: "move",
}  # fmt: skip


def figure(plot: Plot, *, wide: bool = False) -> Markup:
    """The chart."""
    title, told = f"{plot.name}-title", f"{plot.name}-told"
    picture = tag(
        "svg",
        tag("title", f"{plot.title}: {plot.note}"),
        tag("desc", plot.summary, id=told),
        _grid(plot),
        *(tag("path", d=Markup(path), class_=style) for path, style in paths(plot)),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_labelledby=title,
        aria_describedby=told,
    )
    below = [tag("i", class_="quiet", style=_stretch(plot, *each)) for each in plot.quiet]
    cross = tag("i", class_="cross")
    frame = tag(
        "div",
        *_strips(plot),
        tag("div", *_y_labels(plot), class_="y", aria_hidden="true"),
        tag("div", *below, picture, *_above(plot), cross, class_="field"),
        tag("div", *_end_labels(plot), class_="ends", aria_hidden="true"),
        tag("span"),
        tag("div", *_x_labels(plot, wide=wide), class_="x", aria_hidden="true"),
        tag("span"),
        class_="frame",
        style=f"--h:{plot.height}px",
    )
    head = tag("figcaption", tag("h3", plot.title, id=title), tag("p", plot.note))
    return tag(
        "figure", head, frame, class_="chart wide" if wide else "chart",
        id=plot.name, tabindex="0", aria_labelledby=title,
    )  # fmt: skip


def paths(plot: Plot) -> Iterator[tuple[str, str]]:
    """The layers as SVG draws them: a path, and its classes."""
    for layer in plot.layers:
        match layer.shape:
            case Shape.AREA:
                for piece in pieces(layer.values):
                    steps = "".join(_steps(plot, layer.values, piece))
                    begin = _x(plot, plot.begins[piece.start])
                    yield f"M{begin:.0f},{HEIGHT}{steps}V{HEIGHT}Z", f"area {layer.style}"
            case Shape.BAND:
                for piece in pieces(layer.values):
                    there = _points(plot, layer.values, piece)
                    back = _points(plot, layer.low, piece)[::-1]
                    yield f"M{'L'.join(there + back)}Z", f"band {layer.style}"
            case _:
                yield _line(plot, layer), f"line {layer.style}"


def percent(share: float) -> str:
    """A place for CSS."""
    return f"{100 * min(1.0, max(0.0, share)):.2f}%"


def _x(plot: Plot, seconds: float) -> float:
    return WIDTH * min(1.0, max(0.0, seconds / plot.span))


def _y(plot: Plot, value: float | None) -> float:
    return HEIGHT * (1 - plot.scale.place(value or 0.0))


def _line(plot: Plot, layer: Layer) -> str:
    values = layer.values
    match layer.shape:
        case Shape.LEVEL:
            return f"M0,{_y(plot, values[0]):.0f}H{WIDTH}"
        case Shape.UPRIGHT:
            places = sorted({_x(plot, each or 0.0) for each in values})
            return "".join(f"M{place:.0f},0V{HEIGHT}" for place in places)
        case Shape.STEPS:
            return "".join(
                f"M{_x(plot, plot.begins[piece.start]):.0f},{_y(plot, values[piece.start]):.0f}"
                + "".join(_steps(plot, values, piece))
                for piece in pieces(values)
            )
        case _:
            return "".join(f"M{'L'.join(_points(plot, values, piece))}" for piece in pieces(values))


def _steps(plot: Plot, values: Values, piece: range) -> Iterator[str]:
    """From one step to the next; equal ones are one."""
    for at in piece:
        after = values[at + 1] if at + 1 in piece else None
        level = f"{_y(plot, values[at]):.0f}"
        if at == piece.start or level != f"{_y(plot, values[at - 1]):.0f}":
            yield f"V{level}"
        if after is None or f"{_y(plot, after):.0f}" != level:
            yield f"H{_x(plot, plot.ends[at]):.0f}"


def _points(plot: Plot, values: Values, piece: range) -> list[str]:
    return [
        f"{_x(plot, when):.0f},{_y(plot, value):.0f}" for when, value in plot.points(values, piece)
    ]


def _grid(plot: Plot) -> Markup:
    path = "".join(f"M0,{_y(plot, value):.0f}H{WIDTH}" for value in plot.scale.ticks[1:])
    return joined(
        tag("path", d=Markup(path), class_="line grid"),
        tag("path", d=f"M0,{HEIGHT}H{WIDTH}", class_="line axis"),
    )


# --- beside it ------------------------------------------------------------------------------------


def _stretch(plot: Plot, begin: float, end: float) -> str:
    width = max(0.0, end - begin) / plot.span
    return Markup(f"left:{percent(begin / plot.span)};width:{percent(width)}")


def _above(plot: Plot) -> Iterator[Markup]:
    for across, up, text in plot.inside:
        place = f"left:{percent(across)};bottom:{percent(up)}"
        yield tag("span", text, class_="inside", aria_hidden="true", style=place)
    if plot.quiet_name and plot.quiet:
        place = _stretch(plot, *plot.widest_hole())
        yield tag("span", tag("b", plot.quiet_name), class_="quiet-name", style=place)


def _strips(plot: Plot) -> Iterator[Markup]:
    """Phases, and what happened: a label, what stands beside it, and a sum."""
    if plot.phases:
        yield _strip("phase", joined(_phase(plot, each) for each in plot.phases), "")
    for lane, row in plot.lanes.items():
        gaps = room(row, plot.span)
        content = joined(_mark(plot, mark, gap) for mark, gap in zip(row, gaps, strict=True))
        yield _strip(lane.value, content, f"{sum(len(mark.events) for mark in row):,}")


def _strip(label: str, content: Markup, total: str) -> Markup:
    return joined(
        tag("span", label, class_="lane-name"),
        tag("div", content, class_="lane"),
        tag("span", total, class_="lane-sum"),
    )


def _phase(plot: Plot, phase: PhaseTime) -> Markup:
    lasting = f"{phase.name}: {moment(phase.begins)} to {moment(phase.ends)}"
    place = _stretch(plot, phase.begins, phase.ends)
    return tag("span", phase.name, class_="phase", title=lasting, style=place)


def _mark(plot: Plot, mark: Mark, gap: float) -> Markup:
    shape = "bad" if mark.bad else _SHAPES.get(mark.kind, "move")
    label = mark.label
    needs = 8 + _LETTER * len(label)
    # Labels stand behind their marks, where there is room until the next one.
    kept = "" if gap * _PHONE >= needs else " tight" if gap * _FIELD >= needs else " none"
    return tag(
        "span",
        tag("b", label) if label else None,
        class_=f"mark {shape}{kept}",
        style=f"left:{percent(mark.middle / plot.span)}",
        title=f"{moment(mark.first)}\n{mark.told}",
    )


def _y_labels(plot: Plot) -> list[Markup]:
    scale = plot.scale
    labels = tick_labels(scale.ticks, log=scale.log, unit=plot.axis_unit)
    return [
        tag("span", label, style=f"bottom:{percent(scale.place(value))}")
        for label, value in zip(labels, scale.ticks, strict=True)
    ]


def _end_labels(plot: Plot) -> list[Markup]:
    wanted = [label.place * plot.height for label in plot.labels]
    placed = spread(wanted, plot.height, _LINE_PIXELS)
    return [
        tag("span", label.text, class_=label.style or None, style=f"bottom:{place:.0f}px")
        for label, place in zip(plot.labels, placed, strict=True)
    ]


def _x_labels(plot: Plot, *, wide: bool) -> list[Markup]:
    count, span, clock = 10 if wide else 6, plot.span, plot.clock
    moments = linear(span, count).ticks if clock else times(span, count)
    labels = [number(each) if clock else time_label(each, span) for each in moments]
    if clock:
        labels[0] += f" {clock}"
    return [
        tag(
            "span",
            label,
            class_="odd" if at % 2 else None,
            style=f"left:{percent(moment / span)}",
        )
        for at, (label, moment) in enumerate(zip(labels, moments, strict=True))
    ]
