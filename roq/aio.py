"""RoQ for asyncio: the names of `roq`, with `await` where something may take time.

    import roq.aio

    async with roq.aio.connect("127.0.0.1:5000") as cluster:
        await cluster.create_queue("orders", exists_ok=True)
        async with await cluster.publisher("orders") as pub:
            receipt = pub.publish(b"payload", topic="eu.be")    # a plain call
            await receipt                                       # -> SendStatus
            await pub.flush()
        async with await cluster.subscriber("orders", topic="eu.") as sub:
            async for message in sub: ...

It runs on the same I/O thread and the same machines as the synchronous client; the event loop only
hands over and is woken. What is done once (connecting, managing, closing) waits in a worker thread.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import (
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self, cast

from roq.client import cluster as sync
from roq.client import publisher as sync_publisher
from roq.client import receipt as sync_receipt
from roq.client import subscriber as sync_subscriber
from roq.client import watch as sync_watch
from roq.client.bell import Bell, deadline_in
from roq.client.cluster import COMMAND_SECONDS, REMOVAL_SECONDS, Translate
from roq.client.message import Batch, Gap, Message
from roq.client.publisher import PublisherStats
from roq.client.receipt import SendStatus
from roq.client.reception import ReceptionStats
from roq.client.subscriber import StartOption, remaining
from roq.client.views import (
    ExchangeSummary,
    HostSummary,
    QueueDescription,
    QueueSummary,
    ScalingRules,
)
from roq.client.watch import ClusterState
from roq.client.writer import Payload
from roq.errors import Closed
from roq.model import Limits

__all__ = ["connect", "Cluster", "Publisher", "Receipt", "Subscriber", "Watch"]

TAKE_BATCHES: Final = 64
"""Batches that one turn of the event loop gets."""


class Receipt(sync_receipt.Receipt):
    """As `roq.Receipt`; `await` it to get its `SendStatus`."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, SendStatus]:
        return self._settled().__await__()

    async def _settled(self) -> SendStatus:
        if self.status is None:
            bell = Bell()
            bell.arm()
            self.on_settled(bell.ring)
            await bell.wait()
        return self.status or sync_receipt.PENDING


