"""A queue of paper for the clients of benchmarks: what is published is what is received."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import roq


class PaperQueue:
    """Publisher, subscriber, consumer and cluster in one; also in a loop (`PaperLoopQueue`).

    Attributes:
        published: topic and payload of each message.
        acked: how many messages were acknowledged by their consumer.
        calls: what else was done, in order.
        room: messages that `publish` takes before it says that the window is full.
    """

    group = "g"

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes]] = []
        self.acked = 0
        self.calls: list[Any] = []
        self.room = 1_000

    # --- as a cluster

    def publisher(self, queue: str) -> Any:
        self.calls.append(("publisher", queue))
        return self

    def subscriber(self, queue: str, **given: Any) -> Any:
        self.calls.append(("subscriber", queue, given))
        return self

    def consumer(self, queue: str, **given: Any) -> Any:
        self.calls.append(("consumer", queue, given))
        return self

    def delete_group(self, queue: str, group: str) -> None:
        self.calls.append(("delete", queue, group))

    # --- as a publisher

    def publish(self, payload: bytes, topic: str) -> Any:
        if not self.room:
            raise roq.WouldBlock("full")
        self.room -= 1
        self.published.append((topic, payload))
        return SimpleNamespace(result=lambda _: self.calls.append("acknowledged"))

    def publish_many(self, payloads: list[bytes], topic: str) -> Any:
        self.calls.append(len(payloads))
        self.published += [(topic, each) for each in payloads]

    def flush(self, timeout: float) -> Any:
        assert timeout > 0
        self.calls.append("flush")

    # --- as a subscriber and a consumer

    def payloads(self) -> list[bytes]:
        """Of what was published, but for what warms up."""
        return [payload for topic, payload in self.published if not topic.startswith("warm.")]

    def ack(self) -> None:
        self.acked += 1

    def messages(self) -> list[Any]:
        return [SimpleNamespace(payload=each, ack=self.ack) for each in self.payloads()]

    def runs(self, most: int = 2) -> list[Any]:
        every = self.payloads()
        return [
            SimpleNamespace(payloads=every[at : at + most], ack=self.ack)
            for at in range(0, len(every), most)
        ]

    def receive(self, _timeout: float) -> Any:
        return self.messages()[self.acked]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.messages())

    def batches(self, most: int = 2) -> Any:
        return iter(self.runs(most))

    def close(self) -> Any:
        self.calls.append("close")


class PaperLoopQueue(PaperQueue):
    """The same for event loops."""

    async def publisher(self, queue: str) -> Any:
        return super().publisher(queue)

    async def subscriber(self, queue: str, **given: Any) -> Any:
        return super().subscriber(queue, **given)

    async def publish_many(self, payloads: list[bytes], topic: str) -> Any:
        super().publish_many(payloads, topic)

    async def flush(self, **waits: float) -> Any:
        super().flush(**waits)

    async def drain(self) -> None:
        self.calls.append("drain")
        self.room = 3

    async def close(self) -> Any:
        super().close()

    async def __aiter__(self) -> AsyncIterator[Any]:
        for each in self.messages():
            yield each

    async def batches(self, most: int = 2) -> Any:
        for each in self.runs(most):
            yield each
