"""Every log against a list that keeps everything and looks through it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_files import MemoryFiles
from segmented_log import SEGMENT_ENTRIES, SegmentedLog

from roq.log.disk_groups import perform
from roq.log.log import Log
from roq.log.records import record_bytes
from roq.log.recovery import LogSettings, open_log
from roq.log.ring import ENTRY_OVERHEAD, Ring
from roq.protocol.entry import NONE, EntryKind, read_entry

QUEUE = b"q" * 16
TOPICS_MAX = 6
CAPACITY = 8 * (50 + ENTRY_OVERHEAD)
topics = st.sampled_from([b"a", b"ab", b"abc", b"b", b"ba", b"c", b"", b"ca"])
appends = st.lists(
    st.tuples(topics, st.integers(0, 4_000), st.integers(0, 3)), min_size=1, max_size=80
)


@dataclass(frozen=True)
class Kept:
    offset: int
    topic: bytes
    size: int
    time_us: int


class OnDisk:
    """A log on disk whose disk is quick: all is committed when `append` returns."""

    def __init__(
        self, queue: bytes, exchange: int, generation: int, *, capacity_bytes: int, topics_max: int
    ) -> None:
        self._files = MemoryFiles()
        self._log = open_log(
            self._files,
            LogSettings(
                queue=queue, exchange=exchange, epoch=generation, cluster="c", host="h",
                ring_bytes=1, topics_max=topics_max, topics_spare=0, capacity_bytes=capacity_bytes,
                keep_us=1 << 60, now_us=0, segment_bytes=1 << 30, segment_entries=SEGMENT_ENTRIES,
            ),
        )  # fmt: skip

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def append(self, topic: bytes, batch: bytes, size: int) -> bytes | None:
        frame = self._log.append(topic, batch, size)
        group = self._log.gather(lambda: b"")
        if group is not None:
            perform(self._files, group)
            self._log.commit(group.end)
        return frame


Make = Callable[..., Log[bytes]]
Cost = Callable[[bytes, int], int]


def in_memory(_topic: bytes, size: int) -> int:
    return size + ENTRY_OVERHEAD


LOGS: list[tuple[Make, int, Cost]] = [
    (Ring, 1, in_memory),
    (SegmentedLog, SEGMENT_ENTRIES, in_memory),
    (OnDisk, SEGMENT_ENTRIES, record_bytes),
]
"""Each kind, how many entries leave together at most, and what an entry takes."""
every_log = pytest.mark.parametrize(
    ("make", "together", "cost"), LOGS, ids=["ring", "segments", "disk"]
)


def content(offset: int, size: int) -> bytes:
    """A batch that is told from others, if it has room for that."""
    return offset.to_bytes(2, "little").ljust(size, b".")[:size]


@dataclass
class Model:
    """All entries ever, and which topics are remembered. Where the log begins it says itself."""

    cost: Cost = in_memory
    floor: int = 0
    entries: list[Kept] = field(default_factory=list)
    topics: dict[bytes, int] = field(default_factory=dict)

    def append(self, topic: bytes, size: int, time_us: int) -> bool:
        if topic not in self.topics and len(self.topics) == TOPICS_MAX:
            oldest = min(self.topics, key=lambda name: self.topics[name])
            if self.topics[oldest] >= self.floor:
                return False
            del self.topics[oldest]
        self.topics[topic] = len(self.entries)
        self.entries.append(Kept(len(self.entries), topic, size, time_us))
        return True

    @property
    def live(self) -> list[Kept]:
        return self.entries[self.floor :]

    def size(self, first: int) -> int:
        """What the entries from here on take."""
        return sum(self.cost(kept.topic, kept.size) for kept in self.entries[first:])

    def check_room(self, log: Log[bytes], together: int) -> None:
        """Only so much has left as had to, and the newest has stayed."""
        before, self.floor = self.floor, log.floor
        assert before <= self.floor < len(self.entries)
        assert log.kept == self.size(self.floor)
        assert log.gone == self.size(0) - log.kept
        assert log.kept <= CAPACITY or len(self.live) <= together
        if self.floor > before:
            assert self.size(max(0, self.floor - together)) > CAPACITY


def build(
    make: Make, together: int, cost: Cost, plan: list[tuple[bytes, int, int]]
) -> tuple[Log[bytes], Model]:
    log = make(QUEUE, 1, 1, capacity_bytes=CAPACITY, topics_max=TOPICS_MAX)
    model = Model(cost)
    time_us = 0
    for topic, size, later in plan:
        time_us += later
        log.advance_clock(time_us)
        known = model.topics.get(topic)
        taken = model.append(topic, size, time_us)
        assert log.make_room(topic) is taken
        frame = log.append(topic, content(log.end, size), size)
        assert (frame is not None) is taken
        log.check()
        model.check_room(log, together)
        assert log.floor <= log.committed == log.end
        if frame is not None:
            check_entry(read_entry(frame), topic, known, model)
    return log, model


def check_entry(entry: object, topic: bytes, known: int | None, model: Model) -> None:
    kept = model.entries[-1]
    assert entry.offset == kept.offset  # type: ignore[attr-defined]
    assert entry.appended_us == kept.time_us  # type: ignore[attr-defined]
    kind, previous = entry.kind, entry.previous  # type: ignore[attr-defined]
    before = [e.offset for e in model.entries[:-1] if e.topic == topic]
    if known is not None:
        assert (kind, previous) == (EntryKind.ENTRY, known)
    elif kind == EntryKind.FORGOTTEN:
        assert all(offset < previous for offset in before)
        assert previous <= model.floor
    else:
        assert previous == NONE
        assert not before


@every_log
@settings(max_examples=150, deadline=None)
@given(plan=appends)
def test_every_question_is_answered_as_by_looking_through_everything(
    make: Make, together: int, cost: Cost, plan: list[tuple[bytes, int, int]]
) -> None:
    log, model = build(make, together, cost, plan)
    assert log.end == len(model.entries)
    assert log.topics == len(model.topics)
    for kept in model.live:
        record = log.record(kept.offset)
        assert record is not None
        topic, _, batch, size = record
        assert (topic.name, size) == (kept.topic, kept.size)
        assert batch == content(kept.offset, size)
    for at in range(log.end + 1):
        for topic in (b"a", b"ab", b"b", b"c", b"nobody"):
            after = [e.offset for e in model.live if e.topic == topic and e.offset >= at]
            assert log.next_of(topic, at) == min(after, default=None)
    for time_us in {e.time_us + d for e in model.entries for d in (0, 1)}:
        later = [e.offset for e in model.live if e.time_us >= time_us]
        assert log.seek(time_us) == min(later, default=log.end)


@every_log
@settings(max_examples=150, deadline=None)
@given(
    plan=appends,
    since=st.integers(0, 80),
    before=st.integers(0, 80),
    prefixes=st.lists(topics, max_size=3),
    most=st.integers(1, 5),
)
def test_heads_are_those_of_the_log_as_it_was(
    make: Make,
    together: int,
    cost: Cost,
    plan: list[tuple[bytes, int, int]],
    since: int,
    before: int,
    prefixes: list[bytes],
    most: int,
) -> None:
    log, model = build(make, together, cost, plan)
    until = max(log.floor, log.end - before)
    newest = {topic: last for topic, last in model.topics.items() if last < until}
    newest |= {kept.topic: kept.offset for kept in model.live if kept.offset < until}
    expected = sorted(
        ((topic, last) for topic, last in newest.items()
         if last >= since and topic.startswith(tuple(prefixes))),
        key=lambda head: head[1],
    )  # fmt: skip
    found = log.heads(tuple(prefixes), since, until, most)
    assert found == (expected[:most], len(expected) > most)


@settings(max_examples=100, deadline=None)
@given(plan=appends, commits=st.lists(st.booleans(), min_size=80, max_size=80))
def test_what_is_not_committed_does_not_leave(
    plan: list[tuple[bytes, int, int]], commits: list[bool]
) -> None:
    log: SegmentedLog[int] = SegmentedLog(
        QUEUE, 1, 1, capacity_bytes=CAPACITY, topics_max=1_000, commits=False
    )
    for (topic, size, _), commit in zip(plan, commits, strict=False):
        before = log.floor, log.committed
        log.append(topic, size, size)
        if commit:
            log.commit()
        assert before[0] <= log.floor <= log.committed
        assert log.committed == (log.end if commit else before[1])
        log.check()
