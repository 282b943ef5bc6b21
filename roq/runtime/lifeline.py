"""Tells when the one connection of a socket has ended, or could not be made.

A socket that reconnects by itself resumes in the middle, waits as long as ZeroMQ likes, and says
nothing. One with a lifeline connects once: its owner is told and makes another one when he wants.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

import zmq

from roq.runtime.reactor import Reactor

_ENDINGS: Final = (
    zmq.EVENT_CLOSED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
REFUSED: Final = "connection refused"
"""Nothing that was sent has arrived: there never was a connection."""
NOT_GREETED: Final = "nothing of RoQ answers there"
"""Nor has anything then: the other end was no RoQ, or ended before it had said who it is."""
NEVER_CONNECTED: Final = frozenset({REFUSED, NOT_GREETED})
_REASONS: Final = {
    int(zmq.EVENT_CLOSED): REFUSED,
    int(zmq.EVENT_DISCONNECTED): "connection closed by the other side",
}


class Lifeline:
    """Watches one socket. Made before the socket connects; loop thread only.

    Args:
        reactor: in whose loop the socket is used.
        socket: one of `roq.runtime.sockets`; it will connect once.
        on_ended: called once, with the reason in a few words.
    """

    def __init__(
        self, reactor: Reactor, socket: zmq.Socket[bytes], on_ended: Callable[[str], None]
    ) -> None:
        self._reactor = reactor
        self._socket = socket
        self._on_ended = on_ended
        self._told = False
        socket.setsockopt(zmq.RECONNECT_IVL, -1)
        self._events: zmq.Socket[bytes] = socket.get_monitor_socket(_ENDINGS)
        self._events.setsockopt(zmq.LINGER, 0)
        reactor.add(self._events, self._readable)

    def close(self) -> None:
        """Watch no more; before the socket is closed."""
        if not self._events.closed:
            self._reactor.remove(self._events)
            self._socket.disable_monitor()
            self._events.close(0)

    def _readable(self) -> None:
        try:
            frames = self._events.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        if not self._told:
            self._told = True
            # The first frame begins with the number of the event, in the order of this machine.
            event = int.from_bytes(frames[0][:2], sys.byteorder)
            self._on_ended(_REASONS.get(event, NOT_GREETED))
