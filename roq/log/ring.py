"""The log of a volatile queue: the newest batches of one exchange, in bounded memory.

Everything a reader asks for is found without a scan: an offset by its distance from the floor, the
batches of a topic by its own sorted list of offsets, the topics that have advanced because topics
are kept in order of their newest batch, a time because append times never decrease.

Batches are opaque: whatever object the shell received, it gets back.

`HotTail` is the part of a log on disk that is in memory: a ring that keeps what is not committed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, Generic, TypeVar, cast

from roq.log.log import Record, Topic
from roq.protocol.entry import ENTRY, ENTRY_BYTES, NONE, EntryKind, pack_entry, with_kind

B = TypeVar("B")

ENTRY_OVERHEAD: Final = 320
"""Bytes that a kept batch costs beside itself: entry frame, tuple, two list slots, its object."""

_HEAD_BYTES: Final = 32
_FRAME: Final = Struct(f"<{_HEAD_BYTES}sQQQ")
_TIME_AT: Final = ENTRY_BYTES - 8
_TIME: Final = Struct("<Q")
_COMPACT_ENTRIES: Final = 1_024

assert _FRAME.size == ENTRY.size  # noqa: S101 - one layout, packed with its constant half ready


class TopicLog:
    """One topic's place in the log: its newest offset and those that are still in the ring."""

    __slots__ = ("last", "name", "offsets", "start")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.last = NONE
        self.offsets: list[int] = []
        self.start = 0


_Record = tuple[TopicLog, bytes, B, int]


