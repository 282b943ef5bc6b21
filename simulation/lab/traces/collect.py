"""The collector: one streaming query from the queue of traces into the table of a run.

Executors make rows of the messages and write them; the driver learns of names and sizes alone, so
its memory does not depend on how much is traced. Spark gives a micro-batch that is done again the
same number and the same messages, and its part replaces what was left of it: each message of the
queue is in the table exactly once, whenever the driver or an executor ends.

The query needs a slot for itself beside the load (`local[n + 1]`).
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from roq.errors import RoQError
from roq.simulation.lab.traces.place import CHECKPOINT, Part, Place, TracesError
from roq.simulation.lab.traces.rows import Message, record_batches
from roq.simulation.lab.traces.tables import TABLE, WIDE
from roq.spark import register
from roq.spark.offsets import Offsets, read_offsets
from roq.spark.options import read_options
from roq.spark.queue_logs import QueueLogs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TRIGGER_SECONDS: Final = 5.0
"""Each micro-batch costs Spark some two seconds of processor time, whatever is in it: what is
measured on the same machine suffers from it."""
TRIGGER_BATCHES: Final = 5_000
"""Batches of the logs that one micro-batch reads at most: a backlog comes bit by bit."""
LOOK_SECONDS: Final = 0.1
MERGED: Final = 16
"""So many micro-batches become one part, so many of these again, and so on."""
FILE_BYTES: Final = 64 * 1024 * 1024
"""Of what is merged, each file gets about so much."""
RETAINED: Final = 10
"""Micro-batches that the checkpoint remembers: each is some files."""
_REASON: Final = re.compile(r"^(?:\w+\.)*[A-Z]\w+: (.+)$")
"""How Python ends a traceback."""
_QUERY: Final = "=== Streaming Query ==="
"""Behind this Spark describes the query, not what is wrong with it."""
_PROBE: Final = "probe"

Taker = Callable[["DataFrame"], None]


class Collector:
    """Keeps the traces of one run.

    Args:
        spark: whose executors do the work.
        cluster: addresses of configuration managers, separated by commas.
        queue: of traces, of this run alone.
        place: of the table.
        run: its id; traces of others are rejected.
        seconds: between two micro-batches.
        taker: is given the rows of each micro-batch when they are kept.

    Attributes:
        batches: micro-batches that this collector has kept; the first may be without traces.
        kept: whether one of them had traces.
        taker: as given; may be set to None when nobody looks any more.
    """

    def __init__(
        self, spark: SparkSession, cluster: str, queue: str, place: Place, run: str, *,
        seconds: float = TRIGGER_SECONDS, taker: Taker | None = None,
    ) -> None:  # fmt: skip
        self.batches = 0
        self.kept = False
        self._spark = spark
        self._options = {"cluster": cluster, "queue": queue, "failOnDataLoss": "false"}
        self._place = place
        self._run = run
        self._seconds = seconds
        self.taker = taker
        self._query: StreamingQuery | None = None
        self._logs: QueueLogs | None = None
        self._failure = ""

    @property
    def failure(self) -> str:
        """Why it does not collect any more, in a sentence; empty if it does, or was stopped."""
        if self._query is not None and not self._failure:
            error = self._query.exception()
            if error is not None:
                self._failure = f"traces are not collected any more: {reason(str(error))}"
        return self._failure

    def start(self) -> None:
        """Begin with what stands in the queue, or where an earlier collector of this run was ended.

        Raises:
            TracesError: the place has traces but not how far they go.
            ConfigError: an earlier collector has read another queue.
            RoQError: the cluster or the queue cannot be used; the text says why.
        """
        place = self._place
        if not place.names(CHECKPOINT) and place.parts:
            raise TracesError(
                f"{place.uri} has traces, but its {CHECKPOINT} is gone: how far they go is not "
                "known. Use another place, or remove them"
            )
        self._logs = QueueLogs(read_options(dict(self._options), streaming=True))
        try:
            self._logs.spans()
            self._done(self._logs.queue_id)
        except RoQError:
            self.stop()
            raise
        register(self._spark)
        self._spark.conf.set("spark.sql.streaming.minBatchesToRetain", str(RETAINED))
        self._query = (
            self._spark.readStream.format("roq")
            .options(**self._options, startingOffsets="earliest")
            .option("maxBatchesPerTrigger", TRIGGER_BATCHES)
            .load()
            .writeStream.foreachBatch(self._collect)
            .queryName(f"traces of {self._run}")
            .option("checkpointLocation", f"{place.uri}/{CHECKPOINT}")
            .trigger(processingTime=f"{round(self._seconds * 1_000)} milliseconds")
            .start()
        )

    def drain(self, timeout: float) -> bool:
        """Wait until all that stands in the queue now is in the table.

        Args:
            timeout: seconds.

        Returns:
            Whether it is; if not, time is up or there is a `failure`.

        Raises:
            RoQError: the queue is gone.
        """
        if self._logs is None or self._query is None:
            return False
        self._logs.look_again()
        wanted = {key: span for key, span in self._logs.spans().items() if span.end > span.floor}
        deadline, pause = time.monotonic() + timeout, threading.Event()
        while not self.failure:
            done = self._done(self._logs.queue_id)
            if all(done.next.get(key, 0) >= span.end for key, span in wanted.items()):
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                break
            pause.wait(min(left, LOOK_SECONDS))
        return False

    def stop(self) -> None:
        """End it, in the middle of whatever it does; idempotent. What is not written stays away."""
        if self._query is not None:
            try:
                _ = self.failure  # a later caller is told as well
                self._query.stop()
            except (Py4JError, OSError) as error:
                self._failure = self._failure or f"Spark has ended before the collector: {error}"
            self._query = None
        if self._logs is not None:
            self._logs.close()
            self._logs = None

    def _done(self, queue_id: str) -> Offsets:
        document = committed(self._place)
        return read_offsets(document, queue_id) if document is not None else Offsets(queue_id)

    def _collect(self, messages: DataFrame, batch: int) -> None:
        """One micro-batch."""
        make = partial(_rows, run=self._run, now_us=time.time_ns() // 1_000)
        columns = messages.select("payload", "topic", "publisher", "sequence", "appended")
        rows = columns.mapInArrow(make, from_arrow_schema(WIDE))
        part, spark = Part(batch, batch), messages.sparkSession
        keep(rows, self._place, part)
        files = self._place.files([part])
        if self.taker is not None:
            # What little is left of a micro-batch when it is summed up needs no more tasks.
            spark.conf.set("spark.sql.shuffle.partitions", "1")
            self.taker(read(spark, self._place, files))
        self.batches += 1
        self.kept = self.kept or bool(files)
        if (due := due_at(batch)) is not None:
            merge(spark, self._place, due)


def keep(rows: DataFrame, place: Place, part: Part) -> None:
    """Write a part of the table; one of the same name is replaced.

    Args:
        rows: with the columns of `tables.WIDE`.
        place: of the table.
        part: which one.
    """
    rows.write.mode("overwrite").partitionBy(TABLE).parquet(f"{place.uri}/{part.name}")


def due_at(batch: int) -> Part | None:
    """What is merged behind a micro-batch; None: nothing. It depends on the number alone."""
    size = 1
    while (batch + 1) % (size * MERGED) == 0:
        size *= MERGED
    return Part(batch + 1 - size, batch) if size > 1 else None


def merge(spark: SparkSession, place: Place, within: Part) -> None:
    """Make one part of all those that lie within these micro-batches.

    Args:
        spark: does the work.
        place: of the table.
        within: the micro-batches.
    """
    parts = [
        each for each in place.parts if within.first <= each.first and each.last <= within.last
    ]
    if len(parts) > 1:
        files = place.files(parts)
        merged = Part(parts[0].first, parts[-1].last)
        rows = read(spark, place, files).drop("file")
        keep(rows.coalesce(ceil(max(1, sum(files.values())) / FILE_BYTES)), place, merged)
    place.clear()


def read(spark: SparkSession, place: Place, files: Iterable[str]) -> DataFrame:
    """Rows of these files: the columns of `tables.WIDE`, and the `file` that each is from."""
    schema = from_arrow_schema(WIDE)
    paths = [f"{place.uri}/{each}" for each in files]
    if not paths:
        return spark.createDataFrame([], schema.add("file", "string"))
    rows = spark.read.schema(schema).option("basePath", place.uri).parquet(*paths)
    return rows.select(*WIDE.names, f.col("_metadata.file_path").alias("file"))


def check_reach(spark: SparkSession, place: Place, tasks: int) -> None:
    """Let tasks write there, and see whether that is found.

    Args:
        spark: whose executors write.
        place: of the table.
        tasks: as many executors may have a say.

    Raises:
        TracesError: executors do not reach the place, or reach another one than the driver.
    """
    uri = f"{place.uri}/{_PROBE}"
    try:
        spark.range(0, tasks, 1, tasks).write.mode("overwrite").parquet(uri)
        found = place.names(_PROBE)
    except Exception as error:  # noqa: BLE001 - told in words of one's own
        raise TracesError(
            f"{place.uri}: traces cannot be kept there: {reason(str(error))}"
        ) from None
    if found:
        place.remove(_PROBE)
    there = sum(name.endswith(".parquet") for name in found)
    if there < tasks or "_SUCCESS" not in found:
        raise TracesError(
            f"{place.uri}: of {tasks} files that tasks have written there, the driver finds {there}"
            f"{'' if '_SUCCESS' in found else ', and no _SUCCESS'}: executors do not share this "
            "place with the driver. Give a URI that all of them reach (--traces-at hdfs://…, "
            "s3a://…, or a folder that is mounted everywhere)"
        )


def committed(place: Place) -> dict[str, object] | None:
    """The offsets up to which a query has done its work; None if it has done none yet.

    Args:
        place: of the table. In its checkpoint `offsets/N` holds what micro-batch N was to read, one
            source a line behind version and metadata; `commits/N` is there when it is done.
    """
    done = [int(name) for name in place.names(f"{CHECKPOINT}/commits") if name.isdecimal()]
    if not done:
        return None
    path = f"{CHECKPOINT}/offsets/{max(done)}"
    try:
        document: dict[str, object] = json.loads(place.text(path).splitlines()[2])
    except (ValueError, IndexError) as error:
        raise TracesError(f"{place.uri}/{path}: cannot be read: {error}") from None
    return document


def reason(text: str) -> str:
    """What a person wants to know of the text of a Spark error: what the innermost one said."""
    said = text.partition(_QUERY)[0]
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = [found[1] for line in lines if (found := _REASON.match(line))]
    return told[-1] if told else (lines[0] if lines else "without a reason")


def _rows(batches: Iterable[pa.RecordBatch], run: str, now_us: int) -> Iterator[pa.RecordBatch]:
    """In an executor: messages become rows."""
    return record_batches(_messages(batches), run, now_us)


def _messages(batches: Iterable[pa.RecordBatch]) -> Iterator[Message]:
    for batch in batches:
        payloads, topics, senders, sequences = (
            batch.column(name).to_pylist() for name in ("payload", "topic", "publisher", "sequence")
        )
        appended = batch.column("appended").cast(pa.int64()).to_pylist()
        yield from map(Message, payloads, topics, senders, sequences, appended)
