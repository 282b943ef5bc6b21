"""The sink whose tasks publish, for `foreachBatch`: it publishes as fast as there are executors.

A micro-batch is written in two jobs. The tasks of the first one stage their rows; then it is
decided, once, which of these attempts make up the micro-batch. Each task of the second one
publishes one of them, under an id that follows from the writer, the number of the micro-batch and
the place of the attempt in the decision. So whatever is tried again, by a repeated or speculative
task or by the next driver, is the same messages with the same sequences, and subscribers drop what
they have already. Nothing is published before all rows of the micro-batch are staged.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from roq.errors import ConfigError
from roq.spark.options import WriteOptions, write_options
from roq.spark.shipping import Shipped
from roq.spark.sink import (
    ONCE,
    NotPublished,
    check,
    check_columns,
    publish,
    publisher_id,
    staged_rows,
)
from roq.spark.staging import Attempt, Staging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOOK_SECONDS: Final = 0.2
_ATTEMPT: Final = pa.schema([("name", pa.string()), ("rows", pa.int64())])
_PUBLISHED: Final = pa.schema([("part", pa.int64())])


class Publishing(Shipped):
    """What the tasks of the second job do: each publishes one attempt."""

    def __init__(
        self, options: WriteOptions, number: int, writer: str, decided: Sequence[Attempt]
    ) -> None:
        self._options = options
        self._number = number
        self._writer = writer
        self._decided = decided

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Publish the parts that a task was given; gives their numbers."""
        staging = Staging(self._options.staging)
        for batch in batches:
            for part in batch.column(0).to_pylist():
                if not staging.part_done(self._number, part):
                    self.publish(staging, part)
            yield pa.RecordBatch.from_arrays(batch.columns, schema=_PUBLISHED)

    def publish(self, staging: Staging, part: int) -> None:
        """Publish one part, or see another task publish it.

        Raises:
            NotPublished: not everything was acknowledged.
        """
        identity = publisher_id(self._writer, self._number, part)
        until = time.monotonic() + self._options.flush + self._options.timeout
        try:
            publish(staging, [self._decided[part]], self._options, identity)
        except NotPublished:
            # An exchange listens to the newer one of two that have the same id. If that is a
            # speculative copy of this task, to begin again would only cut it off in turn.
            if not self._done_by_another(staging, part, until):
                raise
        else:
            staging.finish_part(self._number, part)

    def _done_by_another(self, staging: Staging, part: int, until: float) -> bool:
        wait = threading.Event().wait
        while not staging.part_done(self._number, part):
            if time.monotonic() > until:
                return False
            wait(LOOK_SECONDS)
        return True


class TaskSink(Shipped):
    """Publishes the rows of micro-batches from the tasks of Spark.

        sink = TaskSink(
            cluster="127.0.0.1:5000", queue="orders", stagingLocation="/shared/orders",
            orderBy="key",
        )
        df.writeStream.foreachBatch(sink).option("checkpointLocation", …).start()
        sink.write(other)                    # a batch query

    Args:
        options: as of the format `roq`, but for `checkpointLocation`; `stagingLocation` is needed.
            `orderBy`, `key` or `topic`, brings the rows of one key or topic together in one task,
            and `publishTasks` says in how many; see docs/spark.md.

    Raises:
        ConfigError: one is missing, unknown or makes no sense; the text says which and what to do.
    """

    publishing = Publishing

    def __init__(self, **options: str | float) -> None:
        self._given = {name: str(value) for name, value in options.items()}
        self._options = write_options(self._given, streaming=True, tasks=True)
        self._checked = False

    def __call__(self, df: DataFrame, number: int) -> None:
        """Publish a micro-batch, unless that was done before; what `foreachBatch` calls.

        Args:
            df: its rows.
            number: of the micro-batch.

        Raises:
            ConfigError: the rows are no messages, or another query stages there.
            NotPublished: not everything was acknowledged.
            Unavailable: the cluster does not answer.
            QueueNotFound: it has no such queue.
        """
        staging = Staging(self._options.staging)
        named = staging.writer(_query(df), tasks=True)
        if not self._checked:
            check_columns(df.schema)
            check(self._options)
            self._checked = True
        if staging.done(number):
            # The driver before may have died while it tidied up.
            decided = staging.decide(number, [])
            staging.finish(number, decided, len(decided))
        else:
            self._publish(df, number, self._options, self._options.writer or named)

    def write(self, df: DataFrame) -> int:
        """Publish a DataFrame once; gives how many rows.

        If it fails while it publishes, a part is published, and to run it again publishes
        everything again.

        Raises:
            As a micro-batch does.
        """
        options = write_options(self._given, streaming=False, tasks=True)
        check_columns(df.schema)
        try:
            check(options)
            return self._publish(df, ONCE, options, uuid.uuid4().hex)
        finally:
            Staging(options.staging).discard()

    def _publish(self, df: DataFrame, number: int, options: WriteOptions, writer: str) -> int:
        staging = Staging(options.staging)
        attempts = [] if staging.decided(number) else _stage(_arranged(df, options), options)
        decided = staging.decide(number, attempts)
        if decided:
            parts = df.sparkSession.range(0, len(decided), 1, len(decided)).toDF("part")
            task = self.publishing(options, number, writer, decided)
            parts.mapInArrow(task.run, "part long").collect()
        staging.finish(number, {*decided, *attempts}, len(decided))
        staging.sweep()
        return sum(attempt.rows for attempt in decided)


def _stage(df: DataFrame, options: WriteOptions) -> list[Attempt]:
    """Have tasks stage all rows; gives the attempts that count, in the order of partitions."""
    found = df.mapInArrow(_Rows(options).stage, "name string, rows long").collect()
    return [Attempt(row["name"], row["rows"]) for row in found]


class _Rows(Shipped):
    """What the tasks of the first job do."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def stage(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage the rows of one task; gives the attempt, or nothing if there were none."""
        rows = (staged_rows(batch, self._options.topic) for batch in batches)
        attempt = Staging(self._options.staging).write(rows)
        if attempt.name:
            yield pa.RecordBatch.from_pylist(
                [{"name": attempt.name, "rows": attempt.rows}], schema=_ATTEMPT
            )


def _arranged(df: DataFrame, options: WriteOptions) -> DataFrame:
    """The rows in the partitions in which they are to be published."""
    if not options.order:
        return df
    if options.order not in df.columns:
        raise ConfigError(
            f"orderBy: the rows have no column {options.order}; there are {', '.join(df.columns)}"
        )
    if options.tasks:
        return df.repartition(options.tasks, options.order)
    return df.repartition(options.order)


def _query(df: DataFrame) -> str:
    """Spark's id of the query to which a micro-batch belongs; empty if nobody can say."""
    context = getattr(df.sparkSession, "sparkContext", None)  # Spark Connect has none
    return "" if context is None else context.getLocalProperty("sql.streaming.queryId") or ""
