"""RoQ through its public API, in two styles; `roq_aio` has the same two with asyncio.

    batches    publish_many(list) → for batch in sub.batches()
    messages   publish(payload)   → for message in sub

Unlike the bare ZeroMQ contenders everything is on: acknowledgements, replay buffers, checksums,
order and duplicate checks, gap repair.
"""

from __future__ import annotations

from typing import Final

import roq
from roq.benchmarks.case import Run
from roq.benchmarks.clients import BenchPublisher, BenchSubscriber, age_us, paced, parts, timed
from roq.benchmarks.cluster import RoqCluster
from roq.benchmarks.contender import OPEN_SECONDS, RUN_SECONDS, Contender
from roq.benchmarks.processes import BenchmarkError

MODULE: Final = "roq"
_TITLES: Final = {
    "batches": "RoQ, publish_many → batches()",
    "messages": "RoQ, publish() → for message in sub",
}


def refuse(gap: roq.Gap) -> None:
    """End a measurement in which something was lost: it would compare nothing with something.

    Raises:
        BenchmarkError: always.
    """
    raise BenchmarkError(f"lost: {gap.text}")


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
        publish, topic = self._open_publisher().publish, run.topic
        for part in parts(run, payloads):
            for payload in part:
                publish(payload, topic)
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
        for part in parts(run, payloads):
            publisher.publish_many(part, topic)
        publisher.flush(timeout=RUN_SECONDS)


class RoqAckedPublisher(RoqPublisher):
    """By message, each acknowledgement waited for.

    Attributes:
        ack_us: how long each took.
    """

    ack_us: list[float]

    def pace(self, run: Run) -> None:
        """Publish at a rate, and wait for each acknowledgement."""
        publish = self._open_publisher().publish
        self.ack_us = timed(run, lambda each: publish(each, run.topic).result(RUN_SECONDS))


class RoqSubscriber:
    """The receiving side, by message."""

    def __init__(self, options: dict[str, str]) -> None:
        self._queue = options["queue"]
        self._cluster = roq.connect(options["cluster"], timeout=OPEN_SECONDS)
        self._subscriber: roq.Subscriber | None = None

    def open(self, run: Run) -> None:
        """Subscribe."""
        self._subscriber = self._cluster.subscriber(self._queue, topic=run.topic, on_gap=refuse)

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


def publisher(style: str, options: dict[str, str]) -> BenchPublisher:
    """The sending side in a style."""
    if style == "acked":
        return RoqAckedPublisher(options)
    return RoqBatchPublisher(options) if style == "batches" else RoqPublisher(options)


def subscriber(style: str, options: dict[str, str]) -> BenchSubscriber:
    """The receiving side in a style."""
    return RoqBatchSubscriber(options) if style == "batches" else RoqSubscriber(options)


def contenders(cluster: RoqCluster) -> list[Contender]:
    """Both styles."""
    return [
        Contender(f"roq_{style}", title, kind="roq", module=MODULE, style=style, server=cluster)
        for style, title in _TITLES.items()
    ]
