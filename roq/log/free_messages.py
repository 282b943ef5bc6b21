"""The messages of a consumer group that were looked at and nobody holds: ready, or waiting."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from roq.log.leases import Piece


class FreeMessages:
    """Pieces, each ready to go out or waiting for its time.

    Attributes:
        count: messages of all of them.
    """

    def __init__(self) -> None:
        self.count = 0
        self._ready: OrderedDict[Piece, None] = OrderedDict()
        self._waiting: list[tuple[float, int, Piece]] = []
        """Heap: when it may go out, and in which order."""
        self._serial = 0

    def __iter__(self) -> Iterator[Piece]:
        yield from self._ready
        for _, _, piece in self._waiting:
            yield piece

    def __bool__(self) -> bool:
        return bool(self._ready or self._waiting)

    def add(self, piece: Piece, *, first: bool = False) -> None:
        """This may go out, behind all that may already, or before them."""
        self._ready[piece] = None
        self.count += piece.length
        if first:
            self._ready.move_to_end(piece, last=False)

    def wait(self, piece: Piece, until: float) -> None:
        """This may go out at a time."""
        self._serial += 1
        self.count += piece.length
        heappush(self._waiting, (until, self._serial, piece))

    def first(self, now: float) -> Piece | None:
        """What goes out next; it stays until it is removed."""
        if self._ready:
            return next(iter(self._ready))
        if self._waiting and self._waiting[0][0] <= now:
            return self._waiting[0][2]
        return None

    def lowest(self, now: float) -> Piece | None:
        """The one that comes first in the log, if it may go out: others wait for it."""
        lowest = min(self)
        due = lowest in self._ready or any(
            at <= now for at, _, piece in self._waiting if piece == lowest
        )
        return lowest if due else None

    def remove(self, piece: Piece) -> None:
        """It is not free any more."""
        if piece in self._ready:
            del self._ready[piece]
        elif self._waiting[0][2] == piece:
            heappop(self._waiting)
        else:
            self._waiting = [each for each in self._waiting if each[2] != piece]
            heapify(self._waiting)
        self.count -= piece.length

    def take(self, offset: int, first: int, length: int) -> list[Piece]:
        """Remove these messages, as far as they are here; what else their pieces have stays."""
        taken: list[Piece] = []
        for piece in [each for each in self if each.offset == offset]:
            begin, end = max(piece.first, first), min(piece.first + piece.length, first + length)
            if begin >= end:
                continue
            until = next((at for at, _, each in self._waiting if each == piece), None)
            self.remove(piece)
            taken.append(piece._replace(first=begin, length=end - begin))
            for start, stop in ((piece.first, begin), (end, piece.first + piece.length)):
                rest = piece._replace(first=start, length=stop - start)
                if rest.length and until is None:
                    self.add(rest)
                elif rest.length and until is not None:
                    self.wait(rest, until)
        return taken

    def clear(self) -> None:
        """Nothing is here."""
        self._ready.clear()
        self._waiting.clear()
        self.count = 0
