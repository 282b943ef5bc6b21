"""Where messages go that could not be done: an ordinary queue, one for each queue that has any.

It is made with the first dead letter, as durable as the queue that the letter comes from. What a
letter says of its origin stands in properties that begin with `roq.dead.`.

With that it may be larger than a message may be. Then it goes without the properties that the
message had, and if that is not enough, with as much of the payload as there is room for;
`roq.dead.cut` says how large the payload was. The message would come again for ever otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from roq.client.consume.message import ConsumedBatch, ConsumedMessage
from roq.client.publish.batching import Attributed
from roq.client.publish.publisher import Publisher
from roq.errors import MessageTooLarge, RemoteProtocolError, RoQError
from roq.model import Limits
from roq.protocol.attributes import (
    PROPERTIES_MAX,
    RESERVED,
    RESERVED_MAX,
    Attributes,
    packed_size,
)
from roq.protocol.public_answers import QueueDescription
from roq.read.message import Message

SUFFIX: Final = ".dead"
FLUSH_SECONDS: Final = 30.0
DEAD: Final = f"{RESERVED}dead."
REASON_MAX: Final = 200


def of_letters(origin: QueueDescription) -> tuple[str, Limits]:
    """Durability and limits of the queue for the dead letters of another one: its own, but letters
    wait for people however long its messages live, and also when groups have done with them."""
    limits = msgspec.structs.replace(origin.limits, message_seconds=0, log_until_done=0)
    return origin.durability, limits


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
                        _publish(publisher, message.payload, origin, message.topic)
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
            why = str(error)[:REASON_MAX]
        else:
            if len(properties | origin) < PROPERTIES_MAX + RESERVED_MAX:
                return Attributes(key, tags, properties | origin, priority)
            why = f"it has {len(properties)} properties"  # nobody could read those of the letters
        return Attributes(None, (), origin | {f"{DEAD}unreadable": why})


def _publish(publisher: Publisher, payload: bytes, origin: Attributes, topic: str) -> None:
    """Publish a letter whole, or as much of it as may be.

    Raises:
        MessageTooLarge: there is not even room for its origin.
    """
    try:
        publisher.publish_raw(Attributed.of(payload, origin), topic)
    except MessageTooLarge as error:
        told = {name: text for name, text in origin.properties.items() if name.startswith(DEAD)}
        told[f"{DEAD}cut"] = str(len(payload))
        short = Attributes(origin.key, origin.tags, told)
        room = error.limit - packed_size(short)
        if room < 0:
            short = Attributes(None, (), told)
            room = error.limit - packed_size(short)
        publisher.publish_raw(Attributed.of(payload[: max(0, room)], short), topic)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What a dead letter says of its origin.

    Attributes:
        queue, topic, group: where it comes from.
        id: of the message there.
        attempts: how often it was tried.
        reason: why it is here.
        properties: its own.
        cut: bytes that the payload had, if this is not all of it; 0: it is, with all properties.
    """

    queue: str
    topic: str
    group: str
    id: str
    attempts: int
    reason: str
    properties: dict[str, str]
    cut: int = 0


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
        cut=int(cut) if (cut := given.get(f"{DEAD}cut", "")).isdecimal() else 0,
    )
