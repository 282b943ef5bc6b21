"""The model beside real processes: `python -m roq.simulation.forecast.calibration RUN`.

A live run is kept in a folder; the model plays the same scenario with several seeds. What was seen
of some live runs stays in `simulation/results/forecast.json`, and a test holds that the model is as
near to them as is said here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Final

import click
import msgspec

from roq.demo.latency import Histogram
from roq.errors import ConfigError, RoQError
from roq.simulation.forecast.case import Case
from roq.simulation.forecast.cell import play
from roq.simulation.forecast.outcome import Outcome, mean
from roq.simulation.forecast.parameters import Parameters
from roq.simulation.lab.archive.document import EventKind, Run, RunKind, RunState, Series
from roq.simulation.lab.archive.folder import find, read_run, read_series
from roq.simulation.real import results
from roq.simulation.real.results import Machine, Target
from roq.simulation.scenario.scenario import Scenario

NAME: Final = "forecast"
SEEDS: Final = range(1, 11)
STEP_SECONDS: Final = 0.5
COUNT_ERROR: Final = 0.5
"""Exchanges by which the model may be wrong, as a mean over the whole run."""
HOURS_ERROR: Final = 0.10
"""The part by which exchange-hours may be wrong."""
GROWTH_ERROR_SECONDS: Final = 6.0
"""By which the model may be wrong about when the queue is as large as it gets, in runs by which it
was fitted: which of two peaks is the higher one is chance."""
MOVES_FACTOR: Final = 1.25
"""Moves in the model over moves in reality, either way."""
CPU_FACTOR: Final = 1.5
"""Processor time of all exchanges, likewise."""
LATENCY_FACTOR: Final = 1.5
"""Of the median and the 99th percentile, likewise; on a machine that was not full."""
FULL_PERCENT: Final = 95.0
"""So busy a machine is full: what messages wait there has no limit in the model."""
FITTED: Final = frozenset({"elastic", "short", "burst"})
"""By these scenarios delays and costs were chosen; the model had seen none of the others."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a live run.

    Attributes:
        run: its id.
        scenario: as it was run.
        machine: where, and how busy that was.
        window_seconds: of the lists.
        serving: exchanges that served at the end of each window.
        moves: publishers that had moved by then.
        scale_outs, scale_ins: in all.
        figures: of the run.
    """

    run: str
    scenario: Scenario
    machine: Machine
    window_seconds: float
    serving: list[int]
    moves: list[int]
    scale_outs: int
    scale_ins: int
    figures: dict[str, float] = {}


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The model and the facts.

    Attributes:
        facts: of the real run.
        played: by the model, one for each seed.
        targets: what is held.
    """

    facts: Facts
    played: list[Outcome]
    targets: list[Target]


class Error(msgspec.Struct, frozen=True, kw_only=True):
    """By which part of it the model was wrong about a live run, at most.

    Attributes:
        hours: exchange-hours.
        moves: of publishers, either way.
        cpu: processor time of all exchanges, either way.
        latency: its median and 99th percentile, either way; 0 for a machine that was full.
    """

    hours: float
    moves: float
    cpu: float
    latency: float


STATED: Final = Error(hours=0.02, moves=0.09, cpu=0.14, latency=0.46)
"""Of all kept runs that the model had not seen; each forecast says so, and a test holds it."""


def error_of(facts: Facts, played: Sequence[Outcome]) -> Error:
    """How wrong the model was, over all seeds."""
    moves = _moves_factor(facts, played)
    hours = mean([sum(serving(each)) for each in played])
    cpu = _factor(
        mean([each.figures["busy_seconds"] for each in played]), facts.figures["cpu_seconds"]
    )
    factors = [each.measured or 1.0 for each in _latency_targets(facts, played)]
    latency = max(factors, default=1.0)
    return Error(
        hours=abs(hours / sum(facts.serving) - 1), moves=moves - 1, cpu=cpu - 1, latency=latency - 1
    )


