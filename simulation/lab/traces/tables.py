"""The kinds of rows that traces are kept as: their columns, and what each of them means.

    kpi        one row for each numeric document of the statistics stream
    latency    one row for each client and window in which it did something
    events     what the driver and the tap did or saw
    rejected   messages of the queue of traces that are no traces of this run

docs/simulation.md has the same lists; a test holds that.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa

KPI: Final = "kpi"
LATENCY: Final = "latency"
EVENTS: Final = "events"
REJECTED: Final = "rejected"


class Column(NamedTuple):
    """One column."""

    name: str
    type: pa.DataType
    about: str


_I32, _I64, _F64 = pa.int32(), pa.int64(), pa.float64()
_TEXT, _FLAG = pa.string(), pa.bool_()

ORIGIN: Final = (
    Column("time_us", _I64, "when, µs since 1970 by the clock of the driver"),
    Column("source", _TEXT, "who tells it"),
    Column("number", _I64, "counts the traces of a source, from 0"),
    Column("sender", _TEXT, "id of the publisher that sent the trace, hexadecimal"),
    Column("sequence", _I64, "of the trace among what `sender` sent under this topic"),
    Column("appended_us", _I64, "when the exchange took it, µs since 1970 by its own clock"),
)
"""Columns that all tables begin with. `sender` and `sequence` name a row of a table uniquely."""

_BUSY: Final = pa.struct(
    [
        ("publisher", _TEXT),
        ("messages", _I64),
        ("bytes", _I64),
        ("messages_per_second", _F64),
        ("bytes_per_second", _F64),
    ]
)
_KPI: Final = (
    Column("kind", _TEXT, "`exchange`, `queue`, `subscriber`, `move` or `scale`"),
    Column("dropped", _I64, "documents that the tap had lost by then"),
    Column("queue", _TEXT, "its name"),
    Column("queue_id", _TEXT, "of this life of the queue, hexadecimal"),
    Column("exchange", _I32, "exchange, scale: its number"),
    Column("epoch", _I64, "exchange: of its process; move: of the relocation"),
    Column("host", _TEXT, "exchange, scale: where it runs"),
    Column("uptime_seconds", _F64, "exchange: since this monitor knows it"),
    Column("messages_in_per_second", _F64, "exchange, queue: mean of the last seconds"),
    Column("bytes_in_per_second", _F64, "the same, payload bytes; and so on"),
    Column("messages_out_per_second", _F64, "to all subscribers"),
    Column("bytes_out_per_second", _F64, "to all subscribers"),
    Column("messages_in", _I64, "exchange: since its start"),
    Column("bytes_in", _I64, "since its start"),
    Column("messages_out", _I64, "since its start"),
    Column("bytes_out", _I64, "since its start"),
    Column("publishers", _I32, "exchange, queue: attached"),
    Column("subscribers", _I32, "exchange, queue: attached"),
    Column("cpu_percent", _F64, "exchange: of one core"),
    Column("memory_bytes", _I64, "exchange: resident"),
    Column("ring_bytes", _I64, "exchange: of its log"),
    Column("end_offset", _I64, "exchange: of its log"),
    Column("floor_offset", _I64, "exchange: of its log"),
    Column("malformed", _I64, "exchange: since its start; and so on"),
    Column("duplicates", _I64, "batches that came twice and were dropped"),
    Column("resets", _I64, "links that had to begin anew"),
    Column("fetches", _I64, "requests for what a reader had missed"),
    Column("acks_pending", _I64, "acknowledgements that wait"),
    Column("lag_ms", _F64, "exchange: longest turn of its loop in the period"),
    Column("holding", _I64, "exchange: 1 while its publishers wait for a slow subscriber"),
    Column("held_seconds", _F64, "exchange: for how long they have, all in all"),
    Column("behind", _I64, "exchange: subscribers that nobody waits for at present"),
    Column("left_behind", _I64, "exchange: how often one was not waited for any more"),
    Column("requests_open", _I64, "exchange: requests to services that have not ended"),
    Column("requests_accepted", _I64, "since its start; and so on"),
    Column("requests_done", _I64, "with a response"),
    Column("requests_failed", _I64, "whose handler has raised"),
    Column("requests_discarded", _I64, "that no instance has taken"),
    Column("requests_retried", _I64, "given back by an instance, to be run again"),
    Column("requests_oldest_seconds", _F64, "exchange: age of the oldest that is open"),
    Column("responses_stored", _I64, "exchange: outcomes that nobody has fetched yet"),
    Column("responses_bytes", _I64, "exchange: what they take"),
    Column("leaving", _FLAG, "exchange: it is being emptied"),
    Column("top", pa.list_(_BUSY), "exchange: its busiest publishers"),
    Column("others", _I32, "exchange: publishers that are not in `top`"),
    Column("others_messages_per_second", _F64, "what these bring"),
    Column("others_bytes_per_second", _F64, "what these bring"),
    Column("monitor_epoch", _I64, "queue: of the monitor's process"),
    Column("version", _I64, "queue: of the topology"),
    Column("exchanges", _I32, "queue: how many"),
    Column("waiting", _I32, "queue: publishers that wait for an exchange"),
    Column("limit_bytes_per_second", _F64, "queue: limit L of one exchange"),
    Column("moving", _I32, "queue: publishers that are being moved"),
    Column("policy", _TEXT, "queue: its policy"),
    Column("policy_errors", _I64, "queue: rounds that the policy has spoilt"),
    Column("subscriber", _TEXT, "subscriber: its id, hexadecimal"),
    Column("received", _I64, "subscriber: messages since it was opened"),
    Column("received_per_second", _F64, "subscriber"),
    Column("latency_ms", _F64, "subscriber: mean, as it tells"),
    Column("lost", _I64, "subscriber: messages that it reports as lost"),
    Column("publisher", _TEXT, "move: id of the publisher, hexadecimal"),
    Column("sources", pa.list_(_I32), "move: exchanges that it leaves"),
    Column("targets", pa.list_(_I32), "move: exchanges that it goes to"),
    Column("direction", _TEXT, "scale: `out` or `in`"),
    Column("state", _TEXT, "move, scale: `started`, `accepted`, `done`, `failed`, …"),
    Column("reason", _TEXT, "move, scale: for people"),
    Column("pause_ms", _F64, "move: how long nothing was sent"),
    Column("bytes_per_second", _F64, "move: what the publisher brings"),
    Column("seconds", _F64, "scale: since the decision"),
    Column("other", _TEXT, "what a later monitor tells beyond this, as JSON; else null"),
)
_LATENCY: Final = (
    Column("client", _TEXT, "its name"),
    Column("role", _TEXT, "`publisher` or `subscriber`"),
    Column("begin_us", _I64, "of the window, µs since 1970 by the clock of the driver"),
    Column("seconds", _F64, "length of the window"),
    Column("messages", _I64, "published, or received"),
    Column("bytes", _I64, "payload bytes of these"),
    Column("late", _I64, "publisher: published more than 10 ms after they should"),
    Column("failed", _I64, "publisher: given up; subscriber: reported as lost"),
    Column("doubled", _I64, "subscriber: came twice"),
    Column("reordered", _I64, "subscriber: came too late"),
    Column("buckets", pa.list_(_I32), "bucket b holds 1 µs · 1.02^b to 1 µs · 1.02^(b+1)"),
    Column("counts", pa.list_(_I64), "messages in each of these buckets"),
    Column("latency_sum", _F64, "seconds, the sum over all messages"),
    Column("clock_error", _F64, "seconds by which the client's times may be wrong"),
)
_EVENTS: Final = (
    Column("event", _TEXT, "a kind of `simulation.lab.archive.document.EventKind`"),
    Column("exchange", _I32, "at which one; 0: at none in particular"),
    Column("text", _TEXT, "for people"),
)
_REJECTED: Final = (
    Column("topic", _TEXT, "that it was published under"),
    Column("reason", _TEXT, "why it is no trace of this run"),
    Column("bytes", _I64, "size of its payload"),
    Column("payload", pa.binary(), "the first 4,096 bytes of it"),
)
COLUMNS: Final = {
    KPI: (*ORIGIN, *_KPI),
    LATENCY: (*ORIGIN, *_LATENCY),
    EVENTS: (*ORIGIN, *_EVENTS),
    REJECTED: (*ORIGIN, *_REJECTED),
}
TABLES: Final = tuple(COLUMNS)
SCHEMAS: Final = {
    table: pa.schema([pa.field(each.name, each.type) for each in columns])
    for table, columns in COLUMNS.items()
}
TABLE: Final = "table"
"""The column that says of which kind a row is; in files it is part of their paths."""
WIDE: Final = pa.schema(
    [
        pa.field(TABLE, _TEXT),
        *{field.name: field for schema in SCHEMAS.values() for field in schema}.values(),
    ]
)
"""All of them side by side, so that one job writes them; null where a kind has no such column."""


def reference() -> str:
    """What docs/simulation.md says of the columns, in Markdown."""
    parts = [_listed(ORIGIN)]
    for table, columns in COLUMNS.items():
        parts.append(f"`{table}`: {_ABOUT[table]}.\n\n{_listed(columns[len(ORIGIN) :])}")
    return "\n".join(parts) + "\n"


_ABOUT: Final = {
    KPI: "one row for each numeric document of the statistics stream. Columns are null in rows of "
    "kinds that do not have them",
    LATENCY: "one row for each client and window in which it did something",
    EVENTS: "what the driver and the tap did or saw",
    REJECTED: "messages of the queue of traces that are no traces of this run; `time_us` is when "
    "they were collected",
}


def _listed(columns: tuple[Column, ...]) -> str:
    lines = [f"| `{each.name}` | {_type(each.type)} | {each.about} |" for each in columns]
    return "\n".join(["| column | type | what |", "|---|---|---|", *lines]) + "\n"


def _type(type_: pa.DataType) -> str:
    if pa.types.is_list(type_):
        return f"list of {_type(type_.value_type)}"
    if pa.types.is_struct(type_):
        return "{" + ", ".join(field.name for field in type_) + "}"
    return str(type_)
