"""Tells when the one connection of a socket has ended, or could not be made.

A socket that reconnects by itself resumes in the middle, waits as long as ZeroMQ likes, and says
nothing. One with a lifeline connects once: its owner is told and makes another one when he wants.

Where no descriptor is left for the connection, libzmq does not begin it and says nothing for ever.
So one of which nothing is heard at all is over after some seconds.

To watch takes two descriptors, half of what a connection takes. A socket that has nobody to send to
any more says so itself: it is not writable. So an owner who looks at that (and whose socket is
never full) needs no watch as soon as the connection stands. That holds for addresses of four
numbers: others libzmq 4.3.5 keeps under another name than the one that it looks for at the end.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Callable
from typing import Final

import zmq

from roq.runtime import descriptors
from roq.runtime.interfaces import Loop, Socket, Timer

BEGIN_SECONDS: Final = 3.0
"""A connection is begun within this, if ever; that it takes longer to succeed is another matter."""
_BEGINNINGS: Final = zmq.EVENT_CONNECTED | zmq.EVENT_CONNECT_DELAYED | zmq.EVENT_HANDSHAKE_SUCCEEDED
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
NOT_BEGUN: Final = "no connection could be begun"
"""Likewise; the reason goes on where it is known why."""
NEVER_CONNECTED: Final = frozenset({REFUSED, NOT_GREETED, NOT_BEGUN})
_NONE_LEFT: Final = OSError(errno.EMFILE, "too many open files")
_NUMBERS: Final = re.compile(r"tcp://(0|[1-9]\d*)(\.(0|[1-9]\d*)){3}:[1-9]\d*")
CLOSED: Final = "connection closed by the other side"
_REASONS: Final = {int(zmq.EVENT_CLOSED): REFUSED, int(zmq.EVENT_DISCONNECTED): CLOSED}


def never_connected(reason: str) -> bool:
    """Whether what was sent before an end for this reason has certainly not arrived."""
    return reason.startswith(tuple(NEVER_CONNECTED))


def not_begun(reason: str) -> str:
    """Why a connection has ended, if that is this machine's fault; others are known elsewhere."""
    return reason if reason.startswith(NOT_BEGUN) else ""


class Lifeline:
    """Watches one socket. Made before the socket connects, best by `connect`; loop thread only.

    Args:
        reactor: in whose loop the socket is used.
        socket: one of `roq.runtime.sockets`; it will connect once.
        on_ended: called once, with the reason in a few words.
        on_stands: called when the connection stands.
        rests: it gives its descriptors back when the connection stands; the owner calls `ended`
            when the socket, which is never full, is not writable. Not where that would not show.
    """

    def __init__(
        self,
        reactor: Loop,
        socket: Socket,
        on_ended: Callable[[str], None],
        *,
        on_stands: Callable[[], None] | None = None,
        rests: bool = False,
    ) -> None:
        self._reactor = reactor
        self._socket = socket
        self._on_ended = on_ended
        self._on_stands = on_stands
        self._rests = rests
        self._resting = False
        self._unwritable = False
        """Seen before it was heard that the connection stands."""
        self._told = False
        self._begun = False
        self._timer: Timer | None = None
        socket.setsockopt(zmq.RECONNECT_IVL, -1)
        self._events = socket.get_monitor_socket(_BEGINNINGS | _ENDINGS)
        self._events.setsockopt(zmq.LINGER, 0)
        reactor.add(self._events, self._readable)

    def connect(self, endpoint: str) -> None:
        """Connect the socket; that this is not even begun is told as well.

        Raises:
            zmq.ZMQError: there can be no such address.
        """
        if self._rests and _NUMBERS.fullmatch(endpoint):
            self._socket.setsockopt(zmq.IPV6, 0)  # else it is kept as [::ffff:…]
        else:
            self._rests = False
        self._socket.connect(endpoint)
        self._timer = self._reactor.call_later(BEGIN_SECONDS, self._late)

    @property
    def resting(self) -> bool:
        """Whether it has given its descriptors back, and the owner looks."""
        return self._resting

    def ended(self) -> None:
        """The socket was seen not to be writable."""
        self._unwritable = True
        if self._resting:
            self._tell(CLOSED)

    def close(self) -> None:
        """Watch no more; before the socket is closed."""
        self._resting = False
        self._unwatch()

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._events.closed:
            self._reactor.remove(self._events)
            self._socket.disable_monitor()
            self._events.close(0)

    def _readable(self) -> None:
        try:
            frames = self._events.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        self._begun = True
        # The first frame begins with the number of the event, in the order of this machine.
        event = int.from_bytes(frames[0][:2], sys.byteorder)
        if not event & _BEGINNINGS:
            self._tell(_REASONS.get(event, NOT_GREETED))
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            if self._rests:
                self._resting = True
                self._unwatch()
            if self._on_stands is not None:
                self._on_stands()
            if self._resting and self._unwritable:
                self._tell(CLOSED)

    def _late(self) -> None:
        self._readable()  # the loop may only have been late
        if not self._begun:
            why = f": {descriptors.reason(_NONE_LEFT)}" if descriptors.exhausted() else ""
            self._tell(NOT_BEGUN + why)

    def _tell(self, reason: str) -> None:
        if not self._told:
            self._told = True
            self._on_ended(reason)