def _moves_factor(facts: Facts, played: Sequence[Outcome]) -> float:
    """In the middle of all seeds, as one run is compared; none count as one."""
    modelled = median(each.figures["moves"] for each in played)
    return _factor(max(1, modelled), max(1, facts.moves[-1]))


def _factor(one: float, other: float) -> float:
    """How many times the larger one is the smaller one."""
    low, high = sorted((max(one, 1e-9), max(other, 1e-9)))
    return high / low


def facts_of(run: Run, series: Series) -> Facts:
    """What the model is compared with.

    Raises:
        ConfigError: it is no live run, or not a whole one.
    """
    if run.kind is not RunKind.LIVE or run.state is not RunState.COMPLETE:
        raise ConfigError(f"{run.id} is no complete live run, but {run.kind} and {run.state}")
    if not any(window.serving for window in series.windows):
        raise ConfigError(f"{run.id} does not say how many exchanges served: it has no traces")
    ends = [window.at for window in series.windows]
    moved = [0] * len(ends)
    for event in series.events:
        if event.kind is EventKind.MOVE:
            index = next((i for i, end in enumerate(ends) if event.at <= end), len(ends) - 1)
            moved[index] += 1
    return Facts(
        run=run.id,
        scenario=run.scenario,
        machine=run.machine,
        window_seconds=series.window_seconds,
        serving=[window.serving for window in series.windows],
        moves=list(accumulate(moved)),
        scale_outs=sum(event.kind is EventKind.SCALE_OUT for event in series.events),
        scale_ins=sum(event.kind is EventKind.SCALE_IN for event in series.events),
        figures=run.figures,
    )


def case_of(facts: Facts, seed: int) -> Case:
    """The same load for the model, with as many windows, on one host that is as busy as it was."""
    machine = facts.machine
    seconds = facts.window_seconds * len(facts.serving)
    busy = machine.cores * machine.busy_percent / 100
    clients = facts.figures.get("generator_cpu_seconds", 0.0)
    others = busy - (facts.figures.get("cpu_seconds", 0.0) + clients) / seconds
    parameters = Parameters(
        step_seconds=STEP_SECONDS,
        host_cores=machine.cores,
        client_us=1e6 * clients / max(1.0, facts.figures.get("sent", 0.0)),
        others_cores=max(0.0, others),
    )
    return Case(
        scenario=facts.scenario, seed=seed, parameters=parameters, windows=len(facts.serving),
        hosts=1,
    )  # fmt: skip


def compare(facts: Facts) -> Comparison:
    """Play the model with all seeds and put it beside the facts."""
    played = [play(case_of(facts, seed)) for seed in SEEDS]
    return Comparison(facts=facts, played=played, targets=_targets(facts, played))


def _targets(facts: Facts, played: Sequence[Outcome]) -> list[Target]:
    def over_seeds(figure: Callable[[list[int]], float]) -> float:
        return mean([figure(serving(each)) for each in played])

    counts = [serving(each) for each in played]
    hours = over_seeds(sum)
    seen = facts.scenario.name in FITTED
    grown = over_seeds(_first_most) - _first_most(facts.serving)
    growth = [
        Target(text="time of the most exchanges, difference",
               measured=abs(grown) * facts.window_seconds, goal=GROWTH_ERROR_SECONDS, unit="s")
    ]  # fmt: skip
    return [
        Target(text="exchanges at the peak, difference",
               measured=abs(median(map(max, counts)) - max(facts.serving)), goal=0.0),
        Target(text="exchanges at the end, difference",
               measured=abs(median(each[-1] for each in counts) - facts.serving[-1]), goal=0.5),
        Target(text="exchanges over time, mean difference",
               measured=over_seeds(lambda counts: _count_error(counts, facts)), goal=COUNT_ERROR),
        Target(text="exchange-hours, relative difference",
               measured=abs(hours / sum(facts.serving) - 1), goal=HOURS_ERROR),
        *(growth if seen else []),
        Target(text="moves, factor either way", measured=_moves_factor(facts, played),
               goal=MOVES_FACTOR),
        *_cpu_target(facts, played),
        *_latency_targets(facts, played),
    ]  # fmt: skip


