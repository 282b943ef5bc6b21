"""How fast a queue reacts: `python -m roq.simulation.experiments.reaction`.

    overload    an exchange gets more than it may take → its first publisher is somewhere else
    growth      the decision to add an exchange → it serves
    balance     a step from 1 to 4 exchanges → the busiest has no more than 1.25 of the mean
    steady      the load does not change → no publisher moves

All are measured from the outside, on the statistics stream.
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
from roq.simulation.real import environment, measures, results
from roq.simulation.real.display import Display, display
from roq.simulation.real.environment import Environment
from roq.simulation.real.results import Counts, Measured, Target
from roq.simulation.real.under_load import QUEUE, UnderLoad, under_load
from roq.simulation.real.workers import Worker

NAME: Final = "reaction"
LIMIT: Final = 30_000_000
"""Of one exchange, bytes a minute."""
PAYLOAD: Final = 2_000
UNIT: Final = LIMIT / 60 / PAYLOAD
"""Messages a second that are all that one exchange may take."""
PERIOD_SECONDS: Final = 1.0
"""A KPI period."""
MOVED_PERIODS: Final = 2.0
SERVE_SECONDS: Final = 3.0
BALANCE_PERIODS: Final = 5.0
EXCHANGES: Final = 4
WAIT_SECONDS: Final = 30.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How large it is."""

    rounds: Annotated[int, Meta(ge=1, le=100, description="Overloads that are measured.")] = 3
    publishers: Annotated[int, Meta(ge=8, le=64, description="Publisher processes.")] = 16
    steady: Annotated[
        float,
        Meta(
            ge=1,
            le=3_600,
            description="Seconds in which no publisher is to move; RoQ's own target says 300.",
        ),
    ] = 30.0
    policy: Annotated[str, Meta(description="Which policy decides.")] = "balanced"


class Outcome(Measured, kw_only=True):
    """What came out."""

    plan: Plan
    overload_seconds: list[float]
    """From more load to the first publisher that had moved."""
    serve_seconds: list[float]
    """From each decision for a new exchange until it served."""
    balance_periods: float | None
    """From the moment at which the fourth exchange was heard; None: never balanced."""
    best: float
    """The lowest max/mean that whole publishers allow."""
    steady_moves: int


def run(plan: Plan, shown: Display) -> Outcome:
    """Measure everything on one cluster.

    Raises:
        ScenarioError, RoQError: it could not be measured.
    """
    with results.measured() as machine, environment.local(2) as where:
        overload, first = _overload(where, shown, plan)
        serve, second = _growth(where, shown, plan)
        balance, best, steady, third = _balance(where, shown, plan)
    return Outcome(
        machine=machine,
        plan=plan,
        overload_seconds=[round(each, 2) for each in overload],
        serve_seconds=[round(each, 2) for each in serve],
        balance_periods=None if balance is None else round(balance, 1),
        best=round(best, 3),
        steady_moves=steady,
        counts=[first, second, third],
        targets=[
            Target(text="overload to first publisher moved, worst",
                   measured=max(overload) / PERIOD_SECONDS if overload else None,
                   goal=MOVED_PERIODS, unit="periods"),
            Target(text="decision to new exchange serving, worst",
                   measured=max(serve, default=None), goal=SERVE_SECONDS, unit="s"),
            Target(text="step from 1 to 4 exchanges to balance",
                   measured=balance, goal=BALANCE_PERIODS, unit="periods"),
            Target(text=f"moves in {plan.steady:g} s of steady load", measured=steady, goal=0),
        ],
    )  # fmt: skip


def _rules(plan: Plan, most: int) -> ScalingRules:
    return ScalingRules(
        name=NAME,
        policy=plan.policy,
        exchange_bytes_per_minute=LIMIT,
        exchanges_max=most,
        cooldown_seconds=1,
    )


def _people(scene: UnderLoad, plan: Plan) -> list[Worker]:
    workers = scene.workers
    workers.open(workers.add(1, publishes=False))
    publishers = workers.add(plan.publishers, publishes=True, payload=PAYLOAD)
    workers.open(publishers)
    return publishers


def _finish(scene: UnderLoad, publishers: Sequence[Worker]) -> Counts:
    scene.workers.rate(publishers, 0)
    scene.finish()
    return results.counts(scene.workers.judge)


