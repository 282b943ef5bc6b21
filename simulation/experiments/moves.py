"""Publishers that move all the time, under load.

    python -m roq.simulation.experiments.moves --count 500

A policy of another package, offered by an entry point, moves one publisher in every round.
Each live subscriber's history is checked, and `publish()` during moves is compared with `publish()`
between them. `--naive` does the same with bare sockets: close with linger 0, connect elsewhere.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Annotated, Final

import click
import msgspec
from msgspec import Meta
from rich.console import Console

from roq.client.admin.views import ScalingRules
from roq.simulation.real import environment, measures, results, shuffle
from roq.simulation.real.commands import Move
from roq.simulation.real.display import Display, display
from roq.simulation.real.measures import Window
from roq.simulation.real.naive import relays
from roq.simulation.real.results import Counts, Machine, Measured, Target
from roq.simulation.real.timings import Timings, percentile
from roq.simulation.real.under_load import QUEUE, UnderLoad, under_load
from roq.simulation.real.workers import Worker, Workers

NAME: Final = "moves"
RATIO_GOAL: Final = 2.0
WINDOW_SECONDS: Final = 0.3
"""A move takes less; what is longer is not taken as time of the move."""
MARGIN_SECONDS: Final = 0.01
DISTANCE_SECONDS: Final = 0.05
"""Between a move and what counts as between moves."""
PERIOD_SECONDS: Final = 0.25
"""KPI period: the policy moves a publisher four times a second."""
LIMIT: Final = 2_000_000_000
"""Of one exchange, bytes a minute: no exchange is ever overloaded here."""
MOVE_SECONDS_MAX: Final = 1.0
"""A move is to be expected at least so often."""
NAIVE_MOVES_MAX: Final = 200
NAIVE_PAUSE_SECONDS: Final = 0.05
"""Between two naive moves of one of all publishers."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How large it is."""

    count: Annotated[int, Meta(ge=1, le=100_000, description="Relocations.")] = 500
    publishers: Annotated[int, Meta(ge=1, le=64, description="Publisher processes.")] = 8
    subscribers: Annotated[
        int, Meta(ge=1, le=20, description="Subscriber processes; each gets everything.")
    ] = 2
    exchanges: Annotated[int, Meta(ge=2, le=8, description="Exchange processes.")] = 3
    rate: Annotated[
        float, Meta(ge=1, le=100_000, description="Messages a second of each publisher.")
    ] = 400.0
    payload: Annotated[int, Meta(ge=32, le=1_000_000, description="Bytes of a message.")] = 1_000


class Calls(msgspec.Struct, frozen=True, kw_only=True):
    """How long `publish()` took, in microseconds."""

    calls: int
    p50: float
    p99: float
    p999: float
    most: float


class Naive(msgspec.Struct, frozen=True, kw_only=True):
    """The naive hand-off under the same load."""

    moves: int
    counts: Counts


class Outcome(Measured, kw_only=True):
    """What came out."""

    plan: Plan
    seconds: float
    moves: int
    failed: int
    given_up: int
    pause_ms: dict[str, float]
    """Of accepted moves, as the publishers tell: how long nothing was sent."""
    windows: int
    """Of moves that are compared with as many and as long ones between moves."""
    during: Calls
    between: Calls
    replayed: int
    """Batches that were sent again; doubles of them were dropped before a program saw them."""
    dropped: int
    naive: Naive | None = None


def run(plan: Plan, shown: Display) -> Outcome:
    """Play it.

    Raises:
        ScenarioError, RoQError: it could not be played to its end.
    """
    rules = ScalingRules(
        name=NAME,
        policy=shuffle.NAME,
        exchange_bytes_per_minute=LIMIT,
        exchanges_max=plan.exchanges,
    )
    with (
        results.measured() as machine,
        tempfile.TemporaryDirectory(prefix="roq-plugin-") as plugin,
        shuffle.offered(Path(plugin)),
        environment.local(
            2, hcm={"monitor": {"stat_period": int(1_000 * PERIOD_SECONDS)}}
        ) as where,
        under_load(where, shown) as scene,
    ):
        for number in range(1, plan.exchanges):
            scene.cluster.add_exchange(QUEUE, where.hosts[number % len(where.hosts)])
        workers = scene.workers
        workers.open(workers.add(plan.subscribers, publishes=False))
        publishers = workers.add(
            plan.publishers, publishes=True, payload=plan.payload, timings=True
        )
        scene.enter("publishers connect")
        workers.open(publishers)
        workers.rate(publishers, plan.rate)
        scene.run(1.0)
        scene.enter(f"{plan.count} moves")
        scene.cluster.set_rules(QUEUE, rules)
        began = scene.elapsed
        scene.until(
            lambda: len(scene.record.moves()) >= plan.count,
            30.0 + plan.count * MOVE_SECONDS_MAX,
            f"{plan.count} moves",
        )
        scene.cluster.set_rules(QUEUE, msgspec.structs.replace(rules, policy="static"))
        seconds = scene.elapsed - began
        scene.enter("the last messages arrive")
        scene.run(1.0)
        workers.rate(publishers, 0)
        scene.finish()
        return _outcome(scene, plan, machine, seconds)


