"""The ring against a list that keeps everything and looks through it."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

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


class Model:
    """All entries ever, and which topics are remembered."""

    def __init__(self) -> None:
        self.entries: list[Kept] = []
        self.floor = 0
        self.topics: dict[bytes, int] = {}

    def append(self, topic: bytes, size: int, time_us: int) -> bool:
        if topic not in self.topics and len(self.topics) == TOPICS_MAX:
            oldest = min(self.topics, key=lambda name: self.topics[name])
            if self.topics[oldest] >= self.floor:
                return False
            del self.topics[oldest]
        self.topics[topic] = len(self.entries)
        self.entries.append(Kept(len(self.entries), topic, size, time_us))
        while len(self.live) > 1 and self.bytes > CAPACITY:
            self.floor += 1
        return True

    @property
    def live(self) -> list[Kept]:
        return self.entries[self.floor :]

    @property
    def bytes(self) -> int:
        return sum(kept.size + ENTRY_OVERHEAD for kept in self.live)


def build(plan: list[tuple[bytes, int, int]]) -> tuple[Ring[Kept], Model]:
    ring: Ring[Kept] = Ring(QUEUE, 1, 1, capacity_bytes=CAPACITY, topics_max=TOPICS_MAX)
    model = Model()
    time_us = 0
    for topic, size, later in plan:
        time_us += later
        ring.advance_clock(time_us)
        known = model.topics.get(topic)
        taken = model.append(topic, size, time_us)
        assert ring.make_room(topic) is taken
        frame = ring.append(topic, Kept(ring.end, topic, size, time_us), size)
        assert (frame is not None) is taken
        ring.check()
        if frame is not None:
            check_entry(read_entry(frame), topic, known, model)
    return ring, model


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


@settings(max_examples=150, deadline=None)
@given(appends)
def test_every_question_is_answered_as_by_looking_through_everything(
    plan: list[tuple[bytes, int, int]],
) -> None:
    ring, model = build(plan)
    assert (ring.floor, ring.end, ring.bytes) == (model.floor, len(model.entries), model.bytes)
    for kept in model.live:
        assert ring.record(kept.offset)[2] == kept
    for at in range(ring.end + 1):
        for topic in (b"a", b"ab", b"b", b"c", b"nobody"):
            after = [e.offset for e in model.live if e.topic == topic and e.offset >= at]
            assert ring.next_of(topic, at) == min(after, default=None)
    for time_us in {e.time_us + d for e in model.entries for d in (0, 1)}:
        later = [e.offset for e in model.live if e.time_us >= time_us]
        assert ring.seek(time_us) == min(later, default=ring.end)


@settings(max_examples=100, deadline=None)
@given(appends, st.integers(0, 80), st.lists(topics, max_size=3), st.integers(1, 5))
def test_heads_are_those_of_the_remembered_topics(
    plan: list[tuple[bytes, int, int]], since: int, prefixes: list[bytes], most: int
) -> None:
    ring, model = build(plan)
    expected = sorted(
        ((topic, last) for topic, last in model.topics.items()
         if last >= since and topic.startswith(tuple(prefixes))),
        key=lambda head: head[1],
    )  # fmt: skip
    assert ring.heads(tuple(prefixes), since, most) == (expected[:most], len(expected) > most)
