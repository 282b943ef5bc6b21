"""The sink that Spark calls: tasks stage their rows, the driver publishes them in one go.

Each micro-batch is one publisher, whose id follows from the name of the writer and the number of
the micro-batch; what it publishes is decided once (`roq.spark.staging`). A driver that dies in the
middle and is started again publishes the same messages under the same id with the same sequences,
and subscribers drop what they have already.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import compute
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

import roq
from roq.client.publish.publisher import DELIVERY_SECONDS_MAX
from roq.errors import ConfigError, InvalidName, RoQError
from roq.model import PUBLISHER_ID_BYTES
from roq.protocol.attributes import attributes_of
from roq.spark.options import WriteOptions
from roq.spark.shipping import Shipped
from roq.spark.staging import SCHEMA, Attempt, Staging, query_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

COLUMNS: Final = {
    "payload": frozenset({"binary", "string"}),
    "topic": frozenset({"string", "binary"}),
    "key": frozenset({"string"}),
    "tags": frozenset({"array<string>"}),
    "properties": frozenset({"map<string,string>"}),
}
"""What a message may have, and which types say it in Spark."""
ATTRIBUTES: Final = ("key", "tags", "properties")
ONCE: Final = 0
"""The number of the only micro-batch of a batch query."""


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task tells the driver."""

    attempt: Attempt


class NotPublished(RoQError):
    """A micro-batch could not be published as a whole; repeating it publishes what is left."""


class _Sink(Shipped):
    """What batch and streaming queries share."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task."""
        rows = (staged_rows(batch, self._options.topic) for batch in iterator)
        return Staged(Staging(self._options.staging).write(rows))

    def _publish(self, number: int, writer: str, attempts: Sequence[Attempt]) -> None:
        staging = Staging(self._options.staging)
        if staging.done(number):
            staging.remove(attempts)
            return
        decided = staging.decide(number, attempts)
        publish(staging, decided, self._options, publisher_id(writer, number))
        staging.finish(number, {*decided, *attempts})
        staging.sweep()


class BatchWriter(_Sink, DataSourceArrowWriter):
    """For `df.write`."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what all tasks have staged.

        Raises:
            NotPublished: not everything was acknowledged.
        """
        # Spark does not repeat a batch query by itself, so each one is a writer of its own.
        self._publish(ONCE, uuid.uuid4().hex, _attempts(messages))
        Staging(self._options.staging).discard()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """A task has failed for good: nothing is published."""
        Staging(self._options.staging).discard()


