"""Well-formed documents with numbers, texts and sizes from the edges, out of msgspec's types."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import msgspec
from msgspec import inspect

from roq.protocol.version import FIELD, WIRE_VERSION

NUMBERS = (
    -(1 << 63), -(1 << 31), -1, 0, 1, 2, 3, 5, 7, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 36,
    1 << 53, 1 << 62, (1 << 63) - 2, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
)  # fmt: skip
U64 = (0, 1, 2, 3, 5, 1 << 40, 1 << 53, (1 << 62), (1 << 63) - 2, (1 << 63) - 1, (1 << 64) - 1)
STEPS = 40
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e9, 1e18, 1e300, float("nan"), float("inf"), -float("inf"))
TEXTS = (
    "", "t", "orders", "x1", "\0", "ü" * 300, "\U0001f600", "[red]", "running", "stopped",
    "publisher", "subscriber", "accepted", "failed", "exchange", "monitor", "tcp://127.0.0.1:6001",
    "tcp://[::1]:0", "127.0.0.1", "..", "a" * 70_000,
)  # fmt: skip
BYTES = (b"", b"t", b"q" * 16, b"p" * 16, b"e" * 16, b"\xff", b"\xfe\xff", b"x" * 255, b"x" * 256)
WRONG: Sequence[object] = (None, True, "text", b"bytes", 1.5, [], {}, [[[]]], {"": {}})
KEEP = 0.97


@cache
def _shape(kind: object) -> inspect.Type:
    return inspect.type_info(kind)


class Maker:
    """Makes documents; the same seed gives the same ones.

    Args:
        seed: of the random numbers.
        known: values that fields of these names mostly have, so that documents get through.
    """

    def __init__(self, seed: int, known: dict[str, Sequence[object]] | None = None) -> None:
        self.random = random.Random(seed)
        self.known = known or {}

    def pick(self, values: Sequence[object]) -> object:
        return self.random.choice(values)

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def document(self, kind: object, *, json: bool = False) -> dict[str, object]:
        """A document of a struct, as it travels; now and then with one field too few or too many.

        Args:
            kind: a struct or a union of some.
            json: it is to be JSON, which knows no bytes.
        """
        shape = _shape(kind)
        if isinstance(shape, inspect.UnionType):
            shape = self.random.choice(shape.types)
        assert isinstance(shape, inspect.StructType)
        made = self._struct(shape, json=json)
        assert isinstance(made, dict)
        return made

    def array(self, kind: object) -> list[object]:
        """As `document`, of a struct that travels as an array."""
        shape = _shape(kind)
        assert isinstance(shape, inspect.StructType)
        made = self._struct(shape, json=False)
        assert isinstance(made, list)
        return made

    def integer(self, kind: inspect.IntType | None = None) -> int:
        number = self.random.choice(NUMBERS)
        if kind is not None and self.chance(KEEP):
            low = kind.ge if kind.ge is not None else -(1 << 63)
            high = kind.le if kind.le is not None else (1 << 63) - 1
            number = self.random.choice([n for n in (*NUMBERS, low, high) if low <= n <= high])
        return number

    def value(self, kind: inspect.Type, *, json: bool = False) -> object:  # noqa: C901, PLR0911, PLR0912
        if not self.chance(KEEP + 0.02):
            return self.pick([each for each in WRONG if not (json and isinstance(each, bytes))])
        match kind:
            case inspect.StructType():
                return self._struct(kind, json=json)
            case inspect.UnionType(types):
                return self.value(self.random.choice(types), json=json)
            case inspect.IntType():
                return self.integer(kind)
            case inspect.FloatType():
                return self.random.choice([*FLOATS, 0, 1])
            case inspect.BoolType():
                return self.chance(0.5)
            case inspect.StrType() | inspect.AnyType():
                return self.pick(TEXTS)
            case inspect.BytesType():
                return self.pick(TEXTS if json else BYTES)
            case inspect.ListType() | inspect.VarTupleType():
                count = self.random.choice([0, 1, 2, 3])
                return [self.value(kind.item_type, json=json) for _ in range(count)]
            case inspect.NamedTupleType():
                return [self.value(each.type, json=json) for each in kind.fields]
            case inspect.TupleType(items):
                return [self.value(each, json=json) for each in items]
            case inspect.DictType():
                count = self.random.choice([0, 1, 2])
                keys = [str(self.pick(TEXTS[:6])).replace("\0", "0") for _ in range(count)]
                return {key: self.value(kind.value_type, json=json) for key in keys}
            case inspect.EnumType():
                return self.random.choice(list(kind.cls)).value
            case _:
                return None

    def _struct(self, kind: inspect.StructType, *, json: bool) -> object:
        made: dict[str, object] = {}
        if kind.tag_field is not None:
            made[kind.tag_field] = kind.tag
        for field in kind.fields:
            name = field.encode_name
            if name == FIELD and self.chance(KEEP):
                made[name] = WIRE_VERSION  # or nothing behind the first check is ever reached
                continue
            if not (field.required or self.chance(0.7)) or not self.chance(KEEP + 0.02):
                if kind.array_like:
                    break  # what follows would stand in the wrong places
                continue
            if name in self.known and self.chance(0.9):
                made[name] = self.pick(self.known[name])
            else:
                made[name] = self.value(field.type, json=json)
        if kind.array_like:
            return list(made.values())
        if self.chance(0.05):
            made["unknown"] = self.integer()
        return made


def for_bson(value: object) -> object:
    """The same, with integers that BSON has none for as floats."""
    match value:
        case bool():
            return value
        case int():
            return value if -(1 << 63) <= value < 1 << 63 else float(value)
        case dict():
            return {key: for_bson(inner) for key, inner in value.items()}
        case list():
            return [for_bson(inner) for inner in value]
    return value


def as_json(value: object) -> bytes:
    """JSON; what is no number becomes null."""
    return msgspec.json.encode(value)
