"""Delayed publishing: a message that the exchange keeps, and publishes when it is due."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import isnan
from time import time
from typing import Final, NamedTuple

from roq.client.publish.batching import Attributed, Payload, as_bytes
from roq.client.publish.receipt import Receipt
from roq.errors import InvalidRequest
from roq.model import as_number, encode_topic, shown
from roq.protocol.attributes import attributes_of
from roq.protocol.delayed import (
    DELAY_SECONDS_MAX,
    DELAYED_TOPIC,
    MESSAGE_ID_BYTES,
    Delayed,
    encode_delayed,
)

When = float | timedelta | datetime
"""Seconds from now, or an aware time."""
_TOPIC: Final = DELAYED_TOPIC.decode()


class DelayedMessage(NamedTuple):
    """What `publish_later` gives."""

    id: str
    """By which `Cluster.cancel_message` knows it, and `roq.delayed.id` of the message tells it."""
    due: datetime
    """When it is published."""
    receipt: Receipt
    """Of the delayed message: that the exchange keeps it, as the queue promises for any other."""


class LaterPublishing(ABC):
    """The part of a publisher that publishes later."""

    @abstractmethod
    def publish_raw(self, data: bytes, topic: str) -> Receipt:
        """Publish a payload that has its attributes already."""

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
        """Publish one message that subscribers and groups get when it is due, and not before.

        The exchange keeps it and publishes it then, as a publisher with an id of its own: who has
        published it, and when, stands in the properties `roq.delayed.publisher` and
        `roq.delayed.published` (µs since 1970). Delayed messages have no order among each other but
        that of their times.

        Args:
            payload, topic, key, tags, properties, priority: as in `publish`.
            delay: seconds, a `timedelta`, or an aware `datetime` at which it is due. What is past
                is due at once; ten years from now is the latest.

        Returns:
            Its id, its time and its receipt.

        Raises:
            InvalidRequest: later than that, or a time without its zone.
            RoQError: as `publish`.
        """
        due_us = due_of(delay, time())
        attributes = attributes_of(key, tags, properties, priority)
        message = os.urandom(MESSAGE_ID_BYTES)
        data = encode_delayed(Delayed(due_us, encode_topic(topic), as_bytes(payload), message))
        if attributes is not None:
            data = Attributed.of(data, attributes)
        receipt = self.publish_raw(data, _TOPIC)
        return DelayedMessage(message.hex(), _EPOCH + timedelta(microseconds=due_us), receipt)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def due_of(delay: When, now: float) -> int:
    """When a message with this delay is due, µs UTC.

    Args:
        delay: as in `publish_later`.
        now: seconds since 1970.

    Raises:
        InvalidRequest: too late, or no time that can be told.
    """
    if isinstance(delay, datetime):
        if delay.tzinfo is None:
            raise InvalidRequest(
                f"{delay.isoformat()} has no time zone: say which, as in datetime.now(UTC)"
            )
        seconds = (delay - _EPOCH).total_seconds() - now
    elif isinstance(delay, timedelta):
        seconds = delay.total_seconds()
    elif isnan(seconds := as_number(delay)):
        raise InvalidRequest(
            f"a delay is seconds, a timedelta, or an aware datetime, not {shown(delay)}"
        )
    if seconds > DELAY_SECONDS_MAX:
        raise InvalidRequest(
            f"a message is delayed by {DELAY_SECONDS_MAX // 86_400} days at most, not by "
            f"{seconds / 86_400:,.7g}: publish it nearer to its time"
        )
    return max(0, int((now + max(seconds, -now)) * 1_000_000))
