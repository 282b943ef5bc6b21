"""What messages carry beside their payload: a key, tags, properties, a priority.

They travel in the body of a batch as one byte string beside the payloads, msgpack of
`{index: [key, tags, properties, priority]}` with the messages that have any. An exchange never
looks into it (what exchanges are to know stands in `roq.protocol.columns`), and a subscriber only
when the program asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec

from roq.errors import InvalidName, RemoteProtocolError
from roq.model import check_count
from roq.number_ranges import UNREADABLE
from roq.protocol.columns import PRIORITY_MAX

KEY_BYTES_MAX: Final = 1_024
TAGS_MAX: Final = 32
TAG_BYTES_MAX: Final = 255
PROPERTIES_MAX: Final = 128
RESERVED_MAX: Final = 16
"""RoQ's own properties come on top."""
NAME_BYTES_MAX: Final = 255
VALUE_BYTES_MAX: Final = 32 * 1_024
RESERVED: Final = "roq."
"""Names of properties that begin so belong to RoQ."""

_Key = Annotated[str, msgspec.Meta(max_length=KEY_BYTES_MAX)]
_Tag = Annotated[str, msgspec.Meta(max_length=TAG_BYTES_MAX)]
_Name = Annotated[str, msgspec.Meta(max_length=NAME_BYTES_MAX)]
_Value = Annotated[str, msgspec.Meta(max_length=VALUE_BYTES_MAX)]
_Tags = Annotated[tuple[_Tag, ...], msgspec.Meta(max_length=TAGS_MAX)]
_Priority = Annotated[int, msgspec.Meta(ge=0, le=PRIORITY_MAX)]
_Properties = Annotated[dict[_Name, _Value], msgspec.Meta(max_length=PROPERTIES_MAX + RESERVED_MAX)]


class Attributes(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Of one message."""

    key: _Key | None = None
    tags: _Tags = ()
    properties: _Properties = {}
    priority: _Priority = 0


class _Keyed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """As much of `Attributes` as says the key."""

    key: _Key | None = None


NO_ATTRIBUTES: Final = Attributes()
_SLACK_BYTES: Final = 8
"""For the index of a message, and more."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[int, Attributes]).decode
_decode_keys = msgspec.msgpack.Decoder(dict[int, _Keyed]).decode


def attributes_of(
    key: str | None,
    tags: Sequence[str] | None,
    properties: Mapping[str, str] | None,
    priority: int = 0,
) -> Attributes | None:
    """What a publisher gives with a message, checked; None if that is nothing.

    Raises:
        TypeError: something is no text.
        InvalidName: too long, too many, no valid text, or a reserved name.
        InvalidRequest: there is no such priority.
    """
    if isinstance(tags, str):
        raise TypeError(f"tags are a list of texts: [{tags!r}], not {tags!r}")
    if properties is not None and not isinstance(properties, Mapping):
        raise TypeError("properties are a mapping of texts to texts")
    priority = check_count("priority", priority, 0, PRIORITY_MAX)
    made = Attributes(key, tuple(tags or ()), dict(properties or {}), priority)
    if made == NO_ATTRIBUTES:
        return None
    if made.key is not None:
        _check("a key", made.key, KEY_BYTES_MAX)
    if len(made.tags) > TAGS_MAX:
        raise InvalidName(f"a message has at most {TAGS_MAX} tags, not {len(made.tags)}")
    for tag in made.tags:
        _check("a tag", tag, TAG_BYTES_MAX)
    if len(made.properties) > PROPERTIES_MAX:
        raise InvalidName(
            f"a message has at most {PROPERTIES_MAX} properties, not {len(made.properties)}"
        )
    for name, value in made.properties.items():
        _check("the name of a property", name, NAME_BYTES_MAX)
        if not name:
            raise InvalidName("a property has a name")
        if name.startswith(RESERVED):
            raise InvalidName(f"property {name!r}: names that begin with {RESERVED!r} are RoQ's")
        _check(f"property {name!r}", value, VALUE_BYTES_MAX)
    return made


def keyed(key: str) -> Attributes:
    """A key and nothing else.

    Raises:
        TypeError, InvalidName: as `attributes_of`.
    """
    _check("a key", key, KEY_BYTES_MAX)
    return Attributes(key)


def pack_one(attributes: Attributes) -> tuple[msgspec.Raw, int]:
    """The attributes of one message as they travel, and their `packed_size`."""
    packed = _encode(attributes)
    return msgspec.Raw(packed), len(packed) + _SLACK_BYTES


def packed_size(attributes: Attributes) -> int:
    """Bytes that these take in a batch, or a few more."""
    return len(_encode(attributes)) + _SLACK_BYTES


def pack_attributes(given: Mapping[int, Attributes | msgspec.Raw]) -> bytes:
    """The byte string of a batch, out of the index of each message that has attributes."""
    return _encode(given)


def keys_of(packed: bytes) -> set[str]:
    """The keys of the messages of a batch, out of its byte string.

    Raises:
        RemoteProtocolError: that cannot be read.
    """
    try:
        return {each.key for each in _decode_keys(packed).values() if each.key is not None}
    except UNREADABLE as error:
        raise RemoteProtocolError(f"the keys of a batch cannot be read: {error}") from None


class BatchAttributes:
    """The attributes of the messages of one batch, unpacked when they are asked for.

    Args:
        packed: as in the body of the batch.
        first: sequence of the first message of the batch.
        count: messages of the batch.
    """

    __slots__ = ("_count", "_first", "_packed", "_unpacked")

    def __init__(self, packed: bytes, first: int, count: int) -> None:
        self._packed = packed
        self._first = first
        self._count = count
        self._unpacked: dict[int, Attributes] | RemoteProtocolError | None = None

    def of(self, sequence: int) -> Attributes:
        """Those of the message with this sequence.

        Raises:
            RemoteProtocolError: what the publisher has sent are no attributes.
        """
        unpacked = self._unpacked
        if unpacked is None:
            unpacked = self._unpacked = self._unpack()
        if isinstance(unpacked, RemoteProtocolError):
            raise unpacked.with_traceback(None)  # or it would grow each time
        return unpacked.get(sequence - self._first, NO_ATTRIBUTES)

    def _unpack(self) -> dict[int, Attributes] | RemoteProtocolError:
        try:
            if _entries(self._packed) > self._count:
                raise ValueError("more than there are messages")
            return _decode(self._packed)
        except UNREADABLE as error:
            reason = str(error) or type(error).__name__
            return RemoteProtocolError(f"the attributes of a batch cannot be read: {reason}")


def _entries(packed: bytes) -> int:
    """How many entries the map says that it has, before anything is made of them."""
    kind = packed[:1]
    if kind in {b"\xde", b"\xdf"}:
        return int.from_bytes(packed[1 : 3 if kind == b"\xde" else 5], "big")
    return packed[0] & 0x0F if kind else 0


def _check(what: str, text: str, most: int) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{what} is text, not {type(text).__name__}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidName(f"{what} is no valid text: {text!r:.80}") from None
    if size > most:
        raise InvalidName(f"{what} has at most {most} bytes, not {size}")
