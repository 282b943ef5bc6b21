"""All that can happen to a cluster, for as long as wanted: `make chaos`."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.console import Console

from roq.model import VOLATILE
from roq.protocol.public import DURABILITIES
from roq.simulation.experiments.chaos.environment import Environment, Wish, environment
from roq.simulation.experiments.chaos.faults import FAULTS
from roq.simulation.experiments.chaos.plan import Kind, chosen, plan
from roq.simulation.experiments.chaos.player import Outcome, Player
from roq.simulation.real import results
from roq.simulation.real.results import Machine
from roq.testing import namespaces

NAME: Final = "chaos"
SEEDS: Final = 1_000_000
LOGS_SECONDS: Final = 10.0
"""When it took longer to become whole, people will want to know why."""
WISHES: Final = (
    Wish("solo", exchanges=1, publishers=2, subscribers=2),
    Wish("trio", exchanges=3, publishers=3, subscribers=2, host=1, far=1),
)
GROUPS: Final = {"solo": "exclusive", "trio": "shared"}
"""The mode of the consumer group of each queue, if they have one."""
MEMBERS: Final = 2
INSTANCES: Final = 2
"""Of the service of each queue, and requesters."""


class Result(msgspec.Struct, kw_only=True):
    """A whole run."""

    machine: Machine
    seed: int
    seconds: float
    networked: bool
    kinds: list[str]
    skipped: list[str]
    """Kinds of faults that could not be done here, and why."""
    steps: list[Outcome]
    tally: dict[str, int]
    """Of all messages; see `judge.Tally`."""
    groups: dict[str, dict[str, int]] = {}
    """By queue: messages that its consumer group was given, those of them that came again, by
    cause, and those that went with their log before anybody had done them."""
    requests: dict[str, dict[str, int]] = {}
    """By queue: requests that were made and accepted, how they have ended, and runs of handlers."""
    ended: list[str] = []
    """Daemons that have ended by themselves; they were started again."""

    @property
    def ok(self) -> bool:
        """Something happened, and everything was as promised."""
        return bool(self.steps) and not any(step.violations for step in self.steps)


def run(
    seed: int,
    seconds: float,
    *,
    kinds: Sequence[Kind],
    networked: bool,
    say: Callable[[str], None],
    wishes: Sequence[Wish] = WISHES,
    nodes: int = 3,
    zookeepers: int = 3,
    steps: int | None = None,
    more: int = 0,
    patience: float = 1.0,
    logs: Path | None = None,
) -> Result:
    """Play the plan of a seed; the step that is on when the time is over is the last one.

    Args:
        steps: after so many it ends before.
        more: so many faults more than one or two are in each.
        patience: so many times as long as promised may everything take.
        logs: where everything that was written is copied to when something was wrong, or slow.

    Raises:
        Unavailable, ScenarioError: it cannot be played here.
    """
    kinds, untouched = _clocks_alone(kinds, wishes)
    with (
        results.measured() as machine,
        environment(
            list(wishes),
            nodes=nodes,
            networked=networked,
            zookeepers=zookeepers,
            clocks_jump=any(kind.name.startswith("clock") for kind in kinds),
        ) as made,
    ):
        usable, skipped = _usable(made, kinds)
        skipped += untouched
        for each in skipped:
            say(f"skipped: {each}")
        player = Player(made, say, patience)
        result = Result(
            machine=machine,
            seed=seed,
            seconds=seconds,
            networked=networked,
            kinds=[kind.name for kind in usable],
            skipped=skipped,
            steps=[],
            tally={},
        )
        for step in plan(seed, usable, more):
            outcome = player.play(step)
            result.steps.append(outcome)
            slow = (outcome.whole_seconds or 0.0) > LOGS_SECONDS
            if (outcome.violations or slow) and logs is not None:
                say(f"           logs: {_saved(made, logs / f'{seed}-{step.number}')}")
            if player.elapsed >= seconds or len(result.steps) == steps:
                break
        result.seconds = player.elapsed
        result.tally = asdict(made.workers.judge.tally)
        for queue, group in made.workers.judge.groups.items():
            result.groups[queue] = {
                "delivered": group.delivered, "gone": group.gone, **group.again,
            }  # fmt: skip
        result.requests = {
            queue: dict(each.counts) for queue, each in made.workers.judge.requests.items()
        }
        result.ended = [text for daemon in made.parts.daemons for text in daemon.ended]
    return result


def _clocks_alone(
    kinds: Sequence[Kind], wishes: Sequence[Wish]
) -> tuple[Sequence[Kind], list[str]]:
    """The kinds without those that make clocks jump, and why, if a queue is durable.

    Under libfaketime an exchange with a log, which has a second thread, got on so slowly on a busy
    machine that subscribers were behind for ever; without it all is well on the same machine.
    """
    clocks = [kind for kind in kinds if FAULTS[kind.name].needs == "clocks"]
    if not clocks or not any(wish.durable for wish in wishes):
        return kinds, []
    why = "libfaketime holds up exchanges that write logs"
    others = [kind for kind in kinds if kind not in clocks]
    return others, [f"{kind.name}: clocks: {why}" for kind in clocks]


def _usable(made: Environment, kinds: Sequence[Kind]) -> tuple[list[Kind], list[str]]:
    """The kinds that can be done here, and why others cannot."""
    lacking = {text.partition(":")[0]: text for text in made.machines.lacking}
    other = "file: it is in ZooKeeper" if made.parts.zookeepers else "zookeeper: it is a file"
    lacking[other.partition(":")[0]] = f"of the registry, {other}"
    if not made.workers.members:
        lacking["members"] = "members: there are no consumer groups (--groups)"
    if not made.workers.instances:
        lacking["requests"] = "requests: there are none (--requests)"
    without = lacking.get("requests") or lacking.get("links")
    if without:
        lacking["apart"] = without
    usable, skipped = [], []
    for kind in kinds:
        needs = FAULTS[kind.name].needs
        if needs in lacking:
            skipped.append(f"{kind.name}: {lacking[needs]}")
        else:
            usable.append(kind)
    return usable, skipped


def _copy_if_there(source: str, target: str) -> None:
    """Copy a file; logs let some go meanwhile."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


