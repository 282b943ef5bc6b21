"""RoQ through its public API, in four styles.

    batches       publish_many(list) → for batch in sub.batches()
    messages      publish(payload)   → for message in sub
    aio_batches   the same two with roq.aio
    aio_messages

Unlike the bare ZeroMQ contenders everything is on: acknowledgements, replay buffers, checksums,
order and duplicate checks, gap repair.
"""

from __future__ import annotations

import asyncio
from typing import Final

import roq
from benchmarks.case import Run
from benchmarks.clients import Publisher, Subscriber, age_us, paced, paced_async
from benchmarks.cluster import RoqCluster
from benchmarks.contender import OPEN_SECONDS, RUN_SECONDS, Contender
from roq import aio

MODULE: Final = "roq"
_TITLES: Final = {
    "batches": "RoQ, publish_many → batches()",
    "messages": "RoQ, publish() → for message in sub",
    "aio_batches": "RoQ asyncio, by batches",
    "aio_messages": "RoQ asyncio, by message",
}


class RoqPublisher:
    """The sending side, by message."""

    def __init__(self, options: dict[str, str]) -> None:
        self._queue = options["queue"]
        self._cluster = roq.connect(options["cluster"], timeout=OPEN_SECONDS)
        self._publisher: roq.Publisher | None = None

    def open(self, run: Run) -> None:
        """A publisher whose link is up, on a topic that nobody reads."""
        self._publisher = self._cluster.publisher(self._queue)
        self._publisher.publish(b"", topic=f"warm.{run.topic}")
        self._publisher.flush(timeout=OPEN_SECONDS)

    def publish(self, run: Run, payloads: list[bytes]) -> None:
        """Publish message by message, wait for the acknowledgements at the end."""
        publish, topic, left = self._open_publisher().publish, run.topic, run.count
        while left > 0:
            for payload in payloads[:left]:
                publish(payload, topic)
            left -= len(payloads)
        self._open_publisher().flush(timeout=RUN_SECONDS)

    def pace(self, run: Run) -> None:
        """Publish at a rate."""
        publish = self._open_publisher().publish
        for payload in paced(run):
            publish(payload, run.topic)
        self._open_publisher().flush(timeout=RUN_SECONDS)

    def close(self) -> None:
        """Say goodbye."""
        self._open_publisher().close()

    def _open_publisher(self) -> roq.Publisher:
        assert self._publisher is not None  # noqa: S101 - the harness opens first
        return self._publisher


class RoqBatchPublisher(RoqPublisher):
    """The sending side, by lists."""

    def publish(self, run: Run, payloads: list[bytes]) -> None:
        """Publish list by list, wait for the acknowledgements at the end."""
        publisher, topic = self._open_publisher(), run.topic
        full, rest = divmod(run.count, len(payloads))
        for _ in range(full):
            publisher.publish_many(payloads, topic)
        if rest:
            publisher.publish_many(payloads[:rest], topic)
        publisher.flush(timeout=RUN_SECONDS)


class RoqSubscriber:
    """The receiving side, by message."""

    def __init__(self, options: dict[str, str]) -> None:
        self._queue = options["queue"]
        self._cluster = roq.connect(options["cluster"], timeout=OPEN_SECONDS)
        self._subscriber: roq.Subscriber | None = None

    def open(self, run: Run) -> None:
        """Subscribe."""
        self._subscriber = self._cluster.subscriber(
            self._queue, topic=run.topic, timeout=OPEN_SECONDS
        )

    def receive(self, run: Run) -> None:
        """Look at every message."""
        size = 0
        for received, message in enumerate(self._open_subscriber(), 1):
            size += len(message.payload)
            if received == run.count:
                break
        assert size == run.count * run.size  # noqa: S101 - a broken benchmark must not go unseen

    def ages(self, run: Run) -> list[float]:
        """The age of every message on arrival."""
        ages = list[float]()
        for message in self._open_subscriber():
            ages.append(age_us(message.payload))
            if len(ages) == run.count:
                break
        return ages

    def close(self) -> None:
        """Unsubscribe."""
        self._open_subscriber().close()

    def _open_subscriber(self) -> roq.Subscriber:
        assert self._subscriber is not None  # noqa: S101 - the harness opens first
        return self._subscriber


class RoqBatchSubscriber(RoqSubscriber):
    """The receiving side, by batches."""

    def receive(self, run: Run) -> None:
        """Look at every batch."""
        received, size = 0, 0
        for batch in self._open_subscriber().batches():
            received += len(batch.payloads)
            size += sum(map(len, batch.payloads))
            if received == run.count:
                break
        assert size == run.count * run.size  # noqa: S101 - a broken benchmark must not go unseen


