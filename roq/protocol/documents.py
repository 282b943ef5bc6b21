"""BSON documents: typed on our side, hostile until validated on the way in.

Each document is a `msgspec` struct. Unknown fields are ignored, so newer peers may say more;
missing fields and wrong types are answered with a sentence that names the field. Numbers arrive as
int32, int64 or double (JavaScript knows no other) and mean the same.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, TypeVar

import bson
import msgspec
from bson.errors import BSONError

from roq.errors import RemoteProtocolError
from roq.number_ranges import UNREADABLE

DOCUMENT_BYTES_MAX: Final = 16 * 1024 * 1024
DEPTH_MAX: Final = 32
_KINDS_MAX: Final = 256

_PLAIN: Final = frozenset({int, str, bytes, bool})
"""What need not be made plain, exactly so and no subclass."""

RawDocument = dict[str, object]
T = TypeVar("T")


def encode_raw(document: RawDocument) -> bytes:
    """The BSON of a plain dictionary."""
    return bson.encode(document)


def encode(document: msgspec.Struct) -> bytes:
    """The BSON of a struct; tagged structs carry their `CMD`."""
    builtins: RawDocument = msgspec.to_builtins(document, builtin_types=(bytes,))
    return bson.encode(builtins)


def decode_raw(data: bytes) -> RawDocument:
    """A dictionary of plain values out of BSON.

    Raises:
        RemoteProtocolError: empty, truncated, over-long or not BSON at all.
    """
    if len(data) > DOCUMENT_BYTES_MAX:
        raise RemoteProtocolError(f"document of {len(data)} bytes is above {DOCUMENT_BYTES_MAX}")
    try:
        document = bson.decode(data)
    except (BSONError, *UNREADABLE) as error:
        raise RemoteProtocolError(f"not a BSON document: {error}") from None
    return {
        key: value if type(value) in _PLAIN else _plain(value, DEPTH_MAX)
        for key, value in document.items()
    }


def convert(document: RawDocument, kind: type[T]) -> T:
    """Validate a dictionary against a struct (or a union of tagged ones).

    Raises:
        RemoteProtocolError: says which field is missing or has which wrong type.
    """
    try:
        try:
            holder = _holder(kind)  # type: ignore[arg-type]
            found: T = msgspec.convert({"document": document}, holder).document
        except UNREADABLE:
            # Once more, so that the error names the field from the top of the document.
            found = msgspec.convert(document, kind)
    except UNREADABLE as error:
        raise RemoteProtocolError(str(error) or type(error).__name__) from None
    return found


def decode(data: bytes, kind: type[T]) -> T:
    """`decode_raw` and `convert` in one step."""
    return convert(decode_raw(data), kind)


@lru_cache(maxsize=_KINDS_MAX)
def _holder(kind: object) -> type[Any]:
    """A struct of one field: msgspec takes a bare union to pieces on each call, a struct once."""
    return msgspec.defstruct("Holder", [("document", kind)])


def _plain(value: object, depth: int) -> object:
    """What is not in `_PLAIN`: integral numbers of any BSON type as int, and all that is below."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**63 else value
    if depth == 0:
        raise RemoteProtocolError(f"document nested deeper than {DEPTH_MAX}")
    if isinstance(value, dict):
        return {
            key: inner if type(inner) in _PLAIN else _plain(inner, depth - 1)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [inner if type(inner) in _PLAIN else _plain(inner, depth - 1) for inner in value]
    # Kinds of BSON string and binary are subclasses, and one (code) cannot be hashed.
    if isinstance(value, str):
        return str(value)
    return bytes(value) if isinstance(value, bytes) else value
