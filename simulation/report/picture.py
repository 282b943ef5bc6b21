"""A run as one PNG: what people see first, for chats, mails and terminals that show pictures."""

from __future__ import annotations

import warnings
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Final, NamedTuple

from roq.simulation.archive.document import Run, Series
from roq.simulation.archive.folder import RunError, read_run, read_series
from roq.simulation.report import drawing
from roq.simulation.report.bounds import bounded
from roq.simulation.report.course import Course, course, phases_of
from roq.simulation.report.figures import about
from roq.simulation.report.outcome import MARKS, Tone, found, outcome, said, tone, wanted
from roq.simulation.report.wording import clean, duration

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
    try:
        _write(run, series, path)
    except OSError as error:
        raise RunError(f"{path}: cannot be written: {error.strerror or error}") from None
    except ValueError as error:
        raise RunError(f"{path}: cannot be drawn: {error}") from None


def _write(run: Run, series: Series | None, path: Path) -> None:
    import matplotlib as mpl  # noqa: PLC0415 - half a second that only this needs
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context(drawing.STYLE), warnings.catch_warnings():
        # A title in letters that no font here has is drawn with boxes: no reason to say so.
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")
        columns = course(series, run.seconds) if series is not None else None
        shown = columns is not None and bool(columns.ends)
        verdicts = _LINE * ((min(len(run.verdicts), _VERDICTS_MAX) + 1) // 2)
        height = _HEAD + verdicts + (_CHARTS if shown else 0.5)
        figure = Figure(figsize=(_WIDTH, height), dpi=_DPI, facecolor="white")
        FigureCanvasAgg(figure)
        sheet = Sheet(figure, height)
        _head(sheet, run)
        if series is None or columns is None or not shown:
            sheet.text(_LEFT, _HEAD + verdicts, "Nothing is known of how it went.")
        else:
            _charts(sheet, run, series, columns, _HEAD + verdicts + 0.2)
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


def _charts(sheet: Sheet, run: Run, series: Series, columns: Course, below: float) -> None:
    drawing.strips(sheet.axes(below, 0.72), series, columns, phases_of(run, series))
    drawing.throughput(sheet.axes(below + 1.0, 2.0), columns)
    drawing.latency(sheet.axes(below + 3.55, 1.2), columns)
    for (left, right), draw in zip(_THIRDS, drawing.SMALL, strict=True):
        draw(sheet.axes(below + 5.3, 0.95, left, right), run, columns)
