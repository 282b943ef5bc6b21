"""The model beside real processes: `python -m simulation.forecast.calibration`.

The elastic scenario (`simulation.elastic`) is run with real processes and watched on its statistics
stream; the model plays the same load with several seeds. What was seen of the real run is kept as
JSON, and a test holds that the model is as near to it as is said here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import msgspec
from rich.console import Console

from roq.cli.interrupts import ends_quietly
from roq.errors import RoQError
from simulation import elastic
from simulation.description.rates import Trace
from simulation.description.scenario import (
    Phase,
    PublisherGroup,
    QueueSettings,
    Scenario,
    SubscriberGroup,
)
from simulation.forecast.case import Case
from simulation.forecast.cell import play
from simulation.forecast.outcome import Outcome, mean
from simulation.forecast.parameters import Parameters
from simulation.scenario import results
from simulation.scenario.crew import ScenarioError
from simulation.scenario.display import Picture
from simulation.scenario.results import Target

NAME: Final = "forecast"
SEEDS: Final = range(1, 11)
COUNT_ERROR: Final = 0.5
"""Exchanges by which the model may be wrong, as a mean over the whole run."""
HOURS_ERROR: Final = 0.15
"""The part by which exchange-hours may be wrong."""
GROWTH_ERROR_SECONDS: Final = 6.0
"""By which the model may be wrong about when the queue is as large as it gets."""
MOVES_FACTOR: Final = 2.0
"""Moves in the model over moves in reality, either way."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a real run.

    Attributes:
        plan: what was run.
        machine: where, and how busy that was.
        exchanges: how many served, once in each second of the load.
        moves: publishers that had moved by then.
        scale_outs, scale_ins: in all.
        serve_seconds: from each decision until the new exchange served.
    """

    plan: elastic.Plan
    machine: results.Machine
    exchanges: list[int]
    moves: list[int]
    scale_outs: int
    scale_ins: int
    serve_seconds: list[float]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The model and the facts.

    Attributes:
        facts: of the real run.
        most, last: exchanges in the model, as a mean over seeds.
        scale_outs, scale_ins, moves: the same.
        count_error: mean difference of the number of exchanges, over time and seeds.
        hours_error: difference of exchange-hours, as a part.
        growth_error_seconds: difference of the first time with the most exchanges.
        targets: what is held.
    """

    facts: Facts
    most: float
    last: float
    scale_outs: float
    scale_ins: float
    moves: float
    count_error: float
    hours_error: float
    growth_error_seconds: float
    targets: list[Target]


class Watch:
    """Looks at a run second by second."""

    def __init__(self) -> None:
        self.exchanges: list[int] = []
        self.moves: list[int] = []
        self._began: float | None = None

    def show(self, picture: Picture) -> None:
        """Note how it stands, once in each second since the load began."""
        if self._began is None and picture.phase == "a light load":
            self._began = picture.elapsed
        if self._began is None or picture.elapsed - self._began < len(self.exchanges):
            return
        self.exchanges.append(len(picture.view.exchanges))
        self.moves.append(picture.view.moves)


def measure(plan: elastic.Plan) -> Facts:
    """Run it with real processes.

    Raises:
        ScenarioError, RoQError: it could not be run.
    """
    watch = Watch()
    outcome = elastic.run(plan, watch, None)
    seconds = int(plan.seconds)
    return Facts(
        plan=plan,
        machine=outcome.machine,
        exchanges=watch.exchanges[:seconds],
        moves=watch.moves[:seconds],
        scale_outs=outcome.scale_outs,
        scale_ins=outcome.scale_ins,
        serve_seconds=outcome.serve_seconds,
    )


def case_of(plan: elastic.Plan, seed: int) -> Case:
    """The same load for the model."""
    unit = plan.limit / 60 / elastic.PAYLOAD / plan.publishers
    points = [(share * plan.seconds, load * unit) for share, load in elastic.SHARES]
    points.append((plan.seconds, elastic.SHARES[-1][1] * unit))
    scenario = Scenario(
        name="elastic",
        title="the load of simulation.elastic",
        queue=QueueSettings(
            rules={
                "exchange_bytes_per_minute": plan.limit,
                "exchanges_max": plan.exchanges,
                "cooldown_seconds": elastic.COOLDOWN_SECONDS,
                "policy": plan.policy,
            }
        ),
        hosts=plan.hosts,
        phases=[
            Phase(
                name="load",
                seconds=plan.seconds,
                publishers=[
                    PublisherGroup(
                        count=plan.publishers, rate=Trace(points=points), size=elastic.PAYLOAD
                    )
                ],
                subscribers=[SubscriberGroup(count=plan.subscribers)],
            )
        ],
    )
    parameters = Parameters(spread=0.0, step_seconds=0.5, samples=int(plan.seconds))
    return Case(scenario=scenario, seed=seed, parameters=parameters)


