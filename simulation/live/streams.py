"""What a subscriber has got of one stream, and what is missing; pure.

A stream is what one stay of a publisher publishes under one topic, numbered from 0. In order, a
message costs one comparison and one addition; only what is out of order costs more.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import msgspec

RANGES_MAX: Final = 100_000
"""Holes that are kept for one stream; the oldest are then missing for good."""


class StreamTally(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What one subscriber got of one stream.

    Attributes:
        source: stay of the publisher.
        topic: of the stream.
        next: one more than the highest number that came.
        missing: numbers below that have not come, as ranges [begin, end), in order.
        doubled: messages that came again.
        reordered: messages that came after a later one.
    """

    source: int
    topic: str
    next: int
    missing: list[tuple[int, int]]
    doubled: int
    reordered: int

    def lost(self, begin: int, end: int) -> int:
        """How many of the numbers [begin, end) have not come."""
        inside = sum(max(0, min(last, end) - max(first, begin)) for first, last in self.missing)
        return inside + max(0, end - max(self.next, begin))


class Stream:
    """Follows one stream at one subscriber.

    Attributes:
        next: the number that comes next, if all is well; whoever takes it in adds one.
    """

    __slots__ = ("_missing", "doubled", "next", "reordered")

    def __init__(self) -> None:
        self.next = 0
        self.doubled = 0
        self.reordered = 0
        self._missing: list[tuple[int, int]] = []

    def odd(self, number: int) -> bool:
        """Take in a message that is not the next one; gives whether it is new."""
        if number > self.next:
            self._missing.append((self.next, number))
            self.next = number + 1
            self._bound()
            return True
        if self._found(number):
            self.reordered += 1
            return True
        self.doubled += 1
        return False

    def tally(self, source: int, topic: str) -> StreamTally:
        """How it stands."""
        return StreamTally(
            source=source,
            topic=topic,
            next=self.next,
            missing=list(self._missing),
            doubled=self.doubled,
            reordered=self.reordered,
        )

    def _found(self, number: int) -> bool:
        """Whether it was missing; it is not any more."""
        place = bisect_right(self._missing, (number, self.next)) - 1
        if place < 0:
            return False
        begin, end = self._missing[place]
        if number >= end:
            return False
        rest = [(begin, number), (number + 1, end)]
        self._missing[place : place + 1] = [each for each in rest if each[0] < each[1]]
        self._bound()
        return True

    def _bound(self) -> None:
        if len(self._missing) > RANGES_MAX:
            # Two holes and what came between them become one: rather too much is missing than
            # memory without end.
            (begin, _), (_, end) = self._missing[:2]
            self._missing[:2] = [(begin, end)]
