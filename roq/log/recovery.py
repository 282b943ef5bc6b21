"""Opens the log in a folder: makes it, or goes on with what an earlier process has left.

Only the newest segment is gone over, from its beginning: a snapshot stands in it (or, if the last
starts came to nothing, in the one before). What stands there is believed as far as it was known to
be on the disk when something was written behind it. What comes after the newest such claim is what
a power cut may have torn, and what after a failed sync may be in the system's memory alone: so far
as it is whole it is written again, into a new segment, and synced before it counts.

A process begins a segment of its own; nothing is appended to a file of an earlier one. If the log
runs ahead of its disk, that segment begins `LEAP` offsets further on: what earlier processes have
shown to others and lost, nobody takes for something else.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from roq.errors import RemoteProtocolError
from roq.log.files import (
    META,
    Files,
    LogRefused,
    index_name,
    is_index,
    is_partial,
    keys_name,
    parse_name,
    put_help,
    put_whole,
    segment_name,
)
from roq.log.index import SegmentIndex
from roq.log.meta import Meta, claim_folder
from roq.log.records import (
    HEAD_BYTES,
    RECORD_BYTES,
    Found,
    RecordKind,
    SegmentHead,
    pack_head,
    pack_record,
    record_bytes,
)
from roq.log.ring import HotTail
from roq.log.segment_reader import (
    Segment,
    index_of,
    load_brief,
    read_index,
    scan,
)
from roq.log.segments import (
    SEGMENT_BYTES,
    SEGMENT_ENTRIES,
    UNSYNCED_ENTRIES_MAX,
    SegmentLog,
)
from roq.log.snapshot import LogSnapshot, Recovered, decode_snapshot
from roq.log.valid_segments import EPOCHS_END, Whose, sort_out
from roq.protocol.entry import IDENTITY, EntryKind, pack_entry, read_entry

PROBLEMS_MAX: Final = 100
ASIDE_SUFFIX: Final = ".aside"
"""Of a segment that does not count, and may hold what was acknowledged."""
LEAP: Final = 2 * UNSYNCED_ENTRIES_MAX
"""Offsets that are left out by a log that runs ahead of its disk, where a process begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Whose log it is to be, and what it may take.

    Attributes:
        queue: queue id.
        exchange: number of the exchange.
        epoch: of this process; the generation of a log that is made now.
        cluster, host: identity of the cluster, and the name of this host.
        ring_bytes: memory for the newest batches.
        topics_max, topics_spare: as `Ring` says.
        capacity_bytes: what all segments may take on the disk.
        keep_us: how long entries are kept, µs.
        now_us: the wall clock, µs UTC.
        segment_bytes, segment_entries: a segment with more of these is complete.
        ahead: it commits what is written, and has it synced later.
        has_log: there was a log in the folder, and no other one is made.
    """

    queue: bytes
    exchange: int
    epoch: int
    cluster: str
    host: str
    ring_bytes: int
    topics_max: int
    topics_spare: int
    capacity_bytes: int
    keep_us: int
    now_us: int
    segment_bytes: int = SEGMENT_BYTES
    segment_entries: int = SEGMENT_ENTRIES
    ahead: bool = False
    has_log: bool = False


def open_log(files: Files, settings: LogSettings) -> SegmentLog[bytes]:
    """The log in a folder, ready to be appended to.

    Raises:
        LogRefused: it belongs to another one, cannot be used, or is of a newer format.
    """
    try:
        mine = Meta(
            cluster=settings.cluster, queue=settings.queue.hex(), exchange=settings.exchange,
            generation=settings.epoch, host=settings.host,
        )  # fmt: skip
        meta = claim_folder(files, mine, has_log=settings.has_log)
        return _Opening(files, settings, meta.generation).run()
    except OSError as error:
        raise LogRefused(
            f"the log of exchange {settings.exchange} cannot be opened: {error.strerror or error}"
            f"{f' ({error.filename})' if error.filename else ''}. {_remedy(error)}"
        ) from error
    except RemoteProtocolError as error:
        raise LogRefused(
            f"the log of exchange {settings.exchange} was not written by RoQ: {error}. Move its "
            "folder elsewhere; the queue goes on at another exchange"
        ) from error


def _remedy(error: OSError) -> str:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return "The disk is full: make room, or give the queue less to keep"
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return "The host manager's user must be able to write there"
    return "Look at the disk; the log stays as it is"


@dataclass(slots=True)
class _File:
    """A segment as it was found; `found` only once it was gone over.

    Attributes:
        left_out: offsets before its base that belong to no entry.
        has_head: its head can be read.
    """

    name: str
    base: int
    epoch: int
    size: int
    found: list[Found] = field(default_factory=list)
    left_out: int = 0
    has_head: bool = False

    @property
    def follows(self) -> int:
        """Where what stands before it ends."""
        return self.base - self.left_out


class _Opening:
    """One opening of a folder."""

    def __init__(self, files: Files, settings: LogSettings, generation: int) -> None:
        self._files = files
        self._settings = settings
        self._generation = generation
        self._epoch = settings.epoch
        self._identity = pack_entry(
            EntryKind.ENTRY, settings.exchange, settings.queue, generation, 0, 0, 0
        )[IDENTITY]
        self._recovered = Recovered()
        self._left: set[str] = set()
        """Called like segments, and none of ours."""
        self._hot: HotTail[bytes] = HotTail(
            settings.queue, settings.exchange, generation, capacity_bytes=settings.ring_bytes,
            topics_max=settings.topics_max, topics_spare=settings.topics_spare,
        )  # fmt: skip

    def run(self) -> SegmentLog[bytes]:
        """Read, repair, and give the log."""
        segments = self._list()
        tail = self._tail(segments)
        entries = self._entries(tail)
        claim = _claim(tail)
        end = max(
            [
                claim,
                *(file.base for file in segments[-1:]),
                *(entries[-1].offset + 1 for _ in entries[-1:]),
            ]
        )
        again = [found for found in entries if found.offset >= claim]
        base = again[0].offset if again else end
        closed = self._closed(segments, base)
        if closed:
            base = max(base, closed[-1].end)
        # What was left out before segments that stay no more is told on: it was nobody's.
        follows = closed[-1].end if closed else segments[0].follows if segments else base
        ahead = self._settings.ahead and bool(segments)
        goes_on = end + LEAP if ahead else end
        snapshot = self._restore(tail, entries, end, goes_on)
        stays = {id(found) for file in tail if file.base < base for found in file.found}
        changes = self._changes(tail, snapshot)
        self._recovered.changes = [found.body for found in changes]
        # What stands in a file that stays, and was on the disk once, stays there.
        changes = [found for found in changes if found.offset >= claim or id(found) not in stays]
        if snapshot is not None and snapshot.offset < claim and id(snapshot) in stays:
            snapshot = None
        if ahead:
            if again:
                written = self._begin(base, follows, again, snapshot, changes)
                self._complete(closed, *written)
                follows, snapshot, changes = closed[-1].end, None, []
            active, index = self._leap(goes_on, follows, snapshot, changes)
        else:
            active, index = self._begin(base, follows, again, snapshot, changes)
        self._clean(closed, active)
        settings = self._settings
        self._hot.commit(goes_on)
        self._hot.advance_clock(settings.now_us)
        return SegmentLog(
            self._files, self._head(base), self._hot,
            capacity_bytes=settings.capacity_bytes, keep_us=settings.keep_us, closed=closed,
            active=active, index=index, recovered=self._recovered,
            segment_bytes=settings.segment_bytes, segment_entries=settings.segment_entries,
            ahead=settings.ahead,
        )  # fmt: skip

    # --- what is there ----------------------------------------------------------------------------

    def _list(self) -> list[_File]:
        """The segments that count, in order.

        What a process found where it began, or behind, it has written again or given up: files of
        earlier ones from there on do not count, if a power cut has brought them back.
        """
        names = sorted(self._files.names())
        mine = Whose(self._settings.queue, self._settings.exchange, self._generation)
        found = sort_out(self._files, names, mine)
        for why in found.refused():
            raise LogRefused(f"{why}; nothing was changed")
        # The order of processes is that in which they open the folder, whatever epochs say: those
        # of a registry that was restored are lower, and what is written under them would not count.
        epochs = {parsed[1]: name for name in names if (parsed := parse_name(name)) is not None}
        self._epoch = max([self._epoch, *(epoch + 1 for epoch in epochs)])
        if self._epoch >= EPOCHS_END:
            raise LogRefused(
                f"{epochs.get(self._epoch - 1)}: it names an epoch that no process has had: move "
                "it away; nothing was changed"
            )
        for name in names:
            if is_partial(name):
                self._files.remove(name)
            elif parse_name(name) is None and name != META and not is_index(name):
                self._problem(f"{name} is no file of a log; it was left alone")
        for name, text in found.strange:
            self._left.add(name)
            self._problem(f"{name}: {text}; it was left alone")
        for place, by, more in found.displaced:
            if more:
                self._files.rename(place.name, place.name + ASIDE_SUFFIX)
                self._problem(
                    f"{place.name}: it does not count, as {by.name} is of a later process, but it "
                    f"was made later, and holds more; it is called {place.name}{ASIDE_SUFFIX} now"
                )
        return [
            _File(
                each.name, each.base, each.epoch, each.size, has_head=each.head is not None,
                left_out=each.left_out,
            )
            for each in found.count
        ]  # fmt: skip

    def _tail(self, segments: list[_File]) -> list[_File]:
        """The newest segments, back to the first one that holds a snapshot; gone over."""
        tail: list[_File] = []
        for file in reversed(segments):
            self._go_over(file, tail[0].follows if tail else None)
            tail.insert(0, file)
            if _begins_here(file):
                break
        return tail

    def _go_over(self, file: _File, until: int | None) -> None:
        """Read a segment; what it holds behind the beginning of the next one does not count."""
        records = [
            found
            for found in scan(self._files, file.name, HEAD_BYTES)
            if found.frame[IDENTITY] == self._identity
        ]
        if not file.has_head and records:
            self._problem(f"{file.name}: its head cannot be read; its records were")
        file.found = [
            found
            for found in records
            if until is None or found.offset < until + (found.kind != RecordKind.BATCH)
            # Whatever is written there: a file holds no more than it has room for.
            if found.synced <= found.offset <= file.base + file.size // RECORD_BYTES
        ]

    def _entries(self, tail: list[_File]) -> list[Found]:
        """What the tail holds, in order and without a hole behind the last claim.

        Behind it a hole means that a write was lost, and what stands after it was never promised.
        """
        claim = _claim(tail)
        entries: list[Found] = []
        following = tail[0].base if tail else 0
        for file in tail:
            if file.left_out and following < file.base:
                if following < file.follows:
                    self._lost(following, file.follows)
                following = file.base
            for found in file.found:
                if found.kind != RecordKind.BATCH or found.offset < following:
                    continue
                if found.offset > following:
                    if following >= claim:
                        self._problem(
                            f"{file.name}: cut off behind offset {following}, before which a write "
                            "did not reach the disk"
                        )
                        return entries
                    self._lost(following, min(found.offset, claim))
                    if found.offset > claim:
                        return entries
                entries.append(found)
                following = found.offset + 1
        return entries

    def _closed(self, segments: list[_File], base: int) -> list[Segment]:
        """The segments that stay as they are, up to the offset at which a new one begins."""
        closed: list[Segment] = []
        base = next((file.follows for file in segments if file.base == base), base)
        for number, file in enumerate(segments):
            end = min(segments[number + 1].follows if number + 1 < len(segments) else base, base)
            if end <= file.base:
                continue
            segment = Segment(
                file.name, file.base, end, file.size, kept=file.size - HEAD_BYTES,
                left_out=file.left_out,
            )  # fmt: skip
            self._measure(segment, file)
            closed.append(segment)
        if closed and closed[-1].end < base:
            closed[-1].end = base
        # Times do not fall from one to the next, also where nothing can be read.
        for one, other in pairwise(closed):
            if not other.last_us:
                other.first_us = other.last_us = one.last_us
        for other, one in pairwise(reversed(closed)):
            if not one.last_us:
                one.first_us = one.last_us = other.first_us
        return closed

    def _measure(self, segment: Segment, file: _File) -> None:
        """Learn a segment's times and topics, and what it keeps; tell what of it is lost.

        Its index file says all that at its beginning. If it does not, the index is made, and the
        file is written for the next start. One of an earlier version does not say what is kept:
        the whole file counts then.
        """
        brief = load_brief(self._files, segment)
        if brief is not None:
            segment.kept = min(segment.kept, brief.kept)  # no more than the file has
        if brief is not None and not brief.lost:
            segment.first_us, segment.last_us = brief.first_us, brief.last_us
            segment.topics = brief.topics
            return
        whole = index = None if brief is None else read_index(self._files, segment)
        if index is None:
            records = file.found or scan(self._files, file.name, HEAD_BYTES)
            index = index_of(records, segment)
            segment.kept = index.kept
        for first, behind in _ranges(index.lost()):
            if not any(a <= first and behind <= b for a, b in self._recovered.lost):
                self._lost(first, behind)
        segment.first_us = self._time_of(segment, index, range(segment.base, segment.end))
        segment.last_us = self._time_of(
            segment, index, range(segment.end - 1, segment.base - 1, -1)
        )
        brief = index.brief(segment.first_us, segment.last_us, segment.kept)
        segment.topics = brief.topics
        if whole is None:
            self._put_index(file.name, brief.pack() + index.pack())

    def _put_index(self, segment: str, data: bytes) -> None:
        """Write the index of a segment: a help and no truth, so what fails here ends nothing."""
        name = index_name(segment)
        if put_help(self._files, name, data):
            self._recovered.indexes.append(name)

    def _time_of(self, segment: Segment, index: SegmentIndex, offsets: range) -> int:
        """The append time of the first of these that can be read."""
        for offset in offsets:
            position = index.position(offset)
            if position:
                frame = self._files.read(segment.name, position + 24, 56)
                try:
                    return read_entry(frame).appended_us
                except RemoteProtocolError:
                    continue
        return 0

    # --- what goes on -----------------------------------------------------------------------------

    def _restore(
        self, tail: list[_File], entries: list[Found], end: int, goes_on: int
    ) -> Found | None:
        """The hot tail as it was: from the newest snapshot on, which is given back.

        Args:
            goes_on: the offset of the next entry; if it is not `end`, nothing is in memory.
        """
        record, snapshot = self._snapshot(tail, end)
        since = record.offset if record is not None else tail[0].base if tail else 0
        # What is in memory has no hole: it begins behind the last one.
        first = goes_on
        for found in reversed(entries):
            if found.offset != first - 1 or found.offset < since:
                break
            first = found.offset
        topics = {} if snapshot is None else dict(snapshot.topics)
        for found in entries:
            if since <= found.offset < first:
                topics.pop(found.topic, None)
                topics[found.topic] = found.offset
        forgotten_below = since if snapshot is None else snapshot.forgotten_below
        self._hot.restore(topics.items(), forgotten_below, first)
        self._recovered.snapshot = None if snapshot is None else snapshot.exchange
        self._recovered.since = since
        self._hot.committed_to = goes_on
        for found in entries:
            if found.offset >= first:
                self._hot.restore_entry(found.topic, found.frame, found.body, len(found.body))
        if entries:
            self._hot.advance_clock(read_entry(entries[-1].frame).appended_us)
        return record

    def _changes(self, tail: list[_File], snapshot: Found | None) -> list[Found]:
        """What of consumer groups has changed since the snapshot, in order."""
        changes: list[Found] = []
        for file in tail:
            for found in file.found:
                if found is snapshot:
                    changes = []
                elif found.kind == RecordKind.GROUPS:
                    changes.append(found)
        return changes

    def _snapshot(
        self, tail: list[_File], end: int
    ) -> tuple[Found, LogSnapshot] | tuple[None, None]:
        for file in reversed(tail):
            for found in reversed(file.found):
                if found.kind != RecordKind.SNAPSHOT or found.offset > end:
                    continue
                try:
                    return found, decode_snapshot(found.body)
                except RemoteProtocolError as error:
                    self._problem(f"{file.name}: {error}")
        return None, None

    def _complete(self, closed: list[Segment], segment: Segment, index: SegmentIndex) -> None:
        """This one, which was written again, gets nothing more."""
        brief = index.brief(segment.first_us, segment.last_us, segment.kept)
        segment.topics = brief.topics
        self._put_index(segment.name, brief.pack() + index.pack())
        closed.append(segment)

    def _leap(
        self, base: int, follows: int, snapshot: Found | None, changes: list[Found]
    ) -> tuple[Segment, SegmentIndex]:
        """The new segment, behind offsets that are left out; its head is on the disk.

        Args:
            follows: where what stays ends.
            snapshot: the one that was found, if it stands only where nothing stays.
            changes: of consumer groups, behind it.
        """
        head = pack_head(replace(self._head(base), left_out=base - follows))
        buffers: list[bytes | memoryview] = [head]
        for found in (*([] if snapshot is None else [snapshot]), *changes):
            before, behind = pack_record(
                RecordKind(found.kind), b"", found.frame, found.body, len(found.body), found.offset
            )
            buffers += [before, found.body, behind]
        name = segment_name(base, self._epoch)
        put_whole(self._files, name, buffers)
        size = sum(map(len, buffers))
        return Segment(name, base, base, size, left_out=base - follows), SegmentIndex(base)

    def _begin(
        self,
        base: int,
        follows: int,
        again: list[Found],
        snapshot: Found | None,
        changes: list[Found],
    ) -> tuple[Segment, SegmentIndex]:
        """The new segment, with what has to be written again on the disk.

        Args:
            follows: where what stays ends.
            snapshot: the one that was found, if it stands only where nothing stays.
            changes: of consumer groups, behind it.
        """
        name = segment_name(base, self._epoch)
        segment = Segment(name, base, base, 0, left_out=base - follows)
        index = SegmentIndex(base)
        records = list(again)
        if snapshot is not None:
            records.insert(sum(found.offset < snapshot.offset for found in again), snapshot)
        records += changes
        if not records:
            return segment, index
        head = replace(self._head(base), left_out=segment.left_out)
        buffers: list[bytes | memoryview] = [pack_head(head)]
        segment.size = HEAD_BYTES
        for found in records:
            # What came from a segment behind a leap stands for an offset below the base; no record
            # may claim more than its own offset, or the next start takes it for nothing.
            before, behind = pack_record(
                RecordKind(found.kind), found.topic, found.frame, found.body, len(found.body),
                min(base, found.offset),
            )  # fmt: skip
            buffers += [before, found.body, behind]
            if found.kind == RecordKind.BATCH:
                index.add(found.topic, segment.size)
            segment.size += record_bytes(found.topic, len(found.body))
        segment.kept = sum(record_bytes(found.topic, len(found.body)) for found in again)
        segment.end = index.end
        if again:
            segment.first_us = read_entry(again[0].frame).appended_us
            segment.last_us = read_entry(again[-1].frame).appended_us
        put_whole(self._files, name, buffers)
        return segment, index

    def _clean(self, closed: list[Segment], active: Segment) -> None:
        """Remove what has no entry that counts any more, and indexes of what is not there; what is
        strange stays."""
        kept = {each.name for each in closed} | {active.name}
        indexes = {of(each.name) for each in closed for of in (index_name, keys_name)}
        for name in self._files.names():
            of_segment = parse_name(name) is not None and name not in kept | self._left
            if of_segment or (is_index(name) and name not in indexes):
                self._files.remove(name)

    def _head(self, base: int) -> SegmentHead:
        settings = self._settings
        return SegmentHead(
            settings.queue, settings.exchange, self._generation, self._epoch, base,
            settings.now_us,
        )  # fmt: skip

    def _lost(self, first: int, behind: int) -> None:
        self._recovered.lost.append((first, behind))
        self._problem(f"offsets {first} to {behind - 1} cannot be read")

    def _problem(self, text: str) -> None:
        if len(self._recovered.problems) < PROBLEMS_MAX:
            self._recovered.problems.append(text)


def _begins_here(file: _File) -> bool:
    """Whether nothing before this segment is needed: all is there up to its snapshot, and that."""
    following = file.base
    for found in file.found:
        if found.kind == RecordKind.SNAPSHOT and found.offset <= following:
            return True
        if found.kind == RecordKind.BATCH and found.offset == following:
            following += 1
    return False


def _claim(tail: list[_File]) -> int:
    """Below it everything was on the disk once."""
    claims = [found.synced for file in tail for found in file.found]
    claims += [file.base for file in tail]
    return max(claims, default=0)


def _ranges(offsets: list[int]) -> list[tuple[int, int]]:
    """Stretches of consecutive numbers: (first, behind the last)."""
    ranges: list[tuple[int, int]] = []
    for offset in offsets:
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = ranges[-1][0], offset + 1
        else:
            ranges.append((offset, offset + 1))
    return ranges
