"""The index of a segment: its file, what stands at its beginning, and what a start reads of it."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from memory_files import MemoryFiles
from xxhash import xxh3_64_intdigest

from roq.log.disk_groups import perform
from roq.log.files import INDEX_SUFFIX, SEGMENT_SUFFIX
from roq.log.index import (
    BRIEF_BYTES_MAX,
    TOPICS_FILTERED_MAX,
    IndexBrief,
    SegmentIndex,
    TopicFilter,
    read_brief,
)
from roq.log.records import HEAD_BYTES
from roq.log.recovery import LogSettings, open_log

BATCH = b"x" * 100


def index(entries: int = 20, topics: int = 3) -> SegmentIndex:
    made = SegmentIndex(100)
    for number in range(entries):
        made.add(b"t%d" % (number % topics), 72 + 8 * number)
    return made


def settings(epoch: int, **others: object) -> LogSettings:
    given: dict[str, object] = {
        "queue": b"q" * 16, "exchange": 3, "cluster": "c", "host": "10.0.0.1", "ring_bytes": 1,
        "topics_max": 100, "topics_spare": 0, "capacity_bytes": 1 << 40, "keep_us": 1 << 50,
        "now_us": 1_000, "segment_bytes": 1 << 30, "segment_entries": 100, **others,
    }  # fmt: skip
    return LogSettings(epoch=epoch, **given)  # type: ignore[arg-type]


class CountedFiles(MemoryFiles):
    """Counts the bytes that are read of each kind of file."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = {SEGMENT_SUFFIX: 0, INDEX_SUFFIX: 0}

    def read(self, name: str, at: int, size: int) -> bytes:
        data = super().read(name, at, size)
        if name[-4:] in self.bytes_read:
            self.bytes_read[name[-4:]] += len(data)
        return data


