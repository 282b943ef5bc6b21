"""Every number of every document has its range, and what decoders raise is one error."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
import xxhash
from msgspec import inspect

from roq import model
from roq.errors import RemoteProtocolError
from roq.gcm.state import records as registry
from roq.hcm import records as processes
from roq.number_ranges import NUMBER_MAX, saturated
from roq.protocol import (
    broadcast,
    channel,
    control,
    documents,
    kpi,
    public,
    public_answers,
    reports,
    scaling_rules,
    spec,
)
from roq.protocol.batch import HEADER, MAGIC, WIRE_VERSION, read_header, read_payloads
from roq.provider import record as hosts

MODULES = (
    broadcast, channel, control, kpi, model, public, public_answers, reports, scaling_rules, spec,
    registry, processes, hosts,
)  # fmt: skip
CHECKED_BY_NAME = frozenset(scaling_rules.RANGES) | {"Limits", "TransactionID", "Exchange"}
"""Fields whose range has a sentence of its own, which existing tools show."""


def structs() -> list[type[msgspec.Struct]]:
    return [
        kind
        for module in MODULES
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and kind.__module__ == module.__name__
    ]


def unbounded(kind: inspect.Type) -> Iterator[inspect.Type]:
    """The numbers in a type that have no lower or no upper end."""
    match kind:
        case inspect.IntType() | inspect.FloatType():
            if kind.ge is None or kind.le is None:
                yield kind
        case inspect.UnionType(types):
            for each in types:
                yield from unbounded(each)
        case inspect.TupleType(items):
            for each in items:
                yield from unbounded(each)
        case inspect.ListType() | inspect.VarTupleType():
            yield from unbounded(kind.item_type)
        case inspect.DictType():
            yield from unbounded(kind.value_type)
        case _:
            return


@pytest.mark.parametrize("kind", structs(), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_number_of_every_document_has_its_range(kind: type[msgspec.Struct]) -> None:
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    open_ended = [
        field.name
        for field in found.fields
        if field.name not in CHECKED_BY_NAME and list(unbounded(field.type))
    ]
    assert not open_ended


def test_a_number_out_of_its_range_is_refused_by_name() -> None:
    with pytest.raises(RemoteProtocolError, match="first"):
        documents.convert(
            {"id": 1, "queue": b"q", "epoch": 1, "first": -(1 << 63)}, channel.FetchRequest
        )


def test_a_counter_that_travels_stops_at_the_largest_number() -> None:
    assert saturated(1 << 70) == NUMBER_MAX


BODIES = {
    "deep nesting": b"\x92\x91\xc4\x01x" + b"\x91" * 100_000 + b"\xc0",
    "more payloads than memory": b"\x92\xdd\xff\xff\xff\xff",
    "bad UTF-8": b"\x92\x91\xc4\x01x\x91\xa2\xff\xff",
    "a time that is none": b"\x92\x91\xc4\x01x\x91\xc7\x0c\xff" + b"\xff" * 12,
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_whatever_a_body_is_there_is_one_error(body: bytes) -> None:
    checksum = xxhash.xxh3_64_intdigest(body) & 0xFFFFFFFF
    header = HEADER.pack(MAGIC, WIRE_VERSION, 0, 0, 0, 0, 1, checksum, b"p" * 16, 1, 1, 0, 1)
    with pytest.raises(RemoteProtocolError, match="body of a batch"):
        read_payloads(header + body, read_header(header + body))
