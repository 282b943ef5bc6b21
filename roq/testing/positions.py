"""What a subscriber has got of one stream, and what is missing; pure.

A stream is what one publisher publishes under one topic, numbered from 0. This is the one place
where it is decided which messages are lost, doubled or reordered: a history in memory
(`roq.testing.history`), the journals of chaos and the tallies of live runs all count by it. In
order, a message costs one comparison and one addition; only what is out of order costs more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

RANGES_MAX: Final = 100_000
"""Holes that are kept for one stream; the oldest are then missing for good."""

Span = tuple[int, int]
"""Numbers from the first one up to, but not including, the second one."""


class Positions:
    """Follows one stream at one subscriber.

    Args:
        begin: numbers below this are none of it.

    Attributes:
        next: the number that comes next, if all is well; a caller that takes it in adds one.
        missing: numbers below `next` that have not come, in order.
        doubled: messages that came again.
        reordered: messages that came after a later one.
    """

    __slots__ = ("doubled", "missing", "next", "reordered")

    def __init__(self, begin: int = 0) -> None:
        self.next = begin
        self.missing: list[Span] = []
        self.doubled = 0
        self.reordered = 0

    def take(self, first: int, count: int = 1) -> None:
        """Take in so many messages with consecutive numbers."""
        for number in range(first, min(first + count, self.next)):
            self.odd(number)
        if first + count > self.next:
            self.skip_to(first)
            self.next = first + count

    def odd(self, number: int) -> bool:
        """Take in a message that is not the next one; gives whether it is new."""
        if number > self.next:
            self.skip_to(number)
            self.next = number + 1
            return True
        if self._found(number):
            self.reordered += 1
            return True
        self.doubled += 1
        return False

    @property
    def first(self) -> int:
        """The lowest number that came."""
        return first_of(self.missing)

    def lost(self, begin: int, end: int) -> int:
        """How many of the numbers [begin, end) have not come."""
        return lost(self.missing, self.next, begin, end)

    def lacking(self, begin: int, end: int) -> Iterator[int]:
        """The numbers [begin, end) that have not come."""
        for first, last in [*self.missing, (self.next, end)]:
            yield from range(max(first, begin), min(last, end))

    def skip_to(self, number: int) -> None:
        """What comes next is this one: those before it that have not come are missing."""
        if number > self.next:
            self.missing.append((self.next, number))
            self.next = number
            self._bound()

    def _found(self, number: int) -> bool:
        """Whether it was missing; it is not any more."""
        place = bisect_right(self.missing, (number, self.next)) - 1
        if place < 0:
            return False
        begin, end = self.missing[place]
        if number >= end:
            return False
        rest = [(begin, number), (number + 1, end)]
        self.missing[place : place + 1] = [each for each in rest if each[0] < each[1]]
        self._bound()
        return True

    def _bound(self) -> None:
        if len(self.missing) > RANGES_MAX:
            # Two holes and what came between them become one: rather too much is missing than
            # memory without end.
            (begin, _), (_, end) = self.missing[:2]
            self.missing[:2] = [(begin, end)]


def first_of(missing: Sequence[Span]) -> int:
    """The lowest number that came, by the holes before the highest one."""
    return missing[0][1] if missing and not missing[0][0] else 0


def lost(missing: Sequence[Span], following: int, begin: int, end: int) -> int:
    """How many of the numbers [begin, end) have not come.

    Args:
        missing: holes below `following`, in order.
        following: one more than the highest number that came.
        begin, end: what is asked about.
    """
    inside = sum(max(0, min(last, end) - max(first, begin)) for first, last in missing)
    return inside + max(0, end - max(following, begin))
