"""RoQ with asyncio, in two styles: by batches and by message."""

from __future__ import annotations

from typing import Final

import roq
import roq.aio
from roq.benchmarks.case import Run
from roq.benchmarks.clients import (
    AsyncClient,
    BenchPublisher,
    BenchSubscriber,
    age_us,
    paced_async,
    parts,
)
from roq.benchmarks.cluster import RoqCluster
from roq.benchmarks.contender import OPEN_SECONDS, RUN_SECONDS, Contender
from roq.benchmarks.contenders.roq import refuse

MODULE: Final = "roq_aio"
_TITLES: Final = {"batches": "RoQ asyncio, by batches", "messages": "RoQ asyncio, by message"}


class AioClient(AsyncClient):
    """An event loop and the connection that lives in it."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__()
        self._options = options
        self._connection: roq.aio.Cluster | None = None

    async def _cluster(self) -> roq.aio.Cluster:
        if self._connection is None:
            self._connection = await roq.aio.connect(self._options["cluster"], timeout=OPEN_SECONDS)
        return self._connection


class AioPublisher(AioClient):
    """The sending side with asyncio."""

    def __init__(self, options: dict[str, str], *, by_batches: bool) -> None:
        super().__init__(options)
        self._by_batches = by_batches
        self._publisher: roq.aio.Publisher | None = None

    async def _open(self, run: Run) -> None:
        self._publisher = await (await self._cluster()).publisher(self._options["queue"])
        self._publisher.publish(b"", topic=f"warm.{run.topic}")
        await self._publisher.flush(timeout=OPEN_SECONDS)

    async def _publish(self, run: Run, payloads: list[bytes]) -> None:
        publisher, topic = self._open_publisher(), run.topic
        for part in parts(run, payloads):
            if self._by_batches:
                await publisher.publish_many(part, topic)
            else:
                for payload in part:
                    try:
                        publisher.publish(payload, topic)
                    except roq.WouldBlock:
                        await publisher.drain()
                        publisher.publish(payload, topic)
        await publisher.flush(timeout=RUN_SECONDS)

    async def _close(self) -> None:
        await self._open_publisher().close()

    async def _pace(self, run: Run) -> None:
        publisher = self._open_publisher()
        async for payload in paced_async(run):
            publisher.publish(payload, run.topic)
        await publisher.flush(timeout=RUN_SECONDS)

    def _open_publisher(self) -> roq.aio.Publisher:
        assert self._publisher is not None  # noqa: S101 - the harness opens first
        return self._publisher


class AioSubscriber(AioClient):
    """The receiving side with asyncio."""

    def __init__(self, options: dict[str, str], *, by_batches: bool) -> None:
        super().__init__(options)
        self._by_batches = by_batches
        self._subscriber: roq.aio.Subscriber | None = None

    async def _open(self, run: Run) -> None:
        cluster = await self._cluster()
        self._subscriber = await cluster.subscriber(
            self._options["queue"], topic=run.topic, on_gap=refuse
        )

    async def _close(self) -> None:
        await self._open_subscriber().close()

    async def _receive(self, run: Run) -> None:
        await (self._batches(run) if self._by_batches else self._messages(run))

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

    def _open_subscriber(self) -> roq.aio.Subscriber:
        assert self._subscriber is not None  # noqa: S101 - the harness opens first
        return self._subscriber


def publisher(style: str, options: dict[str, str]) -> BenchPublisher:
    """The sending side in a style."""
    return AioPublisher(options, by_batches=style == "batches")


def subscriber(style: str, options: dict[str, str]) -> BenchSubscriber:
    """The receiving side in a style."""
    return AioSubscriber(options, by_batches=style == "batches")


def contenders(cluster: RoqCluster) -> list[Contender]:
    """Both styles."""
    return [
        Contender(f"roq_aio_{style}", title, kind="roq", module=MODULE, style=style, server=cluster)
        for style, title in _TITLES.items()
    ]
