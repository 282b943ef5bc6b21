"""A small HTTP server for machines that ask a daemon how it is: GET, one answer, closed.

It has a thread of its own and touches nothing of the daemon but the function that makes answers.
A client is a stranger: requests are short or refused, a connection has seconds and not
minutes, there are few of them at a time, and few begin in a second. So neither a slow client nor a
flood costs the daemon more than a small share of its time.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from roq.errors import ConfigError
from roq.runtime.structured_logs import RateLimited

REQUEST_BYTES_MAX: Final = 8_192
CONNECTIONS_MAX: Final = 32
"""When there are more, the oldest one has to go."""
CONNECTION_SECONDS: Final = 10.0
"""From connecting to the last byte of the answer."""
ACCEPTED_PER_SECOND: Final = 50
"""The others wait, as long as the system keeps them."""
_STOP_SECONDS: Final = 5.0
_READ_BYTES: Final = 4_096
_END: Final = b"\r\n\r\n"
_PHRASES: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Response:
    """What is answered."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"

    def encode(self, *, with_body: bool = True) -> bytes:
        """The bytes of it."""
        head = (
            f"HTTP/1.1 {self.status} {_PHRASES[self.status]}\r\n"
            f"Content-Type: {self.content_type}\r\n"
            f"Content-Length: {len(self.body)}\r\n"
            "Cache-Control: no-store\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode("ascii") + (self.body if with_body else b"")


Respond = Callable[[str], Response]
"""The answer for a path; called in the server's thread."""


@dataclass(slots=True, eq=False)
class _HttpConnection:
    socket: socket.socket
    deadline: float
    received: bytes = b""
    unsent: memoryview | None = None
    """What is left of the answer; None while the request is read."""


class HttpServer:
    """Answers GET requests, in a thread of its own. Construct (binds), `start()`, `close()`.

    Args:
        bind: address to listen on.
        port: 0: any free one.
        respond: makes the answer for a path.

    Raises:
        ConfigError: the port is in use, or the address is not of this machine.
    """

    def __init__(self, bind: str, port: int, respond: Respond) -> None:
        self._respond = respond
        self._limited = RateLimited(log)
        self._listener = _listen(bind, port)
        self.port = int(self._listener.getsockname()[1])
        """Where it listens."""
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, _HttpConnection] = {}
        self._second = 0.0
        self._accepted = 0
        self._listening = False
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="roq-http", daemon=True)

    def start(self) -> None:
        """Serve from now on."""
        self._listen_again()
        self._thread.start()

    def close(self) -> None:
        """Serve no more and give the port back; idempotent."""
        if self._wake.fileno() < 0:
            return
        self._wake.close()  # the other end becomes readable
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._selector.close()
        self._woken.close()
        self._listener.close()

    # --- the server's thread ----------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select(self._timeout()):
                if key.fileobj is self._woken:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif (connection := self._connections.get(key.fd)) is not None:
                    self._advance(connection)
            self._drop_the_late()
            if not self._listening and time.monotonic() - self._second >= 1.0:
                self._listen_again()

    def _timeout(self) -> float:
        if not self._listening:
            return max(0.0, 1.0 - (time.monotonic() - self._second))
        return 1.0 if self._connections else 60.0

    def _accept(self) -> None:
        try:
            stranger, _ = self._listener.accept()
        except OSError as error:
            # Without descriptors the listener stays readable: asking again at once helps nobody.
            self._warn("accept", error)
            self._rest()
            return
        self._count()
        if len(self._connections) >= CONNECTIONS_MAX:
            self._drop(next(iter(self._connections.values())))
        stranger.setblocking(False)
        connection = _HttpConnection(stranger, time.monotonic() + CONNECTION_SECONDS)
        self._connections[stranger.fileno()] = connection
        self._selector.register(stranger, selectors.EVENT_READ)

    def _advance(self, connection: _HttpConnection) -> None:
        try:
            if connection.unsent is None:
                self._read(connection)
            else:
                self._write(connection)
        except BlockingIOError:
            return
        except OSError:  # the client is gone; nobody misses it
            self._drop(connection)

    def _read(self, connection: _HttpConnection) -> None:
        data = connection.socket.recv(_READ_BYTES)
        connection.received += data
        if _END in connection.received:
            answer = self._answer(connection.received)
        elif len(connection.received) > REQUEST_BYTES_MAX:
            answer = _plain(431, "a request of this size is none").encode()
        elif not data:
            self._drop(connection)
            return
        else:
            return
        connection.unsent = memoryview(answer)
        self._selector.modify(connection.socket, selectors.EVENT_WRITE)

    def _write(self, connection: _HttpConnection) -> None:
        assert connection.unsent is not None  # noqa: S101 - only called then
        sent = connection.socket.send(connection.unsent)
        connection.unsent = connection.unsent[sent:]
        if not connection.unsent:
            self._drop(connection)

    def _answer(self, request: bytes) -> bytes:
        words = request.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _plain(400, "this is HTTP 1: GET /path HTTP/1.1").encode()
        method, target, _ = words
        if method not in {b"GET", b"HEAD"}:
            return _plain(405, "only GET is known here").encode()
        path = target.split(b"?", 1)[0].decode("ascii", "replace")
        try:
            response = self._respond(path)
        except Exception as error:  # noqa: BLE001 - told, and the daemon does not end with its view
            self._warn("respond", error)
            response = _plain(500, "see the log of the daemon")
        return response.encode(with_body=method == b"GET")

    # --- bounds -----------------------------------------------------------------------------------

    def _count(self) -> None:
        now = time.monotonic()
        if now - self._second >= 1.0:
            self._second, self._accepted = now, 0
        self._accepted += 1
        if self._accepted >= ACCEPTED_PER_SECOND:
            self._rest()

    def _rest(self) -> None:
        """Nobody is let in for a second."""
        self._listening = False
        self._second = time.monotonic()
        self._selector.unregister(self._listener)

    def _listen_again(self) -> None:
        self._listening = True
        self._second, self._accepted = time.monotonic(), 0
        self._selector.register(self._listener, selectors.EVENT_READ)

    def _drop_the_late(self) -> None:
        now = time.monotonic()
        for connection in [each for each in self._connections.values() if now > each.deadline]:
            self._drop(connection)

    def _drop(self, connection: _HttpConnection) -> None:
        del self._connections[connection.socket.fileno()]
        self._selector.unregister(connection.socket)
        connection.socket.close()

    def _warn(self, what: str, error: Exception) -> None:
        self._limited.warning(
            f"http_{what}",
            time.monotonic(),
            "HTTP at port %d: cannot %s: %r",
            self.port,
            what,
            error,
        )


def _listen(bind: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((bind.strip("[]"), port))
        listener.listen(CONNECTIONS_MAX)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"metrics: cannot listen on {bind} port {port}: {error.strerror or error}"
        ) from None
    return listener


def _plain(status: int, text: str) -> Response:
    return Response(status, f"{text}\n".encode())
