"""`python -m roq.benchmarks.spark`: how fast Spark reads a queue, or with `--write` fills one.

Four ways to the same rows, in turn, each through Spark's whole path into a sink that throws them
away (`noop`), so every column of every row is made:

    roq       the log of one exchange, by the format `roq`, in as many tasks as `--tasks` says
    one       the same in one task
    python    Arrow batches in memory that Python tasks hand to Spark: what any Python source can do
    jvm       Arrow batches that lie in Spark's own memory: no Python at all

Three ways to publish the same rows, in turn, until every message is acknowledged:

    driver    the format `roq`: tasks stage, the driver publishes
    task      a `TaskSink` over rows in one partition
    tasks     a `TaskSink` over rows in as many partitions as `--tasks` says
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec
import pyarrow as pa
from pyarrow import ipc
from rich.console import Console

import roq
from roq.benchmarks.arrow_source import ArrowSource
from roq.read.log_reader import LogReader
from roq.simulation.real import results
from roq.simulation.real.results import Machine, Target
from roq.spark import TaskSink, register
from roq.spark.options import read_options
from roq.spark.queue_logs import QueueLogs
from roq.spark.rows import SCHEMA, record_batches
from roq.testing import cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "spark"
QUEUE: Final = "rows"
FILLED: Final = "filled"
"""The queue into which is published."""
CHUNK: Final = 10_000
SHARED: Final = Path("/dev/shm")  # noqa: S108 - memory that has a path
GOAL: Final = 1_000_000.0
GOAL_RATIO: Final = 0.7
WRITE_GOAL: Final = 300_000.0
TASKS_RATIO: Final = 1.6
"""Of two tasks, compared with one."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What each way took: seconds, and CPU time of Spark, its tasks and the cluster together."""

    way: str
    seconds: float
    cpu_seconds: float


class Result(msgspec.Struct, kw_only=True):
    """A whole measurement."""

    machine: Machine
    spark: str
    rows: int
    message_bytes: int
    tasks: int
    rounds: list[Round]
    rows_per_second: dict[str, float]
    """Medians."""
    cores: dict[str, float]
    """That each way kept busy, medians: more than the machine has no way can use."""
    cpu_us_per_row: dict[str, float]
    """Medians; they depend less on what else the machine does."""
    targets: list[Target]

    @property
    def ok(self) -> bool:
        """Whether the lower one of the two goals is reached."""
        return any(target.reached for target in self.targets)


def fill(address: str, count: int, size: int) -> None:
    """Put so many messages into a queue with one exchange."""
    with roq.connect(address) as connection:
        ring = 2 * count * size + 256 * 1024 * 1024
        connection.create_queue(
            QUEUE, durability="none", limits={"exchanges_max": 1, "ring_bytes": ring}
        )
        with connection.publisher(QUEUE) as publisher:
            for first in range(0, count, CHUNK):
                payloads = [
                    b"%010d" % number + bytes(size - 10)
                    for number in range(first, min(count, first + CHUNK))
                ]
                publisher.publish_many(payloads, topic="rows")
            publisher.flush(timeout=120)


def save(address: str, path: Path) -> int:
    """Write the rows as Arrow batches, just as the format `roq` makes them; gives how many."""
    rows = 0
    options = read_options({"cluster": address, "queue": QUEUE}, streaming=False)
    with QueueLogs(options) as logs, ipc.new_file(path, SCHEMA) as out:
        ((log, span),) = logs.spans().items()
        with LogReader(
            logs.address(log),
            bytes.fromhex(logs.queue_id),
            number=log.number,
            generation=log.generation,
        ) as reader:
            entries = reader.read(span.floor, span.end)
            for batch in record_batches(entries, log):
                out.write_batch(batch)
                rows += batch.num_rows
    return rows


def measure(ways: dict[str, Callable[[], object]], rounds: int) -> list[Round]:
    """Do it in each way, in turn; one round more than told is not counted."""
    found = []
    for number in range(rounds + 1):
        names = list(ways)
        for name in names if number % 2 else names[::-1]:
            began, used = time.perf_counter(), cpu_seconds()
            ways[name]()
            took, used = time.perf_counter() - began, cpu_seconds() - used
            if number:
                each = Round(way=name, seconds=round(took, 4), cpu_seconds=round(used, 2))
                found.append(each)
    return found


