"""One whole benchmark: start everything, measure, stop everything, sum up."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rich.console import Console

from roq.benchmarks import picture, plan, report, targets
from roq.benchmarks.cluster import RoqCluster
from roq.benchmarks.contender import Contender
from roq.benchmarks.contenders import bare_hops, nats_core, redis_streams, roq, roq_aio
from roq.benchmarks.plan import Plan
from roq.benchmarks.processes import temporary_directory
from roq.benchmarks.results import Idle, Results, environment, write_json
from roq.benchmarks.runner import Runner
from roq.benchmarks.statistics import figures

JSON_NAME: Final = "latest.json"
PICTURE_NAME: Final = "latest.png"


def contenders(cluster: RoqCluster, *, compare: bool) -> list[Contender]:
    """RoQ, and its peers if they are wanted, in the order in which people read the results."""
    ours = [*roq.contenders(cluster), *roq_aio.contenders(cluster)]
    if not compare:
        return ours
    peers = (bare_hops, nats_core, redis_streams)
    return [*ours, *(one for module in peers for one in module.contenders())]


def measure(chosen: Plan, console: Console, *, compare: bool) -> Results:
    """Run the plan; everything that was started is stopped again, whatever happens."""
    if not compare:
        chosen = plan.only_roq(chosen)
    cluster, seen = RoqCluster(), environment()
    everybody = contenders(cluster, compare=compare)
    progress = report.Bars if console.is_terminal else report.Lines
    idle: Idle | None = None
    with (
        temporary_directory() as directory,
        progress(console, chosen.steps) as observer,
    ):
        runner = Runner(everybody, Path(directory), observer)
        try:
            observer.says("starting a RoQ cluster and the servers of its peers")
            runner.start()
            if plan.ROQ_BATCHES not in runner.skipped:
                observer.says("an idle RoQ cluster")
                idle = cluster.idle(chosen.idle_seconds)
                observer.says("filling the rings")
                cluster.fill_rings()
                cluster.make_flood_queue()
            runner.run(chosen)
        finally:
            observer.says("stopping everything")
            runner.stop()
    return Results(
        environment=seen,
        rounds=chosen.rounds,
        fan_out_rounds=chosen.fan_out_rounds,
        seconds_per_run=chosen.seconds,
        titles={contender.key: contender.title for contender in everybody},
        skipped=runner.skipped,
        figures=figures(runner.samples),
        failures=runner.failures,
        idle=idle,
        verdicts=targets.verdicts(runner.samples, idle),
    )


def nothing_measured(results: Results) -> str:
    """Why there is no figure of RoQ; empty if there is one."""
    if any(_is_ours(figure.contender) for figure in results.figures):
        return ""
    reasons = [one.reason for one in results.failures if _is_ours(one.contender)]
    reasons += [reason for key, reason in results.skipped.items() if _is_ours(key)]
    return reasons[0] if reasons else "nothing was tried"


def _is_ours(contender: str) -> bool:
    return contender.startswith("roq_")


def write(results: Results, directory: Path) -> list[Path]:
    """Write JSON and picture; gives their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    document, drawing = directory / JSON_NAME, directory / PICTURE_NAME
    write_json(results, document)
    picture.draw(results, drawing)
    return [document, drawing]
