"""ZMTP 3.1, the wire of ZeroMQ over TCP: greeting, handshake without security, frames, heartbeats.

    greeting   64 bytes: signature, version, mechanism ("NULL")
    frame      flags, size in one byte or eight (LONG), body; the last one of a message has no MORE
    command    a frame with COMMAND: READY ends the handshake, PING asks for a sign of life (PONG),
               SUBSCRIBE and CANCEL are what a subscriber of version 3.1 sends; one of 3.0 sends a
               message with 1 or 0 before the prefix

`Inbound` takes apart what one peer sends, whatever that is, and holds no more than `PARTS_MAX`
frames of the largest size and the next one. Nothing here knows sockets;
`roq.runtime.zmtp_server` does.

Specifications: https://rfc.zeromq.org/spec/23 (3.0) and https://rfc.zeromq.org/spec/37 (3.1).
"""

from __future__ import annotations

import struct
from typing import Final

from roq.errors import RemoteProtocolError

MORE: Final = 1
LONG: Final = 2
COMMAND: Final = 4
_FLAGS_MAX: Final = MORE | LONG | COMMAND

GREETING_BYTES: Final = 64
_SIGNATURE: Final = b"\xff" + bytes(8) + b"\x7f"
_MECHANISM: Final = b"NULL".ljust(20, b"\0")
_MECHANISM_AT: Final = 12
_VERSION_AT: Final = 10
_VERSION_LEAST: Final = 3
GREETING: Final = (_SIGNATURE + b"\x03\x01" + _MECHANISM).ljust(GREETING_BYTES, b"\0")

SUBSCRIBED: Final = b"\x01"
CANCELLED: Final = b"\x00"
"""Before the prefix of a message to a publisher."""

LARGE_BYTES: Final = 64 * 1024
"""A frame that is larger is received into a buffer of its own."""
LARGE_AT_ONCE: Final = 256 * 1024
"""So large that buffer is at first. It grows as it is filled: a head of nine bytes that announces
the largest frame costs nothing."""
PARTS_MAX: Final = 4
"""Frames of a message that are kept; what has more is garbled for everybody here."""
COMMAND_BYTES_MAX: Final = 1_024
"""Of a handshake; what comes after it is bounded as messages are."""

_LONG_SIZE: Final = struct.Struct(">Q")
_SHORT_HEAD: Final = struct.Struct(">BB")
_LONG_HEAD: Final = struct.Struct(">BQ")
_LENGTH: Final = struct.Struct(">I")
_TTL: Final = struct.Struct(">H")
_TTL_MAX: Final = 655
"""libzmq keeps milliseconds in 16 bits: more would be next to nothing."""
_SHORT_MAX: Final = 255
_SHORT_BYTES: Final = 2
_LONG_BYTES: Final = 9
REST_BYTES_MAX: Final = LARGE_BYTES + _LONG_BYTES
"""Of `Inbound.rest`, when `more` is not set."""
_CONTEXT_BYTES_MAX: Final = 16
_SOCKET_TYPE: Final = b"socket-type"


def head(size: int, flags: int = 0) -> bytes:
    """What stands before the body of a frame."""
    if size <= _SHORT_MAX:
        return _SHORT_HEAD.pack(flags, size)
    return _LONG_HEAD.pack(flags | LONG, size)


def command(name: bytes, body: bytes = b"") -> bytes:
    """A whole command frame."""
    size = 1 + len(name) + len(body)
    return head(size, COMMAND) + bytes((len(name),)) + name + body


def ready(socket_type: bytes) -> bytes:
    """What ends the handshake."""
    name = b"Socket-Type"
    named = bytes((len(name),)) + name
    return command(b"READY", named + _LENGTH.pack(len(socket_type)) + socket_type)


def ping(ttl_ms: int) -> bytes:
    """A question for a sign of life.

    Args:
        ttl_ms: the peer may take this end for dead when it hears nothing for so long; 0: it decides
            itself, as with more than a minute, which ZeroMQ cannot be told. Told in tenths of a
            second.
    """
    tenths = ttl_ms // 100
    return command(b"PING", _TTL.pack(tenths if tenths <= _TTL_MAX else 0))


