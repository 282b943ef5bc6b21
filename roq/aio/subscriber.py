"""The asyncio subscriber."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from time import monotonic
from typing import Final

from roq.aio.twin import Leaving, Told, awaited
from roq.client.io.bell import Bell, deadline_in
from roq.client.session.events import ClientState
from roq.client.subscribe import subscriber as sync_subscriber
from roq.client.subscribe.subscriber import remaining
from roq.errors import Closed
from roq.read.message import Batch, Message

TAKE_BATCHES: Final = 64
"""Batches that one turn of the event loop gets."""


class Subscriber(Leaving[sync_subscriber.Subscriber]):
    """Receives from all exchanges of a queue, in one event loop. Made by `Cluster.subscriber`."""

    def __init__(self, subscriber: sync_subscriber.Subscriber) -> None:
        super().__init__(subscriber)
        self._bell = Bell()
        self._batches: deque[Batch] = deque()
        self._rest: Iterator[Message] = iter(())
        subscriber._on_ready(self._bell.ring)  # noqa: SLF001 - the hand-off is made for this

    id = Told[bytes]("16 bytes, random.")
    queue = Told[str]("Name of the queue.")
    state = Told[ClientState](sync_subscriber.Subscriber.state)
    trouble = Told[str](sync_subscriber.Subscriber.trouble)

    async def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None if none has come within `timeout` seconds.

        Raises:
            Closed: this subscriber is closed.
            QueueNotFound: the queue was removed, and everything that had come is read.
        """
        deadline, waits = deadline_in(timeout), True
        while True:
            message = next(self._rest, None)
            if message is not None:
                return message
            if self._batches:
                self._rest = self._batches.popleft().messages()
            elif waits:
                waits = await self._fill(deadline)  # another task may begin a batch meanwhile
            else:
                return None

    async def __aiter__(self) -> AsyncIterator[Message]:
        """All messages from now on; ends when the subscriber is closed."""
        with suppress(Closed):
            while True:
                # Kept there, so that neither a `break` nor a `receive` in between loses anything.
                while (message := next(self._rest, None)) is not None:
                    yield message
                if self._batches:
                    self._rest = self._batches.popleft().messages()
                else:
                    await self._fill(math.inf)

    async def batches(self) -> AsyncIterator[Batch]:
        """All messages from now on, by batches; ends when the subscriber is closed."""
        batch = remaining(self._rest)
        with suppress(Closed):
            while True:
                if batch is not None:
                    yield batch
                batch = await self._next(math.inf)

    stats = awaited(sync_subscriber.Subscriber.stats)
    close = awaited(sync_subscriber.Subscriber.close)

    async def _next(self, deadline: float) -> Batch | None:
        """The next batch; None when the deadline has passed."""
        if not self._batches:
            await self._fill(deadline)
        return self._batches.popleft() if self._batches else None

    async def _fill(self, deadline: float) -> bool:
        """Wait until there is a batch, which another task may take; False: the deadline is over."""
        bell, take = self._bell, self._sync._take  # noqa: SLF001 - made for this
        while True:
            armed = bell.arm()
            try:
                self._batches.extend(take(TAKE_BATCHES))
                if self._batches or monotonic() >= deadline:
                    break
                await bell.wait(armed, deadline)
            finally:
                bell.disarm(armed)
        await asyncio.sleep(0)  # others want to run, however much arrives
        return monotonic() < deadline
