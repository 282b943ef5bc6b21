"""The connections of the fan-out as the system knows them: who can take more, and who is cut off.

ZeroMQ tells by its monitor which descriptors they have; nothing else of it is touched. To cut one
off is what a peer does that goes away: libzmq sees its connection end, and forgets what waited.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from collections.abc import Callable
from typing import Final

import zmq

_ENDPOINT: Final = "inproc://live"
_EVENT: Final = struct.Struct("=Hi")
_ENDED: Final = frozenset({int(zmq.EVENT_DISCONNECTED), int(zmq.EVENT_CLOSED)})
_EVENTS: Final = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED
_NOBLOCK: Final = int(zmq.NOBLOCK)


class Connections:
    """Watches who connects to one socket; used by the thread that has it.

    Args:
        socket: bound, or about to be.
        accepted: called with the descriptor of a new connection.
        ended: called with that of one that is gone.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        socket: zmq.Socket[bytes],
        accepted: Callable[[int], None],
        ended: Callable[[int], None],
    ) -> None:
        self._socket = socket
        self._accepted = accepted
        self._ended = ended
        self._poll = select.poll()
        self._watched: set[int] = set()
        socket.monitor(_ENDPOINT, _EVENTS)
        self._events = context.socket(zmq.PAIR)
        self._events.setsockopt(zmq.LINGER, 0)
        # Without a bound, as the thread that moves the bytes waits when it is full. Each connection
        # makes two events of some bytes, and they are read twice a second.
        self._events.setsockopt(zmq.RCVHWM, 0)
        self._events.connect(_ENDPOINT)

    def read(self) -> None:
        """Take in who has come and gone."""
        while True:
            try:
                frames = self._events.recv_multipart(_NOBLOCK)
            except zmq.Again:
                return
            event, descriptor = _EVENT.unpack(frames[0])
            if event == zmq.EVENT_ACCEPTED:
                self._watched.add(descriptor)
                self._poll.register(descriptor, select.POLLOUT)
                self._accepted(descriptor)
            elif event in _ENDED and descriptor in self._watched:
                self._watched.remove(descriptor)
                self._poll.unregister(descriptor)
                self._ended(descriptor)

    def free(self) -> list[int]:
        """Those that can take more at this moment."""
        return [descriptor for descriptor, event in self._poll.poll(0) if event == select.POLLOUT]

    def cut(self, descriptor: int, port: int) -> bool:
        """End a connection; False if there is none any more at this port of ours."""
        try:
            copy = socket.socket(fileno=os.dup(descriptor))
        except OSError:
            return False
        with copy:
            try:
                if copy.getsockname()[1] != port:
                    return False
                # What the system holds for it stays: a reset does not get through a full window,
                # and the end behind the last bytes is seen by the next read.
                copy.shutdown(socket.SHUT_RDWR)
            except OSError as error:
                return error.errno == errno.ENOTCONN
        return True

    def close(self) -> None:
        """Watch no more; before the socket is closed."""
        self._socket.disable_monitor()
        self._events.close(0)
