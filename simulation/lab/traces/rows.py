"""Messages of the queue of traces as rows of the table, and rows as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa

from roq.errors import RoQError
from roq.protocol.kpi import NumericDocument
from roq.simulation.lab.archive.document import EventKind
from roq.simulation.lab.traces.messages import (
    AnyTrace,
    BadTrace,
    ClientTrace,
    EventTrace,
    KpiTrace,
    decode,
)
from roq.simulation.lab.traces.tables import (
    COLUMNS,
    EVENTS,
    KINDS,
    KPI,
    LATENCY,
    ORIGIN,
    REJECTED,
    TABLE,
    WIDE,
    columns_of,
)

DAY_US: Final = 86_400_000_000
"""A trace whose time is further away than this was not made in this run."""
BUCKET_MAX: Final = 2_000
"""Of latencies; that would be five thousand years."""
WINDOW_SECONDS_MAX: Final = 3_600.0
SECONDS_MAX: Final = 1e14
"""Of sums of latencies: beyond it sums of these would be no numbers any more."""
PAYLOAD_MAX: Final = 4_096
ROWS_MAX: Final = 10_000
"""Of one Arrow batch, so that a task does not need memory for all of its rows."""
_EVENT_KINDS: Final = frozenset(EventKind)
_PLAIN: Final = tuple(
    each.name for each in COLUMNS[LATENCY][len(ORIGIN) :] if each.name not in {"buckets", "counts"}
)
"""Columns that are fields of a `ClientTrace`."""


class Message(NamedTuple):
    """One message of the queue of traces, as Spark reads it."""

    payload: bytes
    topic: str
    sender: bytes
    sequence: int
    appended_us: int


class Row(NamedTuple):
    """One row, and where it belongs."""

    table: str
    values: dict[str, object]


def row_of(message: Message, run: str, now_us: int) -> Row:
    """The row of a message; what is no trace of this run is one of `rejected`.

    Args:
        message: as it came.
        run: id of the run.
        now_us: the driver's clock, µs since 1970.
    """
    try:
        trace = decode(message.payload)
        _check(trace, run, now_us)
        table, values = _values(trace)
    except BadTrace as error:
        return _rejected(message, str(error), now_us)
    origin = {
        "time_us": trace.time_us, "source": trace.source, "number": trace.number,
        "sender": message.sender.hex(), "sequence": message.sequence,
        "appended_us": message.appended_us,
    }  # fmt: skip
    return Row(table, {**origin, **values})


def record_batches(messages: Iterable[Message], run: str, now_us: int) -> Iterator[pa.RecordBatch]:
    """One row for each message, in order; those with values that no column can hold are rejected.

    Args:
        messages: in order.
        run, now_us: as `row_of`.
    """
    left = iter(messages)
    while some := list(islice(left, ROWS_MAX)):
        rows = [row_of(message, run, now_us) for message in some]
        try:
            yield _batch(rows)
        except _UNFIT:
            yield _batch(
                [
                    _fitting(row, message, now_us)
                    for row, message in zip(rows, some, strict=True)
                ]
            )  # fmt: skip


_UNFIT: Final = (pa.ArrowException, OverflowError, UnicodeError, TypeError)


def _batch(rows: Iterable[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{TABLE: row.table, **row.values} for row in rows], WIDE)


def _fitting(row: Row, message: Message, now_us: int) -> Row:
    try:
        _batch([row])
    except _UNFIT as error:
        return _rejected(message, f"a value that its column cannot hold: {error}", now_us)
    return row


def _check(trace: AnyTrace, run: str, now_us: int) -> None:
    if trace.run != run:
        raise BadTrace(f"a trace of another run, {trace.run[:128]!r}")
    times = [trace.time_us, trace.begin_us] if isinstance(trace, ClientTrace) else [trace.time_us]
    for time_us in times:
        if abs(time_us - now_us) > DAY_US:
            hours = (time_us - now_us) // 3_600_000_000
            raise BadTrace(f"its time is {hours:+} hours away from the clock of the driver")


def _values(trace: AnyTrace) -> tuple[str, dict[str, object]]:
    match trace:
        case KpiTrace():
            return KPI, {"dropped": trace.dropped, **_document(trace.document)}
        case ClientTrace():
            return LATENCY, _client(trace)
        case EventTrace():
            if trace.event not in _EVENT_KINDS:
                raise BadTrace(f"an event of a kind that is not known, {trace.event[:128]!r}")
            return EVENTS, {
                "event": trace.event, "exchange": trace.exchange, "text": trace.text,
            }  # fmt: skip


def _document(document: Mapping[str, object]) -> dict[str, object]:
    try:
        known: NumericDocument = msgspec.convert(document, NumericDocument)
    except (msgspec.ValidationError, RoQError) as error:
        raise BadTrace(f"a statistics document of a kind that is not known: {error}") from None
    columns = columns_of(type(known))
    values: dict[str, object] = {"kind": KINDS[type(known)]}
    values |= {column: _cell(getattr(known, name)) for name, column in columns.items()}
    values["queue_id"] = known.queue_id.hex()
    later = {
        name: value
        for name, value in document.items()
        if name not in {"CMD", *known.__struct_fields__}
    }
    values["other"] = msgspec.json.encode(later).decode() if later else None
    return values


def _cell(value: object) -> object:
    """As its column has it: parts by their names, and a table of counts as JSON."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if isinstance(value, list):
        return [_cell(each) for each in value]
    if isinstance(value, Mapping):
        return msgspec.json.encode(value).decode()
    return value


def _client(trace: ClientTrace) -> dict[str, object]:
    try:
        latency = sorted((int(bucket), count) for bucket, count in trace.latency.items())
    except ValueError:
        raise BadTrace("buckets of latencies are numbers") from None
    if any(not 0 <= bucket <= BUCKET_MAX for bucket, _ in latency):
        raise BadTrace(f"buckets of latencies are 0 to {BUCKET_MAX}")
    if trace.seconds > WINDOW_SECONDS_MAX:
        raise BadTrace("a window that is too long")
    if max(trace.latency_sum, trace.clock_error) > SECONDS_MAX:
        raise BadTrace("latencies of more than a million years")
    plain = {name: getattr(trace, name) for name in _PLAIN}
    return {**plain, "buckets": [each for each, _ in latency], "counts": [n for _, n in latency]}


def _rejected(message: Message, reason: str, now_us: int) -> Row:
    values: dict[str, object] = {
        "time_us": now_us, "source": None, "number": None, "sender": message.sender.hex(),
        "sequence": message.sequence, "appended_us": message.appended_us,
        "topic": message.topic, "reason": _printable(reason), "bytes": len(message.payload),
        "payload": message.payload[:PAYLOAD_MAX],
    }  # fmt: skip
    return Row(REJECTED, values)


def _printable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
