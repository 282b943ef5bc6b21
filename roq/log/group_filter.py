"""Which batches of a log are a consumer group's own, and what they say of their messages. Pure."""

from __future__ import annotations

from struct import Struct
from typing import Final, cast

from roq.log.log import Record
from roq.protocol.batch import HEADER_BYTES, Kind
from roq.protocol.columns import LIFETIME, read_lifetime, read_tags, tag_bits
from roq.protocol.consuming import GroupSettings
from roq.protocol.delayed import DELAYED_TOPIC
from roq.protocol.entry import appended_us

_KIND_EXT_COUNT: Final = Struct("<3xBxxHI")
"""Of the header of a batch (`roq.protocol.batch`)."""


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

    def over(self, record: Record[object], area: bytes | None = None) -> bool:
        """Whether no message of this batch is to be handed out any more.

        Of its own time to live and that of the queue the shorter one counts.

        Args:
            area: its extension area; None: it is read.
        """
        _, frame, batch, size = record
        lives_us = self.queue_us
        if size >= HEADER_BYTES:
            if area is None:
                _, ext_bytes, _ = _KIND_EXT_COUNT.unpack_from(cast("bytes", batch))
                area = _area(batch, ext_bytes) if ext_bytes else b""
            if LIFETIME in area:
                told_us = read_lifetime(area) * 1_000
                self.told = self.told or told_us > 0
                lives_us = min(told_us, lives_us) if told_us and lives_us else told_us or lives_us
        age_us = self.now_us - appended_us(frame)
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

    def look_at(self, record: Record[object]) -> tuple[int, bytes]:
        """How many messages of a batch may be the group's, and its extension area.

        One that cannot have as many messages as it says has none.

        By tags whole batches are left out, whose bits have none of the group's; members know which
        messages of the others have one.
        """
        topic, _, batch, size = record
        if topic.name == DELAYED_TOPIC:
            return 0, b""
        if size < HEADER_BYTES or not (self._everything or topic.name.startswith(self._prefixes)):
            return 0, b""
        kind, ext_bytes, count = _KIND_EXT_COUNT.unpack_from(cast("bytes", batch))
        self.extended = ext_bytes > 0
        area = _area(batch, ext_bytes) if ext_bytes else b""
        if kind != Kind.DATA or (self._tags and not read_tags(area) & self._tags):
            return 0, b""
        if count > size - HEADER_BYTES - ext_bytes:
            # What is kept of a batch grows with its count, which nobody has compared with its body.
            self.malformed += 1
            return 0, b""
        return int(count), area