def log_of(files: MemoryFiles, count: int, each: int = 100) -> None:
    """A log of segments of so many entries, each segment of one topic."""
    log = open_log(files, settings(5, segment_entries=each))
    for number in range(count):
        log.advance_clock(1_000 + number)
        log.append(b"t%d" % (number // each), BATCH, len(BATCH))
        group = log.gather(lambda: b"")
        assert group is not None
        perform(files, group)
        log.commit(group.end)


def test_a_file_says_at_its_beginning_what_a_start_wants_to_know() -> None:
    made = index()
    made.lose(105)
    data = made.brief(7, 9, 11).pack() + made.pack()
    brief = read_brief(data[:BRIEF_BYTES_MAX], 100)
    assert brief is not None
    assert (brief.entries, brief.lost, brief.first_us, brief.last_us) == (20, 1, 7, 9)
    assert brief.kept == 11
    assert all(topic in brief.topics for topic in (b"t0", b"t1", b"t2"))
    assert b"other" not in brief.topics
    read = SegmentIndex.read(data, 100)
    assert read is not None
    assert read.pack() == made.pack()


def test_a_file_of_an_earlier_version_has_no_such_beginning_and_is_read() -> None:
    data = index().pack()
    assert read_brief(data, 100) is None
    read = SegmentIndex.read(data, 100)
    assert read is not None
    assert read.end == 120


def of_format_1(brief: IndexBrief) -> bytes:
    """The beginning of a file of an earlier version, which does not say what is kept."""
    data = bytearray(brief.pack())
    head, rest = data[:40], data[56:]
    head[4:8] = struct.pack("<HH", 1, len(rest))
    told = xxh3_64_intdigest(bytes(rest), seed=xxh3_64_intdigest(bytes(head)))
    return bytes(head + told.to_bytes(8, "little") + rest)


def too_much(brief: IndexBrief) -> bytes:
    return replace(brief, kept=1 << 63).pack()


@pytest.mark.parametrize("told", [of_format_1, too_much])
def test_of_a_file_that_does_not_say_what_is_kept_or_too_much_the_whole_segment_counts(
    told: Callable[[IndexBrief], bytes],
) -> None:
    """Or all before it would leave for want of room."""
    files = MemoryFiles()
    log_of(files, 350)
    exact = open_log(files, settings(6)).kept
    name = sorted(each for each in files.names() if each.endswith(INDEX_SUFFIX))[1]
    brief = read_brief(bytes(files.contents[name]), 100)
    assert brief is not None
    rest = files.contents[name][len(brief.pack()) :]
    files.contents[name] = told(brief) + rest
    again = read_brief(bytes(files.contents[name]), 100)
    assert again is not None
    assert replace(again, kept=brief.kept).pack() == brief.pack()
    read = SegmentIndex.read(bytes(files.contents[name]), 100)
    assert read is not None
    assert read.pack() == rest
    segment = files.size(name.removesuffix(INDEX_SUFFIX) + SEGMENT_SUFFIX)
    assert open_log(files, settings(7)).kept == exact - brief.kept + segment - HEAD_BYTES


def test_a_filter_denies_none_of_its_own_and_lets_few_others_pass() -> None:
    for count in (0, 1, 3, 60, TOPICS_FILTERED_MAX):
        topics = [b"topic.%d" % number for number in range(count)]
        made = TopicFilter.of(topics)
        assert all(topic in made for topic in topics)
        assert len(made.bits) <= BRIEF_BYTES_MAX
        assert sum(b"other.%d" % number in made for number in range(1_000)) <= 20
    everything = TopicFilter.of([b"%d" % number for number in range(TOPICS_FILTERED_MAX + 1)])
    assert b"other" in everything


@pytest.mark.parametrize("seed", range(40))
def test_a_bit_that_flips_is_noticed(seed: int) -> None:
    chance = random.Random(seed)
    made = index()
    data = bytearray(made.brief(7, 9, 11).pack() + made.pack())
    at = chance.randrange(len(data))
    data[at] ^= 1 << chance.randrange(8)
    brief, read = (
        read_brief(bytes(data[:BRIEF_BYTES_MAX]), 100),
        SegmentIndex.read(bytes(data), 100),
    )
    assert brief is None or read is None
    assert brief is None or brief.pack() == made.brief(7, 9, 11).pack()
    assert read is None or read.pack() == made.pack()


def test_a_start_reads_the_beginning_of_each_index_and_no_old_segment() -> None:
    files = CountedFiles()
    log_of(files, 10_001, each=1_000)
    files.bytes_read = dict.fromkeys(files.bytes_read, 0)
    log = open_log(files, settings(6))
    indexes = [name for name in files.names() if name.endswith(INDEX_SUFFIX)]
    segments = sorted(name for name in files.names() if name.endswith(SEGMENT_SUFFIX))
    assert (len(segments), len(indexes)) == (11, 10)
    assert files.bytes_read[INDEX_SUFFIX] <= 10 * BRIEF_BYTES_MAX < 10 * files.size(indexes[0])
    heads = sum(files.size(name) > 0 for name in segments) * 2 * HEAD_BYTES
    assert files.bytes_read[SEGMENT_SUFFIX] <= 2 * files.size(segments[-1]) + heads
    assert log.seek(6_500) == 5_500
    assert log.next_of(b"t7", 0) == 7_000
    log.check()


@pytest.mark.parametrize("broken", ["missing", "torn", "no brief", "foreign"])
def test_an_index_that_says_nothing_of_use_is_made_again(broken: str) -> None:
    files = MemoryFiles()
    log_of(files, 350)
    name = sorted(each for each in files.names() if each.endswith(INDEX_SUFFIX))[1]
    before = bytes(files.contents[name])
    brief = read_brief(before, 100)
    assert brief is not None
    if broken == "missing":
        files.remove(name)
    elif broken == "torn":
        files.contents[name] = files.contents[name][:30]
    elif broken == "no brief":
        files.contents[name] = files.contents[name][len(brief.pack()) :]
    else:
        other = SegmentIndex(100)
        files.contents[name] = bytearray(other.brief(0, 0, 0).pack() + other.pack())
    log = open_log(files, settings(6))
    assert bytes(files.contents[name]) == before
    assert log.recovered.problems == []
    assert log.next_of(b"t1", 0) == 100
    assert [log.seek(1_000 + at) for at in (99, 100, 199)] == [99, 100, 199]


def test_an_index_whose_rest_was_torn_is_made_again_when_it_is_asked_for() -> None:
    files = MemoryFiles()
    log_of(files, 350)
    name = sorted(each for each in files.names() if each.endswith(INDEX_SUFFIX))[1]
    files.contents[name] = files.contents[name][:-9]
    log = open_log(files, settings(6))
    assert [offset for offset in range(350) if log.record(offset) is None] == []
    assert log.next_of(b"t1", 150) == 150


def test_a_group_that_has_no_room_in_a_segment_begins_another_one() -> None:
    files = MemoryFiles()
    log = open_log(files, settings(5))
    for count in (60, 40, 1, 300, 1):
        for _ in range(count):
            log.append(b"t", BATCH, len(BATCH))
        group = log.gather(lambda: b"")
        assert group is not None
        perform(files, group)
        log.commit(group.end)
        log.check()
    bases = sorted(int(name[:20]) for name in files.names() if name.endswith(SEGMENT_SUFFIX))
    assert bases == [0, 100, 101, 401]
