"""One TCP connection of a publisher to its exchange: a DEALER that never reconnects by itself.

A DEALER that reconnects resumes in the middle, and what was lost in between goes unnoticed. Sending
and receiving may be done by any thread that holds the publisher's lock; opening and closing belong
to the I/O thread, which also watches the descriptor and the lifeline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, cast

import zmq

from roq.client.io.engine import Engine
from roq.errors import Closed
from roq.protocol import documents
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.framing import split_answer
from roq.protocol.version import FIRST, other_version
from roq.runtime import sockets
from roq.runtime.lifeline import Lifeline

ZERO_COPY_BYTES: Final = 256 * 1024
_NOBLOCK: Final = zmq.Flag(zmq.NOBLOCK)
_MORE: Final = zmq.Flag(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS: Final = zmq.EVENTS
_RCVMORE: Final = zmq.RCVMORE
_OTHER_VERSION: Final = [
    REFUSED,
    documents.encode(Refused(code="version", text=other_version("the exchange", FIRST))),
]
"""What an exchange means that sends several frames, as those of version 1 did."""
_POLLIN: Final = int(zmq.POLLIN)
_POLLOUT: Final = int(zmq.POLLOUT)


class Connection:
    """A socket, its descriptor and its lifeline. Created and closed in the I/O thread.

    Args:
        engine: whose reactor watches.
        link: whose connection it is.
        endpoint: address of the exchange.
        window_batches: how many batches may wait in the socket.
        message_bytes: the largest message.
        on_readable: called in the I/O thread when something may have arrived.
        on_lost: called in the I/O thread with the reason, once, when the connection has ended.

    Raises:
        zmq.ZMQError: there can be no such address, or no socket.

    Attributes:
        fd: readable when something may have arrived; edge-triggered, so ask `pending` after use.
        watched: whether the I/O thread looks after the descriptor.
    """

    def __init__(
        self,
        engine: Engine,
        link: int,
        endpoint: str,
        *,
        window_batches: int,
        message_bytes: int,
        on_readable: Callable[[Connection], None],
        on_lost: Callable[[Connection, str], None],
    ) -> None:
        self.link = link
        self.endpoint = endpoint
        self._engine = engine
        self._on_readable = on_readable
        self.watched = False
        self._lifeline: Lifeline | None = None
        socket = self._socket = sockets.dealer(engine.context)
        sockets.expect_large(socket, message_bytes, sends=True, receives=False)
        socket.setsockopt(zmq.SNDHWM, 2 * window_batches + 1_000)
        # Never full (docs/decisions/0009): ZeroMQ counts what was read in steps of half the mark.
        socket.setsockopt(zmq.RCVHWM, max(10_000, 4 * window_batches))
        # The methods of the base class: the subclass only adds Python to each call.
        self._send = super(zmq.Socket, socket).send
        self._recv = super(zmq.Socket, socket).recv
        self._get = super(zmq.Socket, socket).get
        try:
            self._lifeline = Lifeline(
                engine.reactor,
                socket,
                lambda reason: on_lost(self, f"{endpoint}: {reason}"),
                rests=True,
            )
            self._lifeline.connect(endpoint)
        except zmq.ZMQError:
            self._shut()
            raise
        self.fd = cast("int", socket.getsockopt(zmq.FD))
        self.watch(wanted=True)

    def watch(self, *, wanted: bool) -> None:
        """Let the I/O thread look after the descriptor, or not. I/O thread only."""
        if wanted is self.watched:
            return
        self.watched = wanted
        if wanted:
            self._engine.reactor.add(self.fd, lambda: self._on_readable(self))
        else:
            self._engine.reactor.remove(self.fd)

    def send(self, frames: Sequence[bytes]) -> bool:
        """Send one message without waiting; False if the connection does not take it."""
        try:
            self._socket.send_multipart(frames, _NOBLOCK)
        except zmq.ZMQError:
            return False
        return True

    def send_batch(self, topic: bytes, batch: bytes) -> bool:
        """Send one batch without waiting; False if the connection does not take it."""
        try:
            self._send(topic, _MORE)
            if len(batch) < ZERO_COPY_BYTES:
                self._send(batch, _NOBLOCK)
            else:
                self._send(batch, _NOBLOCK, copy=False)
        except zmq.ZMQError:
            return False
        return True

    @property
    def pending(self) -> bool:
        """Whether a message can be received; must be asked after each send."""
        events = cast("int", self._get(_EVENTS))
        if not events & _POLLOUT:  # what is not acknowledged has always room: it has ended
            self._call_soon(self._ended)
        return bool(events & _POLLIN)

    def receive(self) -> list[bytes]:
        """The parts of the next message; only if `pending`."""
        frame = self._recv(_NOBLOCK)
        if not self._get(_RCVMORE):
            return split_answer(frame)
        while self._get(_RCVMORE):
            self._recv(_NOBLOCK)
        return _OTHER_VERSION

    def close(self, linger_ms: int = 0) -> None:
        """Close; I/O thread only."""
        self.watch(wanted=False)
        self._shut(linger_ms)

    def _ended(self) -> None:
        if self._lifeline is not None:
            self._lifeline.ended()

    def _call_soon(self, function: Callable[[], None]) -> None:
        with suppress(Closed):  # an engine that has ended has told its users
            self._engine.call_soon(function)

    def _shut(self, linger_ms: int = 0) -> None:
        if self._lifeline is not None:
            self._lifeline.close()
        self._socket.close(linger_ms)
