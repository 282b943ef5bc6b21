"""What holds of every document of a protocol, told by its types; no test in here."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import msgspec
from msgspec import inspect


def documents_of(module: ModuleType) -> list[type[msgspec.Struct]]:
    """The documents that stand in a module."""
    return [
        each for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, msgspec.Struct)
        and each.__module__ == module.__name__
    ]  # fmt: skip


def shape(kind: type[msgspec.Struct]) -> inspect.StructType:
    """Its fields."""
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    return found


def smallest(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The document that says no more than it has to, each number the lowest."""
    found = shape(kind)
    made: dict[str, Any] = {} if found.tag_field is None else {found.tag_field: found.tag}
    for field in found.fields:
        if field.required:
            made[field.encode_name] = _value(field.type)
    return made


def outside(kind: type[msgspec.Struct]) -> Iterator[tuple[str, object]]:
    """Field, and what it cannot be: numbers below and above its range, another type."""
    for field in shape(kind).fields:
        wanted = field.type
        if isinstance(wanted, inspect.UnionType):
            wanted = wanted.types[0]
        match wanted:
            case inspect.IntType() | inspect.FloatType():
                assert wanted.ge is not None, f"{kind.__name__}.{field.name}"
                assert wanted.le is not None, f"{kind.__name__}.{field.name}"
                yield field.encode_name, wanted.ge - abs(wanted.ge) - 1
                yield field.encode_name, wanted.le * 2 + 1
                yield field.encode_name, "text"
            case inspect.StrType():
                yield field.encode_name, 5
            case inspect.BytesType() if wanted.max_length is not None:
                yield field.encode_name, bytes(wanted.max_length + 1)
            case inspect.ListType() if wanted.max_length is not None:
                yield field.encode_name, [_value(wanted.item_type)] * (wanted.max_length + 1)
            case _:
                yield field.encode_name, 1.5


def _value(kind: inspect.Type) -> object:  # noqa: PLR0911 - one per kind
    match kind:
        case inspect.NamedTupleType(fields=items):
            return [_value(each.type) for each in items]
        case inspect.StructType() if kind.array_like:
            return [_value(each.type) for each in kind.fields]
        case inspect.StructType():
            return smallest(kind.cls)
        case inspect.IntType() | inspect.FloatType():
            return kind.ge
        case inspect.BytesType():
            return b"b" * (kind.min_length or 1)
        case inspect.StrType():
            return "text"
        case inspect.BoolType():
            return False
        case inspect.ListType():
            return []
        case inspect.DictType():
            return {}
        case inspect.TupleType(items):
            return [_value(each) for each in items]
    raise AssertionError(kind)
