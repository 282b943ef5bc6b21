"""Durable queues beside a bare disk and beside peers that store: `roq bench --durable`.

Each store keeps what it acknowledges in its own way, which is named: some before it is on the disk.
All take turns in each round; a ratio is the median of the ratios within the rounds.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from rich.console import Console
from rich.table import Table

import roq
from roq.benchmarks import logs, report
from roq.benchmarks.case import Case, Run
from roq.benchmarks.cluster import RoqCluster
from roq.benchmarks.contender import Contender, Server, measured, start
from roq.benchmarks.contenders import bare_file, jetstream, kafka, rabbitmq, redis_streams
from roq.benchmarks.contenders import roq as roq_clients
from roq.benchmarks.processes import BenchmarkError, Worker, temporary_directory
from roq.benchmarks.results import Environment, environment, write_document
from roq.exchange.commit import UNCOMMITTED_BYTES_MAX
from roq.model import FLUSH, VOLATILE, Limits
from roq.protocol.public import DURABILITIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

JSON_NAME: Final = "durable.json"
PICTURE_NAME: Final = "durable.png"
SIZE: Final = 100
BATCHES: Final = (500, 100, 1)
RATE: Final = 200
FIRST_MESSAGES: Final = 2_000
MESSAGES_MAX: Final = 2_000_000
"""Of one measurement."""
LOG_BYTES: Final = 256 * 1024**2
"""More than one measurement sends, so that a subscriber slower than the publisher loses nothing."""
BARE: Final = "bare"
_MICROSECONDS: Final = (50, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
ASYNC: Final = "async"
GUARANTEES: Final = {
    VOLATILE: "in memory, of one exchange",
    FLUSH: "on the disk before it is acknowledged",
    ASYNC: "in the system's memory; on the disk a moment later",
}
_topics = itertools.count(1)


class Store(msgspec.Struct, frozen=True):
    """One way to keep messages."""

    key: str
    title: str
    guarantee: str
    """What an acknowledgement says."""


class DurableResults(msgspec.Struct, kw_only=True):
    """What one run has found out."""

    environment: Environment
    rounds: int
    stores: list[Store]
    skipped: dict[str, str] = {}
    failures: list[str] = []
    rates: dict[str, dict[int, list[float]]] = {}
    """Store → messages in a batch → messages acknowledged a second, by round."""
    acks_us: dict[str, list[float]] = {}
    """Store → median time to an acknowledgement at 200 messages/s, by round."""
    end_to_end: dict[str, list[float]] = {}
    """Store → messages/s until the subscriber has the last one, by round."""
    drain_rate: float = 0.0
    """Messages/s of a new subscriber that begins with the oldest ones of a backlog."""
    drain_bytes: int = 0
    cold: dict[str, float] = {}
    """Seconds until an exchange serves, over nothing and over a log; MiB that it takes."""


class _Taking:
    """A store that takes part: its server, and the client processes by their options."""

    def __init__(self, store: Store, module: str, server: Server, style: str | None = None) -> None:
        self.store = store
        self.server = server
        self._module = module
        self._style = style
        self._workers: dict[tuple[str, str], Worker] = {}

    def measure(self, case: Case, count: int, directory: Path) -> tuple[float, list[float]]:
        """Publish so many messages; gives seconds until all are acknowledged, and each in µs."""
        style = self._style
        if style is None:
            style = "acked" if case.rate else "batches" if case.batch > 1 else "messages"
        options = self.server.options(case)
        key = style, msgspec.json.encode(options).decode()
        worker = self._workers.get(key)
        if worker is None:
            worker = Worker(self._module, "publisher", style, options, directory)
            self._workers[key] = worker
        # One message a call, in lists of five hundred, which a peer's pipeline holds as well.
        batch = case.per_batch if case.batch > 1 or style == "bare" else 500
        topic = f"durable.{next(_topics)}."
        run = Run(topic=topic, size=case.size, batch=batch, count=count, rate=case.rate)
        try:
            answer = measured(worker, run)
        except BenchmarkError:
            del self._workers[key]
            worker.kill()
            raise
        return answer.finished - answer.started, answer.latencies_us

    def stop(self) -> None:
        """End the client processes."""
        while self._workers:
            self._workers.popitem()[1].close()


class RoqQueues:
    """The queues of one durability in a cluster that several share.

    Args:
        batches: messages in a batch; each size has a queue of its own.
        filled: their logs are to keep as much as they ever will, as they do after their first
            minutes. Until then each batch gets memory of the system that nobody has had, which on
            a virtual machine may cost more than all else; the bare loop writes one file again.
    """

    def __init__(
        self, cluster: RoqCluster, durability: str, *, filled: bool = False,
        batches: Sequence[int] = BATCHES,
    ) -> None:  # fmt: skip
        self._cluster = cluster
        self._durability = durability
        self._filled = filled
        self._batches = batches

    def start(self, directory: Path) -> None:
        """Make the queues."""
        if not self._cluster.client:
            self._cluster.start(directory)
        with roq.connect(self._cluster.client) as client:
            for batch in self._batches:
                limits = {"exchanges_max": 1, "log_bytes": LOG_BYTES}
                limits |= {"batch_messages": batch} if batch > 1 else {}
                queue = _queue(self._durability, batch)
                client.create_queue(queue, limits=limits, durability=self._durability)
                if self._filled:
                    payloads = [bytes(SIZE)] * max(BATCHES)
                    with client.publisher(queue) as publisher:
                        for _ in range(LOG_BYTES // (SIZE * len(payloads))):
                            publisher.publish_many(payloads, "filling.the.log")

    def stop(self) -> None:
        """Stop the cluster."""
        self._cluster.stop()

    def options(self, case: Case) -> dict[str, str]:
        """Address and queue."""
        queue = _queue(self._durability, case.batch)
        return {"cluster": self._cluster.client, "queue": queue}

    def processes(self, case: Case) -> dict[str, int]:  # noqa: ARG002 - nobody asks
        """None that counts."""
        return {}


def _queue(durability: str, batch: int) -> str:
    return f"durable-{durability}-{batch}"


def measure(
    rounds: int, seconds: float, console: Console, *, backlog_bytes: int, cold_bytes: int
) -> DurableResults:
    """Measure everything; what was started is stopped again, whatever happens.

    Args:
        rounds: the medians over them are shown.
        seconds: of each measurement, about.
        console: is told how it goes.
        backlog_bytes: payload of what is drained.
        cold_bytes: of the log over which an exchange is started.
    """
    results = DurableResults(environment=environment(), rounds=rounds, stores=[])
    cluster = RoqCluster()
    taking: list[_Taking] = []
    started: list[Server] = []
    with temporary_directory() as name:
        directory = Path(name)
        try:
            for one, missing in _everybody(cluster):
                reason = missing() or start(one.server, started, directory)
                if reason:
                    results.skipped[one.store.key] = reason
                    console.print(f"skipped: {one.store.title}: {reason}")
                else:
                    taking.append(one)
                    results.stores.append(one.store)
            _rounds(results, taking, directory, seconds, console)
            _end_to_end(results, cluster, directory, seconds)
            _drain(results, cluster, backlog_bytes, console)
        finally:
            for one in taking:
                one.stop()
            for server in started:
                server.stop()
        _cold(results, directory, cold_bytes, console)
    return results


def _everybody(cluster: RoqCluster) -> list[tuple[_Taking, Callable[[], str | None]]]:
    def here() -> None:
        return None

    found: list[tuple[_Taking, Callable[[], str | None]]] = [
        (
            _Taking(
                Store(BARE, "bare writev + fdatasync", "on the disk"), bare_file.MODULE,
                bare_file.BareFolder(), "bare",
            ),
            here,
        )
    ]  # fmt: skip
    for durability in (VOLATILE, ASYNC, FLUSH):
        if durability in DURABILITIES:
            store = Store(f"roq_{durability}", f"RoQ {durability}", GUARANTEES[durability])
            one = _Taking(store, roq_clients.MODULE, RoqQueues(cluster, durability, filled=True))
            found.append((one, here))
    for always in (False, True):
        store = Store(
            f"jetstream_{'always' if always else 'default'}",
            f"JetStream, file, sync {'always' if always else 'every 2 min'}, nats-py",
            GUARANTEES[FLUSH] if always else "in the system's memory; on the disk within 2 min",
        )
        server = jetstream.JetStreamServer(always=always)
        found.append(
            (
                _Taking(store, jetstream.MODULE, server, ""),
                partial(jetstream.missing, always=always),
            )
        )
    for sync in ("everysec", "always"):
        store = Store(
            f"redis_{sync}", f"Redis streams, AOF {sync}, redis-py",
            GUARANTEES[FLUSH] if sync == "always" else
            "in the system's memory; on the disk within a second",
        )  # fmt: skip
        redis = redis_streams.RedisServer(sync)
        found.append((_Taking(store, redis_streams.MODULE, redis, ""), redis_streams.missing))
    rabbit = rabbitmq.RabbitServer()
    for kind, guarantee in (
        (rabbitmq.QUORUM, "on the disk, of a quorum of one"),
        (rabbitmq.STREAM, "in the system's memory"),
    ):
        store = Store(f"rabbitmq_{kind}", f"RabbitMQ, {kind}, aio-pika", guarantee)
        found.append((_Taking(store, rabbitmq.MODULE, rabbit, kind), rabbitmq.missing))
    broker = kafka.KafkaServer()
    for style in ("default", "flush"):
        store = Store(
            f"kafka_{style}",
            f"Kafka, {'flush.messages=1' if style == 'flush' else 'as it comes'}, confluent-kafka",
            GUARANTEES[FLUSH] if style == "flush" else "in the system's memory of one broker",
        )
        found.append((_Taking(store, kafka.MODULE, broker, style), kafka.missing))
    return found


def _rounds(
    results: DurableResults, taking: list[_Taking], directory: Path, seconds: float,
    console: Console,
) -> None:  # fmt: skip
    counts: dict[tuple[str, int], int] = {}
    for number in range(results.rounds):
        for batch in BATCHES:
            for one in taking[:: -1 if number % 2 else 1]:
                key, case = one.store.key, Case(size=SIZE, batch=batch)
                try:
                    if (key, batch) not in counts:
                        took, _ = one.measure(case, FIRST_MESSAGES, directory)
                        counts[key, batch] = whole(FIRST_MESSAGES / took * seconds / 2)
                        took, _ = one.measure(case, counts[key, batch], directory)
                        counts[key, batch] = whole(counts[key, batch] / took * seconds)
                    took, _ = one.measure(case, counts[key, batch], directory)
                except BenchmarkError as error:
                    results.failures.append(f"{one.store.title}, {batch} in a batch: {error}")
                    continue
                rate = counts[key, batch] / took
                # What warms up slowly is measured for as long as the others from now on.
                counts[key, batch] = whole(rate * seconds)
                results.rates.setdefault(key, {}).setdefault(batch, []).append(rate)
                console.print(f"round {number + 1}: {one.store.title}, {batch}: {rate:,.0f}/s")
        for one in taking[:: -1 if number % 2 else 1]:
            case = Case(size=SIZE, rate=RATE)
            try:
                _, acks = one.measure(case, max(20, int(RATE * seconds)), directory)
            except BenchmarkError as error:
                results.failures.append(f"{one.store.title}, acknowledgements: {error}")
                continue
            if acks:
                median = statistics.median(acks)
                results.acks_us.setdefault(one.store.key, []).append(median)
                console.print(f"round {number + 1}: {one.store.title}, ack: {median:,.0f} µs")


def whole(count: float) -> int:
    """Full batches only, of whatever size."""
    return max(1, min(int(count), MESSAGES_MAX) // 500) * 500


def _end_to_end(
    results: DurableResults, cluster: RoqCluster, directory: Path, seconds: float
) -> None:
    contenders = [
        Contender(
            f"roq_{durability}", durability, kind="roq", module=roq_clients.MODULE, style="batches",
            server=RoqQueues(cluster, durability),
        )
        for durability in (VOLATILE, ASYNC, FLUSH)
        if f"roq_{durability}" in results.rates
    ]  # fmt: skip
    case = Case(size=SIZE, batch=BATCHES[0])
    try:
        for contender in contenders:
            contender.start(directory)
        for number in range(results.rounds):
            for contender in contenders[:: -1 if number % 2 else 1]:
                rate = statistics.median(results.rates[contender.key][BATCHES[0]])
                try:
                    sample = contender.run(case, whole(rate * seconds / 2), number)
                except BenchmarkError as error:
                    results.failures.append(f"{contender.title}, end to end: {error}")
                    continue
                results.end_to_end.setdefault(contender.key, []).append(sample.rate)
    finally:
        for contender in contenders:
            contender.stop()


def _drain(
    results: DurableResults, cluster: RoqCluster, backlog_bytes: int, console: Console
) -> None:
    if f"roq_{FLUSH}" not in results.rates:
        return
    payloads = [bytes(SIZE)] * BATCHES[0]
    count = backlog_bytes // (SIZE * len(payloads)) * len(payloads)
    with roq.connect(cluster.client) as client:
        # Of a ring of 16 MiB: the backlog is on the disk.
        client.create_queue(
            "durable-drain", durability=FLUSH,
            limits={"exchanges_max": 1, "ring_bytes": 16 << 20, "message_bytes": 1 << 20},
        )  # fmt: skip
        with client.publisher("durable-drain") as publisher:
            for _ in range(count // len(payloads)):
                publisher.publish_many(payloads, "backlog")
        started, received = time.monotonic(), 0
        with client.subscriber("durable-drain", start="earliest") as subscriber:
            for batch in subscriber.batches():
                received += len(batch.payloads)
                if received >= count:
                    break
        results.drain_rate = count / (time.monotonic() - started)
        results.drain_bytes = count * SIZE
    console.print(f"drain of {count:,} messages: {results.drain_rate:,.0f}/s")


def _cold(results: DurableResults, directory: Path, size: int, console: Console) -> None:
    limits = Limits(log_bytes=1 << 44)
    log = directory / "cold"
    batches = logs.make(log, size, messages=1, size=SIZE, tail=UNCOMMITTED_BYTES_MAX)
    cold = results.cold = {"batches": float(batches), "bytes": float(size)}
    for what, folder, epoch in (
        ("empty", directory / "none", 1),
        ("log", log, 2),
        ("again", log, 3),
    ):
        exchange = logs.LoneExchange(directory, folder, limits, epoch)
        cold[f"{what}_seconds"] = exchange.seconds
        cold[f"{what}_mib"] = exchange.rss / 2**20
        exchange.kill()
    console.print(f"cold start over {batches:,} batches: {cold['log_seconds']:.2f} s")


def ratio(one: list[float], other: list[float]) -> str:
    """The median of the ratios within the rounds, and their range; empty: not measured."""
    found = [mine / theirs for mine, theirs in zip(one, other, strict=False)]
    if not found:
        return ""
    return f"{statistics.median(found):.2f} ({min(found):.2f} – {max(found):.2f})"


def ratios(pairs: Iterable[tuple[str, list[float], list[float]]]) -> list[tuple[str, str]]:
    """Of each title, one and other, the title and their ratio, where both were measured."""
    found = [(title, ratio(one, other)) for title, one, other in pairs]
    return [(title, text) for title, text in found if text]


def show(results: DurableResults, console: Console) -> None:
    """Print everything."""
    report.show_machine(results.environment, results.rounds, f"messages of {SIZE} B", console)
    table = Table(
        "store", "acknowledged means", *(f"{batch} in a batch" for batch in BATCHES),
        f"ack p50 at {RATE}/s", title="messages acknowledged a second",
    )  # fmt: skip
    for store in results.stores:
        rates = results.rates.get(store.key, {})
        acks = results.acks_us.get(store.key)
        told = [
            report.rate_text(statistics.median(rates[b])) if b in rates else "-" for b in BATCHES
        ]
        table.add_row(
            store.title, store.guarantee, *told,
            f"{statistics.median(acks):,.0f} µs" if acks else "-",
        )  # fmt: skip
    console.print(table)
    for title, text in comparisons(results):
        console.print(f"{title}: {text}")
    for key, rates_ in results.end_to_end.items():
        console.print(
            f"{key}, end to end: {report.rate_text(statistics.median(rates_))} messages/s"
        )
    if results.drain_rate:
        console.print(
            f"drain of a backlog of {results.drain_bytes / 1e9:.2f} GB on the disk: "
            f"{report.rate_text(results.drain_rate)} messages/s"
        )
    cold = results.cold
    if cold:
        console.print(
            f"cold start over {cold['batches']:,.0f} batches of one message: "
            f"{cold['log_seconds']:.2f} s with a tail to verify, {cold['again_seconds']:.2f} s "
            f"again (over nothing {cold['empty_seconds']:.2f} s), "
            f"{cold['log_mib'] - cold['empty_mib']:+.0f} MiB"
        )
    report.show_rest((), results.skipped, results.failures, console)


def comparisons(results: DurableResults) -> list[tuple[str, str]]:
    """RoQ's durabilities against the bare disk, against memory, and against peers."""
    ours = [key for key in (f"roq_{ASYNC}", f"roq_{FLUSH}") if key in results.rates]
    told = []
    for key in ours:
        told += ratios(
            (f"{key} by {other}, {batch} in a batch", results.rates[key].get(batch, []), theirs)
            for batch in BATCHES
            for other, rates in results.rates.items()
            if other not in ours and (theirs := rates.get(batch))
        )
        if key in results.acks_us and BARE in results.acks_us:
            extra = statistics.median(results.acks_us[key]) - statistics.median(
                results.acks_us[BARE]
            )
            told.append((f"{key}: ack p50 above one write and fdatasync", f"{extra:,.0f} µs"))
    return told


