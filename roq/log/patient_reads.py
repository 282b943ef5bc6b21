"""Reads of a log with patience for a disk that does not give everything at once: pure.

What the disk refuses is asked for again: a system that is short of something (files, memory) may
give in a moment what it does not give now. What stays unreadable, as a sector that is damaged,
holds a reader up for a while and not for ever; and what lies behind it, no more.
"""

from __future__ import annotations

import math
from typing import Final, Generic, TypeVar

from roq.log.log import Log, NotGiven, Record
from roq.protocol.entry import read_entry

B = TypeVar("B")

AGAIN_SECONDS: Final = 1.0
"""What was refused is asked for again after so long."""
REFUSED_SECONDS: Final = 30.0
"""What is refused for so long counts as lost."""
APART_SECONDS: Final = 5.0
"""Between two refusals: with more, they have nothing to do with each other."""


class PatientReads(Generic[B]):
    """Of one log, for one group or for all that fetch.

    Args:
        log: what is read.

    Attributes:
        last: what was read last, of the entry at `offset`.
        lost: what was refused for too long: single entries, or the rest of a segment.
    """

    def __init__(self, log: Log[B]) -> None:
        self.last: Record[B] | None = None
        self.offset = -1
        self.lost = 0
        self._log = log
        self._since = self._last = self._again_at = -math.inf

    def waits(self, now: float) -> bool:
        """Whether nothing is to be read at the moment, as something was refused."""
        return now < self._again_at

    def refuses(self, now: float) -> bool:
        """Whether the disk has refused something lately."""
        return now - self._last <= APART_SECONDS

    def record(self, offset: int, now: float) -> Record[B] | None:
        """The entry at this offset; None: it is lost, or `waits` is true by now.

        Raises:
            NotAtHand: as of the log.
        """
        try:
            return self.demand(offset, now)
        except NotGiven:
            return None

    def demand(self, offset: int, now: float) -> Record[B] | None:
        """The entry at this offset; None: it is lost.

        Raises:
            NotAtHand: as of the log.
            NotGiven: it is to be asked for again, after `AGAIN_SECONDS`.
        """
        if offset == self.offset and self.last is not None:
            return self.last  # a batch is looked at, and handed out at once
        record = self._log.record(offset)
        self.last, self.offset = record, offset
        if record is None and not self._log.is_lost(offset) and self._refused(now):
            raise NotGiven(offset + 1)
        return record

    def next_of(self, topic: bytes, at_least: int, now: float) -> int | None:
        """As `Log.next_of`; what has been refused for too long is passed over.

        Raises:
            NotAtHand, NotGiven: as `demand`.
        """
        while True:
            try:
                return self._log.next_of(topic, at_least)
            except NotGiven as refused:
                if self._refused(now):
                    raise
                at_least = refused.until

    def appended_us(self, offset: int) -> int:
        """When the entry at this offset was appended; 0: there is none."""
        record = self._log.record(offset) if offset < self._log.committed else None
        return 0 if record is None else read_entry(record[1]).appended_us

    def _refused(self, now: float) -> bool:
        """Something was; whether it is waited for."""
        if now - self._last > APART_SECONDS:
            self._since = now
        self._last = now
        waits = now - self._since < REFUSED_SECONDS
        if waits:
            self._again_at = now + AGAIN_SECONDS
        else:
            self.lost += 1
        return waits
