"""A chart: what is drawn over time, and what is told about it.

It is data. `svg` makes it a part of a page, `drawing` a part of a picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from roq.simulation.lab.archive.document import PhaseTime
from roq.simulation.lab.report.marks import Lane, Mark
from roq.simulation.lab.report.ticks import Scale
from roq.simulation.lab.report.wording import number

_ROWS_DIGITS: Final = 4
_MINUTES_FROM: Final = 121.0
_HOURS_FROM: Final = 3 * 3_600.0
_DAYS_FROM: Final = 4 * 86_400.0
Values: TypeAlias = "Sequence[float | None]"
Moments: TypeAlias = "Sequence[float]"


class End(NamedTuple):
    """A label at the right end of a line or band."""

    place: float
    """0 at the bottom, 1 at the top."""
    text: str
    style: str = ""


class Inside(NamedTuple):
    """A label in the drawing: shares of its width and of its height, and a text."""

    across: float
    up: float
    text: str


class Row(NamedTuple):
    """What is told under the pointer: a name and a value for each window."""

    name: str
    style: str
    values: Values


class Shape(StrEnum):
    """What a layer is."""

    AREA = "area"
    STEPS = "steps"
    LINE = "line"
    BAND = "band"
    LEVEL = "level"
    UPRIGHT = "upright"


class Layer(NamedTuple):
    """Something that is drawn.

    Attributes:
        shape: what it is.
        style: words for colour and width, each a class of the page.
        values: one for each window; of a level its height, of uprights their moments.
        low: the lower edge of a band.
    """

    shape: Shape
    style: str
    values: Values
    low: Values = ()


@dataclass(slots=True)
class Plot:
    """A chart to which layers are added.

    Attributes:
        name: unique on the page.
        title, note: above it.
        span: seconds that the x axis shows.
        scale: of the y axis, in the unit that is written.
        begins, ends: of the windows.
        unit: behind values that are told.
        height: pixels.
        layers: the lowest first.
        inside: labels in the drawing.
        quiet, quiet_name: stretches of which nothing is known, and why.
        phases, lanes: what happened, above the drawing.
        labels: at the right.
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
    begins: Moments
    ends: Moments
    unit: str = ""
    height: int = 150
    layers: list[Layer] = field(default_factory=list)
    inside: list[Inside] = field(default_factory=list)
    quiet: list[tuple[float, float]] = field(default_factory=list)
    quiet_name: str = ""
    phases: Sequence[PhaseTime] = ()
    lanes: Mapping[Lane, Sequence[Mark]] = field(default_factory=dict)
    labels: list[End] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    summary: str = ""
    clock: str = ""
    axis_unit: str = ""

    def area(self, values: Values, style: str) -> None:
        """Steps, filled down to the axis."""
        self._add(Layer(Shape.AREA, style, values))

    def steps(self, values: Values, style: str) -> None:
        """Steps as a line."""
        self._add(Layer(Shape.STEPS, style, values))

    def line(self, values: Values, style: str) -> None:
        """From the middle of a window to that of the next, open where nothing was measured.

        Each stretch begins with its first window and ends with its last one.
        """
        self._add(Layer(Shape.LINE, style, values))

    def band(self, low: Values, high: Values, style: str) -> None:
        """What lies between two lines."""
        both = [None if a is None else b for a, b in zip(low, high, strict=True)]
        self._add(Layer(Shape.BAND, style, both, low))

    def level(self, value: float, style: str) -> None:
        """A line at one value, from end to end."""
        self._add(Layer(Shape.LEVEL, style, [value]))

    def upright(self, seconds: Iterable[float], style: str) -> None:
        """Lines at moments, from bottom to top."""
        self._add(Layer(Shape.UPRIGHT, style, sorted(set(seconds))))

    def hole(self, stretches: Sequence[tuple[float, float]], name: str = "") -> None:
        """Hatch stretches of which nothing is known; `name` stands in the widest of them."""
        self.quiet, self.quiet_name = list(stretches), name

    def widest_hole(self) -> tuple[float, float]:
        """The widest stretch of which nothing is known."""
        return max(self.quiet, key=lambda each: each[1] - each[0], default=(0.0, 0.0))

    def points(self, values: Values, piece: range) -> Iterator[tuple[float, float]]:
        """The middles of windows, and the edges of the first and the last one."""
        first, last = piece[0], piece[-1]
        yield self.begins[first], values[first] or 0.0
        for at in piece:
            yield (self.begins[at] + self.ends[at]) / 2, values[at] or 0.0
        yield self.ends[last], values[last] or 0.0

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

    def _add(self, layer: Layer) -> None:
        if any(value is not None for value in layer.values):
            self.layers.append(layer)


def pieces(values: Values) -> list[range]:
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


def _short(value: float | None) -> float | None:
    if value is None:
        return None
    short = float(f"{value:.{_ROWS_DIGITS}g}")
    return int(short) if short.is_integer() else short