class Ring(Generic[B]):
    """A bounded log (`roq.log.log.Log`); the oldest entries leave when the newest need their room.

    Args:
        queue: queue id, exchange and generation stand in each entry frame.
        capacity_bytes: what all batches and their overhead may take; the newest one always stays.
        topics_max: topics that are remembered. When one more comes, the one whose batches left the
            ring longest ago is forgotten; if none has left, the newcomer is refused.
        topics_spare: of these, how many only `append_spare` may use.

    Attributes:
        generation: of the process that has made it, which is the only one that has it.
        kept: bytes that it takes, overhead included.
        gone: bytes that have left, likewise. Both together only grow.
    """

    __slots__ = (
        "_entries",
        "_forgotten_below",
        "_forgotten_head",
        "_head",
        "_start",
        "_time_us",
        "_topics",
        "_topics_max",
        "_topics_most",
        "capacity",
        "end",
        "floor",
        "generation",
        "gone",
        "kept",
    )

    def __init__(
        self,
        queue: bytes,
        exchange: int,
        generation: int,
        *,
        capacity_bytes: int,
        topics_max: int,
        topics_spare: int = 0,
    ) -> None:
        self.generation = generation
        self.floor = 0
        self.end = 0
        self.kept = 0
        self.gone = 0
        self.capacity = capacity_bytes
        self._topics_max = topics_max
        self._topics_most = topics_max - topics_spare
        self._topics: OrderedDict[bytes, TopicLog] = OrderedDict()
        self._entries: list[_Record[B] | None] = []
        self._start = 0
        self._time_us = 0
        self._forgotten_below = 0
        self._head = pack_entry(EntryKind.ENTRY, exchange, queue, generation, 0, 0, 0)[:_HEAD_BYTES]
        self._forgotten_head = with_kind(self._head, EntryKind.FORGOTTEN)

    @property
    def committed(self) -> int:
        """As `Log.committed`: nothing outlives the process, so all that was accepted counts."""
        return self.end

    @property
    def topics(self) -> int:
        """How many topics are remembered."""
        return len(self._topics)

    @property
    def time_us(self) -> int:
        """The append time of what comes next, µs UTC."""
        return self._time_us

    def advance_clock(self, time_us: int) -> None:
        """What is appended from now on has this append time, or the last one if that is later."""
        self._time_us = max(self._time_us, time_us)

    def make_room(self, topic: bytes, *, spare: bool = False) -> bool:
        """Whether a batch of this topic finds room now; forgets what has left the ring for it.

        With `spare` that is what `append_spare` would find.
        """
        if topic in self._topics:
            return True
        return self._forget_topics(self._topics_max if spare else self._topics_most)

    def append(self, topic: bytes, batch: B, size: int) -> bytes | None:
        """Take a batch of `size` bytes in; gives its entry frame, None if the topic is refused."""
        offset = self.end
        log = self._topics.get(topic)
        if log is not None:
            frame = _FRAME.pack(self._head, offset, log.last, self._time_us)
            self._topics.move_to_end(topic)
        else:
            log = self._new_topic(topic)
            if log is None:
                return None
            below = self._forgotten_below
            frame = (
                _FRAME.pack(self._forgotten_head, offset, below, self._time_us)
                if below
                else _FRAME.pack(self._head, offset, NONE, self._time_us)
            )
        log.last = offset
        log.offsets.append(offset)
        self._entries.append((log, frame, batch, size))
        self.end = offset + 1
        self.kept += size + ENTRY_OVERHEAD
        if self.kept > self.capacity:
            self._evict()
        return frame

    def append_spare(self, topic: bytes, batch: B, size: int) -> bytes | None:
        """As `append`, and a new topic may use the part of the table that is kept."""
        most = self._topics_most
        self._topics_most = self._topics_max
        try:
            return self.append(topic, batch, size)
        finally:
            self._topics_most = most

    def record(self, offset: int) -> _Record[B]:
        """The entry at this offset, which must lie in [floor, end)."""
        record = self._entries[offset - self.floor + self._start]
        if record is None:
            raise LookupError(f"offset {offset} is below the floor {self.floor}")
        return record

    def records(self, first: int) -> list[Record[B]]:
        """All entries from this offset on, which is not below the floor."""
        return cast("list[Record[B]]", self._entries[first - self.floor + self._start :])

    def is_lost(self, _: int) -> bool:
        """As `Log.is_lost`: what is not in memory is nowhere."""
        return True

    def following(self, offset: int) -> int:
        """As `Log.following`: none is left out."""
        return offset

    def next_of(self, topic: bytes, at_least: int) -> int | None:
        """The first offset of the topic at or above `at_least` that is still in the ring."""
        log = self._topics.get(topic)
        if log is None:
            return None
        index = bisect_left(log.offsets, at_least, lo=log.start)
        return log.offsets[index] if index < len(log.offsets) else None

    def heads(
        self, prefixes: tuple[bytes, ...], since: int, until: int, most: int
    ) -> tuple[list[tuple[bytes, int]], bool]:
        """As `Log.heads`; costs only what has advanced since."""
        found: list[tuple[int, bytes]] = []
        for name, log in reversed(self._topics.items()):
            if log.last < since:
                break
            if not name.startswith(prefixes):
                continue
            if log.last < until:
                found.append((log.last, name))
                continue
            index = bisect_left(log.offsets, until, lo=log.start)
            if index > log.start and log.offsets[index - 1] >= since:
                found.append((log.offsets[index - 1], name))
        found.sort()
        return [(name, head) for head, name in found[:most]], len(found) > most

    def seek(self, time_us: int) -> int:
        """The first offset appended at or after this time; `end` if nothing is that new."""
        index = bisect_left(self._entries, time_us, lo=self._start, key=_appended_us)
        return index - self._start + self.floor

    def find(self, _key: int, before: int) -> tuple[list[tuple[int, int]], int]:
        """As `Log.find`: all of it, which is bounded."""
        before = min(before, self.committed)
        return [(self.floor, before)] if self.floor < before else [], self.floor

    @property
    def forgotten_below(self) -> int:
        """Of topics that are not remembered, everything stands below."""
        return self._forgotten_below

    def newest(self, topic: bytes) -> int:
        """The newest offset of a topic, also if it has left the ring; -1 if it is not known."""
        log = self._topics.get(topic)
        return -1 if log is None else log.last

    def newest_first(self) -> Iterator[tuple[bytes, int]]:
        """All topics that are remembered, each with its newest offset, the newest first."""
        return ((name, log.last) for name, log in reversed(self._topics.items()))

    def restore(self, topics: Iterable[tuple[bytes, int]], forgotten_below: int, end: int) -> None:
        """Begin, empty, where a log of an earlier process ended.

        Args:
            topics: those that are remembered and their newest offsets, in order of these.
            forgotten_below: of all others, everything stands below.
            end: the offset of the next batch.
        """
        for name, last in topics:
            log = self._topics[name] = TopicLog(name)
            log.last = last
        self._forgotten_below = forgotten_below
        self.floor = self.end = end

    def restore_entry(self, topic: bytes, frame: bytes, batch: B, size: int) -> None:
        """Append an entry of an earlier process, as it was."""
        log = self._topics.get(topic)
        if log is None:
            log = self._topics[topic] = TopicLog(topic)
        log.last = self.end
        log.offsets.append(self.end)
        self._topics.move_to_end(topic)
        self.advance_clock(_TIME.unpack_from(frame, _TIME_AT)[0])
        self._entries.append((log, frame, batch, size))
        self.end += 1
        self.kept += size + ENTRY_OVERHEAD
        if self.kept > self.capacity:
            self._evict()

    def check(self) -> None:
        """Assert the invariants. Costs O(n): tests and simulation only."""
        kept = self._entries[self._start :]
        assert self.floor + len(kept) == self.end, "offsets are contiguous"  # noqa: S101
        assert not any(self._entries[: self._start]), "what left is released"  # noqa: S101
        assert self.kept == sum(r[3] + ENTRY_OVERHEAD for r in kept if r)  # noqa: S101
        assert self.kept <= self.capacity or len(kept) <= self._stays()  # noqa: S101
        assert len(self._topics) <= self._topics_max  # noqa: S101
        lasts = [log.last for log in self._topics.values()]
        assert lasts == sorted(lasts), "topics stand in order of their newest batch"  # noqa: S101
        listed = sorted(
            offset for log in self._topics.values() for offset in log.offsets[log.start :]
        )
        assert listed == list(range(self.floor, self.end)), "the index is complete"  # noqa: S101

    def _new_topic(self, topic: bytes) -> TopicLog | None:
        if not self._forget_topics(self._topics_most):
            return None
        log = self._topics[topic] = TopicLog(topic)
        return log

    def _forget_topics(self, most: int) -> bool:
        """Forget topics that have left the ring until there are fewer than `most`, if so many."""
        while len(self._topics) >= most:
            oldest = next(iter(self._topics.values()))
            if oldest.last >= self._oldest_needed():
                return False
            del self._topics[oldest.name]
            # Topics are forgotten in order of their newest batch, so this never falls.
            self._forgotten_below = oldest.last + 1
        return True

    def _stays(self) -> int:
        """How many entries stay in any case."""
        return 1

    def _oldest_needed(self) -> int:
        """Topics with entries from here on are not forgotten."""
        return self.floor

    def _evict(self, most: int | None = None) -> None:
        """Make room; at most so many entries leave, and the newest one stays."""
        entries, start = self._entries, self._start
        last = len(entries) - 1
        if most is not None:
            last = min(last, start + most)
        while self.kept > self.capacity and start < last:
            record = entries[start]
            if record is None:
                raise LookupError(f"entry {start} left twice")
            entries[start] = None
            start += 1
            log, _, _, size = record
            self.kept -= size + ENTRY_OVERHEAD
            self.gone += size + ENTRY_OVERHEAD
            log.start += 1
            if log.start * 2 >= len(log.offsets):
                # At least half of the list goes, so each offset is moved once on the average.
                del log.offsets[: log.start]
                log.start = 0
        self.floor += start - self._start
        if start >= _COMPACT_ENTRIES and start * 2 >= len(entries):
            del entries[:start]
            start = 0
        self._start = start


