"""Where messages go that could not be done: an ordinary queue, one for each queue that has any.

It is made with the first dead letter, as durable as the queue that the letter comes from. What a
letter says of its origin stands in properties that begin with `roq.dead.`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from roq.client.consume.message import ConsumedBatch, ConsumedMessage
from roq.client.publish.batching import Attributed
from roq.client.publish.publisher import Publisher
from roq.protocol.attributes import RESERVED, Attributes

SUFFIX: Final = ".dead"
FLUSH_SECONDS: Final = 30.0
DEAD: Final = f"{RESERVED}dead."
REASON_MAX: Final = 200


class DeadLetters:
    """The dead letters of one consumer. From any thread.

    Args:
        queue, group: where they come from.
        open_publisher: makes the queue for them if there is none, and a publisher to it.
    """

    def __init__(self, queue: str, group: str, open_publisher: Callable[[], Publisher]) -> None:
        self._queue = queue
        self._group = group
        self._open = open_publisher
        self._publisher: Publisher | None = None
        self._lock = threading.Lock()

    def bury(self, batch: ConsumedBatch, reason: str) -> None:
        """Publish these messages, and wait until they are kept.

        Raises:
            RoQError: that could not be done.
        """
        with self._lock:
            if self._publisher is None:
                self._publisher = self._open()
            for message in batch:
                origin = self._origin(message, batch.attempt - 1, reason)
                self._publisher.publish_raw(Attributed.of(message.payload, origin), message.topic)
            self._publisher.flush(FLUSH_SECONDS)

    def _origin(self, message: ConsumedMessage, tried: int, reason: str) -> Attributes:
        """What the message said of itself, and where it comes from."""
        properties = dict(message.properties) | {
            f"{DEAD}queue": self._queue,
            f"{DEAD}topic": message.topic,
            f"{DEAD}group": self._group,
            f"{DEAD}id": message.id,
            f"{DEAD}attempts": str(tried),
            f"{DEAD}reason": reason[:REASON_MAX],
        }
        return Attributes(message.key, message.tags, properties)
