"""Where messages go that could not be done: an ordinary queue, one for each queue that has any.

It is made with the first dead letter, as durable as the queue that the letter comes from. What a
letter says of its origin stands in properties that begin with `roq.dead.`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from roq.client.consume.message import ConsumedBatch, ConsumedMessage
from roq.client.publish.batching import Attributed
from roq.client.publish.publisher import Publisher
from roq.client.subscribe.message import Message
from roq.errors import RemoteProtocolError, RoQError
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
        """Publish those of these messages that are not settled, and wait until they are kept.

        Raises:
            RoQError: that could not be done.
        """
        with self._lock:
            publisher = self._publisher
            if publisher is None:
                publisher = self._publisher = self._open()
            try:
                for message in batch:
                    if message.open:
                        origin = self._origin(message, batch.attempt - 1, reason)
                        letter = Attributed.of(message.payload, origin)
                        publisher.publish_raw(letter, message.topic)
                publisher.flush(FLUSH_SECONDS)
            except RoQError:
                self._publisher = None  # its queue may be gone: the next letter makes another one
                publisher.abort()
                raise

    def close(self) -> None:
        """Write no more. What was buried is kept already."""
        with self._lock:
            publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close()

    def _origin(self, message: ConsumedMessage, tried: int, reason: str) -> Attributes:
        """What the message said of itself, and where it comes from."""
        origin = {
            f"{DEAD}queue": self._queue,
            f"{DEAD}topic": message.topic,
            f"{DEAD}group": self._group,
            f"{DEAD}id": message.id,
            f"{DEAD}attempts": str(tried),
            f"{DEAD}reason": reason[:REASON_MAX],
        }
        try:
            key, tags, properties = message.key, message.tags, dict(message.properties)
            priority = message.priority
        except RemoteProtocolError as error:  # nobody can read them: the payload is kept
            return Attributes(None, (), origin | {f"{DEAD}unreadable": str(error)[:REASON_MAX]})
        return Attributes(key, tags, properties | origin, priority)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What a dead letter says of its origin.

    Attributes:
        queue, topic, group: where it comes from.
        id: of the message there.
        attempts: how often it was tried.
        reason: why it is here.
        properties: its own.
    """

    queue: str
    topic: str
    group: str
    id: str
    attempts: int
    reason: str
    properties: dict[str, str]


def read_letter(message: Message) -> DeadLetter | None:
    """The origin of a dead letter; None: the message is none.

    Raises:
        RemoteProtocolError: its attributes cannot be read.
    """
    given = message.properties
    queue, tried = given.get(f"{DEAD}queue", ""), given.get(f"{DEAD}attempts", "")
    if not queue or not tried.isdecimal():
        return None
    return DeadLetter(
        queue=queue,
        topic=given.get(f"{DEAD}topic", message.topic),
        group=given.get(f"{DEAD}group", ""),
        id=given.get(f"{DEAD}id", ""),
        attempts=int(tried),
        reason=given.get(f"{DEAD}reason", ""),
        properties={name: text for name, text in given.items() if not name.startswith(RESERVED)},
    )
