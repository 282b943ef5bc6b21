"""One TCP connection that speaks ZMTP, of either end: what waits for it, and what has come."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import Final

from roq.protocol import zmtp

RECEIVE_BYTES: Final = 128 * 1024
"""Read at once: what is unpacked then is still in the processor's cache."""
PIECES_AT_ONCE: Final = 64


def receive_buffer() -> memoryview:
    """What `ZmtpPeer.read` needs; one for all connections of a thread."""
    return memoryview(bytearray(RECEIVE_BYTES + zmtp.REST_BYTES_MAX))


class ZmtpPeer:
    """A connection that does not block.

    Attributes:
        fd: its descriptor.
        inbound: takes apart what comes.
        out: what the system has not taken yet, in pieces.
        size: bytes in `out`.
        taken: bytes that the system has taken so far.
        heard_at: when it has said something last, or was made.
        full: the last `read` brought as much as it takes at once.
        closed: for the owner.
    """

    __slots__ = (
        "closed", "fd", "full", "heard_at", "inbound", "out", "size", "socket", "taken",
    )  # fmt: skip

    def __init__(self, connection: socket.socket, inbound: zmtp.Inbound) -> None:
        self.socket = connection
        self.fd = connection.fileno()
        self.inbound = inbound
        self.heard_at = time.monotonic()
        self.out: deque[bytes | memoryview] = deque()
        self.size = 0
        self.full = False
        self.taken = 0
        self.closed = False

    def put(self, pieces: Iterable[bytes]) -> None:
        """Have this sent with the next `write`."""
        for piece in pieces:
            if piece:
                self.out.append(piece)
                self.size += len(piece)

    def write(self) -> bool:
        """Give the system what it takes; whether something is left.

        Raises:
            OSError: nothing can leave any more. What had come before is still read to the end,
                which tells of the end, too.
        """
        out = self.out
        while out:
            pieces = out if len(out) <= PIECES_AT_ONCE else list(islice(out, PIECES_AT_ONCE))
            try:
                sent = self.socket.sendmsg(pieces, (), socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return True
            except OSError:
                # Half a frame may have left, so nothing may follow it, whatever the error was.
                self.drop()
                with suppress(OSError):
                    self.socket.shutdown(socket.SHUT_RDWR)
                raise
            self.size -= sent
            self.taken += sent
            if not self.size:
                out.clear()
                break
            while sent >= len(out[0]):
                sent -= len(out.popleft())
            if sent:
                out[0] = memoryview(out[0])[sent:]
        return False

    def drop(self) -> None:
        """Forget what waits."""
        self.out.clear()
        self.size = 0

    def read(self, buffer: memoryview, most: int) -> list[list[bytes]]:
        """What has come, up to `most` messages; the next call goes on with `inbound.more`.

        Args:
            buffer: of `receive_buffer`.

        Raises:
            OSError: the connection has ended.
            RemoteProtocolError: the other end is to be left.
        """
        inbound, size = self.inbound, 0
        rest = inbound.rest
        try:
            if inbound.large is not None:
                filled = inbound.filled
                size = self.socket.recv_into(
                    memoryview(inbound.large)[filled : filled + RECEIVE_BYTES]
                )
                messages = inbound.grew(size)
            else:
                kept = len(rest)
                buffer[:kept] = rest
                if inbound.more:
                    return inbound.take(buffer[:kept], most)
                size = self.socket.recv_into(buffer[kept : kept + RECEIVE_BYTES])
                messages = inbound.take(buffer[: kept + size], most)
        except BlockingIOError:
            self.full = False
            return []
        self.full = size == RECEIVE_BYTES or inbound.large is not None
        if not size:
            raise ConnectionResetError("the other end has closed the connection")
        if inbound.stands:
            self.heard_at = time.monotonic()
        return messages