def _overload(where: Environment, shown: Display, plan: Plan) -> tuple[list[float], Counts]:
    """Two exchanges with room; the publishers of one of them get busy."""
    with under_load(where, shown, rules=_rules(plan, 2)) as scene:
        scene.cluster.add_exchange(QUEUE, where.hosts[-1])
        publishers = _people(scene, plan)
        seconds = []
        for number in range(1, plan.rounds + 1):
            scene.enter(f"overload {number}: a light load")
            scene.workers.rate(publishers, 0.4 * UNIT / plan.publishers)
            scene.run(8.0)
            busy = _at_the_fuller(scene, publishers)
            scene.enter(f"overload {number}: twice what an exchange may take")
            began = scene.record.marks[-1].when
            scene.workers.rate(busy, 2.0 * UNIT / len(busy))
            scene.until(
                lambda since=began: measures.first_move_after(scene.record, since) is not None,  # type: ignore[misc]
                WAIT_SECONDS,
            )
            taken = measures.first_move_after(scene.record, began)
            seconds.append(WAIT_SECONDS if taken is None else taken)
            scene.run(2.0)
        return seconds, _finish(scene, publishers)


def _at_the_fuller(scene: UnderLoad, publishers: Sequence[Worker]) -> list[Worker]:
    """Those that publish at the exchange that has most of them."""
    places = measures.places(scene.record.samples)
    by_exchange: dict[int, list[Worker]] = {}
    for publisher in publishers:
        number = places.get(publisher.id)
        if number is not None:
            by_exchange.setdefault(number, []).append(publisher)
    return max(by_exchange.values(), key=len, default=list(publishers))


def _growth(where: Environment, shown: Display, plan: Plan) -> tuple[list[float], Counts]:
    """One exchange, and load for four."""
    with under_load(where, shown, rules=_rules(plan, EXCHANGES)) as scene:
        publishers = _people(scene, plan)
        scene.enter("growth: load for four exchanges")
        scene.workers.rate(publishers, 3.2 * UNIT / plan.publishers)
        scene.until(lambda: len(scene.record.scalings("out")) >= EXCHANGES - 1, WAIT_SECONDS)
        scene.run(2.0)
        seconds = measures.serve_seconds(scene.record)
        return seconds, _finish(scene, publishers)


def _balance(
    where: Environment, shown: Display, plan: Plan
) -> tuple[float | None, float, int, Counts]:
    """One exchange for all, three more at once; then nothing changes any more."""
    with under_load(where, shown, rules=_rules(plan, 1)) as scene:
        publishers = _people(scene, plan)
        scene.enter("balance: one exchange for all")
        rates = [2.4 * UNIT * _weight(number, plan.publishers) for number in range(plan.publishers)]
        for publisher, rate in zip(publishers, rates, strict=True):
            scene.workers.rate([publisher], rate)
        scene.run(4.0)
        scene.enter("balance: three exchanges more")
        for number in range(1, EXCHANGES):
            scene.cluster.add_exchange(QUEUE, where.hosts[number % len(where.hosts)])
        scene.until(lambda: scene.exchanges() == EXCHANGES, WAIT_SECONDS, "all exchanges are heard")
        since = scene.record.samples[-1].when
        scene.run(3 * BALANCE_PERIODS * PERIOD_SECONDS)
        best = measures.best_imbalance(rates, EXCHANGES)
        wanted = max(measures.BALANCED, measures.OF_BEST * best)
        rows = measures.loads(scene.record.samples, range(1, EXCHANGES + 1))
        periods = measures.periods_until_balanced(rows, since, wanted, PERIOD_SECONDS)
        scene.enter("steady: nothing changes")
        before = len(scene.record.moves("started"))
        scene.run(plan.steady)
        steady = len(scene.record.moves("started")) - before
        return periods, best, steady, _finish(scene, publishers)


def _weight(number: int, publishers: int) -> float:
    """The share of one publisher: the first brings three times what the last one does."""
    weights = [3 - 2 * index / max(1, publishers - 1) for index in range(publishers)]
    return weights[number] / sum(weights)


@click.command(short_help="How fast a queue reacts.")
@results.planned(Plan)
@results.scenario()
def main(plan: Plan, output: Path, as_json: bool) -> bool:
    """Measure how fast a queue reacts to an overload, how long a new exchange takes, how soon the
    load is even after a step from 1 to 4 exchanges, and that no publisher moves when nothing
    changes.

    \b
    Example:
      python -m roq.simulation.experiments.reaction
      python -m roq.simulation.experiments.reaction --steady 300 --rounds 10
    """
    with display(as_json=as_json) as shown:
        outcome = run(plan, shown)
    results.told(outcome, NAME, output, _show, as_json=as_json)
    return outcome.reached


def _show(out: Console, outcome: Outcome) -> None:
    for text, seconds in (
        ("overload to first publisher moved", outcome.overload_seconds),
        ("decision to new exchange serving", outcome.serve_seconds),
    ):
        out.print(f"{text}: {', '.join(f'{each:.2f} s' for each in seconds) or '-'}")


if __name__ == "__main__":
    main()
