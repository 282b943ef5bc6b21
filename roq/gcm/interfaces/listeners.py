"""PUSH sockets to those who registered for rule updates; none of them is ever waited for.

A listener that does not read holds at most `UPDATES_MAX` updates here and is forgotten with the
next one.
"""

from __future__ import annotations

import logging
from typing import Final

import zmq

from roq.runtime import sockets

UPDATES_MAX: Final = 16
log = logging.getLogger(__name__)


class Listeners:
    """The sockets, by address.

    They have a ZeroMQ context, that is an I/O thread, of their own: it waits while it looks a name
    up, and the addresses are whatever was registered.
    """

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._sockets: dict[str, zmq.Socket[bytes]] = {}

    def push(self, address: str, data: bytes) -> bool:
        """Send an update; False if the listener cannot be reached or has stopped reading."""
        socket = self._sockets.get(address)
        if socket is None:
            socket = self._connect(address)
            if socket is None:
                return False
        if sockets.send_to(socket, [data]):
            return True
        log.warning(
            "listener %s does not read and is forgotten", address, extra={"event": "listener_gone"}
        )
        self.forget(address)
        return False

    def forget(self, address: str) -> None:
        """Close the socket to this address."""
        socket = self._sockets.pop(address, None)
        if socket is not None:
            socket.close(0)

    def close(self) -> None:
        """Close all."""
        for address in list(self._sockets):
            self.forget(address)
        if self._context is not None:
            self._context.term()
            self._context = None

    def _connect(self, address: str) -> zmq.Socket[bytes] | None:
        if self._context is None:
            self._context = sockets.new_context()
        socket = self._context.socket(zmq.PUSH)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.SNDHWM, UPDATES_MAX)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 5_000)
        try:
            socket.connect(address)
        except zmq.ZMQError as error:
            socket.close(0)
            log.warning("cannot push rules to %s: %s", address, error.strerror)
            return None
        self._sockets[address] = socket
        return socket
