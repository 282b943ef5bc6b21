"""The newest batches of a log on disk: a ring that keeps what is not committed."""

from __future__ import annotations

from typing import TypeVar

from roq.log.log import Topic
from roq.log.ring import Ring, TopicLog

B = TypeVar("B")


class HotTail(Ring[B]):
    """The newest batches. What is not committed stays, however large it is.

    Attributes:
        committed_to: below it, batches may leave for want of room.
        log_floor: topics with entries from here on are not forgotten.
    """

    __slots__ = ("committed_to", "log_floor")

    def __init__(
        self,
        queue: bytes,
        exchange: int,
        generation: int,
        *,
        capacity_bytes: int,
        topics_max: int,
        topics_spare: int,
    ) -> None:
        super().__init__(
            queue, exchange, generation, capacity_bytes=capacity_bytes, topics_max=topics_max,
            topics_spare=topics_spare,
        )  # fmt: skip
        self.committed_to = 0
        self.log_floor = 0

    @property
    def committed(self) -> int:
        """Below it is what counts as kept."""
        return self.committed_to

    def commit(self, end: int) -> None:
        """Everything below is on the disk."""
        self.committed_to = end
        if self.kept > self.capacity:
            self._evict()

    def _evict(self, most: int | None = None) -> None:
        held = self.committed_to - self.floor
        super()._evict(held if most is None else min(most, held))

    def _oldest_needed(self) -> int:
        return self.log_floor

    def _stays(self) -> int:
        return max(1, self.end - self.committed_to)

    def topic(self, name: bytes) -> Topic:
        """What the table knows of a topic; of one that is forgotten, its name."""
        return self._topics.get(name) or TopicLog(name)