def write(results: DurableResults, directory: Path) -> list[Path]:
    """Write JSON and picture; gives their paths."""
    document, drawing = directory / JSON_NAME, directory / PICTURE_NAME
    write_document(results, document)
    draw(results, drawing)
    return [document, drawing]


def draw(results: DurableResults, path: Path) -> None:
    """Write the picture."""
    import matplotlib as mpl  # noqa: PLC0415 - half a second that only this needs

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(1, 2, figsize=(13.5, 6), width_ratios=(1.6, 1))
    _draw_rates(axes[0], results)
    _draw_acks(axes[1], results)
    found = results.environment
    figure.suptitle("Durable queues beside a bare disk and beside stores", x=0.012, ha="left")
    figure.text(
        0.012, 0.01,
        f"{found.cpu}, {found.cores} cores · {found.python} · load {found.load_before:.1f} before "
        f"· medians of {results.rounds} rounds · {found.when[:10]}",
        fontsize=8, color="#8d99ae",
    )  # fmt: skip
    figure.tight_layout(rect=(0, 0.03, 1, 0.98))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_rates(axes: Axes, results: DurableResults) -> None:
    stores = results.stores[::-1]
    for shift, batch in enumerate(BATCHES):
        rates = [results.rates.get(store.key, {}).get(batch) for store in stores]
        axes.barh(
            [row + 0.27 * (1 - shift) for row in range(len(stores))],
            [statistics.median(rate) if rate else 0 for rate in rates],
            height=0.25, color=("#264653", "#2a9d8f", "#e76f51")[shift],
            label=f"{batch} in a batch" if batch > 1 else "one call for each",
        )  # fmt: skip
    labels = [f"{store.title}\n{store.guarantee}" for store in stores]
    axes.set_yticks(range(len(stores)), labels, fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(left=100)
    axes.set_xlabel(f"messages of {SIZE} B acknowledged a second")
    axes.legend(frameon=False, fontsize=8)
    axes.grid(axis="x", color="#e9ecef")
    axes.set_axisbelow(True)


def _draw_acks(axes: Axes, results: DurableResults) -> None:
    stores = [store for store in results.stores[::-1] if store.key in results.acks_us]
    medians = [statistics.median(results.acks_us[store.key]) for store in stores]
    axes.barh(range(len(stores)), medians, color="#264653")
    axes.set_yticks(range(len(stores)), [store.title for store in stores], fontsize=8)
    axes.set_xscale("log")
    axes.minorticks_off()
    ticks = [tick for tick in _MICROSECONDS if tick < 3 * max(medians, default=1)]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], fontsize=8)
    axes.set_xlim(left=_MICROSECONDS[0])
    axes.set_xlabel(f"µs to the acknowledgement, p50 at {RATE}/s")
    axes.grid(axis="x", color="#e9ecef")
    axes.set_axisbelow(True)
