"""Every log against a list that keeps everything and looks through it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from segmented_log import SEGMENT_ENTRIES, SegmentedLog

from roq.log.log import Log
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


Make = Callable[..., Log[Kept]]
LOGS: list[tuple[Make, int]] = [(Ring, 1), (SegmentedLog, SEGMENT_ENTRIES)]
"""Each kind, and how many entries leave together at most."""
every_log = pytest.mark.parametrize(("make", "together"), LOGS, ids=["ring", "segments"])


@dataclass
class Model:
    """All entries ever, and which topics are remembered. Where the log begins it says itself."""

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
        return sum(kept.size + ENTRY_OVERHEAD for kept in self.entries[first:])

    def check_room(self, log: Log[Kept], together: int) -> None:
        """Only so much has left as had to, and the newest has stayed."""
        before, self.floor = self.floor, log.floor
        assert before <= self.floor < len(self.entries)
        assert log.kept == self.size(self.floor)
        assert log.gone == self.size(0) - log.kept
        assert log.kept <= CAPACITY or len(self.live) <= together
        if self.floor > before:
            assert self.size(self.floor - together) > CAPACITY


def build(make: Make, together: int, plan: list[tuple[bytes, int, int]]) -> tuple[Log[Kept], Model]:
    log = make(QUEUE, 1, 1, capacity_bytes=CAPACITY, topics_max=TOPICS_MAX)
    model = Model()
    time_us = 0
    for topic, size, later in plan:
        time_us += later
        log.advance_clock(time_us)
        known = model.topics.get(topic)
        taken = model.append(topic, size, time_us)
        assert log.make_room(topic) is taken
        frame = log.append(topic, Kept(log.end, topic, size, time_us), size)
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
    make: Make, together: int, plan: list[tuple[bytes, int, int]]
) -> None:
    log, model = build(make, together, plan)
    assert log.end == len(model.entries)
    assert log.topics == len(model.topics)
    for kept in model.live:
        topic, _, batch, size = log.record(kept.offset)
        assert (topic.name, batch, size) == (kept.topic, kept, kept.size)
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
    plan: list[tuple[bytes, int, int]],
    since: int,
    before: int,
    prefixes: list[bytes],
    most: int,
) -> None:
    log, model = build(make, together, plan)
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
