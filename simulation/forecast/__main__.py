"""`python -m simulation.forecast`: what a cluster of any size would do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from roq.cli.interrupts import ends_quietly
from roq.cli.output import console, print_json
from roq.errors import ConfigError, RoQError
from simulation.archive.document import RunState
from simulation.archive.folder import RUNS, read_run
from simulation.forecast import run as runs
from simulation.forecast import sweep as sweeps
from simulation.forecast.bar import bar
from simulation.forecast.order import RunOrder, SweepOrder, setting, values
from simulation.forecast.outcome import METRICS
from simulation.forecast.table import Row

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")
INTERRUPTED: Final = 130
OPTIONS: Final = (
    click.option("--scale", default=1.0, show_default=True, help="Durations times this."),
    click.option("--hosts", default=0, help="As in the scenario, if not given."),
    click.option("--queues", default=1, show_default=True, help="Queues that share the load."),
    click.option("--publishers", default=0,
                 help="At the peak, in the proportions of the scenario."),
    click.option("--cells", default=1, show_default=True,
                 help="Parts of the cluster that know nothing of each other."),
    click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", callback=lambda
                 _context, _option, given: _pairs(setting, given),
                 help="A rule, a parameter or a threshold (module.NAME)."),
    click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=RUNS,
                 show_default=True, help="A folder is made in there."),
)  # fmt: skip


def order_options(function: F) -> F:
    """What a run and a sweep have in common."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


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
@click.option("--seed", default=1, show_default=True, help="Of everything drawn.")
@click.option("--workers", default=1, show_default=True,
              help="Processes that share the cells; 0: one for each core.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="JSON instead of the table.")
@order_options
def run(as_json: bool, **given: Any) -> None:
    """Play one scenario (a name, a YAML file, or `cluster`)."""
    with _errors(), ends_quietly():
        order = _order(RunOrder, given)
        with bar("cells") as progress:
            folder = runs.run(order, progress)
        found = read_run(folder)
        if as_json:
            print_json(found)
        else:
            _show_figures(found.figures)
        console(error=True).print(f"written: {folder}", style="dim")
        if found.state is RunState.COMPLETE:
            return
    raise SystemExit(INTERRUPTED)


@main.command()
@click.argument("scenarios", nargs=-1, required=True)
@click.option("--seeds", default=10, show_default=True, help="Runs of each combination.")
@click.option("--vary", multiple=True, metavar="NAME=V1,V2,…", callback=lambda
              _context, _option, given: _pairs(values, given),
              help="One that is varied; several: all combinations.")  # fmt: skip
@click.option("--metric", "metrics", multiple=True, default=METRICS, show_default=True,
              help="Figures in the table and the heat-maps.")  # fmt: skip
@click.option("--local", is_flag=True, help="Processes of this machine, without Spark.")
@click.option("--workers", default=0, help="With --local: how many; 0: one for each core.")
@click.option("--master", default="local[*]", show_default=True, help="Of the Spark cluster.")
@click.option("--ship", is_flag=True, help="Send RoQ's code to the executors.")
@order_options
def sweep(local: bool, **given: Any) -> None:
    """Play scenarios with every combination of some values, with many seeds.

    Ctrl-C ends it; what is complete by then is written.

    \b
    Example:
      roq sim sweep ramp --local --vary cooldown_seconds=2,10,30 --seeds 20
      roq sim sweep cluster --queues 20 --vary known.OVERLOAD=1.05,1.1,1.3 --master 'local[*]'
    """
    with _errors(), ends_quietly():
        order = _order(SweepOrder, {**given, "spark": not local})
        with bar("tasks") as progress:
            found = sweeps.conduct(order, progress)
        _show_table(found.table)
        console(error=True).print(
            f"{found.runs} of {found.wanted} runs in {found.took:.1f} s; written: {found.folder}",
            style="dim",
        )
        if found.runs == found.wanted:
            return
    raise SystemExit(INTERRUPTED)


def _order(kind: type[T], given: dict[str, Any]) -> T:
    """An order out of options.

    Raises:
        ConfigError: one of them is out of bounds.
    """
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error)) from None


def _pairs(read: Callable[[str], tuple[str, T]], given: Sequence[str]) -> dict[str, T]:
    try:
        return dict(map(read, given))
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None


@contextmanager
def _errors() -> Iterator[None]:
    """Errors that a person can do something about, in one line."""
    try:
        yield
    except RoQError as error:
        raise click.ClickException(str(error)) from None


def _show_figures(figures: dict[str, float]) -> None:
    width = max(map(len, figures), default=0)
    for name, figure in figures.items():
        click.echo(f"{name:<{width}}  {_number(figure):>14}")


def _show_table(rows: Sequence[Row]) -> None:
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


if __name__ == "__main__":
    main()