def compare(facts: Facts) -> Comparison:
    """Play the model with all seeds and put it beside the facts."""
    played = [play(case_of(facts.plan, seed)) for seed in SEEDS]
    moves = mean([each.moves for each in played])
    real_moves = max(1, facts.moves[-1])
    count_error = mean([_count_error(each, facts) for each in played])
    hours = mean([sum(_counts(each, facts)) for each in played])
    hours_error = abs(hours / sum(facts.exchanges) - 1)
    grown = mean([_first_most(each.series.exchanges) for each in played])
    growth_error = abs(grown - _first_most(facts.exchanges))
    most, last = (
        mean([each.exchanges_most for each in played]),
        mean([each.exchanges_last for each in played]),
    )
    return Comparison(
        facts=facts,
        most=most,
        last=last,
        scale_outs=mean([each.scale_outs for each in played]),
        scale_ins=mean([each.scale_ins for each in played]),
        moves=moves,
        count_error=count_error,
        hours_error=hours_error,
        growth_error_seconds=growth_error,
        targets=[
            Target(text="exchanges at the peak, difference",
                   measured=abs(most - max(facts.exchanges)), goal=0.25),
            Target(text="exchanges at the end, difference",
                   measured=abs(last - facts.exchanges[-1]), goal=0.5),
            Target(text="exchanges over time, mean difference", measured=count_error,
                   goal=COUNT_ERROR),
            Target(text="exchange-hours, relative difference", measured=hours_error,
                   goal=HOURS_ERROR),
            Target(text="time of the most exchanges, difference", measured=growth_error,
                   goal=GROWTH_ERROR_SECONDS, unit="s"),
            Target(text="moves, factor either way",
                   measured=max(moves / real_moves, real_moves / max(moves, 1.0)),
                   goal=MOVES_FACTOR),
        ],
    )  # fmt: skip


def _counts(played: Outcome, facts: Facts) -> list[int]:
    return played.series.exchanges[: len(facts.exchanges)]


def _count_error(played: Outcome, facts: Facts) -> float:
    pairs = zip(_counts(played, facts), facts.exchanges, strict=True)
    return mean([abs(here - there) for here, there in pairs])


def _first_most(counts: list[int]) -> int:
    """The second in which there are as many as there will ever be."""
    return counts.index(max(counts))


@click.command(short_help="The model beside real processes.")
@click.option("--seconds", type=click.FloatRange(40, 3_600), default=80.0, show_default=True,
              help="How long the real run takes.")  # fmt: skip
@click.option("--known", is_flag=True, help="Use the run that was kept instead of a new one.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False),
              default=results.RESULTS, show_default=True,
              help="Directory for the JSON.")  # fmt: skip
def main(seconds: float, known: bool, output: Path) -> None:
    """Run the elastic scenario with real processes, and the model beside it.

    Exit codes: 0 the model was near enough, 1 not, or it could not be run.
    """
    near = False
    with ends_quietly():
        try:
            facts = (
                msgspec.json.decode((output / f"{NAME}.json").read_bytes(), type=Facts)
                if known
                else measure(elastic.Plan(seconds=seconds))
            )
        except (ScenarioError, RoQError, OSError, msgspec.DecodeError) as error:
            raise click.ClickException(str(error)) from None
        found = compare(facts)
        out = results.console(as_json=False)
        _print(out, "reality", facts.exchanges, facts.moves[-1])
        for seed in SEEDS[:3]:
            played = play(case_of(facts.plan, seed))
            _print(out, "model", _counts(played, facts), played.moves)
        out.print(results.targets_table(found.targets))
        if not known:
            out.print(f"written: {results.write(facts, NAME, output)}", style="dim")
        near = all(each.reached for each in found.targets)
    raise SystemExit(0 if near else 1)


def _print(out: Console, name: str, counts: list[int], moves: int) -> None:
    out.print(f"{name:8} {''.join(map(str, counts))}  {moves} moves")


if __name__ == "__main__":
    main()
