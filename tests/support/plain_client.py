"""A client of the public interfaces over a bare TCP connection (ZMTP 2.0).

Unlike a ZeroMQ socket it has no heartbeats: it stays connected to a process that stands still, and
what it has said is there when that goes on.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Self

import bson

from roq.protocol.documents import RawDocument

PATIENCE_SECONDS = 30.0
_DEALER = 5
_GREETING = b"\xff" + bytes(8) + b"\x7f" + bytes([1, _DEALER])
_THEIRS = 12
"""Bytes of the greeting that comes back, before the identity."""
_MORE, _LARGE = 1, 2


class PlainClient:
    """Talks to one server; the frames are those of a DEALER that stands for a REQ."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        self._connection = socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)
        self._connection.sendall(_GREETING + _frame(b""))  # it has no identity
        self._take(_THEIRS)
        self._frame()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def send(self, command: int, **fields: object) -> None:
        """Say something, whether anybody hears it or not."""
        document = bson.encode({"CMD": command, **fields})
        self._connection.sendall(_frame(b"", more=True) + _frame(document))

    def receive(self) -> RawDocument:
        """The next answer."""
        more = True
        data = b""
        while more:
            more, data = self._frame()
        return bson.decode(data)

    def _frame(self) -> tuple[bool, bytes]:
        (flags,) = self._take(1)
        layout = ">Q" if flags & _LARGE else ">B"
        (size,) = struct.unpack(layout, self._take(struct.calcsize(layout)))
        return bool(flags & _MORE), self._take(size)

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._connection.recv(size - len(data))
            assert more, "the connection has ended"
            data += more
        return data


def _frame(data: bytes, *, more: bool = False) -> bytes:
    if len(data) > 255:
        return struct.pack(">BQ", more | _LARGE, len(data)) + data
    return struct.pack(">BB", more, len(data)) + data
