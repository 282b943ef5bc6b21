"""One connection to an exchange, as a DEALER or a SUB: used by whoever holds its lock, without a
thread between.

A socket of libzmq hands every message to a thread of its own, and wakes another one with what comes
(docs/decisions/0046). Here who publishes writes to TCP, and who waits for messages reads from it.
What the system does not take is sent by the I/O thread as soon as it does.

It connects once. Its owner is told when it stands, and when it has ended or could not be made, and
makes another one when it wants.

An exception of a signal handler may end `receive`, `put` or `flush` anywhere, and nobody knows then
where a frame begins. So the next use ends the connection, as if the network had.
"""

from __future__ import annotations

import errno
import ipaddress
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Final

from roq.errors import RemoteProtocolError
from roq.protocol import zmtp
from roq.runtime import descriptors
from roq.runtime.interfaces import Timer
from roq.runtime.lifeline import CLOSED, NOT_BEGUN, NOT_GREETED, REFUSED
from roq.runtime.reactor import Reactor
from roq.runtime.zmtp_peer import ZmtpPeer, receive_buffer
from roq.timing import CONNECT_MS, HEARTBEAT_MS

HANDSHAKE_SECONDS: Final = 30.0
"""An exchange that is stopped, or works hard, lets others wait so long."""
FRAME_BYTES_MAX: Final = 1 << 31
"""Twice the largest message that a queue may allow."""
EXCHANGES: Final = frozenset({b"ROUTER"})
"""What a DEALER talks to,"""
FAN_OUTS: Final = frozenset({b"PUB", b"XPUB"})
"""and what a SUB."""
_SCHEME: Final = "tcp://"
_PORT_MAX: Final = 0xFFFF
_BUFFER: Final = threading.local()


def new_socket(family: int) -> socket.socket:
    """One for TCP.

    Raises:
        OSError: no descriptor is left.
    """
    return socket.socket(family, socket.SOCK_STREAM)


