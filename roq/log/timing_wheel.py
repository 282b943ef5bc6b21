"""Which delayed messages of a log are pending: where each lies, and when it is due. Pure.

A wheel of three rings: what is due in the next minute lies in a heap of rows for each second, what
is due within two hours for each minute, the rest for each hour. A row has 32 bytes, whatever its
message has, and that of a request takes about 150 more, as it is looked for by its id. As its time
comes near it goes from ring to ring, a bounded number in each step.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import merge, nsmallest
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple, cast

from roq.errors import RemoteProtocolError
from roq.protocol.delayed import Place
from roq.protocol.requesting import delayed_position
from roq.protocol.transaction import OPEN_US

_ROW: Final = Struct("<QQII8s")
ROW_BYTES: Final = _ROW.size
_ID_AT: Final = ROW_BYTES - 8
SIZE_MAX: Final = (1 << 32) - 1
SECOND: Final = 1_000_000
"""In µs, as all times here."""
_WIDTHS: Final = (SECOND, 60 * SECOND, 3_600 * SECOND)
_REACHES: Final = (60 * SECOND, 7_200 * SECOND)
"""What is due within these goes into the first ring, and into the second."""
STEP_ROWS: Final = 20_000
"""Rows that are moved in one step."""
SWEEP_ROWS: Final = 5_000
"""Rows that are looked at in one step."""
_FAR: Final = 1 << 64
_OPEN_BUCKETS: Final = 4_096
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
        self._requests: dict[bytes, int] = {}
        """Of delayed requests, by their ids, in the batch of which offset they are."""
        self._first = [_FAR] * len(_WIDTHS)
        """Of each ring: no bucket has a lower number."""
        self._swept = self._level = 0
        """Below which offset rows are looked for, and in which ring that is;"""
        self._to_sweep: list[int] = []
        """its buckets that are not looked at,"""
        self._unswept = _FAR
        """but for the end of the last of these, behind so many rows."""

    def __iter__(self) -> Iterator[Row]:
        """Those that were not given out, in no order."""
        for ring in self._rings:
            for rows in list(ring.values()):
                yield from _read(rows)

    def add(self, row: Row, now_us: int) -> None:
        """One more waits."""
        self.note(row)
        self.put_back(row, now_us)

    def put_back(self, row: Row, now_us: int) -> None:
        """One that was given out waits on."""
        ahead = row.due_us - now_us
        level = 0 if ahead < _REACHES[0] else 1 if ahead < _REACHES[1] else 2
        self._bucket(level, row).extend(_ROW.pack(*row))
        if row.offset < self._swept:
            self._begin_sweep(self._swept)

    def note(self, row: Row) -> None:
        """One more waits, and counts as given out."""
        self.count += 1
        self.bytes += row.size
        self._blocks[row.offset >> _BLOCK] += 1
        if delayed_position(row.id) is not None:
            self._requests[row.id] = row.offset

    def forget(self, row: Row) -> None:
        """One that was given out does not wait any more."""
        self.count -= 1
        self.bytes -= row.size
        if self._requests.get(row.id) == row.offset:  # else it was appended again
            del self._requests[row.id]
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
        for second in self._before(0, until_us):
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

    def request(self, message: bytes) -> int | None:
        """In the batch of which offset the request with this id waits, be it given out; None: none
        does. However many wait, it costs the same."""
        return self._requests.get(message)

    def find(self, message: bytes) -> Row | None:
        """The one with this id, if it was not given out."""
        if delayed_position(message) is not None and message not in self._requests:
            return None
        for ring in self._rings:
            for rows in ring.values():
                # What is found first may lie across others, as zeros do in every row.
                at = rows.find(message)
                if at >= 0 and at % ROW_BYTES != _ID_AT:
                    at = _find_id(rows, message)
                if at >= 0:
                    return Row(*_ROW.unpack_from(rows, at - _ID_AT))
        return None

    def soonest(self, most: int, others: Iterable[Row] = ()) -> list[Row]:
        """The soonest of those that are due at some time, in order; with `others`, which were given
        out."""
        found = nsmallest(most, others)
        if most <= 0:
            return found
        for width, ring in zip(_WIDTHS, self._rings, strict=True):
            here: list[Row] = []
            for number in sorted(each for each in ring if each < OPEN_US // width):
                if len(here) >= most and number * width > here[most - 1].due_us:
                    break
                here = nsmallest(most, [*here, *_soonest_of(ring[number], most)])
            found = list(merge(found, here))[:most]
        return found

    def below(self, offset: int, most: int, most_bytes: int) -> list[Row] | None:
        """Give out some that lie below an offset; None: none does, of those not given out.

        It looks at a bounded number of rows, and goes on there when it is asked for the same again.

        Args:
            most, most_bytes: so many rows, and so much that they take; one row may take more.
        """
        if offset != self._swept:
            self._begin_sweep(offset)
        found: list[Row] = []
        for _ in range(SWEEP_ROWS):
            if not self._to_sweep and self._level == 0:
                return found or None
            if not self._to_sweep:  # rows go from ring to ring downwards alone: none is missed
                self._level -= 1
                self._to_sweep = list(self._rings[self._level])
                self._unswept = _FAR
                continue
            number = self._to_sweep[-1]
            rows = self._rings[self._level].get(number, b"")
            self._unswept = min(self._unswept, len(rows) // ROW_BYTES) - 1
            if self._unswept < 0:
                self._to_sweep.pop()
                self._unswept = _FAR
                continue
            row = Row(*_ROW.unpack_from(rows, self._unswept * ROW_BYTES))
            if row.offset < offset:
                self._take(self._level, number, self._unswept * ROW_BYTES)
                found.append(row)
                most_bytes -= row.size
                if len(found) >= most or most_bytes <= 0:
                    break
        return found

    def remove(self, row: Row) -> None:
        """One that was not given out does not wait any more."""
        packed = _ROW.pack(*row)
        for level in range(len(_WIDTHS)):
            number = _number(level, row)
            rows = self._rings[level].get(number)
            at = -1 if rows is None else _find(rows, packed)
            if at >= 0:
                self._take(level, number, at)
                self.forget(row)
                return

    def settle(self, places: set[Place]) -> None:
        """These do not wait any more, as far as they were not given out; all are looked at."""
        for ring in self._rings:
            for number, rows in list(ring.items()):
                kept = bytearray()
                for row in _read(rows):
                    if row.place in places:
                        self.forget(row)
                    else:
                        kept += _ROW.pack(*row)
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
        for level, (ring, first) in enumerate(zip(self._rings, self._first, strict=True)):
            assert first <= min(ring, default=_FAR)  # noqa: S101
            for number, rows in ring.items():
                assert rows, "no bucket is empty"  # noqa: S101
                assert all(_number(level, row) == number for row in _read(rows))  # noqa: S101

    def _begin_sweep(self, offset: int) -> None:
        """Look at all again, whether they lie below this."""
        self._swept, self._level = offset, len(_WIDTHS)
        self._to_sweep, self._unswept = [], _FAR

    def _take(self, level: int, number: int, at: int) -> None:
        """Cut one row out of a bucket; the last one takes its place."""
        rows = self._rings[level][number]
        last = _cut(rows, 1)
        if at < len(rows):
            rows[at : at + ROW_BYTES] = last
        if not rows:
            del self._rings[level][number]

    def _bucket(self, level: int, row: Row) -> bytearray:
        """Where rows lie that are due as this one."""
        number = _number(level, row)
        rows = self._rings[level].get(number)
        if rows is None:
            rows = self._rings[level][number] = bytearray()
            self._first[level] = min(self._first[level], number)
        return rows

    def _before(self, level: int, until_us: int) -> list[int]:
        """The buckets of a ring that begin before this, in order."""
        ring, width = self._rings[level], _WIDTHS[level]
        if self._first[level] * width >= until_us:
            return []
        numbers = sorted(each for each in ring if each * width < until_us)
        self._first[level] = numbers[0] if numbers else min(ring, default=_FAR)
        return numbers

    def _unroll(self, level: int, until_us: int) -> None:
        """What begins before this goes into lower rings; some of it."""
        ring, left = self._rings[level], STEP_ROWS
        for number in self._before(level, until_us):
            rows = ring[number]
            part = _cut(rows, left)
            left -= len(part) // ROW_BYTES
            if not rows:
                del ring[number]
            for row in _read(part):
                self._bucket(level - 1, row).extend(_ROW.pack(*row))
            if not left:
                return


def _number(level: int, row: Row) -> int:
    """Of the bucket in which a row lies. What is never due is spread by its id: in one bucket each
    look for one would read all."""
    number = row.due_us // _WIDTHS[level]
    if row.due_us < OPEN_US:
        return number
    return number + int.from_bytes(row.id[-2:], "little") % _OPEN_BUCKETS


def _read(rows: bytes | bytearray) -> Iterator[Row]:
    return cast("Iterator[Row]", map(Row._make, _ROW.iter_unpack(bytes(rows))))


def _soonest_of(rows: bytearray, most: int) -> list[Row]:
    """The soonest of a bucket, so many at most, in no order; few others are unpacked."""
    if len(rows) <= 4 * most * ROW_BYTES:
        return list(_read(rows))
    dues = array("Q", bytes(rows))[:: ROW_BYTES // 8]
    if sys.byteorder == "big":
        dues.byteswap()
    last = nsmallest(most, dues)[-1]
    places = [at for at, due in enumerate(dues) if due < last]
    places += islice((at for at, due in enumerate(dues) if due == last), most - len(places))
    return [Row(*_ROW.unpack_from(rows, at * ROW_BYTES)) for at in places]


def _find_id(rows: bytearray, message: bytes) -> int:
    """Where this id stands in a bucket; -1: it does not. However the rows are, all are passed over
    at once."""
    word = int.from_bytes(message, sys.byteorder)
    try:
        row = array("Q", bytes(rows))[_ID_AT // 8 :: ROW_BYTES // 8].index(word)
    except (ValueError, OverflowError):
        return -1
    return row * ROW_BYTES + _ID_AT


def _find(rows: bytearray, packed: bytes) -> int:
    """Where this row stands in a bucket; -1: it does not."""
    at = rows.find(packed)
    while at >= 0 and at % ROW_BYTES:
        at = rows.find(packed, at + 1)
    return at


def _cut(rows: bytearray, most: int) -> bytes:
    """Take so many rows off the end."""
    at = max(0, len(rows) - most * ROW_BYTES)
    part = bytes(rows[at:])
    del rows[at:]
    return part
