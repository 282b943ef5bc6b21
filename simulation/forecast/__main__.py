"""`python -m simulation.forecast`: what a cluster of any size would do."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from roq.cli.interrupts import ends_quietly
from roq.cli.output import console, print_json
from roq.errors import ConfigError
from simulation.description import reading
from simulation.forecast import sweep as sweeps
from simulation.forecast.case import Case
from simulation.forecast.grid import Value, value, varied
from simulation.forecast.outcome import Outcome
from simulation.forecast.work import Here, Processes, Spark, Workers, play_all

OUT: Final = Path("simulation/runs")
CLUSTER: Final = Path(__file__).with_name("cluster.yaml")
SHOWN: Final = (
    "hosts", "queues", "publishers", "messages", "exchanges_most", "exchanges_last", "scale_outs",
    "scale_ins", "scale_refused", "moves", "moves_failed", "deaths", "overload_minutes",
    "saturated_minutes", "unserved_minutes", "imbalance_mean", "imbalance_last",
    "reaction_seconds", "reaction_most", "relief_seconds", "serve_seconds", "latency_mean_ms",
    "exchange_hours", "used_host_hours", "host_hours_per_million", "rounds", "asked",
    "asked_ahead", "policy_errors", "cpu_seconds",
)  # fmt: skip


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """What a cluster of any size would do: RoQ's own policies on a model of load and delays.

    \b
    Examples:
      python -m simulation.forecast run eqs-2011
      python -m simulation.forecast run cluster --queues 20 --set stagger_seconds=3600
      python -m simulation.forecast sweep cluster --queues 20 --seeds 10 --local \\
          --vary cooldown_seconds=2,10,30 --vary known.OVERLOAD=1.05,1.1,1.3
    """


@main.command()
@click.argument("scenario")
@click.option("--seed", type=int, default=1, show_default=True, help="Of everything drawn.")
@click.option("--hosts", type=click.IntRange(1, 100_000), help="As in the scenario, if not given.")
@click.option("--queues", type=click.IntRange(1, 100_000), default=1, show_default=True,
              help="Queues that share the load.")  # fmt: skip
@click.option("--publishers", type=click.IntRange(1, 10_000_000),
              help="At the peak, in the proportions of the scenario.")  # fmt: skip
@click.option("--cells", type=click.IntRange(1, 100_000), default=1, show_default=True,
              help="Parts of the cluster that know nothing of each other.")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
              help="A rule, a parameter or a threshold (module.NAME).")  # fmt: skip
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True,
              help="Processes that share the cells.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False),
              help="File for the outcome as JSON.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="JSON instead of the table.")
def run(
    scenario: str, seed: int, hosts: int | None, queues: int, publishers: int | None, cells: int,
    settings: Sequence[str], workers: int, out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Play one scenario (a name, a YAML file, or `cluster`)."""
    with _errors():
        changes = dict(map(_setting, settings))
        case = _case(scenario, hosts, queues, publishers, cells, changes)
        case = msgspec.structs.replace(case, seed=seed)
        crew: Workers = Here() if workers == 1 else Processes(workers)
        with ends_quietly(), _progress() as bar:
            task = bar.add_task("cells", total=cells)
            found: Outcome | None = None
            for _, outcome in play_all([case], crew):
                bar.advance(task)
                found = outcome
        if found is None:
            raise SystemExit(130)
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_bytes(msgspec.json.format(msgspec.json.encode(found)))
        _show(found, as_json=as_json)


@main.command()
@click.argument("scenarios", nargs=-1, required=True)
@click.option("--seeds", type=click.IntRange(1, 100_000), default=10, show_default=True,
              help="Runs of each combination.")  # fmt: skip
@click.option("--hosts", type=click.IntRange(1, 100_000), help="As in the scenario, if not given.")
@click.option("--queues", type=click.IntRange(1, 100_000), default=1, show_default=True,
              help="Queues that share the load.")  # fmt: skip
@click.option("--publishers", type=click.IntRange(1, 10_000_000),
              help="At the peak, in the proportions of the scenario.")  # fmt: skip
@click.option("--cells", type=click.IntRange(1, 100_000), default=1, show_default=True,
              help="Parts of the cluster that know nothing of each other.")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE",
              help="A rule, a parameter or a threshold, the same in all runs.")  # fmt: skip
@click.option("--vary", "vary", multiple=True, metavar="NAME=V1,V2,…",
              help="One that is varied; several: all combinations.")  # fmt: skip
@click.option("--metric", "metrics", multiple=True, default=sweeps.METRICS, show_default=True,
              help="Figures in the table and the heat-maps.")  # fmt: skip
@click.option("--local", "local", is_flag=True, help="Processes of this machine, without Spark.")
@click.option("--workers", type=click.IntRange(0, 256), default=0,
              help="With --local: how many; 0: one for each core.")  # fmt: skip
