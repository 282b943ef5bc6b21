"""The Spark program that is killed: `python -m …chaos_spark.application JOB.json`.

Two queries read one queue from its beginning: one writes its rows into another queue, the other
into Parquet files. On SIGTERM it ends the queries and writes down which files make up the table.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from roq.runtime.signals import SignalEvent
from roq.spark import TaskSink, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_SECONDS: Final = 0.2
QUERIES: Final = ("queue", "files")
TASKS: Final = 2
"""That publish what one exchange brings, where tasks do."""
FAILED: Final = 3
"""Exit code: a query has ended by itself."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What the program is for; in a file."""

    master: str
    """Address of the Spark cluster."""
    cluster: str
    """Client address of the RoQ cluster."""
    home: str
    """Where Spark is."""
    source: str
    target: str
    """Queues."""
    folder: str
    """Of the checkpoints and the table; also executors reach it."""
    by_tasks: bool = False
    """The tasks of the first query publish, not its driver."""
    accepted_loss: str = "{}"
    """What the operator has accepted: the option of the source."""

    def checkpoint(self, query: str) -> Path:
        """Where a query notes how far it is."""
        return Path(self.folder) / f"checkpoint-{query}"

    @property
    def table(self) -> Path:
        """The Parquet files."""
        return Path(self.folder) / "table"

    @property
    def files(self) -> Path:
        """Says in the end which files make up the table: a JSON list."""
        return Path(self.folder) / "files.json"


def session(job: Job) -> SparkSession:
    """A small session on the cluster."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - slow

    folder = Path(job.folder)
    spark = (
        SparkSession.builder.master(job.master)
        .appName("roq chaos")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.cores", "1")
        .config("spark.ui.enabled", "false")
        # Compiled code is worth it where a query lives longer.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("WARN")
    register(spark)
    return spark


def start(spark: SparkSession, job: Job) -> list[StreamingQuery]:
    """Start both queries, or go on where their checkpoints say."""

    def read(tasks: int = 1) -> DataFrame:
        return (
            spark.readStream.format("roq")
            .options(cluster=job.cluster, queue=job.source, startingOffsets="earliest")
            .option("acceptedLoss", job.accepted_loss)
            .option("partitionsPerExchange", str(tasks))
            .load()
        )

    def checkpoint(query: str) -> str:
        return str(job.checkpoint(query))

    messages = read(TASKS if job.by_tasks else 1).select("payload", "topic")
    if job.by_tasks:
        sink = TaskSink(
            cluster=job.cluster, queue=job.target, stagingLocation=f"{checkpoint('queue')}/roq"
        )
        copied = messages.writeStream.foreachBatch(sink)
    else:
        options = {"cluster": job.cluster, "queue": job.target}
        copied = messages.writeStream.format("roq").options(**options)
    return [
        copied.option("checkpointLocation", checkpoint("queue")).start(),
        read()
        .writeStream.format("parquet")
        .option("checkpointLocation", checkpoint("files"))
        .start(str(job.table)),
    ]


def _reason(query: StreamingQuery) -> str:
    """The last line of its error, without what Spark says of the query itself, and its codes."""
    text = str(query.exception()).partition("=== Streaming Query ===")[0]
    lines = [line.strip() for line in text.splitlines() if "SQLSTATE" not in line]
    words = [line for line in lines if line and not line.startswith("at ")]  # no stack of Java
    return words[-1] if words else "no word"


def main(path: str) -> int:
    """Run until SIGTERM, or until a query fails."""
    job = msgspec.json.decode(Path(path).read_bytes(), type=Job)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = job.home
    stop = SignalEvent()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    spark = session(job)
    queries = start(spark, job)
    while not stop.wait(LOOK_SECONDS):
        for query in queries:
            if not query.isActive:
                sys.stderr.write(f"a query has ended: {_reason(query)}\n")
                return FAILED
    for query in queries:
        query.stop()
    job.files.write_bytes(msgspec.json.encode(spark.read.parquet(str(job.table)).inputFiles()))
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
