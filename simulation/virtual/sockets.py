"""ZeroMQ as far as the daemons' links use it: DEALERs that call ROUTERs, over simulated wires.

A DEALER connects by itself and again, and keeps what it could not send yet, up to its high-water
mark; what was handed to a connection that breaks is lost. One that is told not to reconnect
(`roq.runtime.lifeline`) reports the end of its connection instead.
"""

from __future__ import annotations

import errno
from collections import deque
from struct import Struct
from typing import Final

import zmq

from roq.simulation.virtual.network import Connection, Frames
from roq.simulation.virtual.process import Process

HANDSHAKE_SECONDS: Final = (0.0005, 0.004)
SILENCE_SECONDS: Final = 3.0
"""After so long without an answer to an attempt to connect the next one is made."""
RECONNECT_SECONDS: Final = (0.025, 0.1)
RECONNECT_MOST_SECONDS: Final = (0.5, 1.5)
HIGH_WATER_MARK: Final = 1_000
_EVENT: Final = Struct("=hi")
_AGAIN: Final = zmq.Again()
"""Raised without its traceback, which would keep everything alive that has ever been traced."""


class Sockets:
    """What the shells in a process make their sockets with: a `Dialer`."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def socket(self, _kind: int) -> Dealer:
        """A new socket; servers make theirs themselves."""
        return Dealer(self._process)


class _Socket:
    """What all sockets have in common: what has come, and options."""

    def __init__(self, process: Process) -> None:
        self.closed = False
        self._process = process
        self._options: dict[int, int] = {zmq.SNDHWM: HIGH_WATER_MARK, zmq.RECONNECT_IVL: 100}
        self._inbox: deque[list[bytes]] = deque()

    def setsockopt(self, option: int, value: int | bytes) -> None:
        """Set an option; only numbers matter here."""
        if isinstance(value, int):
            self._options[option] = value

    def getsockopt(self, option: int) -> int:
        """An option; whether anything can be read."""
        if option == zmq.EVENTS:
            return zmq.POLLIN if self._inbox else 0
        return self._options[option]

    def recv_multipart(self, _flags: int = 0) -> list[bytes]:
        """The next message.

        Raises:
            zmq.Again: there is none.
        """
        if not self._inbox:
            raise _AGAIN.with_traceback(None)
        return self._inbox.popleft()

    def fileno(self) -> int:
        """Nothing is polled here."""
        return -1

    def send_multipart(self, frames: list[bytes], _flags: int = 0) -> None:
        """Send, if it can.

        Raises:
            zmq.ZMQError: it cannot, or not now.
        """
        raise zmq.ZMQError(errno.ENOTSUP, f"{len(frames)} frames")

    def connect(self, address: str) -> None:
        """Connect, if it can."""
        raise zmq.ZMQError(errno.ENOTSUP, address)

    def get_monitor_socket(self, _events: int) -> _Socket:
        """Where the end of the connection is told, if there is one."""
        raise zmq.ZMQError(errno.ENOTSUP)

    def disable_monitor(self) -> None:
        """Tell no more."""

    def close(self, _linger: int = 0) -> None:
        """Be no more."""
        self.closed = True

    def _arrived(self, frames: list[bytes]) -> None:
        self._inbox.append(frames)
        self._look()

    def _look(self) -> None:
        if self._process.readable(self) and self._inbox and not self.closed:
            self._process.call_soon(self.look_again)

    def look_again(self) -> None:
        """Tell the reader that there is something to read, if there is."""
        if self._inbox and not self.closed:
            self._look()


class Router(_Socket):
    """A server."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self._address = ""
        self._peers: dict[bytes, Connection] = {}

    def bind(self, address: str) -> None:
        """Listen."""
        self._address = address
        self._process.listen(address, self)

    def send_multipart(self, frames: list[bytes], _flags: int = 0) -> None:
        """Send to the peer that the first frame names.

        Raises:
            zmq.ZMQError: it is gone.
        """
        peer = self._peers.get(frames[0])
        if peer is None or not peer.answer(tuple(frames[1:])):
            raise zmq.ZMQError(errno.EHOSTUNREACH)

    def close(self, _linger: int = 0) -> None:
        """Listen no more."""
        if not self.closed:
            self.closed = True
            self._process.shut(self._address)
            for peer in self._peers.values():
                peer.server_gone()

    def accepted(self, connection: Connection) -> None:
        """See `Server`."""
        self._peers[connection.route] = connection

    def received(self, connection: Connection, frames: Frames) -> None:
        """See `Server`."""
        if not self.closed:
            self._arrived([connection.route, *frames])

    def disconnected(self, connection: Connection) -> None:
        """See `Server`."""
        self._peers.pop(connection.route, None)


