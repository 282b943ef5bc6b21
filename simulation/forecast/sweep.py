"""Many runs: scenarios, seeds and a grid of values, played side by side."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from pathlib import Path
from typing import Final

import msgspec

import roq
from roq.errors import ConfigError
from roq.simulation.forecast.case import Case
from roq.simulation.forecast.grid import RUNS_MAX, Value, combinations, varied
from roq.simulation.forecast.order import SweepOrder, case_of
from roq.simulation.forecast.outcome import FIGURES
from roq.simulation.forecast.results import PREFIX, SEED, Combination, Results, Row
from roq.simulation.forecast.run import Progress, untold
from roq.simulation.forecast.table import table, write
from roq.simulation.forecast.work import Processes, Workers, on_spark, play_all
from roq.simulation.lab.archive import folder as folders
from roq.simulation.lab.archive.folder import RunError
from roq.simulation.lab.traces.place import located
from roq.simulation.real.results import Machine, measured

KIND: Final = "sweep"
FILE: Final = "sweep.json"
RESULTS: Final = "runs.parquet"
"""In the folder of a sweep, if no other place was wanted."""


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What came out of a sweep, and where it is.

    Attributes:
        folder: with `sweep.json`, the runs, the table and the pictures.
        written: all files in it.
        table: a row for each combination, means over its seeds.
        runs: complete.
        wanted: how many there were to be.
        machine: of the user.
        took: seconds.
    """

    folder: Path
    written: list[Path]
    table: list[Row]
    runs: int
    wanted: int
    machine: Machine
    took: float


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """`sweep.json`: what was asked, where, how long it took, and where the runs are."""

    order: SweepOrder
    results: str = ""
    runs: int
    wanted: int
    took_seconds: float
    versions: dict[str, str]
    machine: Machine


def conduct(order: SweepOrder, progress: Progress = untold) -> Swept:
    """Play everything that is ordered, and write it down.

    When it is interrupted, it gives what is complete.

    Args:
        order: what is to be played.
        progress: is told how many tasks are done, of how many.

    Raises:
        ConfigError: something cannot be played; nothing is written then.
        RunError: the folder cannot be written.
        KeyboardInterrupt: it was interrupted before any run was complete.
    """
    check(order.metrics)
    wanted = Sweep(
        cases=[case_of(order, name) for name in order.scenarios],
        vary=order.vary,
        seeds=list(range(1, order.seeds + 1)),
    )
    count = len(wanted.runs())
    names = {case.scenario.name for case in wanted.cases}
    name = names.pop() if len(names) == 1 else "several"
    began = time.time()
    with folders.kept_if_filled(order.out, folders.new_id(name, KIND, began)) as folder:
        results = results_of(order, _place(order, folder))
        with measured() as machine, _workers(order) as workers, results:
            run(wanted, workers, progress, results.add)
        took = time.time() - began
        if not results.rows:
            raise KeyboardInterrupt
        kept = Record(
            order=order,
            results=results.uri,
            runs=results.rows,
            wanted=count,
            took_seconds=round(took, 3),
            versions={"roq": roq.__version__, "python": platform.python_version()},
            machine=machine,
        )
        found = results.combinations(order.metrics)
        return Swept(
            folder=folder,
            written=_written(kept, found, folder),
            table=table(found, order.metrics),
            runs=results.rows,
            wanted=count,
            machine=machine,
            took=took,
        )


def again(folder: Path) -> Swept:
    """Work out the table of a sweep and its pictures once more, from the table of all runs.

    Args:
        folder: of the sweep.

    Raises:
        RunError: something there cannot be read or written.
    """
    path = folder / FILE
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Record, dec_hook=_path)
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise RunError(f"{path}: is damaged or not of a sweep: {error}") from None
    where = kept.results if kept.order.results_at else folder / RESULTS
    found = results_of(kept.order, where).combinations(kept.order.metrics)
    if not found:
        raise RunError(f"{where}: there are no results of the sweep {folder}")
    return Swept(
        folder=folder,
        written=_written(kept, found, folder),
        table=table(found, kept.order.metrics),
        runs=kept.runs,
        wanted=kept.wanted,
        machine=kept.machine,
        took=kept.took_seconds,
    )


def _path(_kind: type, text: str) -> Path:
    return Path(text)


def results_of(order: SweepOrder, where: str | Path) -> Results:
    """The table of a sweep.

    Args:
        order: what was asked.
        where: its place.

    Raises:
        RunError: there is no such place.
    """
    vary: dict[str, list[Value]] = {"scenario": [*order.scenarios], **order.vary}
    return Results(where, {f"{PREFIX}{name}": vary[name] for name in vary})


def _place(order: SweepOrder, folder: Path) -> str | Path:
    """In the folder of the sweep if the order names no place."""
    if order.results_at:
        return f"{located(order.results_at)}/sweep={folder.name}"
    return folder / RESULTS


def _written(kept: Record, found: Sequence[Combination], folder: Path) -> list[Path]:
    """The files of a sweep, and where they are."""
    path = folder / FILE
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(kept, enc_hook=os.fspath)))
        return [path, *write(found, kept.order.metrics, folder)]
    except OSError as error:
        raise RunError(f"{folder}: cannot be written: {error.strerror}") from None


def check(metrics: Sequence[str]) -> None:
    """Make sure that there are such figures.

    Raises:
        ConfigError: there is none of that name.
    """
    known = (SEED, *FIGURES)
    for metric in metrics:
        if metric not in known:
            raise ConfigError(f"there is no figure {metric!r}; there are {', '.join(known)}")


def _workers(order: SweepOrder) -> AbstractContextManager[Workers]:
    if order.spark:
        return on_spark(order.master, ship=order.ship, wish=order.wish)
    return nullcontext(Processes(order.workers))


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run.

    Attributes:
        cases: one for each scenario.
        vary: name → values; see `grid.varied`.
        seeds: of all runs.
    """

    cases: list[Case]
    vary: dict[str, list[Value]]
    seeds: list[int]

    def runs(self) -> list[tuple[Row, Case]]:
        """All runs, each with what makes it different.

        Raises:
            ConfigError: a name or a value is wrong, or there are too many; nothing has been run
                then.
        """
        count = len(self.cases) * prod(map(len, self.vary.values())) * len(self.seeds)
        if count > RUNS_MAX:
            raise ConfigError(f"{count:,} runs are more than {RUNS_MAX:,}")
        found: list[tuple[Row, Case]] = []
        for case in self.cases:
            for values in combinations(self.vary):
                changed = varied(case, values)
                label: Row = {"scenario": case.scenario.name, **values}
                found += [
                    (label, msgspec.structs.replace(changed, seed=seed)) for seed in self.seeds
                ]
        return found


def run(sweep: Sweep, workers: Workers, progress: Progress, keep: Callable[[Row], None]) -> None:
    """Play all runs; when it is interrupted, those that are complete have been kept.

    Args:
        sweep: what.
        workers: who does it.
        progress: is told (tasks done, of how many).
        keep: is given each run that is complete, in any order.

    Raises:
        ConfigError: a run cannot be played.
    """
    runs = sweep.runs()
    cases = [case for _, case in runs]
    total, done = sum(case.cells for case in cases), 0
    try:
        for index, outcome in play_all(cases, workers):
            if outcome is not None:
                label = {f"{PREFIX}{name}": each for name, each in runs[index][0].items()}
                keep({**label, SEED: outcome.seed, **outcome.figures})
            done += 1
            progress(done, total)
    except KeyboardInterrupt:
        progress(total, total)
