"""Many runs: scenarios, seeds and a grid of values, played side by side."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from pathlib import Path
from typing import Final

import msgspec

import roq
from roq.errors import ConfigError
from roq.simulation.forecast.case import Case
from roq.simulation.forecast.grid import RUNS_MAX, Value, combinations, in_order, varied
from roq.simulation.forecast.order import SweepOrder, case_of
from roq.simulation.forecast.outcome import Outcome
from roq.simulation.forecast.run import Progress, untold
from roq.simulation.forecast.table import PREFIX, Row, table, write
from roq.simulation.forecast.work import Processes, Workers, on_spark, play_all
from roq.simulation.lab.archive import folder as folders
from roq.simulation.lab.archive.folder import RunError
from roq.simulation.real.results import Machine, measured

KIND: Final = "sweep"
FILE: Final = "sweep.json"


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
    """`sweep.json`: what was asked, where, and how long it took."""

    order: SweepOrder
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
        with measured() as machine, _workers(order) as workers:
            rows = run(wanted, workers, progress)
        took = time.time() - began
        if not rows:
            raise KeyboardInterrupt
        kept = Record(
            order=order,
            runs=len(rows),
            wanted=count,
            took_seconds=round(took, 3),
            versions={"roq": roq.__version__, "python": platform.python_version()},
            machine=machine,
        )
        return Swept(
            folder=folder,
            written=_written(kept, rows, folder),
            table=table(rows, order.metrics),
            runs=len(rows),
            wanted=count,
            machine=machine,
            took=took,
        )


def _written(kept: Record, rows: Sequence[Row], folder: Path) -> list[Path]:
    """The files of a sweep, and where they are."""
    path = folder / FILE
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(kept, enc_hook=os.fspath)))
        return [path, *write(rows, kept.order.metrics, folder)]
    except OSError as error:
        raise RunError(f"{folder}: cannot be written: {error.strerror}") from None


def check(metrics: Sequence[str]) -> None:
    """Make sure that there are such figures.

    Raises:
        ConfigError: there is none of that name.
    """
    known = Outcome.figure_names()
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


def run(sweep: Sweep, workers: Workers, progress: Progress) -> list[Row]:
    """Play all runs; when it is interrupted, it gives those that are complete.

    Args:
        sweep: what.
        workers: who does it.
        progress: is told (tasks done, of how many).

    Raises:
        ConfigError: a run cannot be played.
    """
    runs = sweep.runs()
    cases = [case for _, case in runs]
    total, done = sum(case.cells for case in cases), 0
    rows: list[Row] = []
    try:
        for index, outcome in play_all(cases, workers):
            if outcome is not None:
                label = {f"{PREFIX}{name}": each for name, each in runs[index][0].items()}
                rows.append({**label, **outcome.figures(), "seed": outcome.seed})
            done += 1
            progress(done, total)
    except KeyboardInterrupt:
        progress(total, total)
    return sorted(rows, key=lambda row: [in_order(each) for each in row.values()])
