"""A host that gets hardly any processor: `python -m roq.simulation.experiments.starved`.

A host manager and the processes of its idle queues are held to a small share of one core for a
while, by a control group of the kernel. Nothing of it has hung, so nothing is to be killed; and
once the quota is lifted, the host and all queues are whole again soon.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import msgspec
import psutil
from rich.console import Console

import roq
import roq.testing
from roq.errors import RoQError
from roq.hcm.config import Children
from roq.simulation.experiments.quota import Quota
from roq.simulation.real import results
from roq.simulation.real.results import Measured, Target
from roq.simulation.real.waiting import rest, until
from roq.testing import RunningCluster

NAME: Final = "starved"
WHOLE_SECONDS: Final = 15.0
WAIT_SECONDS: Final = 120.0
LOOK_SECONDS: Final = 0.2
_CHILDREN: Final = {"children": {"orphan_seconds": Children().orphan_seconds}}
"""As on hosts of their own: a cluster for tests has its processes end sooner without a manager."""
_KILLED: Final = re.compile(r" is killed: it ")
_STARVED: Final = "gets too little processor"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one quota has done."""

    percent: float
    """Of one core, for the whole host."""
    queues: int
    seconds: float
    killed: int
    restarts: int
    """Processes that are not the ones that ran before."""
    told: bool
    """Whether the host has said that it gets too little processor."""
    whole_seconds: float | None
    """From the end of the quota until everything runs; None: not within two minutes."""


class Outcome(Measured, kw_only=True):
    """What came out."""

    rows: list[Row]


def starve(percent: float, queues: int, seconds: float) -> Row:
    """Hold a host with so many idle queues to this share of a core for so long.

    Raises:
        ScenarioError: no quota can be set here.
        RoQError: the cluster does not even run without one.
    """
    with (
        Quota() as quota,
        roq.testing.cluster(hcm=_CHILDREN) as running,
        running.connect() as cluster,
    ):
        names = [f"idle-{number}" for number in range(queues)]
        for name in names:
            cluster.create_queue(name, durability="none")
        before = _processes(cluster)
        log = next((running.folder / "log").glob("host*.log"))
        host = psutil.Process(running.pid(f"host {running.hosts[0]}"))
        quota.take([host.pid, *(each.pid for each in host.children(recursive=True))])
        quota.limit(percent / 100)
        rest(seconds)
        quota.lift()
        begun = time.monotonic()
        whole = until(lambda: _whole(running, cluster, names), WAIT_SECONDS, LOOK_SECONDS)
        took = time.monotonic() - begun
        after = _processes(cluster)
        text = log.read_text(errors="replace")
        return Row(
            percent=percent,
            queues=queues,
            seconds=seconds,
            killed=len(_KILLED.findall(text)),
            restarts=sum(before.get(name) != epoch for name, epoch in after.items()),
            told=_STARVED in text,
            whole_seconds=round(took, 1) if whole else None,
        )


def _processes(cluster: roq.Cluster) -> dict[str, int]:
    """Process → its epoch."""
    return {each.child: each.epoch for host in cluster.hosts() for each in host.children}


def _whole(running: RunningCluster, cluster: roq.Cluster, names: Sequence[str]) -> bool:
    """Whether the host is live, all its processes run, and each queue takes a message."""
    try:
        [host] = cluster.hosts()
        states = [each.state for each in host.children]
        if host.state != "live" or states != ["running"] * (2 * len(names)):
            return False
        for name in names:
            with cluster.publisher(name) as publisher:
                publisher.publish(b"whole?").result(5.0)
    except (RoQError, TimeoutError):
        return False
    return not running.ended()


def _targets(rows: Sequence[Row]) -> list[Target]:
    slowest = [row.whole_seconds for row in rows]
    return [
        Target(text="children killed", measured=sum(row.killed for row in rows), goal=0),
        Target(
            text="whole after the quota is lifted",
            measured=None if None in slowest else max(each or 0.0 for each in slowest),
            goal=WHOLE_SECONDS,
            unit="s",
        ),
    ]


@click.command(short_help="A host with hardly any processor.")
@click.option(
    "--percent",
    "percents",
    type=click.FloatRange(1, 100),
    multiple=True,
    default=(12.0, 8.0),
    show_default=True,
    help="Of one core, for the host manager and all its queues; may be given several times.",
)
@results.option("--queues", click.IntRange(1, 200), 10, "Idle queues.")
@results.option("--seconds", click.FloatRange(1, 3_600), 60.0, "How long each quota holds.")
@results.scenario()
def main(
    percents: tuple[float, ...], queues: int, seconds: float, output: Path, as_json: bool
) -> bool:
    """Hold a host with idle queues to a small share of one core for a while, and see what becomes
    of its processes. Needs root, and a control group for processor time.

    \b
    Example:
      python -m roq.simulation.experiments.starved
      python -m roq.simulation.experiments.starved --percent 5 --queues 20 --seconds 120
    """
    with results.measured() as machine:
        rows = [starve(percent, queues, seconds) for percent in percents]
    outcome = Outcome(machine=machine, rows=rows, targets=_targets(rows))
    results.told(outcome, NAME, output, _show, as_json=as_json)
    return outcome.reached


def _show(out: Console, outcome: Outcome) -> None:
    columns = ("of a core#", "queues#", "seconds#", "killed#", "replaced#", "told", "whole after#")
    rows = [
        (
            f"{row.percent:g} %", row.queues, f"{row.seconds:g}", row.killed, row.restarts,
            "yes" if row.told else "no",
            "-" if row.whole_seconds is None else f"{row.whole_seconds:.1f} s",
        )
        for row in outcome.rows
    ]  # fmt: skip
    out.print(results.table("With little processor", columns, rows))


if __name__ == "__main__":
    main()
