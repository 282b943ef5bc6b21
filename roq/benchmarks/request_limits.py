"""What requests may cost at most: `roq bench --requests --limits`.

Outcomes by the hundred thousand fetched at random, a crowd of instances without work, instances
that die or are cut off with requests in hand, and a requester with many open requests.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from math import inf
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
from rich.console import Console

import roq
from roq.benchmarks import report
from roq.benchmarks.cluster import RoqCluster
from roq.benchmarks.contender import OPEN_SECONDS, RUN_SECONDS
from roq.benchmarks.processes import (
    PYTHON,
    BenchmarkError,
    Program,
    cpu_seconds,
    temporary_directory,
)
from roq.benchmarks.request_party import (
    BATCH,
    BEGIN,
    ECHO,
    END,
    LOST,
    PAYLOAD,
    SERVICE,
    WORK,
)
from roq.benchmarks.results import Environment, Verdict, environment, write_document

JSON_NAME: Final = "request_limits.json"
STORED: Final = 100_000
STORE_BYTES: Final = 256 * 1024 * 1024
"""From half of it on nothing is handed out."""
UNDER_WAY: Final = 1_000
"""Responses that are waited for at once."""
INSTANCES: Final = 100
CROWDS: Final = 4
"""Processes of these instances."""
IDLE_SECONDS: Final = 10.0
OPEN: Final = 10_000
WORK_SECONDS: Final = 0.2
"""That a request takes, and so is in hand when its instance is lost;"""
RATE: Final = 100
"""requests a second, of two instances; begun so long before the loss:"""
BEFORE_SECONDS: Final = 2.0
AFTER_SECONDS: Final = 3.0
ENDED_SECONDS: Final = 60.0

FETCHED: Final = f"{STORED:,} stored responses, fetched by id at random"
IDLE: Final = f"CPU of an exchange, {INSTANCES} instances without work"
_LOST: Final = {
    "killed": "requests of an instance that is killed run elsewhere",
    "cut": "the same, its link is cut",
    "silence": "the same, its link lets nothing through (its lease is of 10 s)",
}
GONE: Final = 2.0
SILENT: Final = 11.0
"""Its lease, and two looks at it: one that stands still may come back within that."""
SIZE: Final = f"one of {OPEN:,} open requests of {len(PAYLOAD)} B, at its requester"
GOALS: Final = {
    FETCHED: (10_000.0, "/s"),
    IDLE: (1.0, " %"),
    **{title: (SILENT if how == "silence" else GONE, " s") for how, title in _LOST.items()},
    SIZE: (2_048.0, " B"),
}
"""What is measured → goal and unit; of the first one more is better."""


class LimitResults(msgspec.Struct, kw_only=True):
    """What one run has found out."""

    environment: Environment
    rounds: int
    rates: dict[str, list[float]] = {}
    """What is measured → figures, by round."""
    failures: list[str] = []

    @property
    def verdicts(self) -> list[Verdict]:
        """The medians, and whether they reach what is wanted."""
        return [
            Verdict(
                text=title, goal=goal, at_least=title == FETCHED, unit=unit,
                measured=median(found), low=min(found), high=max(found),
            )
            for title, (goal, unit) in GOALS.items()
            if (found := self.rates.get(title))
        ]  # fmt: skip


class _Bench:
    """The cluster, and a new queue for each measurement."""

    def __init__(self, cluster: RoqCluster, client: roq.Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.client = client
        self.folder = folder
        self._count = 0

    @contextmanager
    def queue(self) -> Iterator[str]:
        """A queue in memory with one exchange."""
        self._count += 1
        name = f"limits-{self._count}"
        self.client.create_queue(name, durability="none", limits={"exchanges_max": 1})
        try:
            yield name
        finally:
            self.client.remove_queue(name)

    @contextmanager
    def party(self, role: str, queue: str, *rest: str) -> Iterator[Program]:
        """A process that is ready."""
        self._count += 1
        argv = [*PYTHON, "roq.benchmarks.request_party", role, self.cluster.client, queue, *rest]
        program = Program(argv, self.folder / f"{role}-{self._count}.log")
        try:
            yield program
        finally:
            program.finish()


def measure(rounds: int, seconds: float, console: Console) -> LimitResults:  # noqa: ARG001 - as others
    """Measure everything; what was started is stopped again, whatever happens.

    Args:
        rounds: the medians over them are shown.
        seconds: not used: what is measured has its own sizes.
        console: is told how it goes.
    """
    results = LimitResults(environment=environment(), rounds=rounds)
    cluster = RoqCluster()
    with temporary_directory() as name:
        try:
            cluster.start(Path(name))
            with roq.connect(cluster.client, timeout=OPEN_SECONDS) as client:
                bench = _Bench(cluster, client, Path(name))
                for number in range(rounds):
                    for title, figure in _figures(bench):
                        try:
                            found = figure()
                        except (BenchmarkError, roq.RoQError, TimeoutError) as error:
                            results.failures.append(f"{title}: {error}")
                            continue
                        results.rates.setdefault(title, []).append(found)
                        text = report.number_text(found, GOALS[title][1])
                        console.print(f"round {number + 1}: {title}: {text}")
        finally:
            cluster.stop()
    return results


def _figures(bench: _Bench) -> list[tuple[str, Callable[[], float]]]:
    return [
        (FETCHED, lambda: fetched(bench)),
        (IDLE, lambda: idle_percent(bench)),
        *((title, _loss(bench, how)) for how, title in _LOST.items()),
        (SIZE, lambda: open_bytes(bench)),
    ]


def _loss(bench: _Bench, how: str) -> Callable[[], float]:
    return lambda: lost(bench, how)


def fetched(bench: _Bench) -> float:
    """Responses a second."""
    settings = {"store_bytes": STORE_BYTES, "keep_result": 600.0, "result_within": 600.0}
    with (
        bench.queue() as queue,
        bench.party("answer", queue) as party,
        bench.client.requester(queue, collect=False, settings=settings) as requester,
    ):
        _ready(party)
        ids = []
        for _ in range(STORED // BATCH):
            many = requester.request_many(ECHO, [PAYLOAD] * BATCH)
            requester.flush()
            ids += [each.id for each in many]
        _until(lambda: bench.client.describe_service(queue, SERVICE).stored >= STORED)
        random.Random(1).shuffle(ids)
        with roq.connect(bench.cluster.client, timeout=OPEN_SECONDS) as other:
            waiting: deque[roq.Pending[bytes]] = deque()
            began, size = time.monotonic(), 0
            for each in ids:
                if len(waiting) == UNDER_WAY:
                    size += len(waiting.popleft().result(RUN_SECONDS))
                waiting.append(other.response(ECHO, each))
            for pending in waiting:
                size += len(pending.result(RUN_SECONDS))
            took = time.monotonic() - began
        if size != STORED * len(PAYLOAD):
            raise BenchmarkError(f"{size:,} bytes have come")
    return STORED / took


def idle_percent(bench: _Bench) -> float:
    """Percent of a core."""
    with bench.queue() as queue:
        each = str(INSTANCES // CROWDS)
        with _all([bench.party("crowd", queue, each) for _ in range(CROWDS)]) as parties:
            for party in parties:
                _ready(party)
            there = bench.client.describe_service(queue, SERVICE).instances
            if len(there) != INSTANCES:
                raise BenchmarkError(f"{len(there)} instances are there")
            pid = bench.cluster.processes_of(queue)["exchange"]
            threading.Event().wait(2.0)  # what their coming has left behind settles
            before = cpu_seconds(pid)
            threading.Event().wait(IDLE_SECONDS)
            return (cpu_seconds(pid) - before) * 100 / IDLE_SECONDS


def lost(bench: _Bench, how: str) -> float:
    """Seconds until the last request that was in hand is begun elsewhere."""
    names = [bench.folder / f"{how}-{time.monotonic_ns()}-{each}" for each in "ab"]
    with bench.queue() as queue:
        pair = [bench.party("work", queue, str(each), str(WORK_SECONDS)) for each in names]
        settings = {"send_attempts": 60, "run_attempts": 5}
        with (
            _all(pair) as (victim, other),
            bench.client.requester(queue, settings=settings) as requester,
        ):
            _ready(victim)
            _ready(other)
            made, at = [], 0.0
            began = time.monotonic()
            for number in range(int(RATE * (BEFORE_SECONDS + AFTER_SECONDS))):
                due = began + number / RATE
                threading.Event().wait(max(0.0, due - time.monotonic()))
                if not at and due >= began + BEFORE_SECONDS:
                    at = time.monotonic()
                    if how == "killed":
                        victim.stop(signal.SIGKILL)
                    else:
                        victim.write_line(how.encode())
                made.append(requester.request(WORK, number))
            for number, each in enumerate(made):
                if each.result(ENDED_SECONDS) != number:
                    raise BenchmarkError("a response is of another request")
            lines, others = (each.read_text().splitlines() for each in names)
            return moved(lines, others, at)


def moved(lines: list[str], others: list[str], at: float) -> float:
    """When the last request that an instance had in hand when it was lost was begun by the other
    one, since then.

    Args:
        lines, others: what each of them has written. Of one that was killed the last line says
            what it had; one that was cut off has written when that was done.
        at: when that was begun.

    Raises:
        BenchmarkError: it had none, or one of them was not begun elsewhere.
    """
    begun, ended = _times(lines, BEGIN), _times(lines, END)
    elsewhere = _times(others, BEGIN)
    cut = _times(lines, LOST).get("0", inf)
    held = [each for each, when in begun.items() if when <= cut <= ended.get(each, inf)]
    if not held:
        raise BenchmarkError("it had no request when it was lost")
    missing = [each for each in held if each not in elsewhere]
    if missing:
        raise BenchmarkError(f"{len(missing)} of its {len(held)} requests were not run elsewhere")
    return max(elsewhere[each] for each in held) - at


def _times(lines: list[str], kind: str) -> dict[str, float]:
    """By request, when it was that last."""
    words = [line.split() for line in lines]
    return {each[1]: float(each[2]) for each in words if len(each) == 3 and each[0] == kind}


def open_bytes(bench: _Bench) -> float:
    """Bytes of each."""
    with bench.queue() as queue, bench.party("open", queue, str(OPEN)) as party:
        return float(party.read_line(RUN_SECONDS))


@contextmanager
def _all(parties: Sequence[AbstractContextManager[Program]]) -> Iterator[list[Program]]:
    with ExitStack() as stack:
        yield [stack.enter_context(each) for each in parties]


def _ready(party: Program) -> None:
    if party.read_line(OPEN_SECONDS).strip() != b"ready":
        raise BenchmarkError("a process is not ready")


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + RUN_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise BenchmarkError("it takes too long")
        threading.Event().wait(0.1)


def show(results: LimitResults, console: Console) -> None:
    """Print everything."""
    report.show_machine(results.environment, results.rounds, "requests", console)
    console.print(report.verdict_table(results.verdicts))
    report.show_rest([], {}, results.failures, console)


def write(results: LimitResults, directory: Path) -> list[Path]:
    """Write JSON; gives its path."""
    write_document(results, directory / JSON_NAME)
    return [directory / JSON_NAME]
