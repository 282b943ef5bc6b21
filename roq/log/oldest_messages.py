"""The oldest open message of each topic and priority of a consumer group. Pure.

What stands here of a batch is kept while it is open (`roq.log.open_batches`), so that to ask reads
nothing; it is looked into only then, as every batch goes this way, and hardly anybody asks. Topics
are without number: those whose messages wait longest are named, the others count as one.
"""

from __future__ import annotations

from typing import Final

from roq.log.leases import bits_of_column
from roq.log.log import Record
from roq.protocol.columns import PRIORITIES, PRIORITY_MAX, pack_column, read_column
from roq.protocol.consuming import OLDEST_TOPICS_MAX, OldestMessage
from roq.protocol.entry import appended_us

AREA_MAX: Final = 256
"""A larger extension area is not kept: only what it says of priorities."""

Glimpse = tuple[bytes, bytes, bytes]
"""Of a batch, what of it is asked for later: topic, entry frame, and extension area."""


def glimpse_of(record: Record[object], area: bytes, count: int) -> Glimpse:
    """Of a batch of so many messages, with this extension area."""
    if len(area) > AREA_MAX:
        area = pack_column(PRIORITIES, read_column(area, PRIORITIES, count))
    return record[0].name, record[1], area


class OldestMessages:
    """The oldest of what was added, in the order of the log."""

    def __init__(self) -> None:
        self._found: dict[tuple[bytes | None, int], int] = {}
        """By topic, None: of all others, and priority: when it was appended. The oldest first."""
        self._topics: set[bytes] = set()

    def add(self, seen: Glimpse, count: int, bits: int) -> None:
        """These messages of a batch are open.

        Args:
            count: of its messages.
            bits: of which at least one belongs to the batch.
        """
        name, frame, area = seen
        topic: bytes | None = name
        if name not in self._topics:
            if len(self._topics) < OLDEST_TOPICS_MAX:
                self._topics.add(name)
            else:
                topic = None
        column = read_column(area, PRIORITIES, count) if PRIORITIES in area else b"\x00"
        for value in column if len(column) == 1 else sorted(set(column)):
            key = topic, min(value, PRIORITY_MAX)
            if key not in self._found and bits & bits_of_column(column, value):
                self._found[key] = appended_us(frame)

    def rows(self) -> list[OldestMessage]:
        """One for each topic and priority, the oldest first."""
        return [
            OldestMessage(
                topic=topic or b"", priority=priority, appended_us=us, others=topic is None
            )
            for (topic, priority), us in self._found.items()
        ]