class Dealer(_Socket):
    """A client."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self._address = ""
        self._connection: Connection | None = None
        self._outbox: deque[Frames] = deque()
        self._events: _Events | None = None
        self._wait = 0.0

    def connect(self, address: str) -> None:
        """Connect, in the background."""
        self._address = address
        if self._events is not None:
            self._events.tell(zmq.EVENT_CONNECT_DELAYED)
        self._attempt()

    def get_monitor_socket(self, _events: int) -> _Socket:
        """Where the end of the connection is told."""
        self._events = _Events(self._process)
        return self._events

    def disable_monitor(self) -> None:
        """Tell no more."""
        self._events = None

    def send_multipart(self, frames: list[bytes], _flags: int = 0) -> None:
        """Send, or keep it until there is a connection.

        Raises:
            zmq.Again: too much is kept already.
        """
        if self._connection is not None and self._connection.open:
            self._connection.send(tuple(frames))
        elif len(self._outbox) >= self._options[zmq.SNDHWM]:
            raise _AGAIN.with_traceback(None)
        else:
            self._outbox.append(tuple(frames))

    def close(self, _linger: int = 0) -> None:
        """End the connection."""
        self.closed = True
        if self._connection is not None:
            self._connection.close()

    def accepted(self, connection: Connection) -> None:
        """Nobody connects to a client."""

    def received(self, connection: Connection, frames: Frames) -> None:
        """See `Client`."""
        if connection is self._connection and not self.closed:
            self._arrived(list(frames))

    def disconnected(self, connection: Connection) -> None:
        """See `Client`."""
        if connection is self._connection and not self.closed:
            self._connection = None
            self._ended(zmq.EVENT_DISCONNECTED)

    def _attempt(self) -> None:
        if self.closed:
            return
        process = self._process
        delay = process.world.random.uniform(*HANDSHAKE_SECONDS)
        process.call_later(delay, self._answered)

    def _answered(self) -> None:
        if self.closed:
            return
        listens = self._process.answers(self._address)
        if listens is None and self._options[zmq.RECONNECT_IVL] >= 0:
            self._process.call_later(SILENCE_SECONDS, self._attempt)
        elif listens is None:
            self._process.call_later(SILENCE_SECONDS, self._answered)
        elif listens:
            self._wait = 0.0
            self._connection = self._process.connect(self._address, self)
            while self._outbox:
                self._connection.send(self._outbox.popleft())
        else:
            self._ended(zmq.EVENT_CLOSED)

    def _ended(self, event: int) -> None:
        if self._options[zmq.RECONNECT_IVL] >= 0:
            # What the real sockets draw by themselves comes from the seed here.
            chance = self._process.world.random.uniform
            first, most = chance(*RECONNECT_SECONDS), chance(*RECONNECT_MOST_SECONDS)
            self._wait = min(max(first, 2 * self._wait), most)
            self._process.call_later(self._wait, self._attempt)
        elif self._events is not None:
            self._events.tell(event)


class _Events(_Socket):
    """The monitor of a DEALER."""

    def tell(self, event: int) -> None:
        """This has happened to the connection."""
        self._inbox.append([_EVENT.pack(event, 0), b"tcp://0"])
        self._process.call_soon(self.look_again)

    def recv_multipart(self, _flags: int = 0) -> list[bytes]:
        """The next event."""
        return super().recv_multipart()
