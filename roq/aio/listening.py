"""What the cluster broadcasts, for event loops: its configuration, and the figures of a queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from time import monotonic
from typing import TypeVar

from roq.aio.twin import Leaving, Told, awaited, called
from roq.client.admin import statistics as sync_statistics
from roq.client.admin.broadcast import ClusterState
from roq.client.admin.listener import Listener as SyncListener
from roq.client.admin.statistics import Sample, StreamState
from roq.client.io.bell import Bell, deadline_in
from roq.errors import Closed
from roq.model import Limits

T = TypeVar("T")


class _Listener(Leaving[SyncListener[T]]):
    """Waits for what a stream brings."""

    def __init__(self, stream: SyncListener[T]) -> None:
        super().__init__(stream)
        self._bell = Bell()
        stream._on_ready = self._bell.ring  # noqa: SLF001 - made for this

    malformed = Told[int]("Messages that could not be read.")
    dropped = Told[int]("Items that were not taken in time.")

    async def receive(self, timeout: float | None = None) -> T | None:
        """The next one; None if none has come for `timeout` seconds (None: wait for ever).

        Raises:
            Closed: this stream, or the connection to the cluster, is closed.
        """
        deadline = deadline_in(timeout)
        while True:
            armed = self._bell.arm()
            try:
                value = self._sync.receive(0)
                if value is not None or monotonic() >= deadline:
                    return value
                await self._bell.wait(armed, deadline)
            finally:
                self._bell.disarm(armed)

    async def __aiter__(self) -> AsyncIterator[T]:
        """All from now on; ends when the stream is closed."""
        with suppress(Closed):
            while True:
                value = await self.receive()
                if value is not None:
                    yield value

    close = awaited(SyncListener.close)


class Watch(_Listener[ClusterState]):
    """The configuration broadcast: the present state, then each change. Made by `Cluster.watch`."""


class Statistics(_Listener[Sample]):
    """The statistics stream of a queue. Made by `Cluster.statistics`."""

    queue = Told[str]("Name of the queue.")
    state = Told[StreamState]("Whether documents come.")
    reason = Told[str]("Why none come, in a sentence; empty if they do.")
    limits = Told[Limits | None]("Of the queue; None before it was found.")
    foreign = Told[int]("Messages of another queue.")
    waiting = called(sync_statistics.Statistics.waiting)
