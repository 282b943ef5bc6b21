"""The oldest open message of each topic and priority of a consumer group. Pure.

What stands here of a batch is kept while it is open (`roq.log.open_batches`), so that to ask reads
nothing. Topics are without number: those whose messages wait longest are named, the others count as
one.
"""

from __future__ import annotations

from typing import NamedTuple

from roq.log.leases import bits_of_column
from roq.log.log import Record
from roq.protocol.columns import PRIORITIES, PRIORITY_MAX, read_column
from roq.protocol.consuming import OLDEST_TOPICS_MAX, OldestMessage
from roq.protocol.entry import appended_us


class Glimpse(NamedTuple):
    """Of a batch, what of it is asked for later."""

    topic: bytes
    appended_us: int
    priorities: bytes
    """A column (`roq.protocol.columns`)."""


def glimpse_of(record: Record[object], area: bytes, count: int) -> Glimpse:
    """Of a batch of so many messages, with this extension area."""
    column = read_column(area, PRIORITIES, count) if PRIORITIES in area else b"\x00"
    return Glimpse(record[0].name, appended_us(record[1]), column)


class OldestMessages:
    """The oldest of what was added, in the order of the log."""

    def __init__(self) -> None:
        self._found: dict[tuple[bytes | None, int], int] = {}
        """By topic, None: of all others, and priority: when it was appended. The oldest first."""
        self._topics: set[bytes] = set()

    def add(self, seen: Glimpse, bits: int) -> None:
        """These messages of a batch are open.

        Args:
            bits: of which at least one belongs to the batch.
        """
        topic: bytes | None = seen.topic
        if seen.topic not in self._topics:
            if len(self._topics) < OLDEST_TOPICS_MAX:
                self._topics.add(seen.topic)
            else:
                topic = None
        column = seen.priorities
        for value in column if len(column) == 1 else sorted(set(column)):
            key = topic, min(value, PRIORITY_MAX)
            if key not in self._found and bits & bits_of_column(column, value):
                self._found[key] = seen.appended_us

    def rows(self) -> list[OldestMessage]:
        """One for each topic and priority, the oldest first."""
        return [
            OldestMessage(
                topic=topic or b"", priority=priority, appended_us=us, others=topic is None
            )
            for (topic, priority), us in self._found.items()
        ]
