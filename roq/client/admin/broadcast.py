"""The configuration broadcast as a stream of typed states, each different from the one before."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Final

import msgspec
import zmq

from roq.client.admin.listener import Listener
from roq.client.admin.management import Management
from roq.client.io.engine import Engine
from roq.errors import RemoteProtocolError
from roq.protocol import broadcast
from roq.protocol.control import ClusterInfo

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


class Watch(Listener[ClusterState]):
    """Listens to the broadcast: the present state first, then each change.

    Args:
        engine: the client's I/O thread.
        management: finds the broadcast's address, again when it falls silent.
    """

    def __init__(self, engine: Engine, management: Management) -> None:
        self._last: ClusterState | None = None
        super().__init__(engine, management, name="watch", topic=b"", most=STATES_MAX)

    def _locate(self) -> None:
        if not self._closed:
            self._management.info(SILENCE_SECONDS).add_done_callback(self._located)

    def _located(self, future: Future[ClusterInfo]) -> None:
        if self._closed:
            return
        self._call_later(SILENCE_SECONDS, self._silent)
        if future.exception() is not None:
            self._locate()
            return
        try:
            self._listen(future.result().broadcast)
        except zmq.ZMQError:
            self.malformed += 1

    def _silent(self) -> None:
        # Rotate, so that a manager that answers but does not broadcast is not asked for ever.
        addresses = self._management.addresses
        addresses.append(addresses.pop(0))
        self._locate()

    def _received(self, frames: list[bytes]) -> None:
        self._call_later(SILENCE_SECONDS, self._silent)
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
        if state != self._last:
            self._last = state
            self._add(state)
