"""A chart as HTML around SVG: axes, lines, areas, labels beside them.

What is drawn is SVG that stretches with the page; what is read stands beside or above it as HTML,
so that letters keep their size on a phone and on a wide screen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from roq.simulation.report.markup import Markup, joined, tag
from roq.simulation.report.ticks import Scale, linear, times
from roq.simulation.report.wording import number, tick_labels

WIDTH: Final = 2_000
HEIGHT: Final = 1_000
_LINE_PIXELS: Final = 14
_ROWS_DIGITS: Final = 4
_MINUTES_FROM: Final = 121.0
_HOURS_FROM: Final = 3 * 3_600.0
_DAYS_FROM: Final = 4 * 86_400.0
Values: TypeAlias = "Sequence[float | None]"


class End(NamedTuple):
    """A label at the right end of a line or band."""

    place: float
    """0 at the bottom, 1 at the top."""
    text: str
    style: str = ""


class Row(NamedTuple):
    """What is told under the pointer: a name and a value for each window."""

    name: str
    style: str
    values: Values


@dataclass(slots=True)
class Plot:
    """A chart to which layers are added.

    Attributes:
        name: unique on the page.
        title, note: above it.
        span: seconds that the x axis shows.
        scale: of the y axis, in the unit that is written.
        unit: behind values that are told.
        height: pixels.
        layers: SVG, the lowest first.
        above, below: HTML over the drawing, and under it.
        quiet: stretches of which nothing is known.
        strips: HTML between title and drawing: a label, what stands beside it, and a sum.
        ends: labels at the right.
        rows: what is told under the pointer.
        summary: the chart in a sentence, for those who do not see it.
        clock: the unit of the x axis, if it is not time.
        axis_unit: behind the marks of the y axis.
    """

    name: str
    title: str
    note: str
    span: float
    scale: Scale
    unit: str = ""
    height: int = 150
    layers: list[Markup] = field(default_factory=list)
    above: list[Markup] = field(default_factory=list)
    below: list[Markup] = field(default_factory=list)
    quiet: list[tuple[float, float]] = field(default_factory=list)
    strips: list[tuple[str, Markup, str]] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    summary: str = ""
    clock: str = ""
    axis_unit: str = ""

    def x(self, seconds: float) -> float:
        """Where a moment is drawn."""
        return WIDTH * min(1.0, max(0.0, seconds / self.span))

    def y(self, value: float) -> float:
        """Where a value is drawn."""
        return HEIGHT * (1 - self.scale.place(value))

    def area(
        self, begins: Sequence[float], ends: Sequence[float], values: Values, style: str
    ) -> None:
        """Steps, filled down to the axis."""
        for piece in _pieces(values):
            path = [f"M{self.x(begins[piece.start]):.0f},{HEIGHT}"]
            path += self._steps(ends, values, piece)
            self.layers.append(
                tag("path", d=Markup(f"{''.join(path)}V{HEIGHT}Z"), class_=f"area {style}")
            )

    def steps(
        self, begins: Sequence[float], ends: Sequence[float], values: Values, style: str
    ) -> None:
        """Steps as a line."""
        path = ""
        for piece in _pieces(values):
            first = values[piece.start] or 0.0
            path += f"M{self.x(begins[piece.start]):.0f},{self.y(first):.0f}"
            path += "".join(self._steps(ends, values, piece))
        if path:
            self.layers.append(tag("path", d=Markup(path), class_=f"line {style}"))

    def line(
        self, begins: Sequence[float], ends: Sequence[float], values: Values, style: str
    ) -> None:
        """From the middle of a window to that of the next, open where nothing was measured.

        Each stretch begins with its first window and ends with its last one.
        """
        path = "".join(
            f"M{'L'.join(self._points(begins, ends, values, piece))}" for piece in _pieces(values)
        )
        if path:
            self.layers.append(tag("path", d=Markup(path), class_=f"line {style}"))

    def band(
        self,
        begins: Sequence[float],
        ends: Sequence[float],
        low: Values,
        high: Values,
        style: str,
    ) -> None:
        """What lies between two lines."""
        for piece in _pieces([None if a is None else b for a, b in zip(low, high, strict=True)]):
            there = self._points(begins, ends, high, piece)
            back = self._points(begins, ends, low, piece)[::-1]
            path = Markup(f"M{'L'.join(there + back)}Z")
            self.layers.append(tag("path", d=path, class_=f"band {style}"))

    def hole(self, stretches: Sequence[tuple[float, float]], name: str = "") -> None:
        """Hatch stretches of which nothing is known; `name` stands in the widest of them."""
        self.quiet = list(stretches)
        places = [
            Markup(f"left:{percent(begin / self.span)};width:{percent((end - begin) / self.span)}")
            for begin, end in stretches
        ]
        self.below += [tag("i", class_="quiet", style=place) for place in places]
        if name and stretches:
            widest = max(range(len(places)), key=lambda at: stretches[at][1] - stretches[at][0])
            label = tag("span", tag("b", name), class_="quiet-name", style=places[widest])
            self.above.append(label)

    def level(self, value: float, style: str = "level") -> None:
        """A line at one value, from end to end."""
        self.layers.append(tag("path", d=f"M0,{self.y(value):.0f}H{WIDTH}", class_=f"line {style}"))

    def upright(self, seconds: Iterable[float], style: str) -> None:
        """Lines at moments, from bottom to top."""
        path = "".join(f"M{place:.0f},0V{HEIGHT}" for place in sorted({self.x(s) for s in seconds}))
        if path:
            self.layers.append(tag("path", d=Markup(path), class_=f"line {style}"))

    def markup(self, *, wide: bool = False) -> Markup:
        """The chart."""
        title, told = f"{self.name}-title", f"{self.name}-told"
        picture = tag(
            "svg",
            tag("title", f"{self.title}: {self.note}"),
            tag("desc", self.summary, id=told),
            self._grid(),
            *self.layers,
            viewBox=f"0 0 {WIDTH} {HEIGHT}",
            preserveAspectRatio="none",
            role="img",
            aria_labelledby=title,
            aria_describedby=told,
        )
        strips = [
            joined(
                tag("span", label, class_="lane-name"),
                tag("div", content, class_="lane"),
                tag("span", total, class_="lane-sum"),
            )
            for label, content, total in self.strips
        ]
        frame = tag(
            "div",
            *strips,
            tag("div", *self._y_labels(), class_="y", aria_hidden="true"),
            tag("div", *self.below, picture, *self.above, tag("i", class_="cross"), class_="field"),
            tag("div", *self._end_labels(), class_="ends", aria_hidden="true"),
            tag("span"),
            tag(
                "div", *_x_labels(self.span, self.clock, wide=wide), class_="x", aria_hidden="true"
            ),
            tag("span"),
            class_="frame",
            style=f"--h:{self.height}px",
        )
        head = tag("figcaption", tag("h3", self.title, id=title), tag("p", self.note))
        return tag(
            "figure", head, frame, class_="chart wide" if wide else "chart",
            id=self.name, tabindex="0", aria_labelledby=title,
        )  # fmt: skip

    def told(self) -> dict[str, object]:
        """What the script shows under the pointer."""
        return {
            "id": self.name,
            "unit": self.unit,
            "quiet": self.quiet,
            "rows": [
                {"n": row.name, "c": row.style, "v": [_short(value) for value in row.values]}
                for row in self.rows
            ],
        }

    def _steps(self, ends: Sequence[float], values: Values, piece: range) -> Iterator[str]:
        """From one step to the next; equal ones are one."""
        for at in piece:
            value, after = values[at] or 0.0, values[at + 1] if at + 1 in piece else None
            level = f"{self.y(value):.0f}"
            if at == piece.start or level != f"{self.y(values[at - 1] or 0.0):.0f}":
                yield f"V{level}"
            if after is None or f"{self.y(after):.0f}" != level:
                yield f"H{self.x(ends[at]):.0f}"

    def _points(
        self, begins: Sequence[float], ends: Sequence[float], values: Values, piece: range
    ) -> list[str]:
        """The middles of windows, and the edges of the first and the last one."""
        first, last = piece[0], piece[-1]
        points = [(begins[first], values[first])]
        points += [((begins[at] + ends[at]) / 2, values[at]) for at in piece]
        points.append((ends[last], values[last]))
        return [f"{self.x(moment):.0f},{self.y(value or 0.0):.0f}" for moment, value in points]

    def _grid(self) -> Markup:
        path = "".join(f"M0,{self.y(value):.0f}H{WIDTH}" for value in self.scale.ticks[1:])
        return joined(
            tag("path", d=Markup(path), class_="line grid"),
            tag("path", d=f"M0,{HEIGHT}H{WIDTH}", class_="line axis"),
        )

    def _y_labels(self) -> list[Markup]:
        labels = tick_labels(self.scale.ticks, log=self.scale.log, unit=self.axis_unit)
        return [
            tag("span", label, style=f"bottom:{percent(self.scale.place(value))}")
            for label, value in zip(labels, self.scale.ticks, strict=True)
        ]

    def _end_labels(self) -> list[Markup]:
        placed = spread([end.place * self.height for end in self.ends], self.height, _LINE_PIXELS)
        return [
            tag("span", end.text, class_=end.style or None, style=f"bottom:{place:.0f}px")
            for end, place in zip(self.ends, placed, strict=True)
        ]


def spread(wanted: Sequence[float], length: float, least: float) -> list[float]:
    """Places near those that are wanted, at least `least` apart where there is room for it.

    Those that push each other stand around the middle of what they want.

    Args:
        wanted: places from 0 to `length`, in any order.
        length: of the line on which they stand.
        least: distance; less if there are too many.
    """
    gaps = len(wanted) - 1
    least = min(least, length / gaps) if gaps > 0 else 0.0
    order = sorted(range(len(wanted)), key=lambda at: wanted[at])
    pools: list[tuple[float, int]] = []  # of neighbours: where the first one wants to be, how many
    for place, at in enumerate(order):
        first, many = min(length, max(0.0, wanted[at])) - place * least, 1
        while pools and pools[-1][0] > first:
            before, others = pools.pop()
            first, many = (before * others + first * many) / (others + many), others + many
        pools.append((first, many))
    firsts = [first for first, many in pools for _ in range(many)]
    room = length - max(0, gaps) * least
    found = {
        at: min(room, max(0.0, first)) + place * least
        for place, (at, first) in enumerate(zip(order, firsts, strict=True))
    }
    return [found[at] for at in range(len(wanted))]


def time_unit(span: float) -> str:
    """The unit that stands at the first mark of a time axis."""
    if span < _MINUTES_FROM:
        return "s"
    if span < _HOURS_FROM:
        return "min"
    return "h" if span < _DAYS_FROM else "d"


def time_label(seconds: float, span: float) -> str:
    """A moment as it stands at the axis; the first one says the unit: `0 min`, `2:30`, `5:00`."""
    if not seconds:
        return f"0 {time_unit(span)}"
    match time_unit(span):
        case "s":
            return number(seconds)
        case "min":
            return f"{round(seconds) // 60}:{round(seconds) % 60:02}"
        case "h":
            return f"{round(seconds) // 3_600}:{round(seconds) % 3_600 // 60:02}"
        case _:
            return number(seconds / 86_400)


def percent(share: float) -> str:
    """A place for CSS."""
    return f"{100 * min(1.0, max(0.0, share)):.2f}%"


def _x_labels(span: float, clock: str, *, wide: bool) -> list[Markup]:
    count = 10 if wide else 6
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


def _pieces(values: Values) -> list[range]:
    """The stretches in which there are values."""
    found: list[range] = []
    begin = None
    for at, value in enumerate([*values, None]):
        if value is not None and begin is None:
            begin = at
        elif value is None and begin is not None:
            found.append(range(begin, at))
            begin = None
    return found


def _short(value: float | None) -> float | None:
    if value is None:
        return None
    short = float(f"{value:.{_ROWS_DIGITS}g}")
    return int(short) if short.is_integer() else short
