"""The configuration broadcast as a stream of typed states, each different from the one before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Final, Self

import msgspec
import zmq

from roq.client.admin.management import Management
from roq.client.io.engine import Engine
from roq.errors import Closed, RemoteProtocolError
from roq.protocol import broadcast
from roq.protocol.control import ClusterInfo
from roq.runtime import sockets
from roq.runtime.interfaces import Timer
from roq.runtime.reactor import drain

SILENCE_SECONDS: Final = 12.0
"""After so long without a broadcast another configuration manager is looked for."""
STATES_MAX: Final = 1_000
"""States that wait for a slow reader; the oldest are dropped, the newest says all."""


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as the broadcast tells it."""

    name: str
    host: str
    running: bool


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration broadcast says."""

    version: int
    queues: tuple[QueueStatus, ...]
    hosts: tuple[str, ...]


class Watch:
    """Listens to the broadcast; iterate over it, or `receive` one state. A context manager.

    Args:
        engine: the client's I/O thread.
        management: finds the broadcast's address, again when it falls silent.
    """

    def __init__(self, engine: Engine, management: Management) -> None:
        self._engine = engine
        self._management = management
        self._states: SimpleQueue[ClusterState | None] = SimpleQueue()
        self._last: ClusterState | None = None
        self._closed = False
        self._socket: zmq.Socket[bytes] | None = None
        self._endpoint = ""
        self._timer: Timer | None = None
        self._on_ready: Callable[[], None] | None = None
        self.malformed = 0
        engine.at_end(self._ended)
        engine.call_soon(self._locate)

    def receive(self, timeout: float | None = None) -> ClusterState | None:
        """The next state; None if nothing has changed for `timeout` seconds.

        Raises:
            Closed: this watch, or the connection to the cluster, is closed.
        """
        self._engine.check_process()
        try:
            state = self._states.get(timeout=None if timeout is None else max(0.0, timeout))
        except Empty:
            return None
        if state is None:
            self._states.put(None)
            raise Closed("the watch is closed")
        return state

    def __iter__(self) -> Iterator[ClusterState]:
        """All states from now on, the present one first; ends when the watch is closed."""
        while True:
            try:
                state = self.receive()
            except Closed:
                return
            if state is not None:
                yield state

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
            self._release_states()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- for event loops --------------------------------------------------------------------------

    def _take(self) -> ClusterState | None:
        """A state that is there; None if there is none; `Closed` as `receive`."""
        return self.receive(0)

    # --- I/O thread -------------------------------------------------------------------------------

    def _locate(self) -> None:
        if not self._closed:
            self._management.info(SILENCE_SECONDS).add_done_callback(self._located)

    def _located(self, future: Future[ClusterInfo]) -> None:
        if self._closed:
            return
        self._expect()
        if future.exception() is not None:
            self._locate()
            return
        endpoint = future.result().broadcast
        if endpoint != self._endpoint:
            self._listen(endpoint)

    def _listen(self, endpoint: str) -> None:
        self._drop()
        address = self._engine.translate(endpoint)
        try:
            socket = sockets.listener(self._engine.context, address, b"")
        except zmq.ZMQError:
            self.malformed += 1
            return
        self._endpoint = endpoint
        self._socket = socket
        self._engine.reactor.add(socket, lambda: drain(socket, self._received))

    def _expect(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._engine.reactor.call_later(SILENCE_SECONDS, self._silent)

    def _silent(self) -> None:
        # Rotate, so that a manager that answers but does not broadcast is not asked for ever.
        addresses = self._management.addresses
        addresses.append(addresses.pop(0))
        self._locate()

    def _received(self, frames: list[bytes]) -> None:
        self._expect()
        try:
            configuration = broadcast.decode(frames)
        except RemoteProtocolError:
            self.malformed += 1
            return
        state = ClusterState(
            version=configuration.version,
            queues=tuple(
                QueueStatus(name=queue.Name, host=queue.Host, running=queue.State)
                for queue in configuration.queues
            ),
            hosts=configuration.hosts,
        )
        if state == self._last:
            return
        self._last = state
        with suppress(Empty):  # the reader takes them meanwhile
            while self._states.qsize() >= STATES_MAX:
                self._states.get_nowait()
        self._put(state)

    def _put(self, state: ClusterState | None) -> None:
        self._states.put(state)
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
        self._release_states()

    def _release_states(self) -> None:
        self._put(None)

    def _ended(self) -> None:
        if not self._closed:
            self._closed = True
            self._release()