def cpu_seconds() -> float:
    """CPU time of this process and all that it has started, also of those that have ended."""
    parents: dict[int, int] = {}
    times: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # Behind the name, which may hold anything, stand state, parent, …
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        parents[int(path.parent.name)] = int(fields[1])
        times[int(path.parent.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    mine, left = {os.getpid()}, set(parents)
    while found := {each for each in left if parents[each] in mine}:
        mine |= found
        left -= found
    return sum(times.get(each, 0.0) for each in mine)


def run(
    count: int, size: int, rounds: int, tasks: int, say: Callable[[str], None], *, write: bool
) -> Result:
    """Measure it on two cores."""
    with (
        results.measured() as machine,
        cluster() as running,
        tempfile.TemporaryDirectory(prefix="roq-bench-", dir=_memory()) as folder,
    ):
        fill(running.address, count, size)
        say(f"{count:,} messages of {size} B in one exchange")
        spark = _session(Path(folder))
        try:
            path = Path(folder) / "rows.arrow"
            rows = save(running.address, path)
            if write:
                ways = _writing(spark, running.address, path, tasks)
            else:
                ways = _reading(spark, running.address, path, tasks)
            found = measure(ways, rounds)
            version = spark.version
        finally:
            spark.stop()

    def median(way: str, value: Callable[[Round], float]) -> float:
        return statistics.median(value(each) for each in found if each.way == way)

    medians = {way: rows / median(way, lambda each: each.seconds) for way in ways}
    return Result(
        machine=machine, spark=version, rows=rows, message_bytes=size, tasks=tasks, rounds=found,
        rows_per_second={way: round(value) for way, value in medians.items()},
        cores={
            way: round(median(way, lambda each: each.cpu_seconds / each.seconds), 2)
            for way in ways
        },
        cpu_us_per_row={
            way: round(median(way, lambda each: each.cpu_seconds) / rows * 1e6, 3) for way in ways
        },
        targets=_write_targets(medians) if write else _read_targets(medians),
    )  # fmt: skip


def _reading(
    spark: SparkSession, address: str, path: Path, tasks: int
) -> dict[str, Callable[[], object]]:
    with pa.memory_map(str(path)) as source:
        table = ipc.open_file(source).read_all()
        in_jvm = spark.createDataFrame(table)

    def queue(tasks: int) -> DataFrame:
        return (
            spark.read.format("roq")
            .options(cluster=address, queue=QUEUE, partitionsPerExchange=str(tasks))
            .load()
        )

    def read(rows: DataFrame) -> None:
        rows.write.format("noop").mode("overwrite").save()

    return {
        "roq": lambda: read(queue(tasks)),
        "one": lambda: read(queue(1)),
        "python": lambda: read(_in_memory(spark, path, tasks)),
        "jvm": lambda: read(in_jvm),
    }


def _writing(
    spark: SparkSession, address: str, path: Path, tasks: int
) -> dict[str, Callable[[], object]]:
    with roq.connect(address) as connection:
        connection.create_queue(FILLED, durability="none", limits={"exchanges_max": 1})
    # Each batch query stages in a new folder and removes it.
    options = {"cluster": address, "queue": FILLED, "stagingLocation": str(path.parent / "staged")}

    def rows(tasks: int) -> DataFrame:
        return _in_memory(spark, path, tasks).select("payload", "topic")

    return {
        "driver": lambda: rows(tasks).write.format("roq").options(**options).mode("append").save(),
        "task": lambda: TaskSink(**options).write(rows(1)),
        "tasks": lambda: TaskSink(**options).write(rows(tasks)),
    }


def _in_memory(spark: SparkSession, path: Path, tasks: int) -> DataFrame:
    options = {"file": str(path), "partitions": str(tasks)}
    return spark.read.format("arrow_in_memory").options(**options).load()


def _read_targets(medians: dict[str, float]) -> list[Target]:
    return [
        Target(
            text="rows a second from one exchange", measured=medians["roq"], goal=GOAL,
            at_least=True,
        ),
        *(
            Target(
                text=f"compared with Arrow in memory ({way})",
                measured=medians["roq"] / medians[way], goal=GOAL_RATIO, at_least=True,
            )
            for way in ("python", "jvm")
        ),
        Target(
            text="compared with one task", measured=medians["roq"] / medians["one"],
            goal=TASKS_RATIO, at_least=True,
        ),
    ]  # fmt: skip


def _write_targets(medians: dict[str, float]) -> list[Target]:
    return [
        Target(
            text="rows a second published by tasks", measured=medians["tasks"], goal=WRITE_GOAL,
            at_least=True,
        ),
        Target(
            text="compared with one task", measured=medians["tasks"] / medians["task"],
            goal=TASKS_RATIO, at_least=True,
        ),
    ]  # fmt: skip


def _session(folder: Path) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - slow

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("roq benchmark")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    spark.dataSource.register(ArrowSource)
    return spark


def _memory() -> str | None:
    return str(SHARED) if os.access(SHARED, os.W_OK) else None


def _show(out: Console, result: Result, size: int) -> None:
    lines = [
        (
            way, f"{value:,.0f}", f"{value * size / 1e6:,.0f}", f"{result.cores[way]:.2f}",
            f"{result.cpu_us_per_row[way]:.2f}",
        )
        for way, value in result.rows_per_second.items()
    ]  # fmt: skip
    columns = ("way", "rows/s#", "payload MB/s#", "cores#", "CPU µs/row#")
    out.print(results.table("Medians", columns, lines))
    out.print(results.targets_table(result.targets))
    out.print(results.machine_text(result.machine))


@click.command(short_help="Spark reads a queue, and the same rows from memory.")
@click.option("--rows", type=click.IntRange(1_000), default=3_000_000, show_default=True)
@click.option("--size", type=click.IntRange(10), default=100, show_default=True, help="Bytes.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option(
    "--tasks",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="That read or publish at the same time; with one, rows of a topic are in order.",
)
@click.option("--write", is_flag=True, help="Measure how fast rows are published instead.")
@results.scenario(folder=Path("benchmarks/results"))
def main(
    rows: int, size: int, rounds: int, tasks: int, write: bool, output: Path, as_json: bool
) -> bool:
    """Measure how fast Spark reads a queue, beside the same rows as Arrow batches in memory; or how
    fast it fills one, from its driver, from one task and from several."""
    out = results.console(as_json=as_json)
    result = run(rows, size, rounds, tasks, out.print, write=write)
    name = f"{NAME}_write" if write else NAME
    results.told(result, name, output, lambda out, told: _show(out, told, size), as_json=as_json)
    return result.ok


if __name__ == "__main__":
    main()
