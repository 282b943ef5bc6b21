"""How a consumer group reads its log: what it gets of it, which batches are its own, and what they
say of their messages. Pure."""

from __future__ import annotations

import math
from struct import Struct
from typing import Final, Generic, TypeVar, cast

from roq.log.log import Log, Record
from roq.protocol.batch import HEADER_BYTES, Kind
from roq.protocol.columns import LIFETIME, read_lifetime, read_tags, tag_bits
from roq.protocol.consuming import GroupSettings
from roq.protocol.entry import ENTRY_BYTES, read_entry
from roq.protocol.later import LATER_TOPIC

_KIND_EXT_COUNT: Final = Struct("<3xBxxHI")
"""Of the header of a batch (`roq.protocol.batch`)."""

B = TypeVar("B")

AGAIN_SECONDS: Final = 1.0
"""What was refused is asked for again after so long."""
REFUSED_SECONDS: Final = 30.0
"""What is refused for so long counts as lost."""
APART_SECONDS: Final = 5.0
"""Between two refusals: with more, they have nothing to do with each other."""


_APPENDED: Final = Struct("<Q")
_APPENDED_AT: Final = ENTRY_BYTES - _APPENDED.size
"""Of an entry frame (`roq.protocol.entry`)."""


class Lifetimes:
    """Which batches have outlived their time, by the clock that has told when they were appended.

    Attributes:
        queue_us: the time to live of all messages of the queue, µs; 0: they have none.
        now_us: the time, µs UTC; 0: nobody has looked.
        told: some batch that was looked at has a time to live of its own.
    """

    __slots__ = ("now_us", "queue_us", "told")

    def __init__(self) -> None:
        self.queue_us = self.now_us = 0
        self.told = False

    @property
    def any(self) -> bool:
        """Whether any batch that was looked at may have one."""
        return self.told or self.queue_us > 0

    def over(self, record: Record[object]) -> bool:
        """Whether no message of this batch is to be handed out any more.

        Of its own time to live and that of the queue the shorter one counts.
        """
        _, frame, batch, size = record
        lives_us = self.queue_us
        if size >= HEADER_BYTES:
            _, ext_bytes, _ = _KIND_EXT_COUNT.unpack_from(cast("bytes", batch))
            if ext_bytes and LIFETIME in (area := _area(batch, ext_bytes)):
                told_us = read_lifetime(area) * 1_000
                self.told = self.told or told_us > 0
                lives_us = min(told_us, lives_us) if told_us and lives_us else told_us or lives_us
        age_us: int = self.now_us - _APPENDED.unpack_from(frame, _APPENDED_AT)[0]
        return 0 < lives_us <= age_us


def _area(batch: object, ext_bytes: int) -> bytes:
    """The extension area of a batch, which may be a frame as it was received."""
    return bytes(memoryview(cast("bytes", batch))[HEADER_BYTES : HEADER_BYTES + ext_bytes])


class GroupFilter:
    """By topics and tags.

    Args:
        settings: of the group.

    Attributes:
        malformed: batches of the group that say to have more messages than they have bytes.
        extended: the batch that was looked at last has an extension area.
    """

    def __init__(self, settings: GroupSettings) -> None:
        self._prefixes = settings.prefixes
        self._everything = b"" in settings.prefixes
        self.malformed, self.extended = 0, False
        self._tags = tag_bits(settings.tags)
        self._reads_area = bool(self._tags) or settings.mode in {"keyed", "priority"}

    def look_at(self, record: Record[object]) -> tuple[int, bytes]:
        """How many messages of a batch may be the group's, and its extension area if that matters.

        One that cannot have as many messages as it says has none.

        By tags whole batches are left out, whose bits have none of the group's; members know which
        messages of the others have one.
        """
        topic, _, batch, size = record
        if topic.name == LATER_TOPIC:
            return 0, b""
        if size < HEADER_BYTES or not (self._everything or topic.name.startswith(self._prefixes)):
            return 0, b""
        kind, ext_bytes, count = _KIND_EXT_COUNT.unpack_from(cast("bytes", batch))
        self.extended, area = ext_bytes > 0, b""
        if self._reads_area:
            area = _area(batch, ext_bytes)
        if kind != Kind.DATA or (self._tags and not read_tags(area) & self._tags):
            return 0, b""
        if count > size - HEADER_BYTES - ext_bytes:
            # What is kept of a batch grows with its count, which nobody has compared with its body.
            self.malformed += 1
            return 0, b""
        return int(count), area


class PatientReads(Generic[B]):
    """Reads the entries of a log.

    What the disk refuses is asked for again: a system that is short of something (files, memory)
    may give in a moment what it does not give now. What stays unreadable, as a sector that is
    damaged, holds a group up for a while and not for ever; and what lies behind it, no more.

    Args:
        log: what is read.

    Attributes:
        last: what `record` has given last, of the entry at `offset`.
    """

    def __init__(self, log: Log[B]) -> None:
        self.last: Record[B] | None = None
        self.offset = -1
        self._log = log
        self._since = self._last = self._again_at = -math.inf

    def waits(self, now: float) -> bool:
        """Whether nothing is to be read at the moment, as something was refused."""
        return now < self._again_at

    def record(self, offset: int, now: float) -> Record[B] | None:
        """The entry at this offset; None: it is lost, or `waits` is true by now.

        Raises:
            NotAtHand: as of the log.
        """
        if offset == self.offset and self.last is not None:
            return self.last  # a batch is looked at, and handed out at once
        record = self._log.record(offset)
        self.last, self.offset = record, offset
        if record is None and not self._log.is_lost(offset):
            if now - self._last > APART_SECONDS:
                self._since = now
            self._last = now
            if now - self._since < REFUSED_SECONDS:
                self._again_at = now + AGAIN_SECONDS
        return record

    def appended_us(self, offset: int) -> int:
        """When the entry at this offset was appended; 0: there is none."""
        record = self._log.record(offset) if offset < self._log.committed else None
        return 0 if record is None else read_entry(record[1]).appended_us