class ZmtpClient:
    """Made, connected and closed in the I/O thread; sends and receives in any that holds the lock.

    Args:
        kind: type of this socket.
        accepts: types that may be at the other end.
        lock: taken by the I/O thread for what it does here by itself; may be taken twice.
        on_stands: called in the I/O thread when something can be received.
        on_ended: called there, once, with the reason in a few words (see `roq.runtime.lifeline`).
        silent_ms: an exchange that says nothing for so long, though it should give a sign of life
            every `HEARTBEAT_MS`, is gone; 0: it tells itself how long that is.
        untaken_ms: what is sent must be confirmed by the other system within this; 0: for ever.

    Attributes:
        fd: readable when something has come; -1: it does not stand.
    """

    def __init__(
        self,
        reactor: Reactor,
        kind: bytes,
        accepts: frozenset[bytes],
        *,
        lock: AbstractContextManager[object],
        on_stands: Callable[[], None],
        on_ended: Callable[[str], None],
        silent_ms: int = 0,
        untaken_ms: int = 0,
    ) -> None:
        self.fd = -1
        self._reactor = reactor
        self._hello = zmtp.GREETING + zmtp.ready(kind)
        self._accepts = accepts
        self._lock = lock
        self._on_stands = on_stands
        self._on_ended = on_ended
        self._silent_ms = silent_ms
        self._untaken_ms = untaken_ms
        self._addresses: list[tuple[str, int]] = []
        self._peer: ZmtpPeer | None = None
        self._waiting: list[bytes] = []
        """Pieces to send when it stands."""
        self._early: list[list[bytes]] = []
        """What came together with the end of the handshake."""
        self._timer: Timer | None = None
        self._busy = False
        """Set while bytes move. Set when they begin to: it was interrupted."""
        self._reason = ""
        self._told = self._closed = self._writing = False

    # --- the I/O thread ---------------------------------------------------------------------------

    def connect(self, endpoint: str) -> None:
        """Begin to connect.

        Raises:
            OSError: this can be no address, or no descriptor is left.
        """
        host, colon, port = endpoint.removeprefix(_SCHEME).rpartition(":")
        named = endpoint.startswith(_SCHEME) and colon and port.isdecimal()
        if not named or int(port) > _PORT_MAX:
            raise OSError(errno.EINVAL, f"{endpoint!r} is no address such as tcp://host:port")
        host = host.strip("[]")
        try:
            ipaddress.ip_address(host)
        except ValueError:
            look_up = threading.Thread(
                target=self._look_up, args=(host, int(port)), name="roq-resolver", daemon=True
            )
            try:
                look_up.start()
            except RuntimeError as error:
                raise OSError(errno.EAGAIN, str(error)) from None
            self._timer = self._reactor.call_later(HANDSHAKE_SECONDS, lambda: self._found([]))
        else:
            self._begin([(host, int(port))])

    def close(self, linger_ms: int = 0) -> None:
        """Close; what waits has so long to leave."""
        self._closed = True
        self._waiting.clear()
        if self._peer is not None and self._peer.out and linger_ms and not self._reason:
            self._cancel()
            self._timer = self._reactor.call_later(linger_ms / 1_000, self._release)
            return
        self._release()

    def _look_up(self, host: str, port: int) -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = [(str(address[0]), port) for *_, address in found]
        except (OSError, ValueError):
            addresses = []
        self._reactor.call_soon(lambda: self._found(addresses))

    def _found(self, addresses: list[tuple[str, int]]) -> None:
        self._cancel()
        if self._closed or self._reason:
            return
        try:
            self._begin(addresses)
        except OSError as error:
            self._fail(f"{NOT_BEGUN}: {descriptors.reason(error)}")

    def _begin(self, addresses: list[tuple[str, int]]) -> None:
        """Connect to the first of these addresses; to the others if that fails."""
        if not addresses:
            self._fail(f"{NOT_BEGUN}: nobody knows that name")
            return
        (host, port), *self._addresses = addresses
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            connection = new_socket(family)
        except OSError:
            if self._addresses:  # perhaps this system has no such family
                self._begin(self._addresses)
                return
            raise
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._untaken_ms:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self._untaken_ms)
            failed = connection.connect_ex((host, port))
        except BaseException:
            connection.close()
            raise
        peer = self._peer = ZmtpPeer(connection, zmtp.Inbound(self._accepts, FRAME_BYTES_MAX))
        self._reactor.at_close.add(self._end)
        if failed not in (0, errno.EINPROGRESS):
            self._unconnected(failed)
            return
        self._reactor.add_writer(peer.fd, self._connected)
        self._timer = self._reactor.call_later(CONNECT_MS / 1_000, self._late)

    def _late(self) -> None:
        if self._has(select.POLLOUT):  # only this thread is late
            self._connected()
        else:
            self._unconnected(errno.ETIMEDOUT)

    def _unconnected(self, failed: int) -> None:
        self._release()
        if not self._addresses or self._closed:
            refused = failed in (errno.ECONNREFUSED, errno.ETIMEDOUT)
            self._fail(REFUSED if refused else f"{REFUSED}: {errno.errorcode.get(failed, failed)}")
            return
        self._found(self._addresses)

    def _connected(self) -> None:
        peer = self._peer
        if peer is None or not self._has(select.POLLOUT):
            return  # what was told was meant for another one that had this descriptor
        failed = peer.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failed:
            self._unconnected(failed)
            return
        self._cancel()
        self._reactor.remove_writer(peer.fd)
        self._reactor.add(peer.fd, self._greeted)
        self._timer = self._reactor.call_later(HANDSHAKE_SECONDS, lambda: self._fail(NOT_GREETED))
        with self._lock:
            peer.put([self._hello])
            self.flush()

    def _greeted(self) -> None:
        """Something of the handshake has come."""
        peer = self._peer
        if peer is None:
            return
        with self._lock:
            try:
                self._early += peer.read(_buffer(), sys.maxsize)
            except (OSError, RemoteProtocolError):
                self._fail(NOT_GREETED)
                return
            if not peer.inbound.stands:
                return
            self._cancel()
            self._reactor.remove(peer.fd)
            peer.put(self._waiting)
            self._waiting.clear()
            self.fd = peer.fd
            self.flush()
        self._beat()
        self._on_stands()

    def _beat(self) -> None:
        """Whether the exchange shows signs of life, if it has told how often."""
        peer = self._peer
        if peer is None or self._reason:
            return
        most_ms = self._silent_ms or peer.inbound.ttl_ms
        if most_ms and 1_000 * (time.monotonic() - peer.heard_at) > most_ms and not self.readable:
            self._fail(CLOSED)
            return
        self._timer = self._reactor.call_about(HEARTBEAT_MS / 1_000, self._beat)

    def _send_on(self) -> None:
        """The system takes more."""
        with self._lock:
            self.flush()
            peer = self._peer
            if peer is None or peer.out:
                return
            # With the lock: who leaves something from here on must see that nobody sends it on.
            self._writing = False
            self._reactor.remove_writer(peer.fd)
        if self._closed:
            self._release()

    def _write_later(self) -> None:
        if self._peer is not None and not self._reason and not self._writing:
            self._writing = True
            self._reactor.add_writer(self._peer.fd, self._send_on)

    def _tell(self) -> None:
        if not self._told and not self._closed:
            self._told = True
            self._on_ended(self._reason)
        # The owner has watched the descriptor until now.
        self._release()

    def _end(self) -> None:
        """The loop is over, while other threads may use the connection."""
        with self._lock:
            self._release()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _release(self) -> None:
        self._cancel()
        peer, self._peer, self.fd = self._peer, None, -1
        if peer is None:
            return
        self._writing = False
        self._reactor.at_close.discard(self._end)
        self._reactor.remove(peer.fd)
        self._reactor.remove_writer(peer.fd)
        peer.drop()
        with suppress(OSError):  # it may have ended already
            # A forked child may have the descriptor, too: to close it here would end nothing.
            peer.socket.shutdown(socket.SHUT_RDWR)
        peer.socket.close()

    # --- any thread, with the lock ----------------------------------------------------------------

    @property
    def readable(self) -> bool:
        """Whether something has come that was not received."""
        peer = self._peer
        if peer is None or self._reason:
            return False
        return bool(self._early) or peer.inbound.more or self._has(select.POLLIN)

    @property
    def heard_at(self) -> float:
        """When anything has come last, if only a part of a message; by the monotonic clock."""
        return float("-inf") if self._peer is None else self._peer.heard_at

    @property
    def unsent(self) -> int:
        """Bytes that the system has not taken yet; of what was put before it stands: 0."""
        return 0 if self._peer is None else self._peer.size

    def put(self, pieces: Sequence[bytes]) -> None:
        """Have these bytes, which are whole messages, sent with the next `flush`."""
        if self._peer is None or self.fd < 0:
            if not self._reason:
                self._waiting += pieces
        elif self._busy:
            self._interrupted()
        else:
            self._busy = True
            self._peer.put(pieces)
            self._busy = False

    def send(self, frames: Sequence[bytes]) -> bool:
        """Send one message without waiting; False if the connection has ended."""
        pieces: list[bytes] = []
        last = len(frames) - 1
        for number, frame in enumerate(frames):
            pieces += (zmtp.head(len(frame), zmtp.MORE if number < last else 0), frame)
        self.put(pieces)
        return self.flush()

    def flush(self) -> bool:
        """Give the system what it takes of what was put; False if the connection has ended."""
        peer = self._peer
        if peer is None or not peer.out:
            return not self._reason
        if self._busy:
            return self._interrupted()
        self._busy = True
        try:
            left = peer.write()
        except OSError:
            left = False  # `receive` ends it when it has given what came before
        self._busy = False
        if left and not self._writing:
            self._reactor.call_soon(self._write_later)
        return not self._reason

    def receive(self, most: int) -> list[list[bytes]]:
        """Messages that have come, up to `most`, each a list of frames; none if none has."""
        peer = self._peer
        if self._early:
            early, self._early = self._early, []
            return early
        if peer is None or self._reason or self.fd < 0:
            return []
        if self._busy:
            self._interrupted()
            return []
        self._busy = True
        try:
            messages = peer.read(_buffer(), most)
        except (OSError, RemoteProtocolError):
            self._busy = False
            self._fail(CLOSED)
            return []
        inbound = peer.inbound
        if inbound.pong:
            peer.put((inbound.pong,))
            inbound.pong = b""
            self._busy = False
            self.flush()
        self._busy = False
        return messages

    @property
    def more(self) -> bool:
        """Whether `receive` may give more at once."""
        peer = self._peer
        if peer is None or self._reason:
            return bool(self._early)
        return bool(self._early) or peer.inbound.more or peer.full

    def _has(self, event: int) -> bool:
        peer = self._peer
        if peer is None:
            return False
        poll = select.poll()
        poll.register(peer.fd, event)
        return bool(poll.poll(0))

    def _interrupted(self) -> bool:
        self._fail("interrupted by an exception of a signal handler")
        return False

    def _fail(self, reason: str) -> None:
        """It is over; the owner is told in the I/O thread."""
        if not self._reason:
            self._reason = reason
            self.fd = -1
            self._reactor.call_soon(self._tell)


def _buffer() -> memoryview:
    """One for each thread that receives."""
    buffer: memoryview | None = getattr(_BUFFER, "buffer", None)
    if buffer is None:
        buffer = _BUFFER.buffer = receive_buffer()
    return buffer
