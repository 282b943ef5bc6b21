"""Requests and their responses beside those of others: `roq bench --requests`.

One client, one service, a process each; both ends Python. All take turns in each round; a ratio is
the median of those within the rounds.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from roq.benchmarks import report
from roq.benchmarks.case import Case, Run
from roq.benchmarks.cluster import RoqCluster
from roq.benchmarks.contender import OPEN_SECONDS, Server, measured, start
from roq.benchmarks.contenders import (
    celery_redis,
    dramatiq_redis,
    nats_core,
    nats_requests,
    rabbitmq,
    rabbitmq_requests,
    roq_requests,
)
from roq.benchmarks.contenders import roq as roq_clients
from roq.benchmarks.durable import FIRST_MESSAGES, RoqQueues, Store, ratio
from roq.benchmarks.processes import Answer, BenchmarkError, Worker, temporary_directory
from roq.benchmarks.results import Environment, environment, write_document
from roq.benchmarks.statistics import percentile
from roq.model import FLUSH, VOLATILE

JSON_NAME: Final = "requests.json"
SIZE: Final = 100
UNDER_WAY: Final = 256
RATE: Final = 200
NATS: Final = "nats"
RABBIT: Final = "rabbitmq"
CELERY: Final = "celery"
DRAMATIQ: Final = "dramatiq"
_MISSING: Final = {
    NATS: nats_core.missing,
    RABBIT: rabbitmq.missing,
    CELERY: celery_redis.missing,
    DRAMATIQ: dramatiq_redis.missing,
}
_WANTED: Final = {
    ("responses/s", CELERY): "15",
    ("responses/s", DRAMATIQ): "15",
    ("p50", CELERY): "below 1",
}
"""How RoQ is to stand to peers, asked one by one as they are."""
_QUEUE: Final = Case(size=SIZE)


class RequestResults(msgspec.Struct, kw_only=True):
    """What one run has found out."""

    environment: Environment
    rounds: int
    askers: list[Store] = []
    skipped: dict[str, str] = {}
    failures: list[str] = []
    rates: dict[str, list[float]] = {}
    """Way to ask → responses a second with 256 requests under way, by round."""
    many_rates: dict[str, list[float]] = {}
    """Likewise with `request_many` and a batch handler, four batches of 256 under way."""
    p50_us: dict[str, list[float]] = {}
    p99_us: dict[str, list[float]] = {}
    """Way to ask → time until a response at 200/s, one after the other, by round."""
    accepted_us: dict[str, list[float]] = {}
    """Way to ask → median time until a request is accepted, at 200/s, by round."""
    published_us: dict[str, list[float]] = {}
    """The same until a publish to such a queue is acknowledged."""


class _Asking:
    """An asker that takes part, and its processes."""

    def __init__(self, asker: Store, module: str, server: Server) -> None:
        self.asker = asker
        self.server = server
        self.counts: dict[str, int] = {}
        """By style, requests of its next measurement."""
        self._module = module
        self._directory = Path()
        self._workers: dict[tuple[str, str], Worker] = {}

    def start(self, directory: Path) -> None:
        """Start its server and its service."""
        self._directory = directory
        self.server.start(directory)
        worker = self._worker(self._module, "subscriber", "")
        worker.ask("open", _run(1, 0))
        worker.answer(OPEN_SECONDS)

    def ask(self, style: str, count: int, rate: int) -> Answer:
        """Ask so often; gives when that began and ended, and the time of each in µs."""
        return self._measure(self._module, style, count, rate)

    def publish(self, count: int) -> Answer:
        """Publish so many messages to the queue instead, and wait for each acknowledgement."""
        return self._measure(roq_clients.MODULE, "acked", count, RATE)

    def stop(self) -> None:
        """End its processes; idempotent."""
        while self._workers:
            self._workers.popitem()[1].close()
        self.server.stop()

    def _measure(self, module: str, style: str, count: int, rate: int) -> Answer:
        worker = self._worker(module, "publisher", style)
        try:
            return measured(worker, _run(count, rate))
        except BenchmarkError:
            del self._workers[module, style]
            worker.kill()
            raise

    def _worker(self, module: str, role: str, style: str) -> Worker:
        worker = self._workers.get((module, style or role))
        if worker is None:
            options = self.server.options(_QUEUE)
            worker = Worker(module, role, style, options, self._directory)
            self._workers[module, style or role] = worker
        return worker


def _run(count: int, rate: int) -> Run:
    return Run(topic="bench.", size=SIZE, batch=UNDER_WAY, count=count, rate=rate)


def measure(rounds: int, seconds: float, console: Console) -> RequestResults:
    """Measure everything; what was started is stopped again, whatever happens.

    Args:
        rounds: the medians over them are shown.
        seconds: of each measurement, about.
        console: is told how it goes.
    """
    results = RequestResults(environment=environment(), rounds=rounds)
    cluster = RoqCluster()
    taking: list[_Asking] = []
    with temporary_directory() as name:
        try:
            for one in _everybody(cluster):
                missing = _MISSING.get(one.asker.key)
                reason = (missing and missing()) or start(one, [], Path(name))
                if reason:
                    results.skipped[one.asker.key] = reason
                    console.print(f"skipped: {one.asker.title}: {reason}")
                else:
                    taking.append(one)
                    results.askers.append(one.asker)
            for number in range(rounds):
                for one in taking[:: -1 if number % 2 else 1]:
                    try:
                        _round(results, one, seconds)
                    except BenchmarkError as error:
                        results.failures.append(f"{one.asker.title}: {error}")
                        continue
                    rate = results.rates[one.asker.key][-1]
                    console.print(f"round {number + 1}: {one.asker.title}: {rate:,.0f}/s")
        finally:
            for one in taking:
                one.stop()
    return results


def _everybody(cluster: RoqCluster) -> list[_Asking]:
    found = [
        _Asking(
            Store(f"roq_{durability}", f"RoQ {durability}", guarantee),
            roq_requests.MODULE, RoqQueues(cluster, durability),
        )
        for durability, guarantee in (
            (VOLATILE, "accepted, one outcome, kept until it is fetched; in memory"),
            (FLUSH, "the same, on the disk"),
        )
    ]  # fmt: skip
    lost = "nothing is kept, nothing is repeated"
    in_memory = "kept in the memory of Redis, as is its result; acknowledged"
    peers = [
        _Asking(
            Store(NATS, "NATS core, nats-py", lost), nats_requests.MODULE, nats_core.NatsServer()
        ),
        _Asking(
            Store(RABBIT, "RabbitMQ, direct reply-to, aio-pika", lost), rabbitmq_requests.MODULE,
            rabbitmq.RabbitServer(),
        ),
        _Asking(
            Store(CELERY, "Celery, Redis results", f"{in_memory} at once, lost with its worker"),
            celery_redis.MODULE, celery_redis.workers(1, roq_requests.THREADS),
        ),
        _Asking(
            Store(DRAMATIQ, "Dramatiq, Redis results", f"{in_memory} late: repeated, by age"),
            dramatiq_redis.MODULE, dramatiq_redis.workers(1, roq_requests.THREADS),
        ),
    ]  # fmt: skip
    return [*found, *peers]


def _round(results: RequestResults, one: _Asking, seconds: float) -> None:
    key = one.asker.key
    results.rates.setdefault(key, []).append(_rate(one, "window", seconds))
    few = max(40, int(RATE * seconds))
    took = sorted(one.ask("response", few, RATE).latencies_us)
    results.p50_us.setdefault(key, []).append(percentile(took, 50))
    results.p99_us.setdefault(key, []).append(percentile(took, 99))
    if key not in _MISSING:
        results.many_rates.setdefault(key, []).append(_rate(one, "many", seconds))
        accepted = one.ask("accepted", few, RATE).latencies_us
        published = one.publish(few).latencies_us
        results.accepted_us.setdefault(key, []).append(statistics.median(accepted))
        results.published_us.setdefault(key, []).append(statistics.median(published))


def _rate(one: _Asking, style: str, seconds: float) -> float:
    """Responses a second."""
    if style not in one.counts:
        warm = one.ask(style, FIRST_MESSAGES, 0)
        one.counts[style] = _enough(FIRST_MESSAGES, warm, seconds)
    count = one.counts[style]
    answer = one.ask(style, count, 0)
    one.counts[style] = _enough(count, answer, seconds)
    return count / (answer.finished - answer.started)


def _enough(count: int, answer: Answer, seconds: float) -> int:
    """So many take about so long."""
    return max(UNDER_WAY, int(count / (answer.finished - answer.started) * seconds))


def show(results: RequestResults, console: Console) -> None:
    """Print everything."""
    report.show_machine(results.environment, results.rounds, f"requests of {SIZE} B", console)
    table = Table(
        "requests", "what becomes of one", f"responses/s, {UNDER_WAY} under way", "in batches",
        f"p50 at {RATE}/s", "p99", "accepted, p50", "a publish acknowledged, p50",
    )  # fmt: skip
    for asker in results.askers:
        rates, many = results.rates.get(asker.key), results.many_rates.get(asker.key)
        times = (results.p50_us, results.p99_us, results.accepted_us, results.published_us)
        table.add_row(
            asker.title, asker.guarantee,
            report.rate_text(statistics.median(rates)) if rates else "-",
            report.rate_text(statistics.median(many)) if many else "-",
            *(
                f"{statistics.median(each[asker.key]):,.0f} µs" if each.get(asker.key) else "-"
                for each in times
            ),
        )  # fmt: skip
    console.print(table)
    report.show_rest(comparisons(results), results.skipped, results.failures, console)


def comparisons(results: RequestResults) -> list[tuple[str, str]]:
    """RoQ against its peers, disk against memory, and accepted against published."""
    memory, disk = f"roq_{VOLATILE}", f"roq_{FLUSH}"
    told = []
    for title, figures, one, other in (
        ("responses/s", results.rates, memory, NATS),
        ("responses/s", results.rates, memory, RABBIT),
        ("responses/s", results.rates, memory, CELERY),
        ("responses/s", results.rates, memory, DRAMATIQ),
        ("p50", results.p50_us, memory, NATS),
        ("p50", results.p50_us, memory, RABBIT),
        ("p50", results.p50_us, memory, CELERY),
        ("p50", results.p50_us, memory, DRAMATIQ),
        ("p99", results.p99_us, memory, NATS),
        ("responses/s", results.rates, disk, memory),
    ):
        text = ratio(figures.get(one, []), figures.get(other, []))
        if text:
            wanted = _WANTED.get((title, other))
            told.append(
                (f"{title}, {one} by {other}", text + (f", wanted {wanted}" if wanted else ""))
            )
    for key in (memory, disk):
        text = ratio(results.many_rates.get(key, []), results.rates.get(NATS, []))
        if text:
            told.append((f"responses/s, {key} in batches by {NATS} one by one", text))
    for key in (memory, disk):
        text = ratio(results.accepted_us.get(key, []), results.published_us.get(key, []))
        if text:
            told.append((f"{key}: accepted by published", text))
    return told


def write(results: RequestResults, directory: Path) -> list[Path]:
    """Write JSON; gives its path."""
    write_document(results, directory / JSON_NAME)
    return [directory / JSON_NAME]
