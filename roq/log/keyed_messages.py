"""The free messages of a consumer group that is ordered by key. Pure.

The messages of a key group go out in the order of the log, to the one member that has it
(`roq.log.key_groups`). What was tried and waits for its next attempt holds back what stands behind
it in its key group, and nothing else. Messages without a key have no order: those of one batch
count as a key group that hangs on its offset.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import compress, repeat
from typing import Final

from roq.log.free_messages import STALE_MAX
from roq.log.key_groups import NO, YES, KeyGroups
from roq.log.leases import Lease, Piece, bits_at, bits_of_column, piece_of, runs_of
from roq.protocol.columns import KEY_GROUP_COUNT, KEY_GROUPS, value_at

_ONE_ZERO: Final = bytes.maketrans(YES + NO, b"\x01\x00")


class KeyedMessages:
    """Messages that were looked at and nobody holds: fresh ones, and late ones.

    Fresh ones were never tried. Late ones were, and may have to wait for their time.

    Attributes:
        count: all of them.
        groups: who gets which keys.
    """

    column: Final = KEY_GROUPS

    def __init__(self) -> None:
        self.count = 0
        self.groups = KeyGroups()
        self._columns: dict[int, bytes] = {}
        """The key group of each message, or of all, of the batches that are open."""
        self._fresh: dict[int, int] = {}
        """By offset, a bit for each."""
        self._offsets: list[int] = []
        """Those of fresh ones in order, with some that have left."""
        self._lanes: set[int] = set()
        """Key groups of which there may be some here; of no other one is there any."""
        self._cursors: dict[bytes, int] = {}
        """Of a member: below it is nothing fresh that it may get."""
        self._late: dict[int, list[Piece]] = {}
        """By offset; each is ready or waits."""
        self._ready: list[Piece] = []
        self._waiting: dict[Piece, float] = {}
        self._heap: list[tuple[float, Piece]] = []
        self._places: dict[int, list[tuple[int, int]]] = {}
        """By key group: (offset, index) of each late one, in order."""
        self._holds: list[tuple[int, int, int]] | None = None
        """(offset, index, key group) of the first late one of each key group, in order."""

    def __iter__(self) -> Iterator[Piece]:
        for offset, bits in self._fresh.items():
            yield piece_of(offset, bits)
        for pieces in self._late.values():
            yield from pieces

    def reserve(self, piece: Piece) -> int:
        """How much of what members take these leave free for others."""
        del piece
        return 0

    def __bool__(self) -> bool:
        return bool(self._fresh or self._late)

    # --- members ----------------------------------------------------------------------------------

    def join(self, member: bytes) -> None:
        """One member more, that was not here."""
        self.groups.join(member)
        self._cursors.clear()

    def leave(self, member: bytes) -> None:
        """It has gone, and what it held was given back."""
        self.groups.leave(member)
        self._cursors.clear()

    def leased(self, lease: Lease) -> None:
        """These have gone out."""
        column = self._columns[lease.offset]
        lease.lanes = frozenset(_chosen(column, lease.open << lease.first))
        self.groups.taken(lease.member.id, lease.lanes)

    def over(self, lease: Lease) -> None:
        """Nothing of this lease is out any more."""
        if self.groups.over(lease.lanes):
            self._cursors.clear()

    # --- messages ---------------------------------------------------------------------------------

    def open(self, offset: int, column: bytes, base: int) -> None:
        """The key groups of a batch, before its messages are added.

        Args:
            base: no batch below is open.
        """
        while self._columns and (old := next(iter(self._columns))) < base:
            del self._columns[old]
        keyless = bytes((offset % KEY_GROUP_COUNT + 1,))
        self._columns[offset] = column.replace(b"\x00", keyless)

    def done(self, offset: int) -> None:
        """Nothing of this batch is open any more."""
        self._columns.pop(offset, None)

    def add(self, piece: Piece, *, first: bool = False) -> None:
        """These may go out when it is their turn; `first` says nothing, as all have a turn."""
        del first
        self.wait(piece, 0.0)

    def wait(self, piece: Piece, until: float) -> None:
        """These may go out at a time; what was never tried waits for its turn alone."""
        offset = piece.offset
        self.count += piece.amount
        bits = piece.bits << piece.first
        column = self._columns[offset]
        whole = piece.length == len(column)  # as nearly all that is new
        self._lanes.update(column if whole else _chosen(column, bits))
        if piece.attempts:
            self._late.setdefault(offset, []).append(piece)
            self._waiting[piece] = until
            heappush(self._heap, (until, piece))
            if len(self._heap) > 2 * len(self._waiting) + STALE_MAX:
                self._heap = [(when, each) for each, when in self._waiting.items()]
                heapify(self._heap)
            for index in _indexes(bits):
                insort(self._places.setdefault(value_at(column, index), []), (offset, index))
            self._holds = None
            return
        if offset not in self._fresh:
            at = bisect_left(self._offsets, offset)
            if at == len(self._offsets) or self._offsets[at] != offset:
                self._offsets.insert(at, offset)
        self._fresh[offset] = self._fresh.get(offset, 0) | bits
        self._go_back(offset)

    def choose(self, member: bytes, now: float) -> Piece | None:
        """What the member gets next; it stays until it is removed."""
        mine = self.groups.lanes(member)
        if self._lanes.isdisjoint(mine):
            return None  # found without a look at each batch: thousands may have nothing for it
        allowed = self.groups.allowed(member)
        fresh = self._first_fresh(member, allowed)
        self._wake(now)
        for piece in self._ready:
            if fresh is not None and piece.offset >= fresh.offset:
                break
            bits = self._first_of_their_keys(piece, allowed)
            if bits:
                return piece.part(bits)
        if fresh is None:  # what is late, or waits behind that, may go out another time
            self._lanes.difference_update(mine - self._places.keys())
        return fresh

    def first(self, now: float) -> Piece | None:
        """Something that could go out now, if its member had room for it."""
        self._wake(now)
        if self._ready:
            return self._ready[0]
        return next(iter(self), None) if self._fresh else None

    def remove(self, piece: Piece) -> None:
        """These are not free any more; they are all fresh, or all of one late piece."""
        offset, bits = piece.offset, piece.bits << piece.first
        self.count -= piece.amount
        fresh = self._fresh.get(offset, 0)
        if fresh & bits:
            self._fresh[offset] = fresh & ~bits
            if not self._fresh[offset]:
                del self._fresh[offset]
                if len(self._offsets) > 2 * len(self._fresh) + STALE_MAX:
                    self._offsets = sorted(self._fresh)
            return
        whole = next(each for each in self._late[offset] if each.bits << each.first & bits)
        until = self._forget(whole)
        rest = (whole.bits << whole.first) & ~bits
        if rest:
            self.count -= rest.bit_count()
            self.wait(whole.part(rest), until)
        self._go_back(offset)

    def take(self, offset: int, first: int, length: int, member: bytes) -> list[Piece]:
        """Remove those of these messages that are here and that the member may go on with, in
        pieces without holes."""
        column = self._columns.get(offset)
        if column is None:
            return []
        wanted = bits_at(first, length)
        wanted &= _bits_of(column, self.groups.holdable(member, set(_chosen(column, wanted))))
        found: list[tuple[Piece | None, int]] = [(None, self._fresh.get(offset, 0))]
        found += [(piece, piece.bits << piece.first) for piece in self._late.get(offset, ())]
        taken: list[Piece] = []
        for piece, bits in found:
            for start, count in runs_of(bits & wanted):
                mine = bits_at(start, count)
                taken.append(piece_of(offset, mine) if piece is None else piece.part(mine))
                self.remove(taken[-1])
        return taken

    def clear(self) -> None:
        """Nothing is here, and nobody."""
        self.__init__()  # type: ignore[misc]

    def check(self, leases: list[Lease]) -> None:
        """Assert the invariants."""
        self.groups.check([(each.member.id, each.lanes) for each in leases])
        late = [piece for pieces in self._late.values() for piece in pieces]
        assert {*self._ready, *self._waiting} == set(late)  # noqa: S101
        assert self._ready == sorted(self._ready)  # noqa: S101
        places = sorted(
            (value_at(self._columns[piece.offset], index), (piece.offset, index))
            for piece in late
            for index in _indexes(piece.bits << piece.first)
        )
        mine = [(lane, place) for lane, every in self._places.items() for place in every]
        assert sorted(mine) == places  # noqa: S101
        assert set(self._fresh) <= set(self._offsets)  # noqa: S101
        for each in self:
            lanes = _chosen(self._columns[each.offset], each.bits << each.first)
            assert self._lanes.issuperset(lanes)  # noqa: S101

    # --- inside -----------------------------------------------------------------------------------

    def _first_fresh(self, member: bytes, allowed: bytes) -> Piece | None:
        """The first batch with fresh messages that the member may get; all of them there."""
        offsets, holds, passed = self._offsets, self._first_late(), 0
        table: bytes | bytearray = allowed
        for at in range(bisect_left(offsets, self._cursors.get(member, 0)), len(offsets)):
            offset = offsets[at]
            bits = self._fresh.get(offset)
            if bits is None:
                continue
            while passed < len(holds) and holds[passed][0] < offset:
                table = bytearray(table) if table is allowed else table
                table[holds[passed][2]] = NO[0]  # type: ignore[index]
                passed += 1
            column = self._columns[offset]
            mine = _bits_of(column, table) & bits
            for held_offset, index, lane in holds[passed:] if mine else ():
                if held_offset > offset:
                    break
                behind = bits_of_column(column, lane) >> index << index
                mine &= ~behind
            if mine:
                self._cursors[member] = offset
                return piece_of(offset, mine)
        self._cursors[member] = offsets[-1] + 1 if offsets else 0
        return None

    def _first_late(self) -> list[tuple[int, int, int]]:
        if self._holds is None:
            self._holds = sorted((*places[0], lane) for lane, places in self._places.items())
        return self._holds

    def _first_of_their_keys(self, piece: Piece, allowed: bytes) -> int:
        """Which messages of a late piece the member may get: no other late one comes before."""
        column, offset = self._columns[piece.offset], piece.offset
        bits = _bits_of(column, allowed) & piece.bits << piece.first
        blocked: set[int] = set()
        mine = 0
        count: dict[int, int] = {}
        for index in _indexes(bits):
            lane = value_at(column, index)
            if lane in blocked:
                continue
            nth = count.get(lane, 0)
            if self._places[lane][nth] == (offset, index):
                count[lane] = nth + 1
                mine |= 1 << index
            else:
                blocked.add(lane)
        return mine

    def _wake(self, now: float) -> None:
        """Late ones whose time has come are ready."""
        while self._heap and self._heap[0][0] <= now:
            until, piece = heappop(self._heap)
            if self._waiting.get(piece) == until:
                del self._waiting[piece]
                insort(self._ready, piece)

    def _forget(self, piece: Piece) -> float:
        """A late piece leaves; gives its time."""
        offset, column = piece.offset, self._columns[piece.offset]
        until = self._waiting.pop(piece, None)
        if until is None:
            until = 0.0
            del self._ready[bisect_left(self._ready, piece)]
        pieces = self._late[offset]
        pieces.remove(piece)
        if not pieces:
            del self._late[offset]
        for index in _indexes(piece.bits << piece.first):
            lane = value_at(column, index)
            places = self._places[lane]
            del places[bisect_left(places, (offset, index))]
            if not places:
                del self._places[lane]
        self._holds = None
        return until

    def _go_back(self, offset: int) -> None:
        """Something of this batch, or held back by it, may go out."""
        for member, cursor in self._cursors.items():
            if cursor > offset:
                self._cursors[member] = offset


def _bits_of(column: bytes, table: bytes | bytearray) -> int:
    """A bit for each message whose key group is allowed; without an end if those of all are."""
    if len(column) == 1:
        return -int(table[column[0]] == YES[0])
    return int(column.translate(table)[::-1], 2)


def _chosen(column: bytes, bits: int) -> Iterator[int]:
    """The key groups of these messages."""
    if len(column) == 1:
        return repeat(column[0], bits.bit_count())
    return compress(column, f"{bits:b}"[::-1].encode().translate(_ONE_ZERO))


def _indexes(bits: int) -> Iterator[int]:
    for first, count in runs_of(bits):
        yield from range(first, first + count)
