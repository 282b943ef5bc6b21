"""Pictures of a sweep: two of the values that were varied, and a figure as colour."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from simulation.forecast.grid import Value, in_order
from simulation.forecast.outcome import mean
from simulation.forecast.table import PREFIX, Row, varied_names

CELL_INCHES = 0.9


def draw(rows: Sequence[Row], metrics: Sequence[str], folder: Path) -> list[Path]:
    """One picture for each figure and each pair of names with several values; over the rest, means.

    A sweep of one name is a picture with one row.
    """
    names = [name for name in varied_names(rows) if len({row[name] for row in rows}) > 1]
    pairs: list[tuple[str, str]] = list(combinations(names, 2)) or [(name, "") for name in names]
    written = []
    for across, up in pairs:
        for metric in metrics:
            parts = [metric, across.removeprefix(PREFIX), up.removeprefix(PREFIX)]
            path = folder / f"{'-'.join(filter(None, parts))}.png"
            _draw(rows, across, up, metric, path)
            written.append(path)
    return written


def _draw(rows: Sequence[Row], across: str, up: str, metric: str, path: Path) -> None:
    columns = _values(rows, across)
    lines = _values(rows, up) if up else [""]
    cells = [
        [
            mean([
                float(row[metric])
                for row in rows
                if row[across] == column and (not up or row[up] == line)
            ])
            for column in columns
        ]
        for line in lines
    ]  # fmt: skip
    figure = Figure(
        figsize=(3 + CELL_INCHES * len(columns), 2 + CELL_INCHES * len(lines)),
        layout="constrained",
    )
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(cells, origin="lower", aspect="auto", cmap="viridis")
    axes.set_xticks(range(len(columns)), [str(each) for each in columns])
    axes.set_yticks(range(len(lines)), [str(each) for each in lines])
    axes.set_xlabel(across.removeprefix(PREFIX))
    axes.set_ylabel(up.removeprefix(PREFIX))
    lowest, highest = min(map(min, cells)), max(map(max, cells))
    for y, line in enumerate(cells):
        for x, cell in enumerate(line):
            dark = cell < (lowest + highest) / 2
            axes.text(x, y, f"{cell:.3g}", ha="center", va="center",
                      color="white" if dark else "black")  # fmt: skip
    figure.colorbar(image, label=metric)
    axes.set_title(metric.replace("_", " "))
    figure.savefig(path, dpi=120)


def _values(rows: Sequence[Row], name: str) -> list[Value]:
    found = {row[name] for row in rows}
    return sorted(found, key=in_order)
