"""A queue that grows and shrinks under your eyes: `python -m roq.simulation.experiments.elastic`.

Load rises until exchanges are added and publishers move to them, stays, and falls until they are
emptied and go. It ends with a picture and with the count of what was lost, doubled or reordered.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final

import click
import msgspec
from msgspec import Meta
from rich.console import Console

from roq.client.admin.views import ScalingRules
from roq.client.admin.wording import bytes_text
from roq.simulation.lab.report import picture
from roq.simulation.lab.report.charts import Bounds
from roq.simulation.real import environment, measures, results
from roq.simulation.real.display import Display, display
from roq.simulation.real.results import Machine, Measured, Target
from roq.simulation.real.under_load import UnderLoad, under_load

NAME: Final = "elastic"
PAYLOAD: Final = 2_000
PEAK_LOADS: Final = 3.7
"""The load at its highest, in limits of one exchange: nearly what four of them may take."""
LOW_LOADS: Final = 0.25
SHARES: Final = ((0.0, LOW_LOADS), (0.06, LOW_LOADS), (0.38, PEAK_LOADS), (0.5, PEAK_LOADS),
                 (0.64, LOW_LOADS))  # fmt: skip
"""(share of the whole time, load), with straight lines between; the last third is for shrinking."""
RATE_STEP: Final = 0.05
"""The load changes in steps of so many limits of one exchange."""
COOLDOWN_SECONDS: Final = 2
"""The default is 10 s; a demo has less time."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How large it is."""

    seconds: Annotated[
        float, Meta(ge=20, le=3_600, description="How long the load goes up and down.")
    ] = 80.0
    publishers: Annotated[int, Meta(ge=2, le=100, description="Publisher processes.")] = 12
    subscribers: Annotated[
        int, Meta(ge=1, le=20, description="Subscriber processes; each gets everything.")
    ] = 2
    exchanges: Annotated[int, Meta(ge=2, le=8, description="Exchanges at most.")] = 4
    limit: Annotated[
        int, Meta(ge=100_000, description="Bytes per minute that one exchange may take.")
    ] = 30_000_000
    hosts: int = 2
    policy: Annotated[str, Meta(description="Which policy decides.")] = "balanced"


class Outcome(Measured, kw_only=True):
    """What happened."""

    plan: Plan
    exchanges_most: int
    exchanges_last: int
    moves: int
    moves_failed: int
    scale_outs: int
    scale_ins: int
    serve_seconds: list[float]
    pause_ms: float
    """The longest of a moved publisher."""


def run(plan: Plan, shown: Display, drawing: Path | None) -> Outcome:
    """Play it.

    Args:
        plan: how large.
        shown: what people see meanwhile.
        drawing: the picture's file; None: none.

    Raises:
        ScenarioError, RoQError: it could not be played to its end.
    """
    rules = ScalingRules(
        name=NAME,
        exchange_bytes_per_minute=plan.limit,
        exchanges_max=plan.exchanges,
        cooldown_seconds=COOLDOWN_SECONDS,
        policy=plan.policy,
    )
    with (
        results.measured() as machine,
        environment.local(plan.hosts) as where,
        under_load(where, shown, rules=rules) as scene,
    ):
        most, last = _play(scene, plan)
        outcome = _outcome(scene, plan, machine, most, last)
    if drawing is not None:
        drawing.parent.mkdir(parents=True, exist_ok=True)
        bounds = Bounds(plan.limit / 60, plan.exchanges)
        picture.write_record(scene.record, drawing, _caption(outcome), bounds)
    return outcome


def _play(scene: UnderLoad, plan: Plan) -> tuple[int, int]:
    """Give the highest and the last number of exchanges."""
    workers = scene.workers
    workers.add(plan.subscribers, publishes=False)
    publishers = workers.add(plan.publishers, publishes=True, payload=PAYLOAD)
    scene.enter("publishers and subscribers connect")
    workers.open(workers.subscribers)
    workers.open(publishers)
    scene.record.began = scene.record.samples[-1].when
    begin = scene.elapsed
    unit = plan.limit / 60 / PAYLOAD / plan.publishers
    most, rate = 0, -1.0

    def follow() -> None:
        nonlocal most, rate
        most = max(most, scene.exchanges())
        share = (scene.elapsed - begin) / plan.seconds
        wanted = round(load_at(share) * unit, 1)
        if abs(wanted - rate) > RATE_STEP * unit or (wanted != rate and share > SHARES[-1][0]):
            _phase(scene, wanted - rate, first=rate < 0)
            rate = wanted
            workers.rate(publishers, rate)

    scene.run(plan.seconds, follow)
    last = scene.exchanges()
    workers.rate(publishers, 0)
    scene.enter("the last messages arrive")
    scene.finish()
    return most, last


