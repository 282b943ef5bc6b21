"""The kinds of rows that traces are kept as: their columns, and what each of them means.

    kpi        one row for each numeric document of the statistics stream
    latency    one row for each client and window in which it did something
    events     what the driver and the tap did or saw
    rejected   messages of the queue of traces that are no traces of this run

The columns of `kpi` are the fields of the documents (`roq.protocol.kpi`), so a new one is kept as
it comes. docs/simulation.md has the same lists; a test holds that.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
from msgspec import inspect

from roq.protocol.kpi import ExchangeKpi, Kpi, MoveKpi, QueueKpi, ScaleKpi, SubscriberKpi

KPI: Final = "kpi"
LATENCY: Final = "latency"
EVENTS: Final = "events"
REJECTED: Final = "rejected"


class Column(NamedTuple):
    """One column."""

    name: str
    type: pa.DataType
    about: str


_I64, _F64, _TEXT = pa.int64(), pa.float64(), pa.string()

ORIGIN: Final = (
    Column("time_us", _I64, "when, µs since 1970 by the clock of the driver"),
    Column("source", _TEXT, "who tells it"),
    Column("number", _I64, "counts the traces of a source, from 0"),
    Column("sender", _TEXT, "id of the publisher that sent the trace, hexadecimal"),
    Column("sequence", _I64, "of the trace among what `sender` sent under this topic"),
    Column("appended_us", _I64, "when the exchange took it, µs since 1970 by its own clock"),
)
"""Columns that all tables begin with. `sender` and `sequence` name a row of a table uniquely."""


KINDS: Final[dict[type[Kpi], str]] = {
    ExchangeKpi: "exchange",
    QueueKpi: "queue",
    SubscriberKpi: "subscriber",
    MoveKpi: "move",
    ScaleKpi: "scale",
}
"""The documents of the statistics stream that are kept, and what their rows say of it."""


def columns_of(document: type[Kpi]) -> dict[str, str]:
    """The fields of a document that are kept, and the column of each.

    The name of an exchange follows from its number, which is called `exchange` here.
    """
    names = (name for name in document.__struct_fields__ if name != "exchange")
    return {name: "exchange" if name == "number" else name for name in names}


def _type_of(found: inspect.Type) -> pa.DataType:
    match found:
        case inspect.IntType():
            return _I64
        case inspect.FloatType():
            return _F64
        case inspect.BoolType():
            return pa.bool_()
        case inspect.ListType(item_type=item):
            return pa.list_(_type_of(item))
        case inspect.StructType(fields=fields):
            return pa.struct([(each.name, _type_of(each.type)) for each in fields])
        case _:
            return _TEXT


def _of_documents() -> dict[str, pa.DataType]:
    found: dict[str, pa.DataType] = {}
    for document in KINDS:
        names = columns_of(document)
        for field in msgspec.structs.fields(document):
            if field.name in names:
                found[names[field.name]] = _type_of(inspect.type_info(field.type))
    return found


_KPI: Final = (
    Column("kind", _TEXT, f"{', '.join(f'`{kind}`' for kind in KINDS.values())}"),
    Column("dropped", _I64, "documents that the tap had lost by then"),
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
    Column("buckets", pa.list_(pa.int32()), "bucket b holds 1 µs · 1.02^b to 1 µs · 1.02^(b+1)"),
    Column("counts", pa.list_(_I64), "messages in each of these buckets"),
    Column("latency_sum", _F64, "seconds, the sum over all messages"),
    Column("clock_error", _F64, "seconds by which the client's times may be wrong"),
)
_EVENTS: Final = (
    Column("event", _TEXT, "a kind of `simulation.lab.archive.document.EventKind`"),
    Column("exchange", _I64, "at which one; 0: at none in particular"),
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
SCHEMAS: Final = {
    table: pa.schema(
        {each.name: each.type for each in columns} | (_of_documents() if table == KPI else {})
    )
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
    KPI: "one row for each numeric document of the statistics stream. It has these columns, and "
    "the fields of all documents ([CMD 41 to 45](protocol.md#kpi-stream-of-a-queue)) under their "
    "names, null in rows of kinds that do not have them; `exchange` is the number of the exchange, "
    "and ids are hexadecimal",
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