def _appended_us(record: _Record[B] | None) -> int:
    if record is None:
        return -1
    time_us: int = _TIME.unpack_from(record[1], _TIME_AT)[0]
    return time_us


class HotTail(Ring[B]):
    """The newest batches of a log on disk. What is not committed stays, however large it is.

    Attributes:
        committed_to: below it, batches may leave for want of room.
        log_floor: topics with entries from here on are not forgotten.
    """

    __slots__ = ("committed_to", "log_floor")

    def __init__(
        self,
        queue: bytes,
        exchange: int,
        generation: int,
        *,
        capacity_bytes: int,
        topics_max: int,
        topics_spare: int,
    ) -> None:
        super().__init__(
            queue, exchange, generation, capacity_bytes=capacity_bytes, topics_max=topics_max,
            topics_spare=topics_spare,
        )  # fmt: skip
        self.committed_to = 0
        self.log_floor = 0

    @property
    def committed(self) -> int:
        """Below it is what counts as kept."""
        return self.committed_to

    def commit(self, end: int) -> None:
        """Everything below is on the disk."""
        self.committed_to = end
        if self.kept > self.capacity:
            self._evict()

    def _evict(self, most: int | None = None) -> None:
        held = self.committed_to - self.floor
        super()._evict(held if most is None else min(most, held))

    def _oldest_needed(self) -> int:
        return self.log_floor

    def _stays(self) -> int:
        return max(1, self.end - self.committed_to)

    def topic(self, name: bytes) -> Topic:
        """What the table knows of a topic; of one that is forgotten, its name."""
        return self._topics.get(name) or TopicLog(name)