class AioClient:
    """An event loop and the connection that lives in it."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._runner = asyncio.Runner()
        self._connection: aio.Cluster | None = None

    async def _cluster(self) -> aio.Cluster:
        if self._connection is None:
            self._connection = await aio.connect(self._options["cluster"], timeout=OPEN_SECONDS)
        return self._connection


class AioPublisher(AioClient):
    """The sending side with asyncio."""

    def __init__(self, options: dict[str, str], *, by_batches: bool) -> None:
        super().__init__(options)
        self._by_batches = by_batches
        self._publisher: aio.Publisher | None = None

    def open(self, run: Run) -> None:
        """A publisher whose link is up."""
        self._runner.run(self._open(run))

    def publish(self, run: Run, payloads: list[bytes]) -> None:
        """Publish everything, wait for the acknowledgements at the end."""
        self._runner.run(self._publish(run, payloads))

    def pace(self, run: Run) -> None:
        """Publish at a rate."""
        self._runner.run(self._pace(run))

    def close(self) -> None:
        """Say goodbye."""
        self._runner.run(self._open_publisher().close())

    async def _open(self, run: Run) -> None:
        self._publisher = await (await self._cluster()).publisher(self._options["queue"])
        self._publisher.publish(b"", topic=f"warm.{run.topic}")
        await self._publisher.flush(timeout=OPEN_SECONDS)

    async def _publish(self, run: Run, payloads: list[bytes]) -> None:
        publisher, topic, left = self._open_publisher(), run.topic, run.count
        while left > 0:
            part = payloads if left >= len(payloads) else payloads[:left]
            if self._by_batches:
                await publisher.publish_many(part, topic)
            else:
                for payload in part:
                    await publisher.send(payload, topic)
            left -= len(part)
        await publisher.flush(timeout=RUN_SECONDS)

    async def _pace(self, run: Run) -> None:
        publisher = self._open_publisher()
        async for payload in paced_async(run):
            publisher.publish(payload, run.topic)
        await publisher.flush(timeout=RUN_SECONDS)

    def _open_publisher(self) -> aio.Publisher:
        assert self._publisher is not None  # noqa: S101 - the harness opens first
        return self._publisher


class AioSubscriber(AioClient):
    """The receiving side with asyncio."""

    def __init__(self, options: dict[str, str], *, by_batches: bool) -> None:
        super().__init__(options)
        self._by_batches = by_batches
        self._subscriber: aio.Subscriber | None = None

    def open(self, run: Run) -> None:
        """Subscribe."""
        self._runner.run(self._open(run))

    def receive(self, run: Run) -> None:
        """Look at everything."""
        self._runner.run(self._batches(run) if self._by_batches else self._messages(run))

    def ages(self, run: Run) -> list[float]:
        """The age of every message on arrival."""
        return self._runner.run(self._ages(run))

    def close(self) -> None:
        """Unsubscribe."""
        self._runner.run(self._open_subscriber().close())

    async def _open(self, run: Run) -> None:
        cluster = await self._cluster()
        self._subscriber = await cluster.subscriber(
            self._options["queue"], topic=run.topic, timeout=OPEN_SECONDS
        )

    async def _batches(self, run: Run) -> None:
        received, size = 0, 0
        async for batch in self._open_subscriber().batches():
            received += len(batch.payloads)
            size += sum(map(len, batch.payloads))
            if received == run.count:
                break
        assert size == run.count * run.size  # noqa: S101 - a broken benchmark must not go unseen

    async def _messages(self, run: Run) -> None:
        received, size = 0, 0
        async for message in self._open_subscriber():
            received += 1
            size += len(message.payload)
            if received == run.count:
                break
        assert size == run.count * run.size  # noqa: S101 - a broken benchmark must not go unseen

    async def _ages(self, run: Run) -> list[float]:
        ages = list[float]()
        async for message in self._open_subscriber():
            ages.append(age_us(message.payload))
            if len(ages) == run.count:
                break
        return ages

    def _open_subscriber(self) -> aio.Subscriber:
        assert self._subscriber is not None  # noqa: S101 - the harness opens first
        return self._subscriber


def publisher(style: str, options: dict[str, str]) -> Publisher:
    """The sending side in a style."""
    if style.startswith("aio_"):
        return AioPublisher(options, by_batches=style == "aio_batches")
    return RoqBatchPublisher(options) if style == "batches" else RoqPublisher(options)


def subscriber(style: str, options: dict[str, str]) -> Subscriber:
    """The receiving side in a style."""
    if style.startswith("aio_"):
        return AioSubscriber(options, by_batches=style == "aio_batches")
    return RoqBatchSubscriber(options) if style == "batches" else RoqSubscriber(options)


def contenders(cluster: RoqCluster) -> list[Contender]:
    """The four styles, all on one cluster."""
    return [
        Contender(f"roq_{style}", title, kind="roq", module=MODULE, style=style, server=cluster)
        for style, title in _TITLES.items()
    ]
