"""What a daemon publishes, for programs that take one item after the other, and do so in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, Self, TypeVar

import zmq

from roq.client.admin.management import Management
from roq.client.io.engine import Engine
from roq.errors import Closed
from roq.model import wait_seconds
from roq.runtime import sockets
from roq.runtime.interfaces import Timer
from roq.runtime.reactor import drain

T = TypeVar("T")


class Listener(Generic[T]):
    """Listens in the I/O thread; iterate over it, or `receive` one item. A context manager.

    A subclass says where the daemon is (`_locate`, which calls `_listen`) and what its messages
    mean (`_received`, which calls `_add`).

    Args:
        engine: the client's I/O thread.
        management: tells where to listen.
        name: of the stream, for errors.
        topic: by which the daemon publishes.
        most: items that wait for a slow reader; the oldest are dropped and counted.

    Attributes:
        malformed: messages that could not be read.
        dropped: items that were not taken in time.
    """

    def __init__(
        self, engine: Engine, management: Management, *, name: str, topic: bytes, most: int
    ) -> None:
        self.malformed = 0
        self.dropped = 0
        self._engine = engine
        self._management = management
        self._name = name
        self._topic = topic
        self._most = most
        self._items: SimpleQueue[T | None] = SimpleQueue()
        """None is the end."""
        self._closed = False
        self._socket: zmq.Socket[bytes] | None = None
        self._endpoint = ""
        self._timer: Timer | None = None
        self._on_ready: Callable[[], None] | None = None
        engine.at_end(self._ended)
        engine.call_soon(self._locate)

    def receive(self, timeout: float | None = None) -> T | None:
        """The next item; None if none has come for `timeout` seconds (None: wait for ever).

        Raises:
            Closed: this stream, or the connection to the cluster, is closed.
        """
        self._engine.check_process()
        try:
            item = self._items.get(timeout=None if timeout is None else wait_seconds(timeout))
        except Empty:
            return None
        if item is None:
            self._items.put(None)
            raise Closed(f"the {self._name} is closed")
        return item

    def __iter__(self) -> Iterator[T]:
        """All items from now on; ends when the stream is closed."""
        while True:
            try:
                item = self.receive()
            except Closed:
                return
            if item is not None:
                yield item

    def close(self) -> None:
        """Stop listening; idempotent, from any thread."""
        if self._closed:
            return
        self._closed = True
        try:
            self._engine.check()
            self._engine.not_at_end(self._ended)
            self._engine.run_sync(self._release)
        except Closed:
            self._put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- I/O thread -------------------------------------------------------------------------------

    def _locate(self) -> None:
        """Find out where the daemon is."""
        raise NotImplementedError

    def _received(self, frames: list[bytes]) -> None:
        """A message of the daemon."""
        raise NotImplementedError

    def _listen(self, endpoint: str) -> None:
        """Listen there from now on.

        Raises:
            zmq.ZMQError: there can be no such address, or no socket.
        """
        if endpoint == self._endpoint:
            return
        self._drop()
        address = self._engine.translate(endpoint)
        socket = sockets.listener(self._engine.context, address, self._topic)
        self._socket, self._endpoint = socket, endpoint
        self._engine.reactor.add(socket, lambda: drain(socket, self._received))

    def _call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call this, and nothing that was to be called before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._engine.reactor.call_later(seconds, function)

    def _add(self, item: T) -> None:
        with suppress(Empty):  # the reader takes them meanwhile
            while self._items.qsize() >= self._most:
                self._items.get_nowait()
                self.dropped += 1
        self._put(item)

    def _put(self, item: T | None) -> None:
        self._items.put(item)
        if self._on_ready is not None:
            self._on_ready()

    def _drop(self) -> None:
        if self._socket is not None:
            socket, self._socket = self._socket, None
            self._endpoint = ""
            self._engine.reactor.remove(socket)
            socket.close(0)

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._drop()
        self._put(None)

    def _ended(self) -> None:
        if not self._closed:
            self._closed = True
            self._release()
