"""Dead letters in the hands of an operator: held while they are looked at, tried anew or dropped.

Whoever looks is a consumer of the queue of dead letters, in one group for all of them: a letter is
acknowledged there when it is back in its queue, or dropped, and that is how it is gone. One at a
time: two would each see a part of what there is, so the second one is told who is at work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from roq.client.consume.dead_letters import SUFFIX, DeadLetter, read_letter
from roq.errors import Busy, RemoteProtocolError

if TYPE_CHECKING:
    from roq.client.cluster import Cluster
    from roq.client.consume.message import ConsumedMessage
    from roq.client.publish.publisher import Publisher

GROUP: Final = "dead-letters"
HELD_MAX: Final = 100_000
HELD_BYTES_MAX: Final = 256 * 1024 * 1024
CHUNK: Final = 500
"""Letters that are published, acknowledged and then done together."""
FLUSH_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which dead letters.

    Attributes:
        reason: is in their reason.
        topic: their topic begins so.
        group: they come from this group; empty: from any.
        count: so many at most.
        wait: seconds without another one after which those that are there are taken for all.
        until: they died by then; None: whenever.
    """

    letters: str | None
    reason: str
    topic: str
    group: str
    count: int
    wait: float
    until: datetime | None = None

    def admits(self, letter: DeadLetter, died: datetime) -> bool:
        """Whether this is one of them."""
        return (
            self.reason in letter.reason
            and letter.topic.startswith(self.topic)
            and self.group in {"", letter.group}
            and (self.until is None or died <= self.until)
        )

    def prefetch(self, exchanges: int) -> int:
        """How many letters must be held to find these.

        All of them, unless each one is wanted. An exchange gives its share and no more, so each
        gets what is wanted as its share; a chunk stands for messages that are no letters.
        """
        if self.reason or self.topic or self.group or self.until is not None:
            return HELD_MAX
        return min(HELD_MAX, self.count * max(1, exchanges) + CHUNK)


@dataclass(frozen=True, slots=True)
class Found:
    """A dead letter that is held."""

    message: ConsumedMessage
    letter: DeadLetter

    @property
    def died(self) -> datetime:
        """When it was put there."""
        return datetime.fromtimestamp(self.message.batch.timestamp, UTC)


@contextmanager
def held(cluster: Cluster, queue: str, wanted: Wanted) -> Iterator[list[Found]]:
    """The letters that are wanted, held for as long as the block runs.

    What was acknowledged in the block is kept when it has ended.

    Raises:
        Busy: somebody else holds letters of this queue; says who.
    """
    letters = wanted.letters or f"{queue}{SUFFIX}"
    if not cluster.queue_exists(letters):
        if wanted.letters is not None or not cluster.queue_exists(queue):
            cluster.describe(letters if wanted.letters else queue)  # raises: there is none
        yield []
        return
    prefetch = wanted.prefetch(len(cluster.describe(letters).exchanges))
    with cluster.consumer(
        letters, GROUP, attempts=0, prefetch=prefetch, prefetch_bytes=HELD_BYTES_MAX
    ) as consumer:
        _check_alone(cluster, letters, consumer.id)
        found: list[Found] = []
        looked = 0
        while len(found) < wanted.count and looked < prefetch:
            message = consumer.receive(wanted.wait)
            if message is None:
                break
            looked += 1
            letter = _letter(message)
            if letter is None:
                continue
            each = Found(message, letter)
            if wanted.admits(letter, each.died):
                found.append(each)
        yield found
        consumer.flush(FLUSH_SECONDS)


def _check_alone(cluster: Cluster, letters: str, mine: bytes) -> None:
    """Of two that begin at once both may be told: neither sees a part for the whole."""
    others = [
        each
        for group in cluster.groups(letters, GROUP)
        for each in group.who
        if each.id != mine.hex()
    ]
    if others:
        raise Busy(
            f"{others[0].name} is at work on the dead letters in {letters} and holds "
            f"{sum(each.held for each in others)} of them: try again when it has ended"
        )


def _letter(message: ConsumedMessage) -> DeadLetter | None:
    try:
        return read_letter(message)
    except RemoteProtocolError:
        return None  # it was not put there as a dead letter


def paced(found: list[Found], rate: float | None) -> Iterator[list[Found]]:
    """In chunks, no faster than that."""
    size = CHUNK if rate is None else max(1, min(CHUNK, int(rate)))
    began, pace = time.monotonic(), threading.Event()
    for first in range(0, len(found), size):
        if rate is not None:
            due = began + first / rate
            pace.wait(max(0.0, due - time.monotonic()))
        yield found[first : first + size]


class Requeue:
    """Publishes dead letters where they come from."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._publishers: dict[str, Publisher] = {}

    def publish(self, chunk: list[Found]) -> None:
        """Publish these; when they are acknowledged, they are done here."""
        for message, letter in ((each.message, each.letter) for each in chunk):
            self._to(letter.queue).publish(
                message.payload, letter.topic, key=message.key, tags=message.tags,
                properties=letter.properties, priority=message.priority,
            )  # fmt: skip
        for publisher in self._publishers.values():
            publisher.flush(FLUSH_SECONDS)
        for each in chunk:
            each.message.ack()

    def _to(self, queue: str) -> Publisher:
        publisher = self._publishers.get(queue)
        if publisher is None:
            publisher = self._publishers[queue] = self._cluster.publisher(queue)
        return publisher