class Inbound:
    """Takes apart what one peer sends.

    Args:
        accepts: types of sockets that may talk to this one.
        largest: bytes of a frame.

    Attributes:
        rest: the beginning of what `take` was given and could not use yet: give it again, with what
            comes after it.
        large: a frame that is to be received into this buffer, as `LARGE_BYTES` says, or None.
        filled: bytes of it that have come.
        stands: the handshake is over.
        more: `take` has done as much as was asked for, and something is left.
        pong: the answer to a heartbeat that is to be sent; the owner takes it away.
        ttl_ms: silence after which the peer is to be taken for dead, by its own word; 0: it said
            nothing.
    """

    __slots__ = (
        "_accepts", "_greeted", "_large_bytes", "_large_flags", "_largest", "_parts", "filled",
        "large", "more", "pong", "rest", "stands", "ttl_ms",
    )  # fmt: skip

    def __init__(self, accepts: frozenset[bytes], largest: int) -> None:
        self._accepts = accepts
        self._largest = largest
        self._greeted = False
        self._parts: list[bytes] = []
        self._large_bytes = 0
        self._large_flags = 0
        self.rest = b""
        self.large: bytearray | None = None
        self.filled = 0
        self.stands = False
        self.more = False
        self.pong = b""
        self.ttl_ms = 0

    def grew(self, size: int) -> list[list[bytes]]:
        """So many bytes were received into `large`; gives the message if it ends with them.

        Raises:
            RemoteProtocolError: see `take`.
        """
        self.filled += size
        large = self.large
        if large is None or self.filled < len(large):
            return []
        left = self._large_bytes - len(large)
        if left:
            large += bytes(min(left, len(large)))
            return []
        self.large = None
        messages: list[list[bytes]] = []
        self._frame(self._large_flags, bytes(large), messages)
        return messages

    def take(self, data: memoryview, most: int) -> list[list[bytes]]:
        """Take in `rest` and what came after it; gives up to `most` messages, in their order.

        A message is a list of frames; of one with more than `PARTS_MAX` only the first are kept. A
        subscription is a message of one frame, as of a subscriber of version 3.0. Frames that make
        no message take time, too: no more than `PARTS_MAX` for each of `most` are taken in.

        Raises:
            RemoteProtocolError: this is no peer of ours: the connection is to be ended.
        """
        messages: list[list[bytes]] = []
        at, end, frames_left = 0, len(data), PARTS_MAX * most
        if not self._greeted:
            if end < GREETING_BYTES:
                self._check_greeting(bytes(data))
                self.rest = bytes(data)
                return messages
            self._check_greeting(bytes(data[:GREETING_BYTES]))
            self._greeted = True
            at = GREETING_BYTES
        self.more = False
        standing = self.stands
        largest = self._largest if standing else COMMAND_BYTES_MAX
        while end - at >= _SHORT_BYTES:
            flags = data[at]
            if flags & LONG:
                body = at + _LONG_BYTES
                if body > end:
                    break
                (size,) = _LONG_SIZE.unpack_from(data, at + 1)
            else:
                body = at + _SHORT_BYTES
                size = data[at + 1]
            if flags > _FLAGS_MAX or size > largest:
                raise RemoteProtocolError(f"a frame with flags {flags} and of {size} bytes")
            stop = body + size
            if stop > end:
                if size > LARGE_BYTES:
                    self.filled = end - body
                    self.large = bytearray(min(size, max(LARGE_AT_ONCE, 2 * self.filled)))
                    self.large[: self.filled] = data[body:]
                    self._large_bytes, self._large_flags = size, flags
                    at = end
                break
            at = stop
            self._frame(flags, bytes(data[body:stop]), messages)
            if not standing and self.stands:
                standing, largest = True, self._largest
            frames_left -= 1
            if len(messages) >= most or not frames_left:
                self.more = at < end
                break
        self.rest = bytes(data[at:])
        return messages

    def _frame(self, flags: int, body: bytes, messages: list[list[bytes]]) -> None:
        """One whole frame."""
        if flags & COMMAND:
            self._command(body, messages)
            return
        if not self.stands:
            raise RemoteProtocolError("a message before the handshake was over")
        if len(self._parts) < PARTS_MAX:
            self._parts.append(body)
        if not flags & MORE:
            messages.append(self._parts)
            self._parts = []

    def _command(self, frame: bytes, messages: list[list[bytes]]) -> None:
        at = 1 + (frame[0] if frame else 0)
        name, body = frame[1:at], frame[at:]
        if not self.stands:
            if name != b"READY":
                raise RemoteProtocolError("a handshake without READY")
            kind = _properties(body).get(_SOCKET_TYPE, b"")
            if kind not in self._accepts:
                raise RemoteProtocolError("a peer whose type of socket does not fit")
            self.stands = True
        elif name == b"PING" and len(body) >= _TTL.size:
            (tenths,) = _TTL.unpack_from(body)
            self.ttl_ms = 100 * tenths
            # One answer says as much as several, and nobody may have them pile up.
            self.pong = command(b"PONG", body[_TTL.size :][:_CONTEXT_BYTES_MAX])
        elif name == b"SUBSCRIBE":
            messages.append([SUBSCRIBED + body])
        elif name == b"CANCEL":
            messages.append([CANCELLED + body])

    @staticmethod
    def _check_greeting(told: bytes) -> None:
        """Refuse as soon as it shows: somebody who speaks something else sends no 64 bytes."""
        first, last = told[:1], told[9:10]
        version = told[_VERSION_AT : _VERSION_AT + 1]
        if first not in (b"", b"\xff") or last not in (b"", b"\x7f"):
            raise RemoteProtocolError("no ZeroMQ")
        if version and version[0] < _VERSION_LEAST:
            raise RemoteProtocolError("ZeroMQ of before version 4")
        if not _MECHANISM.startswith(told[_MECHANISM_AT : _MECHANISM_AT + len(_MECHANISM)]):
            raise RemoteProtocolError("a security mechanism that this end does not have")


def _properties(body: bytes) -> dict[bytes, bytes]:
    """Those of READY, by name in small letters.

    Raises:
        RemoteProtocolError: they are cut off.
    """
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(body):
        name_end = at + 1 + body[at]
        value_at = name_end + _LENGTH.size
        if value_at > len(body):
            raise RemoteProtocolError("a READY that is cut off")
        (size,) = _LENGTH.unpack_from(body, name_end)
        found[body[at + 1 : name_end].lower()] = body[value_at : value_at + size]
        at = value_at + size
        if at > len(body):
            raise RemoteProtocolError("a READY that is cut off")
    return found
