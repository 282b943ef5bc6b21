"""The rows that a query gets: batches of a log as Arrow record batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from roq.errors import RemoteProtocolError
from roq.log.leases import bits_at, runs_of
from roq.model import LogId
from roq.protocol.attributes import NO_ATTRIBUTES, Attributes
from roq.protocol.batch import Kind
from roq.ranges import TIME_US_MAX, in_range
from roq.read.range_reader import LogBatch

ROWS_MAX: Final = 65_536
BYTES_MAX: Final = 16 * 1024 * 1024
"""A record batch holds at most so many rows, and payload bytes (or one batch of the log)."""

_TIME: Final = pa.timestamp("us", tz="UTC")
_TAGS: Final = pa.list_(pa.string())
_PROPERTIES: Final = pa.map_(pa.string(), pa.string())
SCHEMA: Final = pa.schema(
    [
        pa.field("payload", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("key", pa.string()),
        pa.field("publisher", pa.binary()),
        pa.field("sequence", pa.int64()),
        pa.field("timestamp", _TIME),
        pa.field("appended", _TIME),
        pa.field("exchange", pa.int32()),
        pa.field("generation", pa.int64()),
        pa.field("offset", pa.int64()),
        pa.field("tags", _TAGS),
        pa.field("properties", _PROPERTIES),
    ]
)
"""See docs/spark.md for what each column means."""
SPARK_SCHEMA: Final = (
    "payload BINARY, topic STRING, key STRING, publisher BINARY, sequence BIGINT, "
    "timestamp TIMESTAMP, appended TIMESTAMP, exchange INT, generation BIGINT, offset BIGINT, "
    "tags ARRAY<STRING>, properties MAP<STRING,STRING>"
)


class _Rows:
    """Collects batches until there are enough for a record batch."""

    def __init__(self, log: LogId, tags: frozenset[str]) -> None:
        self._log = log
        self._tags = tags
        self._clear()

    def _clear(self) -> None:
        self.bytes = self._rows = 0
        self._payloads: list[pa.Array] = []
        """One array for each batch: what Python holds of a message goes while it is still near."""
        self._attributes: dict[int, Attributes] = {}
        """By row; rows without any are not in it."""
        self._counts: list[int] = []
        self._batches: list[LogBatch] = []
        self._done: list[int] = []
        """Rows that are left out."""

    @property
    def full(self) -> bool:
        """Whether it is to be taken now."""
        return self._rows >= ROWS_MAX or self.bytes >= BYTES_MAX

    def __bool__(self) -> bool:
        return self._rows > 0

    def add(self, batch: LogBatch, done: int) -> None:
        """One batch more, without these of its messages."""
        payloads, attributes = batch.body()
        for first, count in runs_of(done & bits_at(0, len(payloads))):
            self._done += range(self._rows + first, self._rows + first + count)
        if attributes is not None:
            first, row = batch.header.first_sequence, self._rows
            for index in range(len(payloads)):
                try:
                    given = attributes.of(first + index)
                except RemoteProtocolError:
                    break  # the payloads are whole; docs/spark.md says what stands there then
                if given != NO_ATTRIBUTES:
                    self._attributes[row + index] = given
        self._payloads.append(pa.array(payloads, pa.binary()))
        self._rows += len(payloads)
        self._counts.append(batch.header.count)
        self._batches.append(batch)
        self.bytes += len(batch.data)

    def _column(
        self, rows: int, kind: pa.DataType, value: Callable[[Attributes], object]
    ) -> pa.Array:
        """One attribute of all rows; null where a message has none."""
        if not self._attributes:
            return pa.nulls(rows, kind)
        given = map(self._attributes.get, range(rows))
        return pa.array([None if each is None else value(each) for each in given], kind)

    def take(self) -> pa.RecordBatch:
        """What was collected; it is empty again."""
        counts = np.array(self._counts)
        rows = self._rows
        headers = [batch.header for batch in self._batches]

        def each(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
            return np.repeat(np.array(values, dtype=np.int64), counts)

        def times(values: list[int]) -> pa.Array:
            return pa.array(each([in_range(time, high=TIME_US_MAX) for time in values])).cast(_TIME)

        def words(values: list[bytes], kind: pa.DataType) -> pa.Array:
            if values.count(values[0]) == len(values):  # most often
                return pa.repeat(pa.scalar(values[0], kind), rows)
            return pa.array(values, kind).take(pa.array(np.repeat(np.arange(len(values)), counts)))

        before = np.cumsum(counts) - counts
        within = np.arange(rows) - np.repeat(before, counts)
        columns = [
            pa.concat_arrays(self._payloads),
            words([batch.topic for batch in self._batches], pa.binary()).cast(pa.string()),
            self._column(rows, pa.string(), lambda given: given.key),
            words([bytes(header.publisher) for header in headers], pa.binary()),
            pa.array(each([header.first_sequence for header in headers]) + within),
            times([header.created_us for header in headers]),
            times([batch.appended_us for batch in self._batches]),
            pa.array(np.full(rows, self._log.number, dtype=np.int32)),
            pa.array(np.full(rows, self._log.generation, dtype=np.int64)),
            pa.array(each([batch.offset for batch in self._batches])),
            self._column(rows, _TAGS, lambda given: given.tags or None),
            self._column(rows, _PROPERTIES, lambda given: list(given.properties.items()) or None),
        ]
        taken = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        if self._done or self._tags:
            taken = taken.filter(pa.array(self._wanted(rows)))
        self._clear()
        return taken

    def _wanted(self, rows: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        wanted = np.full(rows, not self._tags)
        for row, given in self._attributes.items() if self._tags else ():
            wanted[row] = not self._tags.isdisjoint(given.tags)
        wanted[self._done] = False
        return wanted


def record_batches(
    batches: Iterable[LogBatch],
    log: LogId,
    damaged: Callable[[int, str], None] | None = None,
    done: Callable[[int], int] | None = None,
    tags: frozenset[str] = frozenset(),
) -> Iterator[pa.RecordBatch]:
    """The messages of one log, in order; what stands in for messages that were given up is no row.

    Args:
        batches: as `LogReader.read` gives them.
        log: whose they are.
        damaged: is told of a batch that cannot be read, by its offset and in words; it is passed
            over, unless that raises. None: an error.
        done: by offset, which messages of a batch are left out, as bits, the lowest first; -1: all.
            None: none.
        tags: messages that have none of these are left out; empty: none is.

    Raises:
        RemoteProtocolError: a batch cannot be read; names its offset.
    """
    rows = _Rows(log, tags)
    for batch in batches:
        left_out = 0 if done is None else done(batch.offset)
        if batch.header.kind == Kind.DATA and left_out != -1:
            try:
                rows.add(batch, left_out)
            except RemoteProtocolError as error:
                text = (
                    f"the batch at offset {batch.offset} of exchange x{log.number} (generation "
                    f"{log.generation}), {batch.header.count} messages, cannot be read: {error}"
                )
                if damaged is None:
                    raise RemoteProtocolError(text) from None
                damaged(batch.offset, text)
            if rows.full:
                yield rows.take()
    if rows:
        yield rows.take()
