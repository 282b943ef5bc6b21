"""Throughput where hosts are the bottleneck: `python -m roq.simulation.experiments.hosts`.

Hosts are network namespaces whose links carry so much inwards and no more; publishers send as fast
as they can. Two questions:

    n hosts      n exchanges on n hosts carry n times what one does, n = 1 to 4
    striping     one publisher over 3 exchanges on 3 hosts gets 3 times what it gets at one
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import click
import msgspec
from msgspec import Meta
from rich.console import Console

from roq.client.admin.views import ScalingRules
from roq.client.admin.wording import bytes_text
from roq.simulation.real import environment, measures, results
from roq.simulation.real.display import Display, display
from roq.simulation.real.environment import Environment, Links
from roq.simulation.real.results import Counts, Measured, Target
from roq.simulation.real.under_load import QUEUE, UnderLoad, under_load

NAME: Final = "hosts"
STRIPES: Final = 3
PER_HOST_GOAL: Final = 0.9
STRIPING_GOAL: Final = 2.5
OUTWARD: Final = 1.6
"""A link carries so much more outwards than inwards: what comes in goes out once, with larger
headers, and acknowledgements besides. The way in is the bottleneck, and publishers feel it."""
PAYLOAD: Final = 4_000
PUBLISHERS_PER_EXCHANGE: Final = 2
WINDOW_BYTES: Final = 1_000_000
"""Small, so that little is on its way when the measurement begins and ends."""
STRIPE_SHARE: Final = 2.5
"""What one exchange carries, in limits: enough for the policy to want three for it."""
SPREAD_SECONDS: Final = 20.0
STATIC: Final = "static"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How large it is."""

    hosts: Annotated[
        int, Meta(ge=1, le=8, description="Hosts at most; from 3 on striping is measured as well.")
    ] = 4
    megabits: Annotated[
        float,
        Meta(ge=1, le=1_000, description="What the link of a host carries inwards, a second."),
    ] = 40.0
    warm_up: float = 3.0
    seconds: Annotated[
        float, Meta(ge=2, le=600, description="How long each number of hosts is measured.")
    ] = 8.0

    @property
    def link_bytes(self) -> float:
        """What a link carries inwards, bytes per second."""
        return self.megabits * 1e6 / 8


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement."""

    what: str
    exchanges: int
    publishers: int
    bytes_per_second: float
    per_exchange: dict[int, float]
    """Exchange number → bytes per second."""
    ratio: float
    """To the first run of its kind."""
    counts: Counts


class Outcome(Measured, kw_only=True):
    """All measurements."""

    plan: Plan
    runs: list[Run]
    striping: list[Run]

    @property
    def reached(self) -> bool:
        """Whether throughput grows as it should and nothing was lost."""
        return super().reached and all(run.counts.ok for run in (*self.runs, *self.striping))


def run(plan: Plan, shown: Display) -> Outcome:
    """Measure everything on one cluster.

    Raises:
        ScenarioError, RoQError: it could not be measured.
    """
    links = Links(inward=plan.megabits, outward=OUTWARD * plan.megabits)
    runs: list[Run] = []
    striping: list[Run] = []
    with (
        results.measured() as machine,
        environment.networked(plan.hosts, links, exchanges_per_host=1) as where,
    ):
        for count in range(1, plan.hosts + 1):
            base = runs[0].bytes_per_second if runs else 0.0
            publishers = PUBLISHERS_PER_EXCHANGE * count
            text = f"{count} hosts" if count > 1 else "1 host"
            runs.append(_measure(where, shown, plan, text, count, publishers, base))
        for count in (1, STRIPES) if plan.hosts >= STRIPES else ():
            base = striping[0].bytes_per_second if striping else 0.0
            text = f"1 publisher at {count}"
            striping.append(_measure(where, shown, plan, text, count, 1, base))
    return Outcome(
        machine=machine,
        plan=plan,
        runs=runs,
        striping=striping,
        targets=_targets(runs, striping),
    )


def _measure(
    where: Environment,
    shown: Display,
    plan: Plan,
    what: str,
    exchanges: int,
    publishers: int,
    base: float,
) -> Run:
    striped = publishers < exchanges
    rules = ScalingRules(
        name=NAME,
        policy=STATIC,
        exchange_bytes_per_minute=int(60 * plan.link_bytes / STRIPE_SHARE),
        exchanges_min=exchanges,
        exchanges_max=exchanges,
    )
    limits = {"window_bytes": WINDOW_BYTES}
    with under_load(where, shown, rules=rules, limits=limits) as scene:
        for host in where.hosts[1:exchanges]:
            scene.cluster.add_exchange(QUEUE, host)
        scene.enter(what)
        scene.until(lambda: scene.exchanges() == exchanges, 20.0, "all exchanges are heard")
        if striped:
            scene.cluster.set_rules(QUEUE, msgspec.structs.replace(rules, policy="balanced"))
        window = _load(scene, plan, publishers, exchanges if striped else 1)
        series = measures.throughput(
            [sample for sample in scene.record.samples if sample.when <= window.end]
        )
        rate = measures.rate(scene.record.samples, window)
        counts = results.counts(scene.workers.judge)
    return Run(
        what=what,
        exchanges=exchanges,
        publishers=publishers,
        bytes_per_second=rate,
        per_exchange={
            number: _mean([value for when, value in values if when > window.begin])
            for number, values in series.items()
        },
        ratio=rate / base if base else 1.0,
        counts=counts,
    )


def _load(scene: UnderLoad, plan: Plan, publishers: int, stripes: int) -> measures.Window:
    """Publish as fast as it goes; give the time in which it was measured."""
    workers = scene.workers
    workers.open(workers.add(1, publishes=False))
    senders = workers.add(publishers, publishes=True, payload=PAYLOAD)
    workers.open(senders)
    workers.rate(senders, -1.0)

    def spread() -> bool:
        return any(len(move.targets) == stripes for _, move in scene.record.moves())

    if stripes > 1:
        scene.until(spread, SPREAD_SECONDS, f"the publisher is striped over {stripes}")
    scene.run(plan.warm_up)
    begin = scene.record.began + scene.elapsed
    scene.run(plan.seconds)
    window = measures.Window(begin, scene.record.began + scene.elapsed)
    workers.rate(senders, 0)
    scene.finish()
    return window


def _targets(runs: Sequence[Run], striping: Sequence[Run]) -> list[Target]:
    targets = [
        Target(
            text=f"{run.exchanges} hosts to one, for each host",
            measured=run.ratio / run.exchanges,
            goal=PER_HOST_GOAL,
            at_least=True,
            unit="x",
        )
        for run in runs[1:]
    ]
    if striping:
        targets.append(
            Target(
                text=f"one publisher over {STRIPES} exchanges to one at one",
                measured=striping[-1].ratio,
                goal=STRIPING_GOAL,
                at_least=True,
                unit="x",
            )
        )
    return targets


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


@click.command(short_help="Throughput where hosts are the bottleneck.")
@results.planned(Plan)
@results.scenario()
def main(plan: Plan, output: Path, as_json: bool) -> bool:
    """Measure throughput on 1 to 4 hosts with limited links, and of one publisher that is striped
    over 3 of them. Hosts are network namespaces; needs root.

    \b
    Example:
      sudo python -m roq.simulation.experiments.hosts
      sudo python -m roq.simulation.experiments.hosts --megabits 20 --seconds 20
    """
    with display(as_json=as_json) as shown:
        outcome = run(plan, shown)
    results.told(outcome, NAME, output, _show, as_json=as_json)
    return outcome.reached


def _show(out: Console, outcome: Outcome) -> None:
    rows = [
        (
            run.what,
            run.publishers,
            f"{bytes_text(run.bytes_per_second)}/s",
            f"{run.ratio:.2f}",
            ", ".join(bytes_text(value) for _, value in sorted(run.per_exchange.items())),
            "yes" if run.counts.ok else "NO",
        )
        for run in (*outcome.runs, *outcome.striping)
    ]
    title = f"Links of {outcome.plan.megabits:g} Mbit/s ({bytes_text(outcome.plan.link_bytes)}/s)"
    columns = ("", "publishers#", "payload in#", "to one#", "each exchange", "all arrived")
    out.print(results.table(title, columns, rows))


if __name__ == "__main__":
    main()
