"""The log of a durable queue: segments on disk, and a ring of the newest batches in memory.

    append -> hot tail --gather--> Group --write, settle--> segment file --commit--> committed

`append` puts a batch into the hot tail. `gather` makes one group of all that was appended since
the last one; `write`, in a thread that may wait for the disk, writes it with one gathered write,
and `settle` syncs it; `commit` says that it is there. Nothing is read back for it, and no body is
copied.

While a group is synced, the next ones may be gathered and written behind it, and are synced
together afterwards (`roq.log.disk_groups`). They are committed in order.

A log that runs *ahead* of its disk commits what is written, and has it synced later: by
`gather_sync`, `perform_sync` and `commit_sync`, beside the groups. What it has shown to others may
be lost by a power cut then; the next process leaves so many offsets out that none is used again.

Old entries are read from the files, in chunks and over an index of each segment. What the disk has
lost (a record whose sum is wrong, a segment that is not there), or does not give now, is `None`
when it is asked for, and passed over by everything else. Whole segments leave: by their size, or
by their age.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Final, Generic, TypeVar

from roq.log.disk_groups import Group, Sync
from roq.log.files import Files, index_name, keys_name, segment_name
from roq.log.index import SegmentIndex
from roq.log.key_index import may_have_keys
from roq.log.key_search import KeySearch, Places
from roq.log.log import Record
from roq.log.records import (
    HEAD_BYTES,
    SegmentHead,
    pack_head,
    record_bytes,
)
from roq.log.ring import HotTail
from roq.log.segment_reader import Segment, SegmentReader
from roq.log.snapshot import LogSnapshot, Recovered, encode_snapshot
from roq.log.steady_clock import AgeClock
from roq.protocol.entry import IDENTITY, EntryKind, pack_entry, read_entry

B = TypeVar("B")

SEGMENT_BYTES: Final = 64 * 1024 * 1024
"""A segment that is larger gets no further group."""
SEGMENT_ENTRIES: Final = 50_000
"""No group is added that would give it more entries, unless the group alone has as many. So at the
start of a process so much is read at most, and a group."""
CHANGES_BYTES: Final = 4 * 1024 * 1024
"""After so much about consumer groups a snapshot is due, so that a start reads little more."""
FOLLOWS_BYTES: Final = 1024 * 1024
"""As `SegmentLog.follows_bytes`. With half of it more changes of threads cost large batches a fifth
of their rate; with twice as much, batches of 10 kB are written later than they could be."""
SNAPSHOT_PARTS: Final = 5
"""A segment begins with a snapshot, and has so many times its bytes. Small ones were nothing but
snapshots else, and the disk full of them."""
LEAVES_PARTS: Final = 2
"""A segment leaves whole, so it has no more than this part of what the log may hold: with large
snapshots a small log had one segment else, which left as soon as the next one began."""
UNSYNCED_ENTRIES_MAX: Final = 1 << 19
"""A log that runs ahead of its disk does so by so many entries at most."""


class SegmentLog(Generic[B]):
    """A log on disk (`roq.log.log.Log`). `roq.log.recovery.open_log` makes it.

    Args:
        files: its folder; read from here, written by `perform` only.
        head: what its segments say of themselves; `base` and `created_us` do not count.
        hot: the newest batches.
        capacity_bytes: what all segments may take on the disk; the newest one stays in any case.
        keep_us: entries older than this leave, µs, as `AgeClock` says; see `tell_time`.
        closed: segments that are complete, in order.
        active: the one that is written, and its index.
        recovered: what was found when it was opened.
        ahead: it commits what is written, and has it synced later.

    Attributes:
        generation: as `Log.generation`.
        epoch, pinned_from, pressed_below: as `LateLog` says.
        hot: the newest batches; what a process needs in memory is theirs.
        floor, committed, capacity, kept, gone: as `Log` says, in bytes on the disk.
        synced: below it everything is on the disk; no more than is committed.
        unsynced_bytes: of what was accepted and is not known to be on the disk.
        sync_wanted: nothing can be gathered before a sync.
        told: the snapshots up to this one of `want_snapshot` are on the disk.
        follows_bytes: so much is gathered while another group is under way; less waits for that.
        recovered: what an earlier process has left.
        keys: where keys are, in segments that are complete.
    """

    def __init__(
        self,
        files: Files,
        head: SegmentHead,
        hot: HotTail[B | bytes],
        *,
        capacity_bytes: int,
        keep_us: int,
        closed: list[Segment],
        active: Segment,
        index: SegmentIndex,
        recovered: Recovered,
        segment_bytes: int = SEGMENT_BYTES,
        segment_entries: int = SEGMENT_ENTRIES,
        ahead: bool = False,
    ) -> None:
        self.hot = hot
        self.generation, self.epoch = head.generation, head.epoch
        self.capacity = capacity_bytes
        self.recovered = recovered
        self.unsynced_bytes = 0
        self.committed = self.synced = hot.committed_to
        self.sync_wanted = False
        self.told = self._told_next = self._wanted = 0
        self._ahead = ahead
        self._head = head
        self._keep_us = keep_us
        self._age = AgeClock()
        self._segment_bytes = segment_bytes
        self._segment_entries = segment_entries
        self._closed = closed
        self._active = active
        self._index = index
        active.keyed = active.base < active.end
        self._written = active.size > 0
        """Whether the active segment has its head."""
        self._gathered = hot.end
        self._under_way: deque[Group[B | bytes]] = deque()
        self._syncing = ""
        """The segment of which a sync is under way: it does not leave meanwhile."""
        self._behind = ""
        """The segment with something that was committed since it was synced, or its sync began."""
        self._unsynced: deque[tuple[int, int]] = deque()
        """(end, bytes) of groups that are not synced."""
        self._ungathered_bytes = 0
        self._snapshot_due = True
        self._anew_bytes = 0
        """Of the active segment, when it was written anew."""
        self._snapshot_bytes = 0
        """Of the newest snapshot."""
        self._changes_bytes = 0
        """Of changes of consumer groups since then."""
        self._indexes: list[tuple[str, bytes]] = []
        self._removed: list[str] = []
        self.pinned_from, self.pressed_below = 1 << 62, 0
        self.follows_bytes = FOLLOWS_BYTES
        self.kept = sum(each.kept for each in closed) + active.kept
        self.gone = 0
        self.floor = (closed[0] if closed else active).follows
        hot.log_floor = self.floor
        self.advance_clock, self.make_room = hot.advance_clock, hot.make_room
        self.tell_time = self._age.look
        self._reader = SegmentReader(files, self._end_frame()[IDENTITY], self._indexes.append)
        self._reader.grows(active, index)
        self.keys = KeySearch(files, closed, self._indexes.append)

    # --- the contract -----------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The offset of the next batch."""
        return self.hot.end

    @property
    def unreadable(self) -> int:
        """Entries that were found lost: since the start, and at it, as long as they would stay."""
        floor = self.floor
        found = sum(max(0, behind - max(first, floor)) for first, behind in self.recovered.lost)
        return found + self._reader.unreadable

    @property
    def sync_due(self) -> bool:
        """Whether something that is committed is not on the disk, also if it is no entry, and no
        sync that is under way, and no group, brings it there."""
        # A segment begins with a snapshot: nobody needs what the one before has of groups.
        return self._behind == self._active.name

    @property
    def patient(self) -> bool:
        """Whether questions wait for the disk; else they raise `NotAtHand` where they would."""
        return self._reader.patient

    @patient.setter
    def patient(self, patient: bool) -> None:
        self._reader.patient = patient

    @property
    def topics(self) -> int:
        """How many topics are remembered."""
        return self.hot.topics

    @property
    def time_us(self) -> int:
        """The append time of what comes next, µs UTC."""
        return self.hot.time_us

    def append(self, topic: bytes, batch: B | bytes, size: int) -> bytes | None:
        """Take a batch of `size` bytes in; gives its entry frame, None if the topic is refused."""
        if (frame := self.hot.append(topic, batch, size)) is not None:
            self._account(topic, size)
        return frame

    def append_spare(self, topic: bytes, batch: B | bytes, size: int) -> bytes | None:
        """As `append`, and a new topic may use the part of the table that is kept."""
        if (frame := self.hot.append_spare(topic, batch, size)) is not None:
            self._account(topic, size)
        return frame

    def record(self, offset: int) -> Record[B | bytes] | None:
        """The entry at this offset; None if the disk has lost it, or does not give it now."""
        if offset >= self.hot.floor:
            return self.hot.record(offset)
        segment = self._segment_of(offset)
        if segment is None or (found := self._reader.record(segment, offset)) is None:
            return None
        return self.hot.topic(found.topic), found.frame, found.body, len(found.body)

    def is_lost(self, offset: int) -> bool:
        """As `Log.is_lost`."""
        segment = self._segment_of(offset)
        return segment is None or self._reader.is_lost(segment, offset)

    def following(self, offset: int) -> int:
        """This offset, or the first one above it that was not left out."""
        if offset >= self._active.base:
            return offset
        at = bisect_right(self._closed, offset, key=lambda each: each.end)
        return max(offset, self._closed[at].base if at < len(self._closed) else self._active.base)

    def next_of(self, topic: bytes, at_least: int) -> int | None:
        """The first offset of the topic at or above `at_least` that is there."""
        asked = topic, at_least
        at_least = max(at_least, self.floor, self._reader.passed(asked))
        if self.hot.newest(topic) < at_least:
            return None
        for segment in self._segments_from(at_least):
            if segment.base >= self.hot.floor:
                break
            if topic not in segment.topics:
                continue
            offset = self._reader.index_for(asked, segment).next_of(topic, at_least)
            if offset is not None and offset < self.hot.floor:
                return offset
        return self.hot.next_of(topic, at_least)

    def heads(
        self, prefixes: tuple[bytes, ...], since: int, until: int, most: int
    ) -> tuple[list[tuple[bytes, int]], bool]:
        """As `Log.heads`; what stands below `until` is found over the chain of its topic."""
        found: list[tuple[int, bytes]] = []
        for name, last in self.hot.newest_first():
            if last < since:
                break
            if not name.startswith(prefixes):
                continue
            head = self._below(last, until)
            if head >= since:
                found.append((head, name))
        found.sort()
        return [(name, head) for head, name in found[:most]], len(found) > most

    def seek(self, time_us: int) -> int:
        """The first offset appended at or after this time; `end` if nothing is that new."""
        hot_floor = self.hot.floor
        if self.floor < hot_floor:
            older = [each for each in self._segments_from(self.floor) if each.base < hot_floor]
            at = bisect_left(older, time_us, key=lambda each: each.last_us)
            if at < len(older):
                offset = self._reader.seek(older[at], min(older[at].end, hot_floor), time_us)
                if offset < hot_floor:
                    return offset
        return max(self.hot.seek(time_us), self.floor)

    def find(self, key: int, before: int) -> Places:
        """As `Log.find`; the segment that is written is given as a whole."""
        before, open_at = min(before, self.committed), self._active.base
        return self.keys.find(key, self.floor, before, open_at, patient=self.patient)

    def check(self) -> None:
        """Assert the invariants. Costs O(n): tests and simulation only."""
        self.hot.check()
        assert self.floor <= self.committed <= self.end  # noqa: S101
        assert self.synced <= self.committed  # noqa: S101
        assert self._ahead or self.synced == self.committed  # noqa: S101
        assert self.committed == self.hot.committed_to  # noqa: S101
        assert self.hot.floor <= self.committed, "what is not committed is in memory"  # noqa: S101
        segments = [*self._closed, self._active]
        assert self.floor == segments[0].follows == self.hot.log_floor  # noqa: S101
        for one, other in pairwise(segments):
            assert one.end <= other.follows, "segments follow each other"  # noqa: S101
            assert one.end <= self.synced  # noqa: S101
        assert self._active.end == self._gathered <= self.end  # noqa: S101
        assert self._index.end == self._active.end  # noqa: S101
        assert self.unsynced_bytes == self._ungathered_bytes + sum(  # noqa: S101
            size for _, size in self._unsynced
        )

    # --- the way to the disk ----------------------------------------------------------------------

    def gather(
        self, snapshot: Callable[[], bytes], changes: Callable[[], bytes] = bytes
    ) -> Group[B | bytes] | None:
        """All that was appended since the last call, for `write`; None if there is nothing to do.

        None also while another one is under way, unless there is much, which may be written behind
        it. Changes are taken once at a time. A segment begins where everything before is synced.

        Args:
            snapshot: gives what the exchange wants to know again; called when it is due only, and
                stands for the log as it ends now.
            changes: gives what of its consumer groups has changed since it was called last; empty:
                nothing has. They come back in order, from the newest snapshot on.
        """
        if self._under_way and not self._may_follow():
            return None
        self._expire()
        # The only snapshot does not leave before another one is on the disk.
        alone = self._snapshot_due and bool(self._removed)
        old = self._is_old(self._active)
        full = old or self._is_full()
        far = self.end - self.synced > UNSYNCED_ENTRIES_MAX
        self.sync_wanted = (full or far) and self.synced < self._gathered
        if self.sync_wanted:
            return None
        changed = b"" if any(group.changes for group in self._under_way) else changes()
        wanted = self._wanted > self._told_next
        if self._gathered == self.end and not (alone or changed or wanted or old):
            if not (self._removed or self._indexes):
                return None
            group: Group[B | bytes] = Group(end=self.committed, sync=not self._ahead)
            return self._hand_over(group)
        if full:
            self._roll()
        active, hot = self._active, self.hot
        group = Group(segment=active.name, at=active.size, synced=self.synced, end=self.end)
        self._begin(group)
        changed = b"" if group.anew else changed  # the snapshot tells it
        records = group.records = hot.records(self._gathered)
        active.keyed = active.keyed or may_have_keys(records)
        active.size = self._index.add_all(records, active.size)
        if changed:
            group.changes = changed, self._end_frame()
            active.size += record_bytes(b"", len(changed))
            self._changes_bytes += len(changed)
            if self._changes_bytes >= CHANGES_BYTES:
                self._snapshot_due = True
        if self._snapshot_due or wanted:
            # Behind the entries, so that it tells how things stand at the end of the group.
            body = self.snapshot(snapshot())
            group.snapshot = body, self._end_frame()
            self._snapshot_bytes = record_bytes(b"", len(body))
            active.size += self._snapshot_bytes
            self._snapshot_due = False
            self._told_next = self._wanted
            self._changes_bytes = 0
        self._anew_bytes = active.size if group.anew else self._anew_bytes
        active.kept += self._ungathered_bytes
        if group.records:
            active.first_us = active.first_us or read_entry(group.records[0][1]).appended_us
            active.last_us, active.lived_us = hot.time_us, self._age.lived_us
        active.end = self._gathered = self.end
        self._unsynced.append((self.end, self._ungathered_bytes))
        self._ungathered_bytes = 0
        self._hand_over(group)
        # What a start cannot do without is never ahead of the disk. What completes a segment is not
        # either: the next one waits for it.
        whole = group.head is None and group.snapshot is None
        group.sync = not (self._ahead and whole) or far or self._is_full(len(records))
        return group

    def _begin(self, group: Group[B | bytes]) -> None:
        """With the head, if the segment is new or written anew."""
        group.anew = self._is_crowded()
        if group.anew:
            group.at, self._snapshot_due = 0, True
        if group.anew or not self._written:
            group.head = pack_head(self._head_of(self._active))
            self._active.size = HEAD_BYTES
            self._written = True

    def _hand_over(self, group: Group[B | bytes]) -> Group[B | bytes]:
        """With the files that are complete, and those that have left."""
        group.indexes = self._indexes.copy()
        self._indexes.clear()
        group.removed, self._removed = self._removed, []
        group.told = self._told_next
        self._under_way.append(group)
        return group

    def _may_follow(self) -> bool:
        """Whether a group may be written before the ones under way are committed: there is much,
        none of them does more than to add to a file, and no snapshot is due, which would tell of
        changes that were not taken."""
        return (
            self._ungathered_bytes >= self.follows_bytes
            and not self._snapshot_due
            and self._wanted == self._told_next
            and all(group.follows for group in self._under_way)
        )

    def _is_full(self, more: int = 0) -> bool:
        """Whether the active segment is complete, or would be with so many more entries. One
        without entries is not: the next one would have its name."""
        active = self._active
        enough = max(self._segment_bytes, min(SEGMENT_BYTES, SNAPSHOT_PARTS * self._snapshot_bytes))
        return active.end > active.base and (
            active.size >= enough
            or active.kept >= self.capacity // LEAVES_PARTS
            or self.end + more - active.base > self._segment_entries
        )

    def want_snapshot(self) -> int:
        """As `LateLog.want_snapshot`; there is a group for it, also if nothing is appended."""
        self._wanted += 1
        return self._wanted

    def _is_crowded(self) -> bool:
        """Whether changes of groups and snapshots fill a segment without entries, mostly old ones:
        another segment would have its name, so that they are written anew."""
        active = self._active
        return active.end == active.base and active.size >= max(
            self._segment_bytes, 2 * self._anew_bytes
        )

    def commit(self, end: int) -> None:
        """The group that ended here is settled, and all before."""
        group = self._under_way.popleft() if self._under_way else None
        self.committed = max(self.committed, end)
        self.told = self.told if group is None else group.told
        if group is None or group.sync:
            self._is_synced(self.committed)
            self._behind = ""
        elif group.segment:
            self._behind = group.segment
        self.hot.commit(self.committed)
        self._make_room()

    def gather_sync(self) -> Sync | None:
        """What is to be synced by now, for `perform_sync`; None: nothing, or one is under way."""
        if self._syncing or not self.sync_due:
            return None
        self._syncing, self._behind = self._active.name, ""
        return Sync(self._active.name, self.committed)

    def commit_sync(self, end: int) -> None:
        """The sync that was to reach this end has returned."""
        self._syncing = ""
        self._is_synced(end)

    def _is_synced(self, end: int) -> None:
        self.synced = max(self.synced, end)
        while self._unsynced and self._unsynced[0][0] <= self.synced:
            self.unsynced_bytes -= self._unsynced.popleft()[1]

    def snapshot(self, exchange: bytes) -> bytes:
        """How the log stands now, with what the exchange adds."""
        topics = list(self.hot.newest_first())[::-1]
        return encode_snapshot(
            LogSnapshot(topics=topics, forgotten_below=self.hot.forgotten_below, exchange=exchange)
        )

    def _end_frame(self) -> bytes:
        head = self._head
        return pack_entry(
            EntryKind.END, head.exchange, head.queue, head.generation, self.end, self.floor,
            self.hot.time_us,
        )  # fmt: skip

    def _head_of(self, segment: Segment) -> SegmentHead:
        head = self._head
        return SegmentHead(
            head.queue, head.exchange, head.generation, head.epoch, segment.base, self.hot.time_us,
            segment.left_out,
        )  # fmt: skip

    def _account(self, topic: bytes, size: int) -> None:
        taken = record_bytes(topic, size)
        self._ungathered_bytes += taken
        self.unsynced_bytes += taken
        self.kept += taken

    def _roll(self) -> None:
        """The active segment is complete; the next group begins another one."""
        self._close(self._active, self._index)
        base = self._active.end
        self._active = Segment(segment_name(base, self._head.epoch), base, base, 0, keyed=False)
        self._index = SegmentIndex(base)
        self._reader.grows(self._active, self._index)
        self._written = False
        self._snapshot_due = True
        self._anew_bytes = 0

    def _close(self, segment: Segment, index: SegmentIndex) -> None:
        brief = index.brief(segment.first_us, segment.last_us, segment.kept)
        segment.topics = brief.topics
        self._closed.append(segment)
        self.keys.closes(segment)
        self._indexes.append((index_name(segment.name), brief.pack() + index.pack()))

    def _make_room(self) -> None:
        while self._closed and self.kept > self.capacity and self._may_leave():
            self._leave()

    def _expire(self) -> None:
        while self._closed and self._is_old(self._closed[0]) and self._may_leave():
            self._leave()

    def _is_old(self, segment: Segment) -> bool:
        """Whether it has entries, and all of them are older than is kept."""
        known = segment.base < segment.end and segment.last_us > 0
        return known and self._age.age_us(segment.last_us, segment.lived_us) > self._keep_us

    def may_leave(self, below: int, rest_us: int) -> int:
        """As `LateLog.may_leave`; what was there before has rested since this process began."""
        end, most = self.floor, min(below, self.pinned_from)
        for segment in self._closed:
            rested = self._age.lived_us - (segment.lived_us or 0) > rest_us
            if segment.end > most or not (rested or segment.base == segment.end):
                break
            end = segment.end
        return end

    def release(self, below: int) -> None:
        """As `LateLog.release`. `may_leave` does not name what is pinned, so that it is not pressed
        to leave, as it is for want of room: it would be written again with each segment."""
        while self._closed and self._closed[0].end <= below and self._may_leave():
            self._leave()

    def _may_leave(self) -> bool:
        oldest = self._closed[0]
        if pinned := oldest.end > self.pinned_from:
            self.pressed_below = oldest.end
        return not pinned and oldest.name != self._syncing

    def _leave(self) -> None:
        """Have the oldest segment go. It is committed, as all that are complete."""
        oldest = self._closed.pop(0)
        self.kept -= oldest.kept
        self.gone += oldest.kept
        self.floor = (self._closed[0] if self._closed else self._active).follows
        self.hot.log_floor = self.floor
        self._reader.forget(oldest)
        self._removed += [oldest.name, index_name(oldest.name), keys_name(oldest.name)]

    # --- reading what has left the memory ---------------------------------------------------------

    def _segment_of(self, offset: int) -> Segment | None:
        if self._active.base <= offset < self._active.end:
            return self._active
        at = bisect_right(self._closed, offset, key=lambda each: each.base) - 1
        return self._closed[at] if at >= 0 and offset < self._closed[at].end else None

    def _segments_from(self, offset: int) -> list[Segment]:
        at = bisect_right(self._closed, offset, key=lambda each: each.base) - 1
        return [*self._closed[max(0, at) :], self._active]

    def _below(self, last: int, until: int) -> int:
        """The newest entry below `until` of the topic whose newest one is `last`; -1: none."""
        while last >= until:
            if (record := self.record(last)) is None:
                return -1
            entry = read_entry(record[1])
            if entry.kind != EntryKind.ENTRY or entry.previous >= last:
                return -1
            last = entry.previous if entry.previous >= self.floor else -1
        return last
