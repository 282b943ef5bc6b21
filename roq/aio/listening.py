"""What the cluster broadcasts, for event loops: its configuration, and the figures of a queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Generic, Self, TypeVar

from roq.client.admin import statistics as sync_statistics
from roq.client.admin.broadcast import ClusterState
from roq.client.admin.listener import Listener as SyncListener
from roq.client.admin.statistics import Sample, StreamState
from roq.client.io.bell import Bell, deadline_in
from roq.errors import Closed
from roq.model import Limits

T = TypeVar("T")


class _Listener(Generic[T]):
    """Waits for what a stream brings."""

    def __init__(self, stream: SyncListener[T]) -> None:
        self._stream = stream
        self._bell = Bell()
        stream._on_ready = self._bell.ring  # noqa: SLF001 - made for this

    @property
    def malformed(self) -> int:
        """Messages that could not be read."""
        return self._stream.malformed

    @property
    def dropped(self) -> int:
        """Items that were not taken in time."""
        return self._stream.dropped

    async def receive(self, timeout: float | None = None) -> T | None:
        """The next one; None if none has come for `timeout` seconds (None: wait for ever).

        Raises:
            Closed: this stream, or the connection to the cluster, is closed.
        """
        deadline = deadline_in(timeout)
        while True:
            self._bell.arm()
            value = self._stream.receive(0)
            if value is not None or monotonic() >= deadline:
                self._bell.disarm()
                return value
            await self._bell.wait(deadline)

    async def __aiter__(self) -> AsyncIterator[T]:
        """All from now on; ends when the stream is closed."""
        with suppress(Closed):
            while True:
                value = await self.receive()
                if value is not None:
                    yield value

    async def close(self) -> None:
        """Stop listening; idempotent."""
        await asyncio.to_thread(self._stream.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class Watch(_Listener[ClusterState]):
    """The configuration broadcast: the present state, then each change. Made by `Cluster.watch`."""


class Statistics(_Listener[Sample]):
    """The statistics stream of a queue. Made by `Cluster.statistics`."""

    def __init__(self, statistics: sync_statistics.Statistics) -> None:
        super().__init__(statistics)
        self._sync = statistics

    @property
    def queue(self) -> str:
        """Name of the queue."""
        return self._sync.queue

    @property
    def state(self) -> StreamState:
        """Whether documents come."""
        return self._sync.state

    @property
    def reason(self) -> str:
        """Why none come, in a sentence; empty if they do."""
        return self._sync.reason

    @property
    def limits(self) -> Limits | None:
        """Of the queue; None before it was found."""
        return self._sync.limits

    @property
    def foreign(self) -> int:
        """Messages of another queue."""
        return self._sync.foreign

    def waiting(self) -> list[Sample]:
        """Everything that has come and was not read; does not wait."""
        return self._sync.waiting()
