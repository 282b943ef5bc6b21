"""Many runs as a table, as Parquet and as pictures."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Final, TypeAlias

from roq.simulation.forecast.grid import Value
from roq.simulation.forecast.outcome import mean
from roq.simulation.lab.report import statistics

Row: TypeAlias = dict[str, Value]
"""One run: what is varied, and its figures."""
PREFIX: Final = "vary_"
"""Before the names of what is varied: it may have the name of a figure."""


def table(rows: Sequence[Row], metrics: Sequence[str]) -> list[Row]:
    """One row for each combination: mean over the seeds, and 95 % of what it could be, ±.

    A cell is empty where no run has the figure, and ± where less than two have.
    """
    names = varied_names(rows)
    groups: dict[tuple[Value, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    found = []
    for key, members in groups.items():
        made: Row = {name.removeprefix(PREFIX): each for name, each in zip(names, key, strict=True)}
        made["runs"] = len(members)
        for metric in metrics:
            values = known(members, metric)
            made[metric] = mean(values) if values else ""
            half = error(values)
            made[f"{metric} ±"] = "" if half is None else half
        found.append(made)
    return found


def varied_names(rows: Iterable[Row]) -> list[str]:
    """The columns that say what is varied."""
    first = next(iter(rows), {})
    return [name for name in first if name.startswith(PREFIX)]


def write(rows: Sequence[Row], metrics: Sequence[str], folder: Path) -> list[Path]:
    """Write runs (Parquet, or CSV without pyarrow), the table (CSV) and heat-maps (PNG)."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [_write_runs(rows, folder)]
    means = folder / "table.csv"
    _write_csv(table(rows, metrics), means)
    written.append(means)
    if importlib.util.find_spec("matplotlib") is not None:
        from roq.simulation.forecast import heatmap  # noqa: PLC0415 - only where there is matplotlib

        written += heatmap.draw(rows, metrics, folder)
    return written


def _write_runs(rows: Sequence[Row], folder: Path) -> Path:
    if importlib.util.find_spec("pyarrow") is None:
        _write_csv(rows, folder / "runs.csv")
        return folder / "runs.csv"
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet  # noqa: PLC0415

    path = folder / "runs.parquet"
    pa.parquet.write_table(pa.Table.from_pylist([dict(row) for row in rows]), path)
    return path


def _write_csv(rows: Sequence[Mapping[str, Value]], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)


def known(rows: Iterable[Row], metric: str) -> list[float]:
    """A figure of those runs that have it: what did not happen took no time at all."""
    return [value for row in rows if not isnan(value := float(row[metric]))]


def error(values: Sequence[float]) -> float | None:
    """95 % of what the mean could be, either way; None if less than two runs have the figure."""
    return statistics.mean(values).half if values else None
