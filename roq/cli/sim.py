"""`roq sim`: scenarios of load, run on a real cluster or on a model, kept and reported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from roq.cli.failures import wanted
from roq.cli.output import print_fields, print_json, print_table
from roq.cli.sim_report import compare, export, report
from roq.cli.sim_run import run
from roq.cli.sim_sweep import sweep

if TYPE_CHECKING:
    from roq.simulation.scenario.scenario import Scenario


class Commands(click.Group):
    """The commands of a group, in the order in which people meet them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names."""
        return list(self.commands)


@click.group(cls=Commands)
def sim() -> None:
    """Run scenarios of load, and see what came of them.

    A scenario says who publishes how much, what goes wrong, and what is expected. It is run live
    (Spark tasks publish and subscribe against a real cluster) or as a model (the real policies
    decide about computed loads, for clusters of any size). Each run is kept in a folder with a
    report.

    \b
    Example:
      roq sim list                       # what there is
      roq sim run short --open           # live, on a cluster of its own
      roq sim run eqs-2011 --model       # the published experiment, in a second
      roq sim compare latest RUN …       # side by side, with confidence intervals
      roq sim sweep eqs-2011 --vary cooldown_seconds=2,10,30
    """


@sim.command("list")
@click.option("--json", "as_json", is_flag=True, help="JSON for programs instead of the table.")
def list_(as_json: bool) -> None:
    """List the scenarios that come with RoQ.

    \b
    Example:
      roq sim list
    """
    reading = wanted("roq.simulation.scenario.reading")
    found: list[Scenario] = [reading.read(path) for path in reading.known()]
    if as_json:
        print_json([{"name": each.name, "title": each.title} for each in found])
        return
    print_table(
        ("NAME", "TAKES#", "PEAK/S#", "FAULTS#", "TITLE"),
        [
            (each.name, _minutes(each.seconds), round(_peak(each)), len(each.faults), each.title)
            for each in found
        ],
        "there is no scenario",
    )


@sim.command()
@click.argument("scenario")
@click.option("--json", "as_json", is_flag=True, help="The whole scenario as JSON.")
def show(scenario: str, as_json: bool) -> None:
    """Show a scenario: one that comes with RoQ, or a file of your own.

    \b
    Example:
      roq sim show ramp
      roq sim show ./mine.yaml --json
    """
    reading = wanted("roq.simulation.scenario.reading")
    found: Scenario = reading.read(reading.find(scenario))
    if as_json:
        click.echo(reading.dump(found))
        return
    clean = wanted("roq.simulation.lab.report.wording").clean
    print_fields([
        ("name", found.name),
        ("title", clean(found.title)),
        ("about", clean(found.about.strip())),
        ("takes", _minutes(found.seconds)),
        ("hosts", found.hosts),
        ("exchanges", found.queue.exchanges),
        ("rules", clean(_named(found.queue.rules))),
        ("limits", clean(_named(found.queue.limits))),
    ])  # fmt: skip
    click.echo()
    print_table(
        ("PHASE", "TAKES#", "PUBLISHERS#", "SUBSCRIBERS#", "MESSAGES#", "PEAK/S#", "BYTES#"),
        _phases(found),
        "no phases",
    )
    if found.faults:
        click.echo()
        print_table(
            ("AT#", "FAULT", "TARGET"),
            [(f"{each.at:g} s", each.kind, f"{each.target} {each.index}") for each in found.faults],
            "",
        )
    if found.expect:
        click.echo()
        print_table(("EXPECTED",), [(str(each),) for each in found.expect], "")


def _phases(found: Scenario) -> list[Sequence[object]]:
    rows: list[Sequence[object]] = []
    subscribers = 0
    offered = wanted("roq.simulation.scenario.offered").offered_by_phase(found)
    for phase, (messages, total) in zip(found.phases, offered, strict=True):
        if phase.subscribers:
            subscribers = sum(group.count for group in phase.subscribers)
        publishers = sum(group.count for group in phase.publishers)
        rows.append((
            phase.name, _minutes(phase.seconds), publishers, subscribers, round(messages),
            round(phase.peak()), round(total),
        ))  # fmt: skip
    return rows


def _peak(found: Scenario) -> float:
    return max(phase.peak() for phase in found.phases)


def _minutes(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:g} s"
    return f"{seconds / 60:g} min" if seconds < 7_200 else f"{seconds / 3_600:g} h"


def _named(settings: dict[str, int] | dict[str, int | str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


for command in (run, report, compare, sweep, export):
    sim.add_command(command)
