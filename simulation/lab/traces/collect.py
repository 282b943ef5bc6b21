"""The collector: one streaming query from the queue of traces to Parquet files in the run's folder.

Executors make rows and Parquet of the messages; the driver alone writes, so that no executor needs
the folder. Spark gives a micro-batch that is done again the same number and the same messages, and
its files replace what was left of it: each message of the queue is in the tables exactly once,
whenever the driver or an executor ends.

The query needs a slot for itself beside the load (`local[n + 1]`).
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from roq.errors import RoQError
from roq.simulation.lab.traces.files import CHECKPOINT, TracesError, files, put, remove
from roq.simulation.lab.traces.rows import Message, Part, files_of
from roq.simulation.lab.traces.tables import TABLES
from roq.spark import register
from roq.spark.offsets import Offsets, read_offsets
from roq.spark.options import read_options
from roq.spark.queue_logs import QueueLogs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TRIGGER_SECONDS: Final = 3.0
LOOK_SECONDS: Final = 0.1
_RUN: Final = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_PARTS: Final = "table STRING, minute BIGINT, rows BIGINT, data BINARY"
_REASON: Final = re.compile(r"^(?:\w+\.)*[A-Z]\w+: (.+)$")
"""How Python ends a traceback."""
_QUERY: Final = "=== Streaming Query ==="
"""Behind this Spark describes the query, not what is wrong with it."""


class Collector:
    """Keeps the traces of one run.

    Args:
        spark: whose executors do the work.
        cluster: addresses of configuration managers, separated by commas.
        queue: of traces, of this run alone.
        folder: of the run.
        run: its id; traces of others are rejected. Empty: the name of the folder.
        seconds: between two micro-batches.

    Attributes:
        rows: written so far by this collector, by table.
        batches: micro-batches that are done.
    """

    def __init__(
        self,
        spark: SparkSession,
        cluster: str,
        queue: str,
        folder: Path,
        *,
        run: str = "",
        seconds: float = TRIGGER_SECONDS,
    ) -> None:
        self.rows: Counter[str] = Counter()
        self.batches = 0
        self._spark = spark
        self._options = {"cluster": cluster, "queue": queue, "failOnDataLoss": "false"}
        self._folder = folder
        self._run = run or folder.name
        self._seconds = seconds
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
            TracesError: the folder has traces but not how far they go; a run that has no such name.
            ConfigError: an earlier collector has read another queue.
            RoQError: the cluster or the queue cannot be used; the text says why.
        """
        if not _RUN.match(self._run):
            raise TracesError(f"a run cannot be called {self._run!r}: letters, digits, . _ -")
        checkpoint = self._folder / CHECKPOINT
        if not checkpoint.is_dir() and any(files(self._folder, table) for table in TABLES):
            raise TracesError(
                f"{self._folder} has traces, but {checkpoint} is gone: how far they go is not "
                "known. Use another folder, or remove them"
            )
        self._logs = QueueLogs(read_options(dict(self._options), streaming=True))
        try:
            self._logs.spans()
            self._done(self._logs.queue_id)
        except RoQError:
            self.stop()
            raise
        register(self._spark)
        self._query = (
            self._spark.readStream.format("roq")
            .options(**self._options, startingOffsets="earliest")
            .load()
            .writeStream.foreachBatch(self._collect)
            .queryName(f"traces of {self._run}")
            .option("checkpointLocation", str(checkpoint.absolute()))
            .trigger(processingTime=f"{round(self._seconds * 1_000)} milliseconds")
            .start()
        )

    def drain(self, timeout: float) -> bool:
        """Wait until all that stands in the queue now is in the tables.

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
        document = committed(self._folder / CHECKPOINT)
        return read_offsets(document, queue_id) if document is not None else Offsets(queue_id)

    def _collect(self, messages: DataFrame, batch: int) -> None:
        """One micro-batch."""
        if self.batches == 0:
            remove(self._folder, batch)  # only the first one can have been begun before
        make = partial(_parts, run=self._run, now_us=time.time_ns() // 1_000)
        columns = messages.select("payload", "topic", "publisher", "sequence", "appended")
        found = columns.mapInArrow(make, _PARTS).collect()
        parts = [Part(row.table, row.minute, row.rows, bytes(row.data)) for row in found]
        put(self._folder, self._run, batch, parts)
        for part in parts:
            self.rows[part.table] += part.rows
        self.batches += 1


def committed(checkpoint: Path) -> dict[str, object] | None:
    """The offsets up to which a query has done its work; None if it has done none yet.

    Args:
        checkpoint: its folder. `offsets/N` holds what micro-batch N was to read, one source a line
            behind version and metadata; `commits/N` is there when it is done.
    """
    done = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdecimal()]
    if not done:
        return None
    try:
        text = (checkpoint / "offsets" / str(max(done))).read_text()
        document: dict[str, object] = json.loads(text.splitlines()[2])
    except (OSError, ValueError, IndexError) as error:
        raise TracesError(f"{checkpoint}: cannot be read: {error}") from None
    return document


def reason(text: str) -> str:
    """What a person wants to know of the text of a Spark error: what the innermost one said."""
    said = text.partition(_QUERY)[0]
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = [found[1] for line in lines if (found := _REASON.match(line))]
    return told[-1] if told else (lines[0] if lines else "without a reason")


def _parts(batches: Iterable[pa.RecordBatch], run: str, now_us: int) -> Iterator[pa.RecordBatch]:
    """In an executor: messages become files."""
    for part in files_of(_messages(batches), run, now_us):
        yield pa.RecordBatch.from_pydict(
            {"table": [part.table], "minute": [part.minute], "rows": [part.rows],
             "data": [part.data]}
        )  # fmt: skip


def _messages(batches: Iterable[pa.RecordBatch]) -> Iterator[Message]:
    for batch in batches:
        payloads, topics, senders, sequences = (
            batch.column(name).to_pylist() for name in ("payload", "topic", "publisher", "sequence")
        )
        appended = batch.column("appended").cast(pa.int64()).to_pylist()
        yield from map(Message, payloads, topics, senders, sequences, appended)