class Publisher:
    """Publishes to one queue from one event loop. Made by `Cluster.publisher`."""

    def __init__(self, publisher: sync_publisher.Publisher, timeout: float) -> None:
        self._sync = publisher
        self._timeout = timeout
        # One call less for each message.
        self.publish = publisher.publish  # type: ignore[method-assign, assignment]

    @property
    def id(self) -> bytes:
        """16 bytes; subscribers see it as `message.publisher`."""
        return self._sync.id

    def publish(self, payload: Payload, topic: str = "") -> Receipt:
        """Publish one message; a plain call that never waits.

        Returns:
            The receipt of the batch; it can be awaited.

        Raises:
            WouldBlock: the window is full: `await drain()` and try again.
            RoQError: as `roq.Publisher.publish`.
        """
        return cast("Receipt", self._sync.publish(payload, topic))

    async def publish_many(self, payloads: Iterable[Payload], topic: str = "") -> list[Receipt]:
        """Publish many messages of one topic, the fastest way; waits for room as often as needed.

        Raises:
            Unavailable: there was no room for the publisher's `timeout`.
        """
        every: list[Payload] = payloads if isinstance(payloads, list) else list(payloads)
        receipts: list[sync_receipt.Receipt] = []
        position = self._sync.publish_from(every, 0, topic, receipts)
        while position < len(every):
            await self.drain()
            position = self._sync.publish_from(every, position, topic, receipts)
        return cast("list[Receipt]", receipts)

    async def drain(self, timeout: float | None = None) -> None:
        """Wait until `publish` has room again.

        Args:
            timeout: seconds; None: the publisher's own.

        Raises:
            Unavailable: there was none in time; the text says why.
        """
        seconds = self._timeout if timeout is None else timeout
        if not await self._until(self._sync.has_room, seconds):
            self._sync.raise_no_room(seconds)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until everything published so far has been acknowledged; see `roq.Publisher.flush`.

        Raises:
            DeliveryError: messages were given up since the last flush.
            Unavailable: `timeout` passed; what is open stays open.
        """
        seconds = self._timeout if timeout is None else timeout
        self._sync.flushed(seconds, done=await self._until(self._sync.is_flushed, seconds))

    async def close(self, timeout: float | None = None) -> None:
        """Flush, say goodbye and release everything; idempotent.

        Raises:
            DeliveryError: messages could not be delivered.
        """
        await asyncio.to_thread(self._sync.close, timeout)

    def stats(self) -> PublisherStats:
        """Counters and state at this moment."""
        return self._sync.stats()

    async def _until(self, condition: Callable[[], bool], timeout: float) -> bool:
        deadline = deadline_in(timeout)
        bell = Bell()
        while True:
            bell.arm()
            if self._sync.attempt(condition, bell.ring):
                return True
            if self._sync.failed or monotonic() >= deadline:
                return False
            await bell.wait(deadline)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._sync.__exit__, kind, error, traceback)


class Subscriber:
    """Receives from all exchanges of a queue, in one event loop. Made by `Cluster.subscriber`."""

    def __init__(self, subscriber: sync_subscriber.Subscriber) -> None:
        self._sync = subscriber
        self._bell = Bell()
        self._batches: deque[Batch] = deque()
        self._rest: Iterator[Message] = iter(())
        subscriber._on_ready(self._bell.ring)  # noqa: SLF001 - the hand-off is made for this

    @property
    def id(self) -> bytes:
        """16 bytes, random."""
        return self._sync.id

    async def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None if none has come within `timeout` seconds.

        Raises:
            Closed: this subscriber is closed.
            QueueNotFound: the queue was removed, and everything that had come is read.
        """
        deadline = deadline_in(timeout)
        while True:
            message = next(self._rest, None)
            if message is not None:
                return message
            batch = await self._next(deadline)
            if batch is None:
                return None
            self._rest = batch.messages()

    async def __aiter__(self) -> AsyncIterator[Message]:
        """All messages from now on; ends when the subscriber is closed."""
        with suppress(Closed):
            while True:
                for message in self._rest:  # kept here, so that a `break` loses nothing
                    yield message
                batch = await self._next(math.inf)
                if batch is not None:
                    self._rest = batch.messages()

    async def batches(self) -> AsyncIterator[Batch]:
        """All messages from now on, by batches; ends when the subscriber is closed."""
        batch = remaining(self._rest)
        with suppress(Closed):
            while True:
                if batch is not None:
                    yield batch
                batch = await self._next(math.inf)

    async def stats(self) -> ReceptionStats:
        """What has happened so far."""
        return await asyncio.to_thread(self._sync.stats)

    async def close(self) -> None:
        """Stop receiving; idempotent."""
        await asyncio.to_thread(self._sync.close)

    async def _next(self, deadline: float) -> Batch | None:
        """The next batch; None when the deadline has passed."""
        if not self._batches:
            await self._fill(deadline)
        return self._batches.popleft() if self._batches else None

    async def _fill(self, deadline: float) -> None:
        bell, take = self._bell, self._sync._take  # noqa: SLF001 - made for this
        while True:
            bell.arm()
            self._batches.extend(take(TAKE_BATCHES))
            if self._batches or monotonic() >= deadline:
                bell.disarm()
                await asyncio.sleep(0)  # others want to run, however much arrives
                return
            await bell.wait(deadline)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class Watch:
    """The configuration broadcast: the present state, then each change. Made by `Cluster.watch`."""

    def __init__(self, watch: sync_watch.Watch) -> None:
        self._sync = watch
        self._bell = Bell()
        watch._on_ready = self._bell.ring  # noqa: SLF001 - made for this

    async def receive(self, timeout: float | None = None) -> ClusterState | None:
        """The next state; None if nothing has changed for `timeout` seconds.

        Raises:
            Closed: this watch, or the connection to the cluster, is closed.
        """
        deadline = deadline_in(timeout)
        while True:
            self._bell.arm()
            state = self._sync.receive(0)
            if state is not None or monotonic() >= deadline:
                self._bell.disarm()
                return state
            await self._bell.wait(deadline)

    async def __aiter__(self) -> AsyncIterator[ClusterState]:
        """All states from now on; ends when the watch is closed."""
        with suppress(Closed):
            while True:
                state = await self.receive()
                if state is not None:
                    yield state

    async def close(self) -> None:
        """Stop listening; idempotent."""
        await asyncio.to_thread(self._sync.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class Cluster:
    """One RoQ cluster, seen from an event loop; see `roq.Cluster` for what the methods do."""

    def __init__(self, cluster: sync.Cluster) -> None:
        self._sync = cluster

    @property
    def addresses(self) -> list[str]:
        """Client endpoints of the configuration managers that are known by now."""
        return self._sync.addresses

    async def create_queue(
        self,
        name: str,
        *,
        host: str | None = None,
        exists_ok: bool = False,
        durability: str = "none",
        limits: Limits | Mapping[str, int] | None = None,
        timeout: float = COMMAND_SECONDS,
    ) -> None:
        """Create a queue and start it; see `roq.Cluster.create_queue`."""
        await asyncio.to_thread(
            self._sync.create_queue, name, host=host, exists_ok=exists_ok, durability=durability,
            limits=limits, timeout=timeout,
        )  # fmt: skip

    async def remove_queue(self, name: str, *, timeout: float = COMMAND_SECONDS) -> None:
        """Remove a queue, running or stopped; what it held is gone."""
        await asyncio.to_thread(self._sync.remove_queue, name, timeout=timeout)

    async def stop_queue(self, name: str, *, timeout: float = COMMAND_SECONDS) -> None:
        """Stop the monitor and exchanges of a queue; publishers wait until it starts again."""
        await asyncio.to_thread(self._sync.stop_queue, name, timeout=timeout)

    async def start_queue(self, name: str, *, timeout: float = COMMAND_SECONDS) -> None:
        """Start a stopped queue."""
        await asyncio.to_thread(self._sync.start_queue, name, timeout=timeout)

    async def queue_exists(self, name: str) -> bool:
        """Whether there is a queue of this name, running or not."""
        return await asyncio.to_thread(self._sync.queue_exists, name)

    async def queues(self) -> list[QueueSummary]:
        """All queues."""
        return await asyncio.to_thread(self._sync.queues)

    async def describe(self, queue: str) -> QueueDescription:
        """Everything about one queue."""
        return await asyncio.to_thread(self._sync.describe, queue)

    async def hosts(self) -> list[HostSummary]:
        """All hosts and what runs on them."""
        return await asyncio.to_thread(self._sync.hosts)

    async def exchanges(self, queue: str) -> list[ExchangeSummary]:
        """The exchanges of a queue."""
        return await asyncio.to_thread(self._sync.exchanges, queue)

    async def add_exchange(
        self,
        queue: str,
        host: str | None = None,
        transaction_id: str | None = None,
        *,
        timeout: float = COMMAND_SECONDS,
    ) -> str:
        """Start one more exchange for a queue; gives its name."""
        return await asyncio.to_thread(
            self._sync.add_exchange, queue, host, transaction_id, timeout=timeout
        )

    async def remove_exchange(
        self, queue: str, exchange: str, *, timeout: float = REMOVAL_SECONDS
    ) -> None:
        """Take an exchange out of a queue without loss; see `roq.Cluster.remove_exchange`."""
        await asyncio.to_thread(self._sync.remove_exchange, queue, exchange, timeout=timeout)

    async def set_rules(self, queue: str, rules: ScalingRules) -> None:
        """Set the scaling rules of a queue; they replace the ones before."""
        await asyncio.to_thread(self._sync.set_rules, queue, rules)

    async def get_rules(self, queue: str) -> ScalingRules:
        """The scaling rules of a queue."""
        return await asyncio.to_thread(self._sync.get_rules, queue)

    async def publisher(
        self,
        queue: str,
        *,
        timeout: float = 30.0,
        linger: float = 0.001,
        delivery_timeout: float = 60.0,
    ) -> Publisher:
        """A publisher to a queue, connected to one of its exchanges; see `roq.Publisher`."""
        publisher = await asyncio.to_thread(
            self._sync.publisher,
            queue,
            timeout=timeout,
            linger=linger,
            delivery_timeout=delivery_timeout,
            block=False,
            receipt=Receipt,
        )
        return Publisher(publisher, timeout)

    async def subscriber(
        self,
        queue: str,
        topic: str | Sequence[str] = "",
        start: StartOption = "latest",
        *,
        on_gap: Callable[[Gap], None] | None = None,
    ) -> Subscriber:
        """A subscriber to a queue, in force when this returns; see `roq.Subscriber`."""
        return Subscriber(
            await asyncio.to_thread(self._sync.subscriber, queue, topic, start, on_gap=on_gap)
        )

    def watch(self) -> Watch:
        """The configuration broadcast: the present state, then each change."""
        return Watch(self._sync.watch())

    async def close(self) -> None:
        """Close everything that was made here, publishers with a flush; idempotent."""
        await asyncio.to_thread(self._sync.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._sync.__exit__, kind, error, traceback)


class Connecting:
    """What `connect` gives: `await` it, or use it in `async with`."""

    def __init__(self, connect: Callable[[], sync.Cluster]) -> None:
        self._connect = connect
        self._cluster: Cluster | None = None

    def __await__(self) -> Generator[Any, None, Cluster]:
        return self._open().__await__()

    async def _open(self) -> Cluster:
        self._cluster = Cluster(await asyncio.to_thread(self._connect))
        return self._cluster

    async def __aenter__(self) -> Cluster:
        return await self._open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._cluster is not None:
            await self._cluster.__aexit__(kind, error, traceback)


def connect(
    *addresses: str | Iterable[str],
    timeout: float = 10.0,
    translate: Translate | None = None,
) -> Connecting:
    """Connect to a cluster: `await connect(…)` or `async with connect(…) as cluster`.

    Args:
        addresses: client addresses of one or more configuration managers, `host:port`.
        timeout: seconds for the cluster to answer, now and later.
        translate: applied to each address before it is connected to (for relays and tunnels).

    Raises:
        Unavailable: no configuration manager has answered in time.
        InvalidRequest: no valid address.
    """
    return Connecting(lambda: sync.connect(*addresses, timeout=timeout, translate=translate))
