"""Pictures of a sweep: two of the values that were varied, and a figure as colour."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import isnan, nan
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from roq.simulation.forecast.grid import Value, in_order
from roq.simulation.forecast.outcome import mean
from roq.simulation.forecast.results import PREFIX, Combination
from roq.simulation.forecast.table import error

CELL_INCHES: Final = (1.05, 0.72)
COLOURS: Final = "cividis"
"""The same order of light for all eyes, also in grey."""
LEAST_RANGE: Final = 0.1
"""Of the highest value: smaller differences do not get all the colours."""


def draw(found: Sequence[Combination], metrics: Sequence[str], folder: Path) -> list[Path]:
    """One picture for each figure and each pair of names with several values; over the rest, means.

    A sweep of one name is a picture with one row.
    """
    varied = found[0].values if found else {}
    names = [name for name in varied if len(_values(found, name)) > 1]
    pairs: list[tuple[str, str]] = list(combinations(names, 2)) or [(name, "") for name in names]
    written = []
    for across, up in pairs:
        for metric in metrics:
            parts = [metric, across.removeprefix(PREFIX), up.removeprefix(PREFIX)]
            path = folder / f"{'-'.join(filter(None, parts))}.png"
            _draw(found, across, up, metric, path)
            written.append(path)
    return written


def _draw(
    combinations: Sequence[Combination], across: str, up: str, metric: str, path: Path
) -> None:
    columns = _values(combinations, across)
    lines = _values(combinations, up) if up else [""]
    found = [
        [
            [
                figure
                for each in combinations
                if each.values[across] == column and (not up or each.values[up] == line)
                for figure in each.figures[metric]
            ]
            for column in columns
        ]
        for line in lines
    ]
    wide, high = CELL_INCHES
    figure = Figure(
        figsize=(2.4 + wide * len(columns), 1.5 + high * len(lines)), layout="constrained"
    )
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _fill(axes, found)
    axes.set_xticks(range(len(columns)), [str(each) for each in columns])
    axes.set_yticks(range(len(lines)), [str(each) for each in lines])
    axes.tick_params(length=0)
    axes.set_xlabel(across.removeprefix(PREFIX))
    axes.set_ylabel(up.removeprefix(PREFIX))
    axes.set_title(metric.replace("_", " "), loc="left", fontweight="bold")
    axes.set_title(_runs(combinations, found), loc="right", fontsize="small", color="#5a646e")
    figure.savefig(path, dpi=120)


def _fill(axes: Axes, found: list[list[list[float]]]) -> None:
    """Colours, and in each cell the mean and what it could be wrong by."""
    means = [[mean(values) if values else nan for values in line] for line in found]
    told = [each for line in means for each in line if not isnan(each)] or [0.0]
    lowest, highest = min(told), max(told)
    room = max(highest - lowest, LEAST_RANGE * abs(highest)) or 1.0
    axes.imshow(means, origin="lower", aspect="auto", cmap=COLOURS,
                vmin=lowest, vmax=lowest + room)  # fmt: skip
    for y, line in enumerate(found):
        for x, values in enumerate(line):
            if not values:
                axes.annotate("–", (x, y), ha="center", va="center")
                continue
            red, green, blue, _ = mpl.colormaps[COLOURS]((means[y][x] - lowest) / room)
            light = 0.3 * red + 0.59 * green + 0.11 * blue > 0.5
            colour = "black" if light else "white"
            axes.annotate(f"{means[y][x]:.3g}", (x, y), (0, 3), textcoords="offset points",
                          ha="center", va="center", color=colour)  # fmt: skip
            if (half := error(values)) is None:
                continue
            axes.annotate(f"± {half:.2g}", (x, y), (0, -9), textcoords="offset points",
                          ha="center", va="center", color=colour, fontsize="x-small")  # fmt: skip
    axes.set_xticks([x - 0.5 for x in range(1, len(found[0]))], minor=True)
    axes.set_yticks([y - 0.5 for y in range(1, len(found))], minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_visible(False)


def _runs(combinations: Sequence[Combination], found: list[list[list[float]]]) -> str:
    """Of what, and of how many runs a cell is the mean."""
    scenarios = sorted({str(each.values[f"{PREFIX}scenario"]) for each in combinations})
    counts = sorted({len(values) for line in found for values in line})
    several = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{', '.join(scenarios)}; mean of {several} runs"


def _values(combinations: Sequence[Combination], name: str) -> list[Value]:
    return sorted({each.values[name] for each in combinations}, key=in_order)
