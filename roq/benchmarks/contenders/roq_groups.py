"""RoQ's consumer groups through the public API, in two styles.

    consume_batches    publish_many(list) → for batch in consumer.batches()
    consume_messages   publish(payload)   → for message in consumer

A measurement ends when the last acknowledgement of the group is confirmed.
"""

from __future__ import annotations

import time
from typing import Final

import roq
from roq.benchmarks.case import Run
from roq.benchmarks.clients import BenchPublisher, BenchSubscriber
from roq.benchmarks.contender import OPEN_SECONDS, RUN_SECONDS
from roq.benchmarks.contenders.roq import RoqAckedPublisher, RoqBatchPublisher

MODULE: Final = "roq_groups"
BATCHES: Final = "consume_batches"


class RoqConsumer:
    """The receiving side, by message."""

    def __init__(self, options: dict[str, str]) -> None:
        self._queue = options["queue"]
        self._cluster = roq.connect(options["cluster"], timeout=OPEN_SECONDS)
        self._consumer: roq.Consumer | None = None

    def open(self, run: Run) -> None:
        """Join a group of its own."""
        self._consumer = self._cluster.consumer(
            self._queue, group=run.topic.rstrip("."), topic=run.topic, start="latest"
        )

    def receive(self, run: Run) -> None:
        """Look at every message, and acknowledge it."""
        size, received = 0, 0
        consumer = self.member()
        for received, message in enumerate(consumer, 1):
            size += len(message.payload)
            if received == run.count:
                message.ack()
                break
        consumer.flush(RUN_SECONDS)
        assert size == run.count * run.size  # noqa: S101 - a broken benchmark must not go unseen

    def ages(self, run: Run) -> list[float]:
        """How long each acknowledgement takes until it is confirmed."""
        consumer, took = self.member(), list[float]()
        while len(took) < run.count:
            message = consumer.receive(RUN_SECONDS)
            assert message is not None  # noqa: S101 - a broken benchmark must not go unseen
            began = time.monotonic()
            message.ack()
            consumer.flush(RUN_SECONDS)
            took.append((time.monotonic() - began) * 1e6)
        return took

    def close(self) -> None:
        """Leave, and remove the group: an idle one costs the next measurement."""
        consumer = self.member()
        consumer.close()
        self._cluster.delete_group(self._queue, consumer.group)

    def member(self) -> roq.Consumer:
        """The consumer of this measurement."""
        assert self._consumer is not None  # noqa: S101 - the harness opens first
        return self._consumer


class RoqBatchConsumer(RoqConsumer):
    """The receiving side, by batches."""

    def receive(self, run: Run) -> None:
        """Look at every batch, and acknowledge it."""
        received, size = 0, 0
        for batch in self.member().batches(most=run.batch):
            received += len(batch.payloads)
            size += sum(map(len, batch.payloads))
            batch.ack()
            if received == run.count:
                break
        self.member().flush(RUN_SECONDS)
        assert size == run.count * run.size  # noqa: S101 - a broken benchmark must not go unseen


def publisher(style: str, options: dict[str, str]) -> BenchPublisher:
    """The sending side in a style."""
    return RoqBatchPublisher(options) if style == BATCHES else RoqAckedPublisher(options)


def subscriber(style: str, options: dict[str, str]) -> BenchSubscriber:
    """The receiving side in a style."""
    return RoqBatchConsumer(options) if style == BATCHES else RoqConsumer(options)
