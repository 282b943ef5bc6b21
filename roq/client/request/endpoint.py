"""Endpoints: what requesters and services agree on, imported by both."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from roq.errors import InvalidName, InvalidRequest
from roq.model import check_name, encode_topic
from roq.protocol.requesting import topic_of

Q = TypeVar("Q")
R = TypeVar("R")

FORMATS: Final = ("msgpack", "json")
_AS_THEY_ARE: Final = (bytes, None, type(None))


class Codec(Protocol):
    """Turns values of any type into bytes and back; both may raise any `Exception`."""

    def encode(self, value: Any) -> bytes:
        """The bytes of a value."""
        ...

    def decode(self, data: bytes, kind: Any) -> Any:
        """The value of a type that these bytes are."""
        ...


class Endpoint(Generic[Q, R]):
    """One thing that a service does.

    Attributes:
        name: `SERVICE.NAME`.
        service: the part before the last dot.
        request, response: the types.
        idempotent: running it twice does no harm.
        topic: of its requests.
    """

    __slots__ = (
        "_decode_request", "_decode_response", "_encode_request", "_encode_response",
        "idempotent", "name", "request", "response", "service", "topic",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        request: type[Q],
        response: type[R],
        *,
        idempotent: bool = False,
        codec: str | Codec = "msgpack",
    ) -> None:
        check_name(name, "endpoint")
        service, dot, short = name.rpartition(".")
        if not (dot and service and short):
            raise InvalidName(
                f"endpoint {name!r}: the name is that of its service, a dot, and its own: "
                f"'billing.{name.strip('.')}'"
            )
        self.name = name
        self.service = service
        self.request = request
        self.response = response
        self.idempotent = idempotent
        self.topic = topic_of(service, short)
        encode_topic(self.topic)
        if not isinstance(codec, str) and all(kind in _AS_THEY_ARE for kind in (request, response)):
            raise InvalidRequest(
                f"endpoint {name}: its codec would never be called, as bytes and nothing travel as "
                "they are: leave it out, or name another type"
            )
        self._encode_request, self._decode_request = _codec(request, codec)
        self._encode_response, self._decode_response = _codec(response, codec)

    def encode_request(self, value: Q) -> bytes:
        """The bytes of a request.

        Raises:
            InvalidRequest: it cannot be encoded.
        """
        try:
            return self._encode_request(value)
        except Exception as error:
            raise InvalidRequest(f"a request to {self.name} cannot be encoded: {error}") from error

    def decode_request(self, data: bytes) -> Q:
        """What `encode_request` was given; raises whatever the codec raises."""
        value: Q = self._decode_request(data)
        return value

    def encode_response(self, value: R) -> bytes:
        """The bytes of a response; raises whatever the codec raises."""
        return self._encode_response(value)

    def decode_response(self, data: bytes) -> R:
        """What `encode_response` was given.

        Raises:
            InvalidRequest: it is of another type: the two sides do not have the same endpoint.
        """
        try:
            value: R = self._decode_response(data)
        except Exception as error:
            raise InvalidRequest(
                f"the response of {self.name} is no {type_text(self.response)}: {error}"
            ) from error
        return value

    def __repr__(self) -> str:
        return f"<roq.Endpoint {self.name}>"


def type_text(kind: object) -> str:
    """A type as people write it."""
    return kind.__name__ if isinstance(kind, type) else repr(kind)


def endpoint(
    name: str,
    *,
    request: type[Q],
    response: type[R],
    idempotent: bool = False,
    codec: str | Codec = "msgpack",
) -> Endpoint[Q, R]:
    """An endpoint; requesters and services of it make, or import, the same one.

    Args:
        name: `SERVICE.NAME`, of the characters A-Z a-z 0-9 . _ -
        request, response: types that msgspec can encode, `bytes` for bytes as they are, or
            `type(None)` for nothing.
        idempotent: running it twice does no harm. Else it is begun at most once, but for `retry_on`
            of the service.
        codec: `msgpack`, `json`, or an object with `encode` and `decode`; it is not asked for
            `bytes` or nothing.

    Raises:
        InvalidName: no such name can be.
        InvalidRequest: no such codec, it cannot encode the types, or an object is never asked.
    """
    return Endpoint(name, request, response, idempotent=idempotent, codec=codec)


def is_async(function: object) -> bool:
    """Whether a call of this gives something to be awaited."""
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))


def _codec(kind: Any, codec: str | Codec) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    if kind is bytes:
        return _as_bytes, bytes
    if kind is None or kind is type(None):
        return _nothing, _read_nothing
    if not isinstance(codec, str):
        given = codec
        if not all(callable(getattr(given, name, None)) for name in ("encode", "decode")):
            raise InvalidRequest(f"codec {codec!r:.80}: it has no `encode` and `decode`")
        return lambda value: _as_bytes(given.encode(value)), lambda data: given.decode(data, kind)
    if codec not in FORMATS:
        raise InvalidRequest(f"codec {codec!r}: use {' or '.join(FORMATS)}, or an object")
    checked = _is_checkable(kind)
    is_number = kind is int or kind is float
    module = msgspec.msgpack if codec == FORMATS[0] else msgspec.json
    try:
        decoder = module.Decoder(kind)
    except TypeError as error:
        raise InvalidRequest(f"{kind!r} cannot be encoded as {codec}: {error}") from None
    encode = module.Encoder().encode

    def encode_checked(value: Any) -> bytes:
        if is_number and isinstance(value, int):
            value = kind(value)  # True for an int and 1 for a float: type checkers let them pass
        elif checked and not isinstance(value, kind):
            raise TypeError(f"it is {type(value).__name__}, not {kind.__name__}")
        data: bytes = encode(value)
        return data

    return encode_checked, decoder.decode


def _is_checkable(kind: Any) -> bool:
    """Whether values can be told to be of this type; of `Any` and a `TypedDict` they cannot."""
    try:
        isinstance(None, kind)
    except TypeError:
        return False
    return isinstance(kind, type)


def _as_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"it is {type(value).__name__}, not bytes")
    return bytes(value)


def _nothing(value: Any) -> bytes:
    if value is not None:
        raise TypeError(f"it is {type(value).__name__}, not None")
    return b""


def _read_nothing(data: bytes) -> None:
    if data:
        raise ValueError(f"{len(data)} bytes where there should be none")
