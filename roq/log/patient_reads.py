"""Reads of a log with patience for a disk that does not give everything at once: pure.

What the disk refuses is asked for again: a system that is short of something (files, memory) may
give in a moment what it does not give now. What stays unreadable, as a sector that is damaged,
holds a reader up for a while and not for ever; and what lies behind it, no more.
"""

from __future__ import annotations

import math
from typing import Final, Generic, TypeVar

from roq.log.log import Log, NotAtHand, NotGiven, Record
from roq.protocol.entry import appended_us

B = TypeVar("B")

AGAIN_SECONDS: Final = 1.0
"""What was refused is asked for again after so long."""
REFUSED_SECONDS: Final = 30.0
"""What is refused for so long counts as lost."""
APART_SECONDS: Final = 5.0
"""Between a refusal and the next question that is refused: with more, they have nothing to do with
each other. How long the disk takes to refuse does not count: a damaged one takes long."""
ANSWER_SECONDS: Final = 300.0
"""A disk takes no longer to answer: who has asked before that asks no more."""
ASKED_MAX: Final = 1_024
"""Questions of which it is known when they were asked."""


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
        self._appended = -1, 0
        """Offset and time of the entry that was asked for last."""
        self._asked: dict[object, float] = {}
        """Soon after a refusal, and the disk has not answered yet: since when."""

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
        try:
            record = self._log.record(offset)
        except NotAtHand:
            self._note(offset, now)
            raise
        self.last, self.offset = record, offset
        if record is None and not self._log.is_lost(offset) and self._refused(offset, now):
            raise NotGiven(offset + 1)
        if self._asked:
            self._asked.pop(offset, None)
        return record

    def next_of(self, topic: bytes, at_least: int, now: float) -> tuple[int | None, int]:
        """As `Log.next_of`, and `at_least`; if that is another one, what lies below was refused for
        too long and is passed over: ask again from there.

        Raises:
            NotAtHand, NotGiven: as `demand`.
        """
        question = topic, at_least
        try:
            found = self._log.next_of(topic, at_least)
        except NotAtHand:
            self._note(question, now)
            raise
        except NotGiven as refused:
            if self._refused(question, now):
                raise
            return None, refused.until
        if self._asked:
            self._asked.pop(question, None)
        return found, at_least

    def appended_us(self, offset: int) -> int:
        """When the entry at this offset, or the first one above that is there, was appended, µs
        UTC; 0: there is none, or the disk has not given it when this was asked first.

        It is asked often, and waits for the disk: which may take long to refuse."""
        offset = self._log.following(max(offset, self._log.floor))
        if offset >= self._log.committed:
            return 0
        if offset != self._appended[0]:
            record = self._log.record(offset)
            self._appended = offset, 0 if record is None else appended_us(record[1])
        return self._appended[1]

    def _note(self, question: object, now: float) -> None:
        """The disk is asked, and may take its time."""
        if self.refuses(now) and len(self._asked) < ASKED_MAX:
            self._asked.setdefault(question, now)

    def _refused(self, question: object, now: float) -> bool:
        """Something was; whether it is waited for."""
        asked = max(self._asked.pop(question, now), now - ANSWER_SECONDS)
        if asked - self._last > APART_SECONDS:
            self._since = now
            self._asked.clear()
        self._last = now
        waits = now - self._since < REFUSED_SECONDS
        if waits:
            self._again_at = now + AGAIN_SECONDS
        else:
            self.lost += 1
        return waits
