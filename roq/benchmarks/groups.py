"""Consumer groups beside plain subscribers of the same queue, and beside peers: `roq bench
--groups`.

From the first publish until the last message is received and, in a group, its acknowledgement
is confirmed. All take turns in each round; a ratio is the median of those within the rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from roq.benchmarks import report
from roq.benchmarks.case import Case
from roq.benchmarks.cluster import RoqCluster
from roq.benchmarks.contender import Contender, Server, start
from roq.benchmarks.contenders import jetstream, rabbitmq, redis_streams, roq_groups
from roq.benchmarks.contenders import roq as roq_clients
from roq.benchmarks.durable import FIRST_MESSAGES, GUARANTEES, RoqQueues, Store, ratios, whole
from roq.benchmarks.processes import BenchmarkError, temporary_directory
from roq.benchmarks.results import Environment, environment, write_document
from roq.model import FLUSH, VOLATILE

JSON_NAME: Final = "groups.json"
SIZE: Final = 100
BATCH: Final = 500
RATE: Final = 200
_FAST: Final = Case(size=SIZE, batch=BATCH)
_LIGHT: Final = Case(size=SIZE, batch=BATCH, rate=RATE)


class Reader(Store, frozen=True):
    """One way to take messages."""

    group: bool
    """Whether what was taken is acknowledged."""


class GroupResults(msgspec.Struct, kw_only=True):
    """What one run has found out."""

    environment: Environment
    rounds: int
    readers: list[Reader] = []
    skipped: dict[str, str] = {}
    failures: list[str] = []
    rates: dict[str, list[float]] = {}
    """Reader → messages/s that were taken, and acknowledged in a group, by round."""
    confirmed_us: dict[str, list[float]] = {}
    """Reader → median time until an acknowledgement of a group is confirmed, 200/s, by round."""
    published_us: dict[str, list[float]] = {}
    """Reader → median time until a publish is acknowledged meanwhile, by round."""


class _Reading:
    """A reader that takes part."""

    def __init__(
        self, reader: Reader, module: str, style: str, server: Server,
        missing: Callable[[], str | None] = lambda: None,
    ) -> None:  # fmt: skip
        self.reader = reader
        self.contender = Contender(
            reader.key, reader.title, kind=reader.key, module=module, style=style, server=server,
            missing=missing,
        )  # fmt: skip
        self.count = 0
        """Messages of its next measurement."""

    def measure(self, case: Case, count: int, number: int) -> tuple[float, float, float]:
        """Messages a second, and the medians of both times in µs (0: there is none)."""
        sample = self.contender.run(case, count, number)
        return sample.rate, _median(sample.latencies_us), _median(sample.acks_us)


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0


def measure(rounds: int, seconds: float, console: Console) -> GroupResults:
    """Measure everything; what was started is stopped again, whatever happens.

    Args:
        rounds: the medians over them are shown.
        seconds: of each measurement, about.
        console: is told how it goes.
    """
    results = GroupResults(environment=environment(), rounds=rounds)
    started: list[Server] = []
    taking: list[_Reading] = []
    with temporary_directory() as name:
        directory = Path(name)
        try:
            for one in _everybody(RoqCluster()):
                one.contender.start(directory)
                server = one.contender.server
                reason = one.contender.missing() or start(server, started, directory)
                if reason:
                    results.skipped[one.reader.key] = reason
                    console.print(f"skipped: {one.reader.title}: {reason}")
                else:
                    taking.append(one)
                    results.readers.append(one.reader)
            for number in range(rounds):
                order = taking[:: -1 if number % 2 else 1]
                for one in order:
                    _fast(results, one, seconds, number, console)
                for one in order:
                    _light(results, one, seconds, number, console)
        finally:
            for one in taking:
                one.contender.stop()
            for server in started:
                server.stop()
    return results


def _everybody(cluster: RoqCluster) -> Iterator[_Reading]:
    for durability in (VOLATILE, FLUSH):
        queues = RoqQueues(cluster, durability, filled=True, batches=(BATCH,))
        for by in ("batches", "messages"):
            for group in (False, True):
                reader = Reader(
                    f"roq_{durability}_{'group' if group else 'subscriber'}_{by}",
                    f"RoQ {durability}, {'group' if group else 'subscriber'}, by {by}",
                    GUARANTEES[durability], group,
                )  # fmt: skip
                module = roq_groups.MODULE if group else roq_clients.MODULE
                yield _Reading(reader, module, f"consume_{by}" if group else by, queues)
    for always in (False, True):
        reader = Reader(
            f"jetstream_{'always' if always else 'default'}",
            f"JetStream, file, sync {'always' if always else 'every 2 min'}, pull and ack, nats-py",
            GUARANTEES[FLUSH] if always else "in the system's memory; on the disk within 2 min",
            group=True,
        )
        yield _Reading(
            reader, jetstream.MODULE, "", jetstream.JetStreamServer(always=always),
            partial(jetstream.missing, always=always),
        )  # fmt: skip
    for sync in ("everysec", "always"):
        reader = Reader(
            f"redis_{sync}", f"Redis streams, AOF {sync}, XREADGROUP and XACK, redis-py",
            GUARANTEES[FLUSH] if sync == "always" else
            "in the system's memory; on the disk within a second",
            group=True,
        )  # fmt: skip
        server = redis_streams.RedisServer(sync)
        yield _Reading(reader, redis_streams.MODULE, "group", server, redis_streams.missing)
    rabbit = rabbitmq.RabbitServer()
    for prefetch in (100, 1_000):
        reader = Reader(
            f"rabbitmq_{prefetch}", f"RabbitMQ, quorum queue, prefetch {prefetch}, aio-pika",
            "sent to the broker, which confirms no acknowledgement", group=True,
        )  # fmt: skip
        yield _Reading(reader, rabbitmq.MODULE, str(prefetch), rabbit, rabbitmq.missing)


def _fast(
    results: GroupResults, one: _Reading, seconds: float, number: int, console: Console
) -> None:
    try:
        if not one.count:
            first, _, _ = one.measure(_FAST, FIRST_MESSAGES, number)
            warm, _, _ = one.measure(_FAST, whole(first * seconds / 2), number)
            one.count = whole(warm * seconds)
        rate, _, _ = one.measure(_FAST, one.count, number)
    except BenchmarkError as error:
        results.failures.append(f"{one.reader.title}: {error}")
        return
    one.count = whole(rate * seconds)
    results.rates.setdefault(one.reader.key, []).append(rate)
    console.print(f"round {number + 1}: {one.reader.title}: {rate:,.0f}/s")


def _light(
    results: GroupResults, one: _Reading, seconds: float, number: int, console: Console
) -> None:
    if not one.reader.group or one.reader.key.endswith("_batches"):
        return
    try:
        count = max(40, int(RATE * seconds))
        _, confirmed, published = one.measure(_LIGHT, count, number)
    except BenchmarkError as error:
        results.failures.append(f"{one.reader.title}, {RATE}/s: {error}")
        return
    if not confirmed:
        return  # nobody confirms
    results.confirmed_us.setdefault(one.reader.key, []).append(confirmed)
    results.published_us.setdefault(one.reader.key, []).append(published)
    console.print(
        f"round {number + 1}: {one.reader.title}: confirmed {confirmed:,.0f} µs, "
        f"published {published:,.0f} µs"
    )


def show(results: GroupResults, console: Console) -> None:
    """Print everything."""
    report.show_machine(
        results.environment, results.rounds, f"messages of {SIZE} B, batches of {BATCH}", console
    )
    table = Table(
        "reader", "acknowledged means", "messages/s", f"ack confirmed, p50 at {RATE}/s",
        f"publish acknowledged, p50 at {RATE}/s",
    )  # fmt: skip
    for reader in results.readers:
        rates = results.rates.get(reader.key)
        table.add_row(
            reader.title, reader.guarantee,
            report.rate_text(statistics.median(rates)) if rates else "-",
            _time_text(results.confirmed_us.get(reader.key)),
            _time_text(results.published_us.get(reader.key)),
        )  # fmt: skip
    console.print(table)
    report.show_rest(comparisons(results), results.skipped, results.failures, console)


def _time_text(values: list[float] | None) -> str:
    return f"{statistics.median(values):,.0f} µs" if values else "-"


def comparisons(results: GroupResults) -> list[tuple[str, str]]:
    """Groups against subscribers of the same queue, and against each peer."""
    told = []
    peers = [each.key for each in results.readers if not each.key.startswith("roq_")]
    for durability in (VOLATILE, FLUSH):
        for by in ("batches", "messages"):
            key = f"roq_{durability}_group_{by}"
            others = [f"roq_{durability}_subscriber_{by}", *(peers if by == "batches" else ())]
            mine = results.rates.get(key, [])
            told += ratios(
                (f"{key} by {each}", mine, results.rates.get(each, [])) for each in others
            )
        key = f"roq_{durability}_group_messages"
        confirmed, published = results.confirmed_us.get(key), results.published_us.get(key)
        if confirmed and published:
            extra = statistics.median(
                one - other for one, other in zip(confirmed, published, strict=True)
            )
            told.append((f"{key}: ack p50 above a publish", f"{extra:+,.0f} µs"))
    return told


def write(results: GroupResults, directory: Path) -> list[Path]:
    """Write JSON; gives its path."""
    write_document(results, directory / JSON_NAME)
    return [directory / JSON_NAME]
