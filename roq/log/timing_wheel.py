"""Which delayed messages of a log are pending: where each lies, and when it is due. Pure.

A wheel of three rings: what is due in the next minute lies in a heap of rows for each second, what
is due within two hours for each minute, the rest for each hour. A row has 32 bytes, whatever its
message has; as its time comes near it goes from ring to ring, a bounded number in each step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import merge, nsmallest
from struct import Struct
from typing import Final, NamedTuple, cast

from roq.errors import RemoteProtocolError
from roq.protocol.later import Place

_ROW: Final = Struct("<QQII8s")
ROW_BYTES: Final = _ROW.size
SIZE_MAX: Final = (1 << 32) - 1
SECOND: Final = 1_000_000
"""In µs, as all times here."""
_WIDTHS: Final = (SECOND, 60 * SECOND, 3_600 * SECOND)
_REACHES: Final = (60 * SECOND, 7_200 * SECOND)
"""What is due within these goes into the first ring, and into the second."""
STEP_ROWS: Final = 20_000
"""Rows that are moved in one step."""
_BLOCK: Final = 12
"""Offsets are counted in blocks of 2 to the power of this."""


class Row(NamedTuple):
    """One delayed message."""

    due_us: int
    offset: int
    """Of its batch."""
    at: int
    """In its batch."""
    size: int
    """Bytes that it takes, with all that it has."""
    id: bytes

    @property
    def place(self) -> Place:
        """Where it lies."""
        return self.offset, self.at


class TimingWheel:
    """All delayed messages that wait, but for those that `advance` has given out.

    Attributes:
        count: those that wait, with those that were given out and not yet `forget` was told.
        bytes: that they take.
    """

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self._rings: tuple[dict[int, bytearray], ...] = ({}, {}, {})
        self._blocks: Counter[int] = Counter()

    def __iter__(self) -> Iterator[Row]:
        """Those that were not given out, in no order."""
        for ring in self._rings:
            for rows in list(ring.values()):
                yield from _read(rows)

    def add(self, row: Row, now_us: int) -> None:
        """One more waits."""
        self.note(row)
        self._put(row, now_us)

    def note(self, row: Row) -> None:
        """One more waits, and counts as given out."""
        self.count += 1
        self.bytes += row.size
        self._blocks[row.offset >> _BLOCK] += 1

    def forget(self, row: Row) -> None:
        """One that was given out does not wait any more."""
        self.count -= 1
        self.bytes -= row.size
        block = row.offset >> _BLOCK
        self._blocks[block] -= 1
        if not self._blocks[block]:
            del self._blocks[block]

    def advance(self, until_us: int) -> list[Row]:
        """Give out some of what is due before `until_us`; empty: all of that was given out.

        It takes a bounded time, so that what is left is asked for again.
        """
        self._unroll(2, until_us + _REACHES[0])
        self._unroll(1, until_us + _WIDTHS[1] // 2)
        seconds = self._rings[0]
        found: list[Row] = []
        for second in sorted(each for each in seconds if each * SECOND < until_us):
            rows = seconds[second]
            found += _read(_cut(rows, STEP_ROWS - len(found)))
            if rows:
                break
            del seconds[second]
        return found

    @property
    def oldest(self) -> int | None:
        """All that wait lie at or above this offset; None: nothing waits."""
        return min(self._blocks) << _BLOCK if self._blocks else None

    def find(self, message: bytes) -> Row | None:
        """The one with this id, if it was not given out."""
        for ring in self._rings:
            for rows in ring.values():
                at = rows.find(message)
                while at >= 0:
                    first = at - at % ROW_BYTES
                    row = Row(*_ROW.unpack_from(rows, first))
                    if row.id == message:
                        return row
                    at = rows.find(message, at + 1)
        return None

    def soonest(self, most: int, others: Iterable[Row] = ()) -> list[Row]:
        """The soonest of them, in order; with `others`, which were given out."""
        found = nsmallest(most, others)
        if most <= 0:
            return found
        for width, ring in zip(_WIDTHS, self._rings, strict=True):
            here: list[Row] = []
            for number in sorted(ring):
                if len(here) >= most and number * width > here[most - 1].due_us:
                    break
                here = nsmallest(most, [*here, *_read(ring[number])])
            found = list(merge(found, here))[:most]
        return found

    def below(self, offset: int, most: int) -> list[Row]:
        """Some that lie below an offset, so many at most."""
        found: list[Row] = []
        for row in self:
            if row.offset < offset:
                found.append(row)
                if len(found) >= most:
                    break
        return found

    def settle(self, places: set[Place], dues: Iterable[int] | None = None) -> None:
        """These do not wait any more, as far as they were not given out.

        Args:
            dues: when they are due; None: that is not known, and all are looked at.
        """
        times = None if dues is None else list(dues)
        for width, ring in zip(_WIDTHS, self._rings, strict=True):
            numbers = list(ring) if times is None else {due // width for due in times}
            for number in numbers:
                rows = ring.get(number)
                if rows is None:
                    continue
                kept = bytearray()
                for row in _read(rows):
                    if row.place in places:
                        self.forget(row)
                    else:
                        kept += _ROW.pack(*row)
                if len(kept) == len(rows):
                    continue
                if kept:
                    ring[number] = kept
                else:
                    del ring[number]

    def pack(self, others: Iterable[Row] = ()) -> bytes:
        """All of them for a snapshot, with `others`, which were given out."""
        rows = [bytes(each) for ring in self._rings for each in ring.values()]
        return b"".join([*rows, *(_ROW.pack(*row) for row in others)])

    def unpack(self, data: bytes, now_us: int) -> None:
        """Take in what `pack` gave.

        Raises:
            RemoteProtocolError: it gave no such thing.
        """
        if len(data) % ROW_BYTES:
            raise RemoteProtocolError("the delayed messages of a snapshot cannot be read")
        for row in _read(data):
            self.add(row, now_us)

    def check(self) -> None:
        """Assert the invariants."""
        assert self.count == sum(self._blocks.values()) >= sum(1 for _ in self)  # noqa: S101
        assert all(count > 0 for count in self._blocks.values())  # noqa: S101
        for width, ring in zip(_WIDTHS, self._rings, strict=True):
            for number, rows in ring.items():
                assert rows, "no bucket is empty"  # noqa: S101
                assert all(row.due_us // width == number for row in _read(rows))  # noqa: S101

    def _put(self, row: Row, now_us: int) -> None:
        ahead = row.due_us - now_us
        level = 0 if ahead < _REACHES[0] else 1 if ahead < _REACHES[1] else 2
        number = row.due_us // _WIDTHS[level]
        ring = self._rings[level]
        rows = ring.get(number)
        if rows is None:
            rows = ring[number] = bytearray()
        rows += _ROW.pack(*row)

    def _unroll(self, level: int, until_us: int) -> None:
        """What begins before this goes into lower rings; some of it."""
        ring, width, below = self._rings[level], _WIDTHS[level], self._rings[level - 1]
        left = STEP_ROWS
        for number in sorted(each for each in ring if each * width < until_us):
            rows = ring[number]
            part = _cut(rows, left)
            left -= len(part) // ROW_BYTES
            if not rows:
                del ring[number]
            for row in _read(part):
                lower = row.due_us // _WIDTHS[level - 1]
                bucket = below.get(lower)
                if bucket is None:
                    bucket = below[lower] = bytearray()
                bucket += _ROW.pack(*row)
            if not left:
                return


def _read(rows: bytes | bytearray) -> Iterator[Row]:
    return cast("Iterator[Row]", map(Row._make, _ROW.iter_unpack(bytes(rows))))


def _cut(rows: bytearray, most: int) -> bytes:
    """Take so many rows off the end."""
    at = max(0, len(rows) - most * ROW_BYTES)
    part = bytes(rows[at:])
    del rows[at:]
    return part
