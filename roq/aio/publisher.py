"""The asyncio publisher and its receipts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, cast

from roq.aio.twin import Leaving, Told, awaited, called
from roq.client.io.bell import Bell, deadline_in
from roq.client.publish import publisher as sync_publisher
from roq.client.publish import receipt as sync_receipt
from roq.client.publish.batching import Lifetime, Payload, lifetime_ms, with_attributes
from roq.client.publish.delayed import DelayedMessage, When
from roq.client.publish.receipt import SendStatus
from roq.client.session.events import ClientState
from roq.model import wait_seconds
from roq.protocol.attributes import attributes_of


class Receipt(sync_receipt.Receipt):
    """As `roq.Receipt`; `await` it to get its `SendStatus`."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, SendStatus]:
        return self.settled().__await__()

    async def settled(self) -> SendStatus:
        """Wait until the fate is known; what `await` does."""
        if self.status is None:
            bell = Bell()
            armed = bell.arm()
            self._ring_when_settled(bell.ring)
            self._waiter.attend()
            await bell.wait(armed)
        return self.status or sync_receipt.PENDING


class Publisher(Leaving[sync_publisher.Publisher]):
    """Publishes to one queue from one event loop. Made by `Cluster.publisher`."""

    def __init__(self, publisher: sync_publisher.Publisher) -> None:
        super().__init__(publisher)
        # One call less for each message.
        self.publish = publisher.publish  # type: ignore[method-assign, assignment]

    id = Told[bytes]("16 bytes; subscribers see it as `message.publisher`.")
    name = Told[str]("By which people find it in `roq top`.")
    group = Told[str]("The publishers that it belongs to; people see it before the name.")
    next_sequence = called(sync_publisher.Publisher.next_sequence)
    queue = Told[str]("Name of the queue.")
    timeout = Told[float](
        "Seconds that `drain` and `flush` wait at most, if they are not told otherwise."
    )
    state = Told[ClientState](sync_publisher.Publisher.state)
    trouble = Told[str](sync_publisher.Publisher.trouble)

    def publish(
        self,
        payload: Payload,
        topic: str = "",
        key: str | None = None,
        tags: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        wait: bool = True,
        priority: int = 0,
        delay: When | None = None,
        ttl: Lifetime | None = None,
    ) -> Receipt:
        """Publish one message; a plain call that never waits.

        Args:
            payload, topic, key, tags, properties, wait, priority, delay, ttl: as in
                `roq.Publisher.publish`.

        Returns:
            The receipt of the batch; it can be awaited.

        Raises:
            WouldBlock: the window is full: `await drain()` and try again.
            RoQError: as `roq.Publisher.publish`.
        """
        receipt = self._sync.publish(
            payload, topic, key, tags, properties, wait, priority, delay, ttl
        )
        return cast("Receipt", receipt)

    def publish_later(
        self,
        payload: Payload,
        topic: str = "",
        key: str | None = None,
        tags: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        delay: When,
        priority: int = 0,
    ) -> DelayedMessage:
        """Publish one message that is given out when it is due; a plain call that never waits.

        Args:
            payload, topic, key, tags, properties, delay, priority: as in
                `roq.Publisher.publish_later`.

        Returns:
            Its id, its time and its receipt, which can be awaited.

        Raises:
            RoQError: as `publish`, and `roq.Publisher.publish_later`.
        """
        return self._sync.publish_later(
            payload, topic, key, tags, properties, delay=delay, priority=priority
        )

    async def send(
        self,
        payload: Payload,
        topic: str = "",
        key: str | None = None,
        tags: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        priority: int = 0,
        ttl: Lifetime | None = None,
        timeout: float | None = None,
    ) -> SendStatus:
        """Publish one message and wait until its fate is known; waits for room, too.

        For several at a time, make tasks of it.

        Args:
            payload, topic, key, tags, properties, priority, ttl, timeout: as in
                `roq.Publisher.send`.

        Raises:
            DeliveryError: it was not delivered, or it is not known yet; `outcome` says which.
            Unavailable: there was no room for `timeout`, or the publisher's own.
        """
        sync = self._sync
        remaining = wait_seconds(timeout, sync.delivery_timeout)
        deadline = monotonic() + remaining
        tries = sync.retry_times
        while True:
            await self.drain(min(sync.timeout, remaining))
            receipt = self.publish(
                payload, topic, key, tags, properties, priority=priority, ttl=ttl
            )
            remaining = max(0.0, deadline - monotonic())
            sync.watch(receipt, remaining, tries)
            try:
                status = await asyncio.wait_for(receipt.settled(), remaining)
            except TimeoutError:
                status = receipt.status or sync_receipt.PENDING
            if status.ok:
                return status
            remaining = max(0.0, deadline - monotonic())
            if not remaining or not sync.tries_again(status, tries):
                raise sync_receipt.failure(status, 1)
            tries -= 1

    async def publish_many(
        self,
        payloads: Iterable[Payload],
        topic: str = "",
        key: str | None = None,
        tags: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        priority: int = 0,
        ttl: Lifetime | None = None,
    ) -> list[Receipt]:
        """Publish many messages of one topic, the fastest way; waits for room as often as needed.

        Args:
            payloads: the messages, in order.
            topic, key, tags, properties, priority, ttl: of all, as in `roq.Publisher.publish`.

        Raises:
            Unavailable: there was no room for the publisher's `timeout`.
        """
        attributes = attributes_of(key, tags, properties, priority)
        every = with_attributes(payloads, attributes, lifetime_ms(ttl))
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
        seconds = wait_seconds(timeout, self.timeout)
        if not await self._until(self._sync.has_room, seconds):
            self._sync.raise_no_room(seconds)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until everything published so far has been acknowledged; see `roq.Publisher.flush`.

        Raises:
            DeliveryError: messages were given up since the last flush.
            Unavailable: `timeout` passed; what is open stays open.
        """
        seconds = wait_seconds(timeout, self.timeout)
        self._sync.flushed(seconds, done=await self._until(self._sync.is_flushed, seconds))

    close = awaited(sync_publisher.Publisher.close)
    abort = called(sync_publisher.Publisher.abort)
    stats = called(sync_publisher.Publisher.stats)

    async def _until(self, condition: Callable[[], bool], timeout: float) -> bool:
        deadline = deadline_in(timeout)
        bell = Bell()
        while True:
            armed = bell.arm()
            try:
                if self._sync.attempt(condition, bell.ring):
                    return True
                if self._sync.failed or monotonic() >= deadline:
                    return False
                await bell.wait(armed, deadline)
            finally:
                bell.disarm(armed)