def load_at(share: float) -> float:
    """The load at a share of the whole time, in limits of one exchange."""
    for (begin, before), (end, after) in pairwise(SHARES):
        if share < end:
            return before + (after - before) * (share - begin) / (end - begin)
    return SHARES[-1][1]


def _phase(scene: UnderLoad, change: float, *, first: bool) -> None:
    if first:
        phase = "a light load"
    elif change > 0:
        phase = "the load rises"
    else:
        phase = "the load falls"
    if phase != scene.phase:
        scene.enter(phase)


def _outcome(scene: UnderLoad, plan: Plan, machine: Machine, most: int, last: int) -> Outcome:
    record = scene.record
    counts = results.counts(scene.workers.judge)
    accepted = record.moves()
    return Outcome(
        machine=machine,
        plan=plan,
        exchanges_most=most,
        exchanges_last=last,
        moves=len(accepted),
        moves_failed=len(record.moves("failed")) + len(record.moves("given_up")),
        scale_outs=len(record.scalings("out")),
        scale_ins=len(record.scalings("in")),
        serve_seconds=[round(seconds, 2) for seconds in measures.serve_seconds(record)],
        pause_ms=max((move.pause_ms for _, move in accepted), default=0.0),
        counts=[counts],
        targets=[
            Target(text="exchanges at the peak", measured=most, goal=plan.exchanges, at_least=True),
            Target(text="exchanges at the end", measured=last, goal=1),
            Target(text="publishers moved", measured=len(accepted), goal=1, at_least=True),
        ],
    )


def _caption(outcome: Outcome) -> picture.Caption:
    plan, (counts,), machine = outcome.plan, outcome.counts, outcome.machine
    return picture.Caption(
        "A queue grows and shrinks with its load",
        f"{plan.publishers} publishers, {plan.subscribers} subscribers; {outcome.scale_outs} "
        f"exchanges added, {outcome.scale_ins} removed, {outcome.moves} publishers moved; of "
        f"{counts.sent:,} messages {counts.lost} lost, {counts.duplicated} duplicated, "
        f"{counts.reordered} reordered",
        f"limit of one exchange {bytes_text(plan.limit)}/min, policy {plan.policy}; "
        + results.machine_text(machine).plain,
    )


@click.command(short_help="Watch a queue grow and shrink.")
@results.planned(Plan)
@results.scenario("Directory for JSON and picture.")
def main(plan: Plan, output: Path, as_json: bool) -> bool:
    """Watch a queue grow and shrink: load rises until exchanges are added and publishers move to
    them, then falls until they go.

    Starts a cluster of its own, publisher and subscriber processes, and stops everything again.
    Every message is checked at every subscriber. Exits with 1 if one was lost, doubled or came out
    of order, or the queue did not grow and shrink.

    \b
    Example:
      python -m roq.simulation.experiments.elastic
      python -m roq.simulation.experiments.elastic --seconds 180 --publishers 24
    """
    drawing = output / f"{NAME}.png"
    with display(as_json=as_json) as shown:
        outcome = run(plan, shown, drawing)
    results.told(outcome, NAME, output, _show, as_json=as_json, drawing=drawing)
    return outcome.reached


def _show(out: Console, outcome: Outcome) -> None:
    out.print(
        f"{outcome.scale_outs} exchanges added (each served after "
        f"{', '.join(f'{seconds:.1f} s' for seconds in outcome.serve_seconds) or '-'}), "
        f"{outcome.scale_ins} removed; {outcome.moves} publishers moved, the longest pause "
        f"{outcome.pause_ms:.1f} ms; {outcome.moves_failed} moves failed"
    )


if __name__ == "__main__":
    main()