@click.option("--master", default="local[*]", show_default=True, help="Of the Spark cluster.")
@click.option("--ship", is_flag=True, help="Send RoQ's code to the executors.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=OUT / "sweep",
              show_default=True, help="Folder for table, Parquet and pictures.")  # fmt: skip
def sweep(
    scenarios: Sequence[str], seeds: int, hosts: int | None, queues: int, publishers: int | None,
    cells: int, settings: Sequence[str], vary: Sequence[str], metrics: Sequence[str], local: bool,
    workers: int, master: str, ship: bool, out: Path,
) -> None:  # fmt: skip
    """Play scenarios with every combination of some values, with many seeds.

    Ctrl-C ends it; what is complete by then is written.
    """
    with _errors():
        changes = dict(map(_setting, settings))
        wanted = sweeps.Sweep(
            cases=[_case(each, hosts, queues, publishers, cells, changes) for each in scenarios],
            vary=dict(map(_values, vary)),
            seeds=list(range(1, seeds + 1)),
        )
        _check(metrics)
        count = len(wanted.runs())
        console(error=True).print(f"{count} runs", style="dim")
        if local:
            rows = _play(wanted, Processes(workers))
        else:
            rows = _play_on_spark(wanted, master, ship=ship)
        if not rows:
            raise SystemExit(130)
        written = sweeps.write(rows, metrics, out)
        _show_table(sweeps.table(rows, metrics))
        for path in written:
            console(error=True).print(f"written: {path}", style="dim")
        if len(rows) < count:
            raise SystemExit(130)


def _play(wanted: sweeps.Sweep, workers: Workers) -> list[sweeps.Row]:
    with _progress() as bar:
        task = bar.add_task("tasks", total=None)
        return sweeps.run(
            wanted, workers, lambda done, total: bar.update(task, completed=done, total=total)
        )


def _play_on_spark(wanted: sweeps.Sweep, master: str, *, ship: bool) -> list[sweeps.Row]:
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - it is an extra
    except ImportError:
        raise ConfigError(
            "a sweep on Spark needs PySpark: pip install 'roq[spark]', or use --local"
        ) from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master(master)
        .appName("roq forecast")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    with tempfile.TemporaryDirectory(prefix="roq-ship-") as folder:
        try:
            session.sparkContext.setLogLevel("ERROR")
            workers = Spark(session.sparkContext, ship=Path(folder) if ship else None)
            return _play(wanted, workers)
        finally:
            session.stop()


def _case(
    name: str, hosts: int | None, queues: int, publishers: int | None, cells: int,
    changes: dict[str, Value],
) -> Case:  # fmt: skip
    path = CLUSTER if name == "cluster" else reading.find(name)
    scenario = reading.read(path)
    sizes: dict[str, Value] = {"queues": queues, "hosts": hosts or scenario.hosts, "cells": cells}
    if publishers is not None:
        sizes["publishers"] = publishers
    return varied(Case(scenario=scenario), {**sizes, **changes})


def _setting(text: str) -> tuple[str, Value]:
    name, sign, given = text.partition("=")
    if not sign or not given:
        raise ConfigError(f"{text!r} is not of the form NAME=VALUE")
    return name, value(given)


def _values(text: str) -> tuple[str, list[Value]]:
    name, sign, given = text.partition("=")
    values = [value(each) for each in given.split(",") if each]
    if not sign or not values:
        raise ConfigError(f"{text!r} is not of the form NAME=VALUE,VALUE,…")
    return name, values


def _check(metrics: Sequence[str]) -> None:
    known = Outcome.__struct_fields__
    for metric in metrics:
        if metric not in known or metric in {"series", "events"}:
            names = ", ".join(each for each in known if each not in {"series", "events"})
            raise ConfigError(f"there is no figure {metric!r}; there are {names}")


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=console(error=True), transient=True, disable=not sys.stderr.isatty(),
    )  # fmt: skip


def _show(found: Outcome, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    figures = found.figures()
    width = max(map(len, SHOWN))
    for name in SHOWN:
        click.echo(f"{name:<{width}}  {_number(figures[name]):>14}")


def _show_table(rows: Sequence[sweeps.Row]) -> None:
    names = list(rows[0])
    cells = [
        [each if isinstance(each, str) else _number(each) for each in row.values()] for row in rows
    ]
    widths = [
        max(len(name), *(len(row[column]) for row in cells)) for column, name in enumerate(names)
    ]
    for line in [names, *cells]:
        click.echo("  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)))


def _number(figure: float) -> str:
    if float(figure).is_integer():
        return f"{int(figure):,}"
    return f"{figure:,.3f}"


class _errors:  # noqa: N801 - reads like the function that it is
    """Errors that a person can do something about, in one line."""

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, ConfigError):
            raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
