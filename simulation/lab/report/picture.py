"""A run as one PNG: what people see first, for chats, mails and terminals that show pictures.

write          a run that is kept in a folder
write_record   what the statistics stream has told of a queue, under a caption
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Final, NamedTuple

from roq.simulation.lab.archive.document import Run, Series
from roq.simulation.lab.archive.folder import RunError, read_run, read_series
from roq.simulation.lab.archive.recorded import series_of
from roq.simulation.lab.report import drawing
from roq.simulation.lab.report.bounds import bounded
from roq.simulation.lab.report.charts import Bounds, bounds_of, charts
from roq.simulation.lab.report.columns import columns_of, phases_of, phases_told
from roq.simulation.lab.report.figures import about
from roq.simulation.lab.report.outcome import MARKS, Tone, found, outcome, said, tone, wanted
from roq.simulation.lab.report.plot import Plot
from roq.simulation.lab.report.wording import clean, duration
from roq.simulation.real.record import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TONES: Final = {
    Tone.GOOD: "#18715c", Tone.BAD: "#b3401d", Tone.OPEN: "#6b5d1e", Tone.PLAIN: drawing.INK,
}  # fmt: skip
_WIDTH: Final = 12.0
_DPI: Final = 120
_LEFT: Final = 0.065
_RIGHT: Final = 0.945
_THIRDS: Final = ((_LEFT, 0.31), (0.385, 0.625), (0.705, _RIGHT))
_HEAD: Final = 1.36
_LINE: Final = 0.24
_CHARTS: Final = 6.75
_VERDICTS_MAX: Final = 12
_OF_RUNS: Final = ("throughput", "latency", "exchanges", "imbalance", "cpu")
_OF_RECORDS: Final = ("throughput", "bytes", "exchanges", "publishers", "latency")
_INSTEAD: Final = {"cpu": "bytes", "latency": "imbalance"}
"""Drawn in the place of a chart that has nothing to show."""
_TITLES: Final = {
    "latency": "Latency", "exchanges": "Exchanges", "imbalance": "Imbalance", "bytes": "Load",
    "publishers": "Publishers",
}  # fmt: skip


class Caption(NamedTuple):
    """What stands around a picture.

    Attributes:
        title: what was done.
        subtitle: what came out of it.
        footer: on what.
    """

    title: str
    subtitle: str
    footer: str


class Sheet(NamedTuple):
    """A figure on which places are inches below its top."""

    figure: Figure
    height: float

    def text(
        self,
        x: float,
        below: float,
        text: str,
        *,
        size: float = 9.0,
        weight: str = "normal",
        colour: str = drawing.INK,
    ) -> None:
        """Write; `x` is a share of the width."""
        y = 1 - below / self.height
        self.figure.text(x, y, text, va="top", fontsize=size, weight=weight, color=colour)

    def axes(self, below: float, length: float, left: float = _LEFT, right: float = _RIGHT) -> Axes:
        """Room for a chart."""
        bottom = 1 - (below + length) / self.height
        return self.figure.add_axes((left, bottom, right - left, length / self.height))


class Charts(NamedTuple):
    """The charts of a picture: two over the whole width, and three side by side."""

    plots: dict[str, Plot]
    names: Sequence[str]
    exchanges: Sequence[int]

    def draw(self, sheet: Sheet, below: float) -> None:
        """Draw them, so many inches below the top."""
        first, second, *small = self.names
        drawing.strips(sheet.axes(below, 0.72), self.plots[first])
        self._chart(sheet.axes(below + 1.0, 2.0), first)
        self._chart(sheet.axes(below + 3.55, 1.2), second)
        for (left, right), name in zip(_THIRDS, small, strict=True):
            self._chart(sheet.axes(below + 5.3, 0.95, left, right), name)

    def _chart(self, axes: Axes, name: str) -> None:
        chosen = name if name in self.plots else _INSTEAD.get(name, name)
        if chosen in self.plots and (chosen == name or chosen not in self.names):
            drawing.draw(axes, self.plots[chosen], self.exchanges)
        else:
            drawing.nothing(axes, _TITLES[chosen])


def write(folder: Path, path: Path) -> None:
    """Write the picture of a run.

    Args:
        folder: of the run.
        path: where to; the format follows from the suffix (.png, .svg, .pdf).

    Raises:
        RunError: `run.json` is missing or damaged, or the picture cannot be written.
    """
    run = read_run(folder)
    try:
        series = bounded(read_series(folder))
    except RunError:
        series = None
    verdicts = _LINE * ((min(len(run.verdicts), _VERDICTS_MAX) + 1) // 2)
    below = _HEAD + verdicts
    shown = _charts_of(run, series) if series is not None else None

    def draw(sheet: Sheet) -> None:
        _head(sheet, run)
        if shown is None:
            sheet.text(_LEFT, below, "Nothing is known of how it went.")
        else:
            shown.draw(sheet, below + 0.2)

    try:
        _write(path, below + (_CHARTS if shown else 0.5), draw)
    except OSError as error:
        raise RunError(f"{path}: cannot be written: {error.strerror or error}") from None
    except ValueError as error:
        raise RunError(f"{path}: cannot be drawn: {error}") from None


def write_record(record: Record, path: Path, caption: Caption, bounds: Bounds) -> None:
    """Write the picture of a queue under load.

    Args:
        record: what the statistics stream has told.
        path: where to; the format follows from the suffix.
        caption: what stands around it.
        bounds: of the queue.
    """
    series, lasts = series_of(record), record.seconds
    found, phases = columns_of(series, lasts), phases_told(series, lasts)
    plots = {plot.name: plot for plot in charts(series, found, phases, bounds)}
    if "latency" in plots:
        plots["latency"].title, plots["latency"].note = "Latency in ms", "means of subscribers"
    lines = caption.subtitle.splitlines()

    def draw(sheet: Sheet) -> None:
        sheet.text(_LEFT, 0.28, caption.title, size=17, weight="bold")
        for at, line in enumerate(lines):
            sheet.text(_LEFT, 0.64 + _LINE * at, line, colour=drawing.SOFT)
        Charts(plots, _OF_RECORDS, found.exchanges).draw(sheet, 0.9 + _LINE * len(lines))
        sheet.text(_LEFT, sheet.height - 0.25, caption.footer, size=8, colour=drawing.FAINT)

    _write(path, 0.9 + _LINE * len(lines) + _CHARTS + 0.2, draw)


def _charts_of(run: Run, series: Series) -> Charts | None:
    """The charts of a run; None if nothing was measured."""
    columns = columns_of(series, run.seconds)
    if not columns.ends:
        return None
    plots = charts(series, columns, phases_of(run, series), bounds_of(run))
    return Charts({plot.name: plot for plot in plots}, _OF_RUNS, columns.exchanges)


def _write(path: Path, height: float, draw: Callable[[Sheet], None]) -> None:
    import matplotlib as mpl  # noqa: PLC0415 - half a second that only this needs
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context(drawing.STYLE), warnings.catch_warnings():
        # A title in letters that no font here has is drawn with boxes: no reason to say so.
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")
        figure = Figure(figsize=(_WIDTH, height), dpi=_DPI, facecolor="white")
        FigureCanvasAgg(figure)
        draw(Sheet(figure, height))
        figure.savefig(path)


def _head(sheet: Sheet, run: Run) -> None:
    what = outcome(run)
    facts = f"{run.kind.value} run {run.id}, {duration(run.seconds)} of load, seed {run.seed}"
    title = clean(run.scenario.title or run.scenario.name, 90)
    sheet.text(_LEFT, 0.28, title, size=17, weight="bold")
    sheet.text(_LEFT, 0.64, clean(facts, 140), colour=drawing.SOFT)
    headline, style = f"{MARKS[what.tone]} {what.headline}", _TONES[what.tone]
    sheet.text(_LEFT, 0.92, headline, size=12, weight="bold", colour=style)
    if what.more and not run.verdicts:
        sheet.text(_LEFT, 1.16, next(iter(wrap(what.more, 150)), ""), colour=drawing.SOFT)
    for at, verdict in enumerate(run.verdicts[:_VERDICTS_MAX]):
        x, below = _LEFT + 0.45 * (at % 2), 1.28 + _LINE * (at // 2)
        sign, style = f"{MARKS[tone(verdict)]} {said(verdict)}", _TONES[tone(verdict)]
        sheet.text(x, below, sign, colour=style, weight="bold")
        label = about(verdict.expected.what).label
        text = f"{label}: {found(verdict)}, wanted {wanted(verdict.expected)}"
        sheet.text(x + 0.084, below, clean(text, 80))