def _cpu_target(facts: Facts, played: Sequence[Outcome]) -> list[Target]:
    used = facts.figures.get("cpu_seconds")
    if not used:
        return []
    modelled = mean([each.figures["busy_seconds"] for each in played])
    text = "processor time of exchanges, factor either way"
    return [Target(text=text, measured=_factor(modelled, used), goal=CPU_FACTOR)]


def _latency_targets(facts: Facts, played: Sequence[Outcome]) -> list[Target]:
    """Of the median and the 99th percentile; of a machine that was full, nothing is held."""
    found: list[Target] = []
    if facts.machine.busy_percent >= FULL_PERCENT:
        return found
    for name, percent in (("p50", 50.0), ("p99", 99.0)):
        told = facts.figures.get(f"latency_{name}_ms")
        if told:
            factor = _factor(mean([latency(each, percent) for each in played]), told)
            text = f"latency {name}, factor either way"
            found.append(Target(text=text, measured=factor, goal=LATENCY_FACTOR))
    return found


def latency(played: Outcome, percent: float) -> float:
    """Milliseconds that so many percent of the messages did not exceed."""
    whole = Histogram()
    for window in played.windows:
        whole.merge(Histogram(window.latency))
    return 1_000 * whole.percentile(percent)


def serving(played: Outcome) -> list[int]:
    """Exchanges at the end of each window."""
    return [window.serving for window in played.windows]


def known(folder: Path = results.RESULTS) -> list[Facts]:
    """What is kept of live runs.

    Raises:
        ConfigError: the file is missing or damaged.
    """
    path = folder / f"{NAME}.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Facts])
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None


def keep(facts: Facts, folder: Path = results.RESULTS) -> Path:
    """Keep these facts; in the place of those of the same scenario."""
    others = [each for each in known(folder) if each.scenario.name != facts.scenario.name]
    path = folder / f"{NAME}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode([*others, facts]), indent=1) + b"\n")
    return path


def _count_error(counts: Sequence[int], facts: Facts) -> float:
    pairs = zip(counts, facts.serving, strict=True)
    return mean([abs(here - there) for here, there in pairs])


def _first_most(counts: Sequence[int]) -> int:
    """The window in which there are as many as there will ever be."""
    return list(counts).index(max(counts))


@click.command(short_help="The model beside live runs.")
@click.argument("run", default="")
@click.option("--keep", "kept", is_flag=True, help="Keep what was seen of this run for the test.")
def main(run: str, kept: bool) -> None:
    """Compare the model with a live RUN (a folder, an id or `latest`), or with those that are kept.

    Exit codes: 0 the model was near enough, 1 not, or there is no such run.
    """
    try:
        if run:
            folder = find(run)
            every = [facts_of(read_run(folder), read_series(folder))]
        else:
            every = known()
    except RoQError as error:
        raise click.ClickException(str(error)) from None
    near = [_show(compare(facts)) for facts in every]
    if kept and run:
        click.echo(f"written: {keep(every[0])}")
    raise SystemExit(0 if all(near) else 1)


def _show(found: Comparison) -> bool:
    facts = found.facts
    out = results.console(as_json=False)
    out.print(f"\n{facts.run}: exchanges, one figure a window", style="bold")
    out.print(f"reality  {_line(facts.serving)}  {facts.moves[-1]} moves")
    for played in found.played[:3]:
        out.print(f"model    {_line(serving(played))}  {played.figures['moves']:.0f} moves")
    out.print(results.targets_table(found.targets))
    return all(each.reached for each in found.targets)


def _line(counts: Sequence[int]) -> str:
    return "".join(str(each) if each < 10 else "+" for each in counts)


if __name__ == "__main__":
    main()
