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

_MISSING: Final = ord("1")

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
        self._missing: dict[bytes | None, bytearray] = {}
        """By topic, for each value of a priority: "1", nothing was found that has it; or "0"."""

    def add(self, seen: Glimpse, count: int, bits: int) -> None:
        """These messages of a batch are open.

        Args:
            count: of its messages.
            bits: of which at least one belongs to the batch.
        """
        name, frame, area = seen
        topic: bytes | None = name
        missing = self._missing.get(name)
        if missing is None:
            topic = name if len(self._missing) < OLDEST_TOPICS_MAX else None
            missing = self._missing.setdefault(topic, bytearray(b"1" * 256))
        column = read_column(area, PRIORITIES, count) if PRIORITIES in area else b"\x00"
        if len(column) > 1 and not bits & int(column.translate(missing)[::-1], 2):
            return  # as nearly always: all that is open here was found before
        for value in sorted(set(column)):
            if missing[value] == _MISSING and bits & bits_of_column(column, value):
                priority = min(value, PRIORITY_MAX)
                self._found[topic, priority] = appended_us(frame)
                same = slice(priority, None if priority == PRIORITY_MAX else value + 1)
                missing[same] = b"0" * len(missing[same])

    def rows(self) -> list[OldestMessage]:
        """One for each topic and priority, the oldest first."""
        return [
            OldestMessage(
                topic=topic or b"", priority=priority, appended_us=us, others=topic is None
            )
            for (topic, priority), us in self._found.items()
        ]
