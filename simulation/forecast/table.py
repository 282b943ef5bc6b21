"""Many runs as a table of means, and as pictures."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from roq.simulation.forecast.outcome import mean
from roq.simulation.forecast.results import PREFIX, Combination, Row
from roq.simulation.lab.report import statistics


def table(found: Sequence[Combination], metrics: Sequence[str]) -> list[Row]:
    """One row for each combination: mean over the seeds, and 95 % of what it could be, ±.

    A cell is empty where no run has the figure, and ± where less than two have.
    """
    rows = []
    for each in found:
        made: Row = {name.removeprefix(PREFIX): value for name, value in each.values.items()}
        made["runs"] = each.runs
        for metric in metrics:
            values = each.figures[metric]
            made[metric] = mean(values) if values else ""
            half = error(values)
            made[f"{metric} ±"] = "" if half is None else half
        rows.append(made)
    return rows


def write(found: Sequence[Combination], metrics: Sequence[str], folder: Path) -> list[Path]:
    """Write the table (CSV) and heat-maps (PNG); gives the files."""
    means = folder / "table.csv"
    rows = table(found, metrics)
    with means.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
    if importlib.util.find_spec("matplotlib") is None:
        return [means]
    from roq.simulation.forecast import heatmap  # noqa: PLC0415 - only where there is matplotlib

    return [means, *heatmap.draw(found, metrics, folder)]


def error(values: Sequence[float]) -> float | None:
    """95 % of what the mean could be, either way; None if less than two runs have the figure."""
    return statistics.mean(values).half if values else None
