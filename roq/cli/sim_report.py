"""`roq sim report`, `compare` and `export`: what came of runs."""

from __future__ import annotations

import csv
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from roq.cli.failures import Failed, wanted
from roq.cli.interrupts import ends_quietly
from roq.cli.output import console, note, print_json

if TYPE_CHECKING:
    from roq.simulation.lab.archive.document import Run

PAGE: Final = "report.html"
PICTURE: Final = "report.png"
SWEEP: Final = "sweep.json"
COMPARISON: Final = Path("comparison.html")
RUNS_HELP: Final = "Folder in which runs are looked for."

runs_option = click.option(
    "--runs",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("simulation/runs"),
    show_default=True,
    help=RUNS_HELP,
)
open_option = click.option("--open", "open_page", is_flag=True, help="Open the page in a browser.")


@click.command()
@click.argument("run", default="latest")
@runs_option
@click.option(
    "--all", "everything", is_flag=True, help="All figures, not just those that say most."
)
@click.option("--json", "as_json", is_flag=True, help="run.json on one line, for programs.")
@click.option(
    "--remote",
    default="",
    metavar="URL",
    help="Work figures and series out again, on a Spark Connect server: sc://host:15002.",
)
@click.option(
    "--evaluate", is_flag=True, help="Work figures and series out again, on a local Spark."
)
@click.option("--leave-out", is_flag=True, help="With these two: go on without damaged files.")
@open_option
def report(
    run: str, runs: Path, everything: bool, as_json: bool, remote: str, evaluate: bool,
    leave_out: bool, open_page: bool,
) -> None:  # fmt: skip
    """Show what came of a run, and write its page and picture again.

    RUN is the id of a run or a sweep, its folder, or `latest` (of runs). The page (report.html)
    needs nothing but itself: send it to whom you like. Of a sweep, its table and pictures are made
    again from the table of all runs, without any of these options.

    \b
    Example:
      roq sim report
      roq sim report ramp-live-20260131-235959 --all --open
      roq sim report latest --remote sc://10.0.0.9:15002
    """
    for place in (Path(run), runs / run):
        if (place / SWEEP).is_file():
            options = {
                "--all": everything, "--json": as_json, "--remote": remote, "--evaluate": evaluate,
                "--leave-out": leave_out, "--open": open_page,
            }  # fmt: skip
            given = ", ".join(name for name, on in options.items() if on)
            if given:
                raise click.UsageError(
                    f"{place} is a sweep: leave out {given}, which only runs take"
                )
            again = wanted("roq.simulation.forecast.sweep").again
            wanted("roq.cli.sim_sweep").show_sweep(again(place))
            return
    folder: Path = wanted("roq.simulation.lab.archive.folder").find(run, runs)
    if remote or evaluate:
        again = wanted("roq.simulation.lab.traces.evaluate").evaluate
        again(folder, remote=remote, leave_out=leave_out)
    made(folder, everything=everything, as_json=as_json, open_page=open_page)


@click.command()
@click.argument("run", nargs=-1, required=True)
@runs_option
@click.option(
    "--baseline", metavar="RUN", help="With which the others are compared; else the first."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=COMPARISON,
    show_default=True,
    help="The page.",
)
@open_option
def compare(
    run: Sequence[str], runs: Path, baseline: str | None, output: Path, open_page: bool
) -> None:
    """Put two or more runs side by side on a page.

    Runs that differ by nothing but their seed are repetitions: they make one group, with means and
    95 % confidence intervals. A difference is marked only where the intervals say so.

    \b
    Example:
      roq sim run step --repeat 5; roq sim run step --repeat 5 --set policy=known
      roq sim compare simulation/runs/step-live-* --open
    """
    find = wanted("roq.simulation.lab.archive.folder").find
    folders = [find(each, runs) for each in run]
    base = find(baseline, runs).name if baseline else None
    _written(output, wanted("roq.simulation.lab.report.comparison").page(folders, baseline=base))
    groups = wanted("roq.simulation.lab.report.differences").compared(folders, base)
    wanted("roq.simulation.lab.report.terminal").compare(groups, console())
    note(f"written: {output}")
    if open_page:
        opened(output)


@click.command()
@click.argument("run", default="latest")
@runs_option
@click.option("--leave-out", is_flag=True, help="Go on without files that are damaged.")
def export(run: str, runs: Path, leave_out: bool) -> None:
    """Print the traces of a live run as the CSV lines that older tools read.

    \b
    Example:
      roq sim export latest > kpi.csv
    """
    folder: Path = wanted("roq.simulation.lab.archive.folder").find(run, runs)
    lines = wanted("roq.simulation.lab.traces.export").lines(folder, leave_out=leave_out)
    with ends_quietly():
        csv.writer(sys.stdout, lineterminator="\n").writerows(lines)


def made(folder: Path, *, everything: bool, as_json: bool, open_page: bool) -> Run:
    """Write page and picture of a run, and print what came of it.

    Args:
        folder: of the run.
        everything: print all figures.
        as_json: print JSON instead.
        open_page: show the page in a browser.
    """
    folders = wanted("roq.simulation.lab.archive.folder")
    run: Run = folders.read_run(folder)
    _written(folder / PAGE, wanted("roq.simulation.lab.report.page").page(folder))
    wanted("roq.simulation.lab.report.picture").write(folder, folder / PICTURE)
    if as_json:
        print_json(run)
    else:
        try:
            series = folders.read_series(folder)
        except folders.RunError:
            series = None  # The page says why there is none.
        wanted("roq.simulation.lab.report.terminal").show(
            run, series, console(), everything=everything
        )
    note(f"report: {folder / PAGE}")
    if open_page:
        opened(folder / PAGE)
    return run


def opened(page: Path) -> None:
    """Open a page in a browser, or say that there is none here."""
    if not webbrowser.open(page.resolve().as_uri()):
        note(f"there is no browser here: open {page.resolve()} in one")


def _written(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failed(f"{path}: cannot be written: {error.strerror}") from None
