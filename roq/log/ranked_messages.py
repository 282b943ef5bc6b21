"""The free messages of a consumer group with priorities. Pure.

Higher ones go out first. So that lower ones are not forgotten, of ten messages one is of the batch
that waits longest below the highest priority that is ready, as long as there is such a one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from roq.log.free_messages import FreeMessages
from roq.log.leases import Piece, bits_of_column
from roq.protocol.columns import PRIORITIES, PRIORITY_MAX, value_at

HIGHER_OF_LOWER: Final = 9
"""Messages of the highest priority that go out for each one below it."""
_LOWEST: Final = b"\x00"
"""The column of a batch in which all have priority 0."""


class RankedMessages:
    """Messages that were looked at and nobody holds, by priority."""

    column: Final = PRIORITIES

    def __init__(self) -> None:
        self._levels: dict[int, FreeMessages] = {}
        self._columns: dict[int, bytes] = {}
        """The priority of each message, or of all, of the batches that are open; of others 0."""
        self._owed = 0
        """Messages that went out before lower ones that were ready."""

    def __iter__(self) -> Iterator[Piece]:
        return chain.from_iterable(self._levels.values())

    def __bool__(self) -> bool:
        return any(self._levels.values())

    @property
    def count(self) -> int:
        """All of them."""
        return sum(level.count for level in self._levels.values())

    def level(self, piece: Piece) -> int:
        """The priority of these."""
        return value_at(self._columns.get(piece.offset, _LOWEST), piece.first)

    def reserve(self, piece: Piece) -> int:
        """How much of what members take these leave free: of the lowest priority one message, so
        that a higher one does not wait for those that were there before it."""
        return int(not self.level(piece))

    def open(self, offset: int, column: bytes, base: int) -> None:
        """The priorities of a batch, before its messages are added.

        Args:
            base: no batch below is open.
        """
        while self._columns and (old := next(iter(self._columns))) < base:
            del self._columns[old]
        if max(column) > PRIORITY_MAX:  # nobody can say that with RoQ
            column = bytes(min(each, PRIORITY_MAX) for each in column)
        self._columns[offset] = column

    def done(self, offset: int) -> None:
        """Nothing of this batch is open any more."""
        self._columns.pop(offset, None)

    def add(self, piece: Piece, *, first: bool = False) -> None:
        """These may go out, behind all of their priority that may already, or before them."""
        for level, part in self._parts(piece):
            self._at(level).add(part, first=first)

    def wait(self, piece: Piece, until: float) -> None:
        """These may go out at a time."""
        for level, part in self._parts(piece):
            self._at(level).wait(part, until)

    def first(self, now: float) -> Piece | None:
        """What goes out next; it stays until it is removed."""
        ready = self._ready(now)
        if len(ready) > 1 and self._owed >= self._price(oldest := min(ready[1:])):
            return oldest
        return ready[0] if ready else None

    def went(self, piece: Piece, now: float) -> None:
        """This was removed, and goes out: what is lower is owed something, or gets it."""
        level = self.level(piece)
        ready = self._ready(now)
        if any(self.level(each) > level for each in ready):
            self._owed -= HIGHER_OF_LOWER * piece.amount
        elif any(self.level(each) < level for each in ready):
            self._owed += piece.amount
        else:
            self._owed = 0

    def remove(self, piece: Piece) -> None:
        """It is not free any more."""
        self._at(self.level(piece)).remove(piece)

    def take(self, offset: int, first: int, length: int) -> list[Piece]:
        """Remove these messages, as far as they are here; as `FreeMessages.take`."""
        levels = self._levels.values()
        return [piece for level in levels for piece in level.take(offset, first, length)]

    def at(self, offset: int, index: int) -> Piece | None:
        """The one that has this message; None: it is not free."""
        column = self._columns.get(offset, _LOWEST)
        if 1 < len(column) <= index:
            return None  # its batch has fewer
        return self._at(value_at(column, index)).at(offset, index)

    def clear(self) -> None:
        """Nothing is here."""
        self._levels.clear()
        self._columns.clear()
        self._owed = 0

    def _ready(self, now: float) -> list[Piece]:
        """What each priority would have go out, the highest first."""
        firsts = [self._levels[level].first(now) for level in sorted(self._levels, reverse=True)]
        return [each for each in firsts if each is not None]

    def _price(self, lower: Piece) -> int:
        """So many higher ones go out before these."""
        return HIGHER_OF_LOWER * lower.amount

    def _at(self, level: int) -> FreeMessages:
        found = self._levels.get(level)
        if found is None:
            found = self._levels[level] = FreeMessages()
        return found

    def _parts(self, piece: Piece) -> Iterator[tuple[int, Piece]]:
        column = self._columns.get(piece.offset, _LOWEST)
        if len(column) == 1:
            yield column[0], piece
            return
        bits = piece.bits << piece.first
        for level in set(column[piece.first : piece.first + piece.length]):
            mine = bits & bits_of_column(column, level)
            if mine:
                yield level, piece.part(mine)


class RankedRequests(RankedMessages):
    """Likewise, of a service, with two differences. An instance takes what it has threads for, so
    none of that is left free. And it takes few of a batch at once, so these few have their turn
    without waiting for that of the whole batch.

    Args:
        lowest: those of priority 0 that are there already.
    """

    def __init__(self, lowest: FreeMessages) -> None:
        super().__init__()
        self._levels[0] = lowest

    def reserve(self, piece: Piece) -> int:
        """Nothing."""
        del piece
        return 0

    def _price(self, lower: Piece) -> int:
        """Of the first of them: what goes with it is owed to higher ones afterwards."""
        del lower
        return HIGHER_OF_LOWER
