"""A second log beside the ring, simple and slow: it proves that tests are about the contract.

Entries lie in segments, and only whole segments leave. What is appended counts as committed when
`commit` is called, or at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from roq.log.log import Record
from roq.log.ring import ENTRY_OVERHEAD
from roq.protocol.entry import NONE, EntryKind, pack_entry, read_entry

B = TypeVar("B")
SEGMENT_ENTRIES = 2


@dataclass
class Topic:
    """A topic that is remembered."""

    name: bytes
    last: int = NONE


@dataclass
class Segment(Generic[B]):
    """Entries that leave together."""

    first: int
    entries: list[Record[B]] = field(default_factory=list)

    @property
    def kept(self) -> int:
        """Its bytes."""
        return sum(size + ENTRY_OVERHEAD for _, _, _, size in self.entries)


class SegmentedLog(Generic[B]):
    """A log as `roq.log.log.Log` wants it."""

    def __init__(
        self,
        queue: bytes,
        exchange: int,
        generation: int,
        *,
        capacity_bytes: int,
        topics_max: int,
        topics_spare: int = 0,
        commits: bool = True,
    ) -> None:
        self.floor = self.end = self.committed = 0
        self.gone = self.time_us = 0
        self.capacity = capacity_bytes
        self.generation, self.epoch = generation, 0
        self._of = (exchange, queue, generation)
        self.commits = commits
        self.told = self.unreadable = 0
        self.pinned_from, self.pressed_below = 1 << 62, 0
        self._wanted: list[int] = []
        """Where it ended when snapshots were wanted."""
        self._topics_max = topics_max
        self._topics_spare = topics_spare
        self._topics: dict[bytes, Topic] = {}
        self._segments: list[Segment[B]] = []
        self._forgotten_below = 0

    @property
    def kept(self) -> int:
        return sum(segment.kept for segment in self._segments)

    def tell_time(self, now: float, wall_us: int) -> None:
        """Nothing here leaves by its age."""

    @property
    def topics(self) -> int:
        return len(self._topics)

    @property
    def unsynced_bytes(self) -> int:
        """As `LateLog.unsynced_bytes`."""
        return sum(self.record(offset)[3] for offset in range(self.committed, self.end))

    @property
    def synced(self) -> int:
        """As `LateLog.synced`."""
        return self.committed

    def want_snapshot(self) -> int:
        """As `LateLog.want_snapshot`."""
        self._wanted.append(self.end)
        return len(self._wanted)

    def may_leave(self, below: int, rest_us: int) -> int:
        """As `LateLog.may_leave`."""
        end, before_us = self.floor, self.time_us - rest_us
        for segment in self._segments[:-1]:
            behind = segment.first + len(segment.entries)
            last_us = read_entry(segment.entries[-1][1]).appended_us
            if behind > min(below, self.committed, self.pinned_from) or last_us >= before_us:
                break
            end = behind
        return end

    def release(self, below: int) -> None:
        """As `LateLog.release`."""
        end = self.may_leave(below, -1)
        while self.floor < end:
            self._leave()

    @property
    def hot(self) -> SegmentedLog[B]:
        """As `LateLog.hot`: all of it is in memory."""
        return self

    def is_lost(self, _: int) -> bool:
        return True

    def following(self, offset: int) -> int:
        return offset

    def commit(self, end: int | None = None) -> None:
        """What was accepted, up to `end` if that is said, counts from now on."""
        self.committed = self.end if end is None else end
        self.told = sum(at <= self.committed for at in self._wanted)
        self._make_room()

    def crash(self) -> None:
        """What was not committed is gone, and with it what is only in memory."""
        for segment in self._segments:
            del segment.entries[max(0, self.committed - segment.first) :]
        self._segments = [segment for segment in self._segments if segment.entries]
        self.end = self.committed
        self._topics = {}
        for offset in range(self.floor, self.end):
            known = self.record(offset)[0]
            self._topics[known.name] = Topic(known.name, offset)
        self._forgotten_below = self.floor

    def advance_clock(self, time_us: int) -> None:
        self.time_us = max(self.time_us, time_us)

    def make_room(self, topic: bytes, *, spare: bool = False) -> bool:
        most = self._topics_max - (0 if spare else self._topics_spare)
        while topic not in self._topics and len(self._topics) >= most:
            oldest = min(self._topics.values(), key=lambda each: each.last)
            if oldest.last >= self.floor:
                return False
            del self._topics[oldest.name]
            self._forgotten_below = oldest.last + 1
        return True

    def append(self, topic: bytes, batch: B, size: int) -> bytes | None:
        return self._append(topic, batch, size, spare=False)

    def append_spare(self, topic: bytes, batch: B, size: int) -> bytes | None:
        return self._append(topic, batch, size, spare=True)

    def record(self, offset: int) -> Record[B]:
        for segment in self._segments:
            if segment.first <= offset < segment.first + len(segment.entries):
                return segment.entries[offset - segment.first]
        raise LookupError(f"offset {offset} is not in [{self.floor}, {self.end})")

    def next_of(self, topic: bytes, at_least: int) -> int | None:
        offsets = range(max(at_least, self.floor), self.end)
        return next((each for each in offsets if self.record(each)[0].name == topic), None)

    def heads(
        self, prefixes: tuple[bytes, ...], since: int, until: int, most: int
    ) -> tuple[list[tuple[bytes, int]], bool]:
        newest = {name: topic.last for name, topic in self._topics.items() if topic.last < until}
        newest |= {
            self.record(offset)[0].name: offset
            for offset in range(self.floor, min(until, self.end))
        }
        found = sorted(
            ((name, head) for name, head in newest.items()
             if head >= since and name.startswith(prefixes)),
            key=lambda pair: pair[1],
        )  # fmt: skip
        return found[:most], len(found) > most

    def seek(self, time_us: int) -> int:
        offsets = range(self.floor, self.end)
        times = ((each, read_entry(self.record(each)[1]).appended_us) for each in offsets)
        return next((each for each, appended in times if appended >= time_us), self.end)

    def check(self) -> None:
        assert self.floor <= self.committed <= self.end

    def _append(self, name: bytes, batch: B, size: int, *, spare: bool) -> bytes | None:
        if not self.make_room(name, spare=spare):
            return None
        known = name in self._topics
        topic = self._topics.setdefault(name, Topic(name))
        kind, previous = EntryKind.ENTRY, topic.last
        if not known and self._forgotten_below:
            kind, previous = EntryKind.FORGOTTEN, self._forgotten_below
        exchange, queue, epoch = self._of
        frame = pack_entry(kind, exchange, queue, epoch, self.end, previous, self.time_us)
        if not self._segments or len(self._segments[-1].entries) == SEGMENT_ENTRIES:
            self._segments.append(Segment(self.end))
        self._segments[-1].entries.append((topic, frame, batch, size))
        topic.last = self.end
        self.end += 1
        if self.commits:
            self.commit()
        self._make_room()
        return frame

    def _make_room(self) -> None:
        while len(self._segments) > 1 and self.kept > self.capacity:
            left = self._segments[0]
            if left.first + len(left.entries) > self.committed:
                return
            self._leave()

    def _leave(self) -> None:
        left = self._segments.pop(0)
        self.gone += left.kept
        self.floor = left.first + len(left.entries)
