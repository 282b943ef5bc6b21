"""The rows that a query gets: batches of a log as Arrow record batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa

from roq.errors import RemoteProtocolError
from roq.log.leases import bits_at, runs_of
from roq.model import LogId
from roq.number_ranges import TIME_US_MAX, in_range
from roq.protocol.attributes import NO_ATTRIBUTES, Attributes
from roq.protocol.batch import Kind, checked_body
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
TABLE_ROWS_MIN: Final = 128
"""With fewer messages a batch is read more quickly one by one."""
_LENGTH_BYTES: Final = {0xC4: 2, 0xC5: 3, 0xC6: 5}
"""Of msgpack: the first byte of a byte string, and how many bytes come before its content."""
_NIL: Final = 0xC0
SPARK_SCHEMA: Final = (
    "payload BINARY, topic STRING, key STRING, publisher BINARY, sequence BIGINT, "
    "timestamp TIMESTAMP, appended TIMESTAMP, exchange INT, generation BIGINT, offset BIGINT, "
    "tags ARRAY<STRING>, properties MAP<STRING,STRING>"
)


_Table = np.ndarray[tuple[int, int], np.dtype[np.uint8]]
"""Payloads of one size, one in each row."""


def _of_one_size(body: memoryview, count: int) -> _Table | None:
    """The payloads of a body in which all have one size and none has attributes, without an object
    of Python for each; None: it is another one, or is to be looked at more closely.

    It is msgpack: an array of two, an array of byte strings with the same header each, nil.
    """
    if count < TABLE_ROWS_MIN:
        return None
    wide = count >= 1 << 16
    head = (b"\x92\xdd" if wide else b"\x92\xdc") + count.to_bytes(4 if wide else 2, "big")
    begin, end = len(head), len(body) - 1
    before = _LENGTH_BYTES.get(body[begin], 0) if end > begin else 0
    size = int.from_bytes(body[begin + 1 : begin + before], "big")
    if not before or (before + size) * count != end - begin:
        return None
    if body[:begin] != head or body[end] != _NIL:
        return None
    table = np.frombuffer(body[begin:end], np.uint8).reshape(count, before + size)
    if (table[:, :before] != table[0, :before]).any():
        return None
    return table[:, before:]


def _values(parts: list[pa.Array | _Table]) -> pa.Array:
    """The payloads of several batches."""
    arrays: list[pa.Array] = []
    for size, some in groupby(parts, lambda part: part.shape[1] if _is_table(part) else -1):
        if size < 0:
            arrays += some
            continue
        table = np.concatenate(list(some))
        offsets = np.arange(len(table) + 1, dtype=np.int32) * np.int32(size)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(table)]
        arrays.append(pa.Array.from_buffers(pa.binary(), len(table), buffers))
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _is_table(part: pa.Array | _Table) -> bool:
    return isinstance(part, np.ndarray)


class _Rows:
    """Collects batches until there are enough for a record batch."""

    def __init__(self, log: LogId, tags: frozenset[str]) -> None:
        self._log = log
        self._tags = tags
        self._clear()

    def _clear(self) -> None:
        self.bytes = self._rows = 0
        self._payloads: list[pa.Array | _Table] = []
        """One for each batch: what Python holds of a message goes while it is still near."""
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
        header = batch.header
        body = checked_body(batch.data, header.ext_bytes, header.checksum)
        payloads: pa.Array | _Table | None = _of_one_size(body, header.count)
        attributes = None
        if payloads is None:
            given, attributes = batch.body()
            payloads = pa.array(given, pa.binary())
        for first, count in runs_of(done & bits_at(0, header.count)):
            self._done += range(self._rows + first, self._rows + first + count)
        if attributes is not None:
            first, row = header.first_sequence, self._rows
            for index in range(header.count):
                try:
                    its = attributes.of(first + index)
                except RemoteProtocolError:
                    break  # the payloads are whole; docs/spark.md says what stands there then
                if its != NO_ATTRIBUTES:
                    self._attributes[row + index] = its
        self._payloads.append(payloads)
        self._rows += header.count
        self._counts.append(header.count)
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
            _values(self._payloads),
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