class StreamWriter(_Sink, DataSourceStreamArrowWriter):
    """For `df.writeStream`."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish a micro-batch, unless that was done before.

        Raises:
            NotPublished: not everything was acknowledged.
        """
        named = Staging(self._options.staging).writer(query_of(self._options.checkpoint))
        self._publish(batchId, self._options.writer or named, _attempts(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """A task has failed for good: nothing is published."""
        Staging(self._options.staging).remove(_attempts(messages))


def check(options: WriteOptions) -> None:
    """Look before minutes are spent: whether rows can be staged, and whether there is the queue.

    A query that has published before is not asked again with each of its micro-batches.

    Raises:
        ConfigError: nothing can be staged, or another query stages there.
        Unavailable: the cluster does not answer.
        QueueNotFound: it has no such queue.
    """
    staging = Staging(options.staging)
    if query := query_of(options.checkpoint):
        staging.writer(query)
    if not staging.begun:
        with roq.connect(list(options.cluster), timeout=options.timeout) as cluster:
            cluster.describe(options.queue)


def publisher_id(writer: str, number: int, part: int | None = None) -> bytes:
    """The id under which a micro-batch is published, the same each time it is tried.

    Args:
        writer: names the query over its restarts.
        number: of the micro-batch.
        part: which of its attempts, where each has a publisher of its own.
    """
    name = f"{writer}\n{number}" if part is None else f"{writer}\n{number}\n{part}"
    return blake2b(name.encode(), digest_size=PUBLISHER_ID_BYTES).digest()


def publish(
    staging: Staging, attempts: Sequence[Attempt], options: WriteOptions, identity: bytes
) -> None:
    """Publish the rows of these attempts in order, and wait until all are acknowledged.

    Raises:
        NotPublished: not all of them were; the text says why.
    """
    try:
        with (
            roq.connect(list(options.cluster), timeout=options.timeout) as cluster,
            cluster.publisher(
                options.queue,
                publisher_id=identity,
                # What a publisher gives up subscribers pass over, and would drop when it comes with
                # the next try. So time is up before anything is given up.
                delivery_timeout=DELIVERY_SECONDS_MAX,
            ) as publisher,
        ):
            for attempt in attempts:
                for batch in staging.read(attempt):
                    publish_rows(publisher, batch)
            publisher.flush(timeout=options.flush)
    except RoQError as error:
        raise NotPublished(f"queue {options.queue!r}: {error}") from error


def publish_rows(publisher: roq.Publisher, batch: pa.RecordBatch) -> None:
    """Publish staged rows in order; those of a batch without attributes many at a time."""
    if not _attributed(batch):
        for topic, payloads in runs(batch):
            publisher.publish_many(payloads, topic=topic)
        return
    for row in batch.to_pylist(maps_as_pydicts="strict"):
        publisher.publish(**row)  # the columns are named as the arguments


def _attributed(batch: pa.RecordBatch) -> bool:
    """Whether a row of it has a key, tags or properties; what older versions staged has none."""
    named = [name for name in ATTRIBUTES if name in batch.schema.names]
    return any(batch.column(name).null_count < batch.num_rows for name in named)


def runs(batch: pa.RecordBatch) -> Iterator[tuple[str, list[bytes]]]:
    """Stretches of one topic, in order."""
    topics = batch.column("topic")
    payloads = batch.column("payload")
    first, rows = 0, batch.num_rows
    if rows > 1:
        changes = compute.not_equal(topics.slice(1), topics.slice(0, rows - 1))
        for index in compute.indices_nonzero(changes).to_pylist():
            yield topics[first].as_py(), payloads.slice(first, index + 1 - first).to_pylist()
            first = index + 1
    if rows:
        yield topics[first].as_py(), payloads.slice(first).to_pylist()


def _attempts(messages: Iterable[WriterCommitMessage | None]) -> list[Attempt]:
    """In the order of tasks; Spark tells None for a task that has told nothing."""
    return [message.attempt for message in messages if isinstance(message, Staged)]


def staged_rows(batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    """The rows as they are staged: every column that a message may have.

    Raises:
        ConfigError: a row is no message; names its column.
    """
    named = set(batch.schema.names)
    columns = [
        batch.column(name).cast(kind) if name in named else pa.nulls(batch.num_rows, kind)
        for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True)
    ]
    topics = SCHEMA.get_field_index("topic")
    columns[topics] = columns[topics].fill_null(topic)
    staged = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    if staged.column("payload").null_count:
        raise ConfigError("column payload: null is no message; filter or replace it before")
    if _attributed(staged):
        try:
            for row in staged.select(list(ATTRIBUTES)).to_pylist(maps_as_pydicts="strict"):
                attributes_of(**row)
        except (InvalidName, TypeError, KeyError) as error:
            raise ConfigError(f"columns key, tags and properties: {error}") from None
    return staged


def check_columns(schema: StructType) -> None:
    """Whether rows of this schema can be messages.

    Raises:
        ConfigError: a column is missing, is of another type, or is one that a message lacks.
    """
    told = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "payload" not in told or any(
        told[name] not in kinds for name, kinds in COLUMNS.items() if name in told
    ):
        raise ConfigError(
            "a message needs a column `payload` (binary or string) and may have the columns "
            "`topic` and `key` (string), `tags` (array<string>) and `properties` "
            "(map<string,string>); there are "
            + ", ".join(f"{name} {kind}" for name, kind in told.items())
        )
    if told.keys() - COLUMNS.keys():
        raise ConfigError(
            f"columns that a message does not have: "
            f"{', '.join(sorted(told.keys() - COLUMNS.keys()))}; "
            f"select {', '.join(COLUMNS)} or some of them"
        )