def _outcome(scene: UnderLoad, plan: Plan, machine: Machine, seconds: float) -> Outcome:
    record = scene.record
    pauses = [move.pause_ms for _, move in record.moves()]
    during, between, windows = compare(scene)
    finished = [worker.finished for worker in scene.workers.all if worker.finished]
    counts = results.counts(scene.workers.judge)
    ratio = during.p99 / between.p99 if between.p99 else None
    return Outcome(
        machine=machine,
        plan=plan,
        seconds=round(seconds, 1),
        moves=len(pauses),
        failed=len(record.moves("failed")),
        given_up=len(record.moves("given_up")),
        pause_ms={
            name: round(percentile(pauses, percent), 2)
            for name, percent in (("p50", 50), ("p99", 99), ("most", 100))
        },
        windows=windows,
        during=during,
        between=between,
        replayed=sum(each.replayed for each in finished),
        dropped=sum(each.duplicates for each in finished),
        counts=[counts],
        targets=[
            Target(text="moves", measured=len(pauses), goal=plan.count, at_least=True),
            Target(text="publish() p99, during moves to between them",
                   measured=ratio, goal=RATIO_GOAL, unit="x"),
        ],
    )  # fmt: skip


def compare(scene: UnderLoad) -> tuple[Calls, Calls, int]:
    """`publish()` during moves and between them, pooled over all publishers, and the number of
    windows of either kind."""
    during: list[float] = []
    between: list[float] = []
    windows = 0
    for worker in scene.workers.publishers:
        moves = windows_of(scene, worker)
        timings = Timings.load(Path(worker.job.calls))
        whole = Window((worker.opened or 0.0) + 1.0, scene.record.began + scene.elapsed)
        pairs = measures.quiet_windows(moves, whole, DISTANCE_SECONDS, PERIOD_SECONDS)
        during += timings.within(move for move, _ in pairs)
        between += timings.within(quiet for _, quiet in pairs)
        windows += len(pairs)
    return _calls(during), _calls(between), windows


def windows_of(scene: UnderLoad, worker: Worker) -> list[Window]:
    """When this publisher was being moved, by what the monitor told."""
    began: dict[int, float] = {
        move.epoch: when
        for when, move in scene.record.moves("started")
        if move.publisher == worker.id
    }
    windows = []
    for when, move in scene.record.moves():
        if move.publisher == worker.id and move.epoch in began:
            begin = began[move.epoch]
            end = min(when, begin + WINDOW_SECONDS)
            windows.append(Window(begin - MARGIN_SECONDS, end + MARGIN_SECONDS))
    return windows


def run_naively(plan: Plan) -> Naive:
    """The same load on bare sockets, moved naively.

    Raises:
        ScenarioError: it could not be played to its end.
    """
    count = min(plan.count, NAIVE_MOVES_MAX)
    with (
        tempfile.TemporaryDirectory(prefix="roq-scenario-") as folder,
        relays(plan.exchanges) as addresses,
        Workers(Path(folder), addresses, QUEUE) as workers,
    ):
        workers.open(workers.add(plan.subscribers, publishes=False, naive=True))
        workers.poll(1.0)  # nothing tells when a bare subscription is in force
        publishers = workers.add(plan.publishers, publishes=True, payload=plan.payload, naive=True)
        workers.open(publishers)
        workers.rate(publishers, plan.rate)
        workers.poll(1.0)
        for _, publisher in zip(range(count), cycle(publishers), strict=False):
            publisher.tell(Move())
            workers.poll(NAIVE_PAUSE_SECONDS)
        workers.poll(1.0)
        workers.rate(publishers, 0)
        workers.finish()
        return Naive(moves=count, counts=results.counts(workers.judge))


def _calls(seconds: Sequence[float]) -> Calls:
    def micro(percent: float) -> float:
        return round(1e6 * percentile(seconds, percent), 1)

    return Calls(
        calls=len(seconds), p50=micro(50), p99=micro(99), p999=micro(99.9), most=micro(100)
    )


@click.command(short_help="Publishers that move all the time, under load.")
@results.planned(Plan)
@click.option("--naive", is_flag=True, help="Show what the naive hand-off loses, too.")
@results.scenario()
def main(plan: Plan, naive: bool, output: Path, as_json: bool) -> bool:
    """Move publishers all the time under load, check what every live subscriber got, and compare
    publish() during moves with publish() between them.

    Exits with 1 if a message was lost, doubled or came out of order, or publish() had to wait.

    \b
    Example:
      python -m roq.simulation.experiments.moves --count 500 --naive
    """
    with display(as_json=as_json) as shown:
        outcome = run(plan, shown)
    if naive:
        outcome.naive = run_naively(plan)
    results.told(outcome, NAME, output, _show, as_json=as_json)
    return outcome.reached


def _show(out: Console, outcome: Outcome) -> None:
    pause = ", ".join(f"{name} {value} ms" for name, value in outcome.pause_ms.items())
    out.print(
        f"{outcome.moves} moves in {outcome.seconds} s, {outcome.failed} failed, "
        f"{outcome.given_up} given up; nothing was sent for {pause}"
    )
    rows = [
        (name, f"{calls.calls:,}", calls.p50, calls.p99, calls.p999, calls.most)
        for name, calls in (("during moves", outcome.during), ("between", outcome.between))
    ]
    title = f"publish() in µs, {outcome.windows} windows of either kind"
    columns = ("", "calls#", "p50#", "p99#", "p99.9#", "most#")
    out.print(results.table(title, columns, rows))
    if outcome.naive is not None:
        title = f"The naive hand-off, {outcome.naive.moves} moves"
        out.print()
        out.print(results.counts_table(outcome.naive.counts, title))


if __name__ == "__main__":
    main()
