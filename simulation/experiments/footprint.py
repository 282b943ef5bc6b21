"""What idle queues cost: `python -m roq.simulation.experiments.footprint --queues 50 --seconds 20`.

A cluster on this machine gets so many queues, one command each. Then nothing happens for a while,
and the memory (PSS: shared pages count in shares) and processor time of each kind of process is
taken. At the end everything is removed.
"""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import msgspec
import psutil
from rich.console import Console

import roq.testing
from roq.errors import RoQError
from roq.simulation.real import results
from roq.simulation.real.results import Measured, Target
from roq.simulation.real.waiting import rest, until
from roq.testing.running import RunningCluster

NAME: Final = "footprint"
KINDS: Final = ("monitor", "exchange", "hcm", "gcm")
CHILDREN: Final = ("monitor", "exchange")
OF_HOST: Final = (*CHILDREN, "hcm")
"""What grows with the queues of a host."""
QUEUE_MB: Final = 20.0
QUEUE_PERCENT: Final = 0.2
CREATE_SECONDS: Final = 0.6
SETTLE_SECONDS: Final = 15.0
END_SECONDS: Final = 5.0
"""A child that is told to end may take so long."""
_PSS: Final = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """All processes of one kind together."""

    name: str
    processes: int
    megabytes: float
    """PSS."""
    percent: float
    """Of one core."""


class Outcome(Measured, kw_only=True):
    """What came out."""

    queues: int
    seconds: float
    failed: list[str]
    """Queues that could not be created, and why."""
    create_seconds: float
    """For all of them, one command after the other."""
    remove_seconds: float
    left: int
    """Monitors and exchanges that were still there some seconds after all queues were removed."""
    kinds: list[Kind]

    @property
    def reached(self) -> bool:
        """Whether all queues were made and removed."""
        return not self.failed and not self.left


def measure(queues: int, seconds: float) -> Outcome:
    """Make so many queues, look at them for so long, and remove them.

    Raises:
        RoQError: the cluster does not start.
    """
    failed: list[str] = []
    with (
        results.measured() as machine,
        roq.testing.cluster() as running,
        running.connect() as cluster,
    ):
        names = [f"idle-{number}" for number in range(queues)]
        begun = time.monotonic()
        for name in names:
            try:
                cluster.create_queue(name, durability="none")
            except RoQError as error:
                failed.append(f"{name}: {error}")
        created = time.monotonic() - begun
        rest(SETTLE_SECONDS)
        tree = _tree([running.pid("gcm"), running.pid(f"host {running.hosts[0]}")])
        before = _ran(tree)
        looked = time.monotonic()
        rest(seconds)
        ran = _ran(tree)
        passed = time.monotonic() - looked
        kinds = [_kind(name, tree, before, ran, passed) for name in KINDS]
        begun = time.monotonic()
        for name in names:
            try:
                cluster.remove_queue(name)
            except RoQError as error:
                failed.append(f"{name} cannot be removed: {error}")
        removed = time.monotonic() - begun
        until(lambda: not _children(running), END_SECONDS)  # they are told to end, and do
        return Outcome(
            machine=machine,
            queues=queues,
            seconds=seconds,
            failed=failed,
            create_seconds=round(created, 1),
            remove_seconds=round(removed, 1),
            left=_children(running),
            kinds=kinds,
            targets=_targets(queues, kinds, created),
        )


def _children(running: RunningCluster) -> int:
    """Monitors and exchanges that are there."""
    kinds = Counter(_tree([running.pid(f"host {running.hosts[0]}")]).values())
    return sum(kinds[name] for name in CHILDREN)


def _tree(roots: Sequence[int]) -> dict[psutil.Process, str]:
    """These processes and those that they have started → their kinds."""
    found: dict[psutil.Process, str] = {}
    for root in map(psutil.Process, roots):
        for process in (root, *root.children(recursive=True)):
            try:
                words = process.cmdline()
            except psutil.Error:
                continue
            for name in KINDS:
                if f"roq.{name}" in words:
                    found[process] = name
    return found


def _ran(tree: dict[psutil.Process, str]) -> dict[psutil.Process, float]:
    ran: dict[psutil.Process, float] = defaultdict(float)
    for process in tree:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        ran[process] = times.user + times.system
    return ran


def _kind(
    name: str,
    tree: dict[psutil.Process, str],
    before: dict[psutil.Process, float],
    after: dict[psutil.Process, float],
    seconds: float,
) -> Kind:
    ours = [process for process, kind in tree.items() if kind == name]
    return Kind(
        name=name,
        processes=len(ours),
        megabytes=round(sum(map(_pss, ours)), 1),
        percent=round(100 * sum(after[each] - before[each] for each in ours) / seconds, 2),
    )


def _pss(process: psutil.Process) -> float:
    """Megabytes; 0 if it has ended or the system does not tell."""
    try:
        found = _PSS.search(Path(f"/proc/{process.pid}/smaps_rollup").read_text("ascii"))
    except OSError:
        return 0.0
    return int(found[1]) / 1_024 if found else 0.0


def _targets(queues: int, kinds: Sequence[Kind], created: float) -> list[Target]:
    ours = [kind for kind in kinds if kind.name in OF_HOST]
    return [
        Target(
            text="memory of a queue", unit=" MB", goal=QUEUE_MB,
            measured=round(sum(kind.megabytes for kind in ours) / queues, 1),
        ),
        Target(
            text="processor of a queue", unit=" % of a core", goal=QUEUE_PERCENT,
            measured=round(sum(kind.percent for kind in ours) / queues, 2),
        ),
        Target(
            text="to create a queue", unit=" s", goal=CREATE_SECONDS,
            measured=round(created / queues, 2),
        ),
    ]  # fmt: skip


@click.command(short_help="What idle queues cost.")
@results.option("--queues", click.IntRange(1, 1_000), 50, "Idle queues.")
@results.option("--seconds", click.FloatRange(1, 3_600), 20.0, "How long they are looked at.")
@results.scenario()
def main(queues: int, seconds: float, output: Path, as_json: bool) -> bool:
    """Measure the memory and the processor time of idle queues by kind of process, and how long it
    takes to create and to remove them.

    \b
    Example:
      python -m roq.simulation.experiments.footprint
      python -m roq.simulation.experiments.footprint --queues 200 --seconds 60
    """
    outcome = measure(queues, seconds)
    results.told(outcome, NAME, output, _show, as_json=as_json)
    return outcome.reached


def _show(out: Console, outcome: Outcome) -> None:
    columns = ("", "processes#", "MB#", "% of a core#", "MB each#", "% each#")
    rows = [
        (
            kind.name, kind.processes, f"{kind.megabytes:,.0f}", f"{kind.percent:.1f}",
            f"{kind.megabytes / max(1, kind.processes):.1f}",
            f"{kind.percent / max(1, kind.processes):.2f}",
        )
        for kind in outcome.kinds
    ]  # fmt: skip
    out.print(results.table(f"{outcome.queues} idle queues", columns, rows))
    out.print(
        f"\ncreated in {outcome.create_seconds:.1f} s, removed in {outcome.remove_seconds:.1f} s; "
        f"{len(outcome.failed)} failed, {outcome.left} processes left"
    )
    for text in outcome.failed[:10]:
        out.print(text, style="bold red", markup=False)


if __name__ == "__main__":
    main()
