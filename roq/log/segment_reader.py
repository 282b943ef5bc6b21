"""Reads old entries from segments: in chunks, over an index of each segment.

What cannot be read is None. If its sum is wrong, or its file is not there, it is lost: counted, and
not read again. If the system has refused to read it, it is not: questions that wait for the disk
read it again, others when it has been forgotten that it was refused: when `is_lost` is asked.

Segments are told from other files by their names:
`<base>-<epoch>.seg`, with an index `<base>-<epoch>.idx` once they are complete.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, TypeVar, cast

from roq.log.files import Files, index_name
from roq.log.index import (
    BRIEF_BYTES_MAX,
    KEPT_MAX,
    LOST,
    IndexBrief,
    SegmentIndex,
    TopicFilter,
    read_brief,
)
from roq.log.log import NotAtHand, NotGiven
from roq.log.records import (
    ALIGN,
    FRAME_AT,
    HEAD_BYTES,
    RECORD_BYTES,
    Found,
    RecordKind,
    claimed_bytes,
    read_record,
)
from roq.protocol.entry import IDENTITY, read_entry
from roq.protocol.entry import MAGIC as ENTRY_MAGIC

T = TypeVar("T")

READ_AHEAD_BYTES: Final = 256 * 1024
"""What is read from a file at once."""
SCAN_BYTES: Final = 8 * 1024 * 1024
"""Likewise, where a segment is gone over; more only for a record that is larger."""
CHUNKS_MAX: Final = 16
"""Of these, how many are kept."""
INDEXES_MAX: Final = 8
"""Indexes of complete segments that are kept in memory."""
PASSED_MAX: Final = 256
"""Questions for a topic that wait for the disk, of which it is known how far they have come."""


@dataclass(slots=True)
class Segment:
    """One file of the log.

    Attributes:
        end: the offset behind its last entry; of one that is being written, it moves.
        size: bytes of the file.
        kept: bytes that its entries count for.
        first_us, last_us: append times of its first and last entry, µs UTC; 0: unknown.
        lived_us: `AgeClock.lived_us` at the last one; None: an earlier process has appended it.
        topics: which may have an entry here.
        left_out: offsets before its base that belong to no entry.
        keyed: its batches may have keys; else it is known that none has.
        gone: it has left.
    """

    name: str
    base: int
    end: int
    size: int
    kept: int = 0
    first_us: int = 0
    last_us: int = 0
    lived_us: int | None = None
    topics: TopicFilter = field(default_factory=TopicFilter)
    left_out: int = 0
    keyed: bool = True
    gone: bool = False

    @property
    def follows(self) -> int:
        """Where what stands before it ends."""
        return self.base - self.left_out


class _Large(NamedTuple):
    """A record that does not lie within a chunk: whose file and place, the bytes asked for, and
    what the file gave; None: the system has refused to read it."""

    of: tuple[str, int]
    asked: int
    data: bytes | None


class _Refused(Exception):
    """The system did not read what was asked for."""


class SegmentReader:
    """Reads single entries, with what was read last at hand.

    Args:
        identity: part `IDENTITY` of the entry frames of this log.
        made: takes name and bytes of an index that is to be written, as its file is broken.

    Attributes:
        unreadable: entries that were found lost.
        patient: wait for the disk; else raise `NotAtHand` for what has to be read from it first.
    """

    def __init__(
        self, files: Files, identity: bytes, made: Callable[[tuple[str, bytes]], None]
    ) -> None:
        self.unreadable = 0
        self._files = files
        self._identity = identity
        self._made = made
        self._made_again: set[str] = set()
        """Segments whose index was: once, for what cannot be written would be made for ever."""
        self._growing = ""
        self._growing_index = SegmentIndex(0)
        self._loaded: OrderedDict[str, SegmentIndex | None] = OrderedDict()
        self._chunks: OrderedDict[tuple[str, int], bytes | None] = OrderedDict()
        """Both: what was read last; None: the system has refused to."""
        self._large = _Large(("", 0), 0, b"")
        self.patient = True
        self._passed: OrderedDict[tuple[bytes, int], int] = OrderedDict()
        """By topic and where it is looked for: up to where there is none."""

    def grows(self, segment: Segment, index: SegmentIndex) -> None:
        """This segment is written now; the one before is complete, and its index stays a while."""
        if self._growing:
            self._remember(self._growing, self._growing_index)
        self._growing, self._growing_index = segment.name, index

    def forget(self, segment: Segment) -> None:
        """The segment has left."""
        segment.gone = True
        self._loaded.pop(segment.name, None)
        self._made_again.discard(segment.name)
        for key in [key for key in self._chunks if key[0] == segment.name]:
            del self._chunks[key]

    def record(self, segment: Segment, offset: int) -> Found | None:
        """The record of an entry; None if it is lost, or the system does not read it now."""
        try:
            index = self._index(segment)
            position = index.position(offset)
            found = None if position == LOST else self._record_at(segment.name, position)
        except _Refused:
            return None
        if position == LOST:
            return None
        if (
            found is None
            or found.offset != offset
            or found.kind != RecordKind.BATCH
            or found.frame[IDENTITY] != self._identity
        ):
            index.lose(offset)
            self.unreadable += 1
            return None
        return found

    def is_lost(self, segment: Segment, offset: int) -> bool:
        """Whether an entry, for which `record` gave None, is lost; if not, the system is asked
        again by the next `record`."""
        try:
            if self._index(segment).position(offset) == LOST:
                return True
        except (_Refused, NotAtHand):
            pass
        self._forget_refused()
        return False

    def _forget_refused(self) -> None:
        for held in (self._loaded, self._chunks):
            refused = [key for key, found in held.items() if found is None]
            for key in refused:
                del held[key]  # type: ignore[arg-type]
        if self._large.data is None:
            self._large = _Large(("", 0), 0, b"")

    def _record_at(self, name: str, position: int) -> Found | None:
        large, whole = self._large, None
        if large.of == (name, position) and (large.data is not None or not self.patient):
            whole = _given(large.data)
        if whole is None:
            chunk_at = position - position % READ_AHEAD_BYTES
            chunk = self._chunk(name, chunk_at)
            size = claimed_bytes(chunk, position - chunk_at)
            if size and position + size <= chunk_at + len(chunk):
                return read_record(chunk, position - chunk_at)
            # It goes beyond the chunk: its head may be cut, too.
            whole = self._beyond(name, position, max(size, READ_AHEAD_BYTES))
        size = claimed_bytes(whole, 0)
        if size > self._large.asked:
            whole = self._beyond(name, position, size)
        return read_record(whole) if size else None

    def _chunk(self, name: str, at: int) -> bytes:
        key = name, at
        if name == self._growing:  # what was written a moment ago is in the system's memory
            return _given(self._bytes(name, at, READ_AHEAD_BYTES))
        if self._chunks.get(key) is not None or (key in self._chunks and not self.patient):
            self._chunks.move_to_end(key)
        elif self.patient:
            self._keep_chunk(key, self._bytes(name, at, READ_AHEAD_BYTES))
        else:
            raise NotAtHand(
                partial(self._bytes, name, at, READ_AHEAD_BYTES),
                lambda data: self._keep_chunk(key, cast("bytes | None", data)),
            )
        return _given(self._chunks[key])

    def _keep_chunk(self, key: tuple[str, int], chunk: bytes | None) -> None:
        self._chunks[key] = chunk
        if len(self._chunks) > CHUNKS_MAX:
            self._chunks.popitem(last=False)

    def _beyond(self, name: str, position: int, size: int) -> bytes:
        """From here on so many bytes: of a record that does not lie within a chunk."""

        def keep(data: object) -> None:
            self._large = _Large((name, position), size, cast("bytes | None", data))

        if not self.patient and name != self._growing:
            raise NotAtHand(partial(self._bytes, name, position, size), keep)
        keep(self._bytes(name, position, size))
        return _given(self._large.data)

    def _bytes(self, name: str, at: int, size: int) -> bytes | None:
        """What the file gives; None: the system refuses to read it. Any thread."""
        try:
            return self._files.read(name, at, size)
        except FileNotFoundError:  # to a reader the same as a record that is not whole
            return b""
        except OSError:
            return None

    def _index(self, segment: Segment) -> SegmentIndex:
        """Where the entries of a segment stand."""
        name = segment.name
        if name == self._growing:
            return self._growing_index
        if self._loaded.get(name) is not None or (name in self._loaded and not self.patient):
            self._loaded.move_to_end(name)
        elif self.patient:
            self._keep_index(segment, self._load(segment))
        else:
            raise NotAtHand(
                partial(self._load, segment),
                lambda found: self._keep_index(segment, cast("SegmentIndex | None", found)),
            )
        return _given(self._loaded[name])

    def passed(self, asked: tuple[bytes, int]) -> int:
        """Up to which offset there is none, of a question that is asked again; else 0."""
        return self._passed.pop(asked, 0)

    def index_for(self, asked: tuple[bytes, int], segment: Segment) -> SegmentIndex:
        """Where the entries of a segment stand.

        Args:
            asked: a topic, and an offset: from there to the segment there is no entry of it.

        Raises:
            NotGiven: the system does not read that now.
        """
        try:
            return self._index(segment)
        except _Refused:
            self._forget_refused()
            raise NotGiven(segment.end) from None
        except NotAtHand:
            # Asked again it goes on here: more segments may be on the way than are kept indexes of.
            self._passed[asked] = segment.base
            if len(self._passed) > PASSED_MAX:
                self._passed.popitem(last=False)
            raise

    def seek(self, segment: Segment, until: int, time_us: int) -> int:
        """The first entry of a segment appended at or after this time, or `until`."""
        low, high = segment.base, until
        while low < high:
            middle = (low + high) // 2
            found = self.record(segment, middle)
            if found is not None and read_entry(found.frame).appended_us < time_us:
                low = middle + 1
            else:
                high = middle
        return low

    def _load(self, segment: Segment) -> SegmentIndex | None:
        """The index of a segment, empty if there is no such file; None: as `_bytes`. Any thread."""
        try:
            return load_index(self._files, segment)
        except FileNotFoundError:
            return SegmentIndex(segment.base)
        except OSError:
            return None

    def _keep_index(self, segment: Segment, index: SegmentIndex | None) -> None:
        if segment.gone:  # while it was read: what is not there is no loss
            return
        while index is not None and index.end < segment.end:
            index.add_lost()
            self.unreadable += 1
        if index is not None and index.kept != KEPT_MAX:
            self._make_again(segment, index)
        self._remember(segment.name, index)

    def _make_again(self, segment: Segment, index: SegmentIndex) -> None:
        """The segment was gone over, as its index was broken or missing: a start does not see that
        of one that begins as if it were whole, so each load would go over all of it."""
        if segment.name in self._made_again:
            return
        self._made_again.add(segment.name)
        brief = index.brief(segment.first_us, segment.last_us, index.kept)
        self._made((index_name(segment.name), brief.pack() + index.pack()))

    def _remember(self, name: str, index: SegmentIndex | None) -> None:
        self._loaded[name] = index
        if len(self._loaded) > INDEXES_MAX:
            self._loaded.popitem(last=False)


def _given(found: T | None) -> T:
    if found is None:
        raise _Refused
    return found


def load_brief(files: Files, segment: Segment) -> IndexBrief | None:
    """What the index file of a closed segment says of it; None: nothing that is certain."""
    try:
        data = files.read(index_name(segment.name), 0, BRIEF_BYTES_MAX)
    except OSError:
        return None
    brief = read_brief(data, segment.base)
    return brief if brief is not None and brief.base + brief.entries == segment.end else None


def read_index(files: Files, segment: Segment) -> SegmentIndex | None:
    """The index of a closed segment that its file holds; None: there is none that is whole."""
    try:
        name = index_name(segment.name)
        index = SegmentIndex.read(files.read(name, 0, files.size(name)), segment.base)
    except OSError:
        return None
    return index if index is not None and index.end == segment.end else None


def load_index(files: Files, segment: Segment) -> SegmentIndex:
    """The index of a closed segment: from its file, or by going over the segment."""
    index = read_index(files, segment)
    return scan_index(files, segment) if index is None else index


def scan_index(files: Files, segment: Segment) -> SegmentIndex:
    """Go over a segment record by record; what cannot be read is lost in the index."""
    return index_of(scan(files, segment.name, HEAD_BYTES), segment)


def index_of(records: Iterable[Found], segment: Segment) -> SegmentIndex:
    """The index of a segment in which these records were found."""
    index = SegmentIndex(segment.base)
    kept = 0
    for found in records:
        if found.kind != RecordKind.BATCH or not index.end <= found.offset < segment.end:
            continue
        while index.end < found.offset:
            index.add_lost()
        index.add(found.topic, found.at)
        kept += found.size
    while index.end < segment.end:
        index.add_lost()
    index.kept = kept
    return index


def scan(files: Files, name: str, at: int) -> list[Found]:
    """All records of a segment from a place on, that are whole; what is not is passed over.

    Raises:
        OSError: the file cannot be read.
    """
    piece = _Piece(files, name)
    found = []
    while at + ALIGN <= piece.size:
        record = piece.record(at)
        if record is not None:
            found.append(record)
            at += record.size
        else:
            at = piece.next_start(at)
    return found


class _Piece:
    """A segment of which a piece is at hand: whatever its size, and whatever it holds."""

    def __init__(self, files: Files, name: str) -> None:
        self.size = files.size(name)
        self._files = files
        self._name = name
        self._data = b""
        self._first = 0
        """Where in the file the piece begins."""

    def record(self, at: int) -> Found | None:
        """The record that begins there; None if none does, or not all of it."""
        first = self._first
        found = read_record(self._data, at - first, first) if at >= first else None
        if found is not None or not (self._need(at, RECORD_BYTES) | self._need(at, self._told(at))):
            return found
        return read_record(self._data, at - self._first, self._first)

    def next_start(self, at: int) -> int:
        """Behind a record that is not whole: where the next one begins, or the end of the file."""
        self._need(at, RECORD_BYTES)
        size = claimed_bytes(self._data, at - self._first)
        if size and self.record(at + size) is not None:
            return at + size
        place = at + FRAME_AT
        while (place := self._find(place + 1)) >= 0:
            if place % ALIGN == 0 and self.record(place - FRAME_AT) is not None:
                return place - FRAME_AT
        return self.size

    def _told(self, at: int) -> int:
        """Bytes of the record that seems to begin there."""
        place = at - self._first
        if not self._data.startswith(ENTRY_MAGIC, place + FRAME_AT):
            return 0
        return claimed_bytes(self._data, place)

    def _find(self, place: int) -> int:
        """Where the next frame seems to begin; negative: none does."""
        while place + len(ENTRY_MAGIC) <= self.size:
            new = self._need(place, len(ENTRY_MAGIC))
            empty = new and self._data == bytes(len(self._data))  # told many times faster
            found = -1 if empty else self._data.find(ENTRY_MAGIC, place - self._first)
            if found >= 0:
                return self._first + found
            behind = self._first + len(self._data) - len(ENTRY_MAGIC) + 1
            if behind <= place:  # the file is shorter by now
                break
            place = behind
        return -1

    def _need(self, at: int, size: int) -> bool:
        """Have these bytes at hand, as far as the file has them; whether they were not."""
        size = min(size, self.size - at)
        if size <= 0 or 0 <= at - self._first <= len(self._data) - size:
            return False
        most = min(max(size, SCAN_BYTES), self.size - at)
        self._data, self._first = self._files.read(self._name, at, most), at
        return True