def _saved(made: Environment, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(
        made.machines.folder,
        folder,
        ignore=shutil.ignore_patterns("ballast", "version-2", "*.calls", "lock", "*.pipe"),
        copy_function=_copy_if_there,
    )
    return folder


@click.command(short_help="Break everything, and look whether every message arrives.")
@click.option("--seed", type=click.IntRange(0), help="Of the plan; by default a new one.")
@results.option(
    "--seconds", click.FloatRange(1, 86_400), 3_600.0, "How long things go on going wrong."
)
@click.option(
    "--steps", type=click.IntRange(1), metavar="N", help="End after so many steps, if before."
)
@click.option(
    "--more", type=click.IntRange(0, 50), default=0, metavar="N",
    help="So many more faults in each step, one after the other.",
)  # fmt: skip
@click.option(
    "--patience",
    type=click.FloatRange(1.0, 100.0),
    default=1.0,
    metavar="FACTOR",
    help="So many times as long as promised may everything take, on a machine that is busy.",
)
@click.option(
    "--only",
    metavar="KIND",
    multiple=True,
    help=f"Only faults whose names begin so; may be repeated. There are {', '.join(FAULTS)}.",
)
@click.option(
    "--local",
    is_flag=True,
    help="Hosts on loopback addresses: needs no root, and links cannot be cut.",
)
@results.option(
    "--zookeepers",
    click.Choice(["0", "1", "3"]),
    "3",
    "Servers of the registry, each on a host of the cluster; 0: it is a file.",
)
@click.option(
    "--durability", type=click.Choice(DURABILITIES), default=VOLATILE, show_default=True,
    help="Of the queues; of durable ones nothing may be lost.",
)  # fmt: skip
@click.option(
    "--groups", "shared", is_flag=True,
    help="With a consumer group at each queue, whose members are killed and paused as well.",
)  # fmt: skip
@click.option(
    "--requests",
    is_flag=True,
    help="With a service and requesters at each queue, which are killed and paused as well.",
)
@results.scenario("Directory for the JSON, and for logs when something was wrong.")
def main(
    seed: int | None,
    seconds: float,
    steps: int | None,
    more: int,
    patience: float,
    only: tuple[str, ...],
    local: bool,
    zookeepers: str,
    durability: str,
    shared: bool,
    requests: bool,
    output: Path,
    as_json: bool,
) -> bool:
    """Run a cluster on hosts of its own, under load, and let things go wrong: processes are killed
    and paused, links cut, packets lost, disks filled, as the seed says. After each step the cluster
    has to become whole again, and every message has to be there, once and in order.

    Hosts are network namespaces, which needs root; without, they are loopback addresses.

    \b
    Example:
      sudo python -m roq.simulation.experiments.chaos --seconds 300
      sudo python -m roq.simulation.experiments.chaos --seed 7 --only host --only link
      sudo python -m roq.simulation.experiments.chaos --durability flush --groups --seconds 300
    """
    try:
        kinds = chosen({name: fault.kind for name, fault in FAULTS.items()}, only)
    except KeyError as error:
        raise click.UsageError(f"no fault begins with {error.args[0]!r}") from None
    out = results.console(as_json=as_json)
    reason = "as wanted" if local else namespaces.missing()
    if reason:
        out.print(f"on loopback addresses: {reason}")
    given = random.randrange(SEEDS) if seed is None else seed
    out.print(f"seed {given}")
    result = run(
        given,
        seconds,
        kinds=kinds,
        networked=not reason,
        wishes=[
            replace(
                wish,
                durability=durability,
                mode=GROUPS[wish.name],
                members=MEMBERS * shared,
                instances=INSTANCES * requests,
            )
            for wish in WISHES
        ],
        zookeepers=int(zookeepers),
        steps=steps,
        more=more,
        patience=patience,
        say=lambda line: out.print(line, highlight=False, soft_wrap=True),
        logs=output / "chaos-logs",
    )
    name = NAME if durability == VOLATILE else f"{NAME}_{durability}"
    name += "_groups" * shared + "_requests" * requests
    results.told(result, name, output, _show, as_json=as_json)
    return result.ok


def _show(out: Console, result: Result) -> None:
    rows = []
    for kind in result.kinds:
        steps = [step for step in result.steps if kind in step.kinds]
        whole = [step.whole_seconds for step in steps if step.whole_seconds is not None]
        rows.append(
            (
                kind,
                sum(step.kinds.count(kind) for step in steps),
                f"{sorted(whole)[len(whole) // 2]:.1f}" if whole else "-",
                f"{max(whole):.1f}" if whole else "-",
                sum(bool(step.violations) for step in steps),
            )
        )
    columns = ("fault", "times#", "whole after, median s#", "most s#", "steps with violations#")
    out.print()
    out.print(results.table(f"Seed {result.seed}, {result.seconds:.0f} s", columns, rows))
    out.print()
    out.print("  ".join(f"{name} {count:,}" for name, count in result.tally.items()))
    for queue, counts in result.groups.items():
        out.print(f"group of {queue}: " + ", ".join(f"{n:,} {what}" for what, n in counts.items()))
    for queue, counts in result.requests.items():
        parts = (f"{n:,} {what}" for what, n in counts.items())
        out.print(f"requests of {queue}: " + ", ".join(parts))
    for text, times in Counter(result.ended).items():
        out.print(f"{text}, {times} times" if times > 1 else text)
    for text in result.skipped:
        out.print(f"skipped: {text}", style="yellow")
    out.print(results.machine_text(result.machine))
    wrong = sum(bool(step.violations) for step in result.steps)
    verdict = "everything as promised" if result.ok else f"{wrong} steps with violations"
    out.print(verdict, style="bold green" if result.ok else "bold red")


if __name__ == "__main__":
    main()
