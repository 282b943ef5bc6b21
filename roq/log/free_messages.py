"""The messages of a consumer group that were looked at and nobody holds: ready, or waiting."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Final

from roq.log.leases import Piece, bits_at, runs_of

STALE_MAX: Final = 1_000
"""Entries of the heap that stand for nothing, beside as many as stand for something."""


class FreeMessages:
    """Pieces, each ready to go out or waiting for its time.

    Attributes:
        count: messages of all of them.
    """

    def __init__(self) -> None:
        self.count = 0
        self._ready: OrderedDict[Piece, None] = OrderedDict()
        self._waiting: dict[Piece, tuple[float, int]] = {}
        """When it may go out, and in which order."""
        self._heap: list[tuple[float, int, Piece]] = []
        """The same, the earliest first; with entries of pieces that have left."""
        self._by_offset: dict[int, list[Piece]] = {}
        self._serial = 0
        self._lowest: list[Piece] = []
        """A heap of what was here when `lowest` was asked first, and came since."""
        self._ordered = False

    def __iter__(self) -> Iterator[Piece]:
        return chain(self._ready, self._waiting)

    def reserve(self, piece: Piece) -> int:
        """How much of what members take these leave free for others."""
        del piece
        return 0

    def __bool__(self) -> bool:
        return bool(self._ready or self._waiting)

    def add(self, piece: Piece, *, first: bool = False) -> None:
        """This may go out, behind all that may already, or before them."""
        self._ready[piece] = None
        self._note(piece)
        if first:
            self._ready.move_to_end(piece, last=False)

    def wait(self, piece: Piece, until: float) -> None:
        """This may go out at a time."""
        self._serial += 1
        self._waiting[piece] = until, self._serial
        heappush(self._heap, (until, self._serial, piece))
        self._note(piece)
        if len(self._heap) > 2 * len(self._waiting) + STALE_MAX:
            self._heap = [(*when, each) for each, when in self._waiting.items()]
            heapify(self._heap)

    def first(self, now: float) -> Piece | None:
        """What goes out next: what was here before, if its time has come; it stays until it is
        removed."""
        heap = self._heap
        while heap and self._waiting.get(heap[0][2]) != heap[0][:2]:
            heappop(heap)
        return heap[0][2] if heap and heap[0][0] <= now else next(iter(self._ready), None)

    def lowest(self, now: float) -> Piece | None:
        """The one that comes first in the log, if it may go out: others wait for it."""
        heap = self._lowest
        if not self._ordered:
            self._ordered = True
            heap.extend(self)
            heapify(heap)
        while heap[0] not in self._ready and heap[0] not in self._waiting:
            heappop(heap)
        lowest = heap[0]
        return lowest if lowest in self._ready or self._waiting[lowest][0] <= now else None

    def at(self, offset: int, index: int) -> Piece | None:
        """The one that has this message; None: it is not free."""
        pieces = self._by_offset.get(offset, ())
        here = (each for each in pieces if each.first <= index < each.first + each.length)
        return next((each for each in here if each.bits << each.first >> index & 1), None)

    def remove(self, piece: Piece) -> None:
        """It is not free any more."""
        if piece in self._ready:
            del self._ready[piece]
        else:
            del self._waiting[piece]
        self.count -= piece.amount
        here = self._by_offset[piece.offset]
        here.remove(piece)
        if not here:
            del self._by_offset[piece.offset]

    def take(self, offset: int, first: int, length: int) -> list[Piece]:
        """Remove these messages, as far as they are here, in pieces without holes; what else their
        pieces have stays."""
        taken: list[Piece] = []
        for piece in list(self._by_offset.get(offset, ())):
            if piece.first >= first + length or piece.first + piece.length <= first:
                continue  # as nearly all of a batch whose messages were tried one by one
            bits = piece.bits << piece.first
            mine = bits & bits_at(first, length)
            if not mine:
                continue
            until = self._waiting.get(piece)
            self.remove(piece)
            taken.extend(piece.part(bits_at(*run)) for run in runs_of(mine))
            for run in runs_of(bits & ~mine):
                rest = piece.part(bits_at(*run))
                if until is None:
                    self.add(rest)
                else:
                    self.wait(rest, until[0])
        return taken

    def clear(self) -> None:
        """Nothing is here."""
        for held in (self._ready, self._waiting, self._heap, self._by_offset, self._lowest):
            held.clear()
        self.count = 0

    def _note(self, piece: Piece) -> None:
        self.count += piece.amount
        self._by_offset.setdefault(piece.offset, []).append(piece)
        if self._ordered:
            heappush(self._lowest, piece)
            if len(self._lowest) > 2 * (len(self._ready) + len(self._waiting)) + STALE_MAX:
                self._lowest, self._ordered = [], False  # built again when somebody asks
