"""Where a key may be in a log, against a list of what was appended, over random histories."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence

import pytest
from keyed_batch import batch_of
from memory_files import MemoryFiles

from roq.log.disk_groups import perform
from roq.log.files import INDEXES, KEYS_SUFFIX, SEGMENT_SUFFIX, keys_name
from roq.log.key_search import SEGMENTS_MAX
from roq.log.log import NotAtHand
from roq.log.recovery import LogSettings, open_log
from roq.log.ring import Ring
from roq.log.segments import SegmentLog
from roq.protocol.columns import key_hash
from roq.protocol.delayed import DELAYED_TOPIC

KEYS = [f"key-{number}" for number in range(30)]


def opened(files: MemoryFiles, epoch: int = 5, **others: object) -> SegmentLog[bytes]:
    given: dict[str, object] = {
        "queue": b"q" * 16, "exchange": 3, "cluster": "c", "host": "h", "ring_bytes": 1,
        "topics_max": 100, "topics_spare": 0, "capacity_bytes": 1 << 40, "keep_us": 1 << 50,
        "now_us": 1_000, "segment_bytes": 1 << 30, "segment_entries": 10, **others,
    }  # fmt: skip
    return open_log(files, LogSettings(epoch=epoch, **given))  # type: ignore[arg-type]


def write(files: MemoryFiles, log: SegmentLog[bytes]) -> None:
    group = log.gather(lambda: b"")
    if group is not None:
        perform(files, group)
        log.commit(group.end)


def index_all(files: MemoryFiles, log: SegmentLog[bytes]) -> int:
    """Do what the thread that makes indexes does; how many it was given."""
    count = 0
    while (due := log.keys.due(lambda: None)) is not None:
        due.keep(due.load())
        count += 1
    write(files, log)
    return count


def places(log: SegmentLog[bytes] | Ring[bytes], key: str) -> tuple[set[int], int]:
    """All offsets that are given, and the number of answers; each is checked."""
    before, found, answers = log.end, set[int](), 0
    while True:
        given, reached = log.find(key_hash(key), before)
        answers += 1
        top = before
        for first, behind in given:
            assert log.floor <= first < behind <= top
            top = first
            assert first >= reached
            found |= set(range(first, behind))
        if reached <= log.floor:
            return found, answers
        assert reached < before
        before = reached


@pytest.mark.parametrize("seed", range(30))
def test_no_batch_of_a_key_is_missed_whatever_becomes_of_the_indexes(seed: int) -> None:
    chance = random.Random(seed)
    files, epoch = MemoryFiles(), 5
    log = opened(files, capacity_bytes=1 << 13 if seed % 2 else 1 << 40)
    has: dict[int, set[str]] = {}
    for _ in range(150):
        act = chance.random()
        if act < 0.7:
            keys = {chance.choice(KEYS) for _ in range(chance.randrange(3))}
            batch = batch_of(sorted(keys) or [None])
            has[log.end] = keys
            assert log.append(b"t", batch, len(batch)) is not None
        elif act < 0.85:
            write(files, log)
        elif act < 0.92:
            index_all(files, log)
        elif act < 0.96:
            names = [name for name in files.names() if name.endswith(KEYS_SUFFIX)]
            if names:
                name = chance.choice(names)
                data = files.read(name, 0, files.size(name))
                files.create(name)
                files.write(name, 0, [data[: chance.randrange(len(data) + 1)]])
        else:
            write(files, log)
            epoch += 1
            log = opened(files, epoch, capacity_bytes=log.capacity)
        log.check()
    write(files, log)
    for key in KEYS:
        true = {o for o, keys in has.items() if key in keys and log.floor <= o < log.committed}
        assert true <= places(log, key)[0]
    index_all(files, log)
    index_all(files, log)  # those that were found broken above, and asked for
    write(files, log)
    open_from = log.following(log.committed) if log.end == log.floor else log._active.base
    for key in KEYS:
        found = {offset for offset in places(log, key)[0] if offset < open_from}
        true = {o for o, keys in has.items() if key in keys and log.floor <= o < open_from}
        assert true <= found
        assert len(found - true) <= 1  # a hash may be another one's
    kept = {name for name in files.names() if name.endswith(SEGMENT_SUFFIX)}
    stray = {name for name in files.names() if name.endswith(KEYS_SUFFIX)} - set(
        map(keys_name, kept)
    )
    assert stray == set()


def filled(files: MemoryFiles, segments: int, **others: object) -> SegmentLog[bytes]:
    log = opened(files, **others)
    for number in range(segments * 10 + 1):
        batch = batch_of(["k" if number % 10 == 3 else "other"])
        log.append(b"t", batch, len(batch))
        write(files, log)
    return log


def test_an_answer_looks_at_so_many_segments_and_says_where_to_go_on() -> None:
    files = MemoryFiles()
    log = filled(files, 2 * SEGMENTS_MAX)
    assert index_all(files, log) == 2 * SEGMENTS_MAX
    found, answers = places(log, "k")
    assert found == {*range(3, 320, 10), 320}  # and what is written now
    assert answers >= 2


def test_what_has_no_index_is_a_range_and_is_made_again_when_asked_for() -> None:
    files = MemoryFiles()
    log = filled(files, 3)
    assert places(log, "k")[0] == set(range(31))
    assert index_all(files, log) == 3
    files.remove(keys_name(log._closed[1].name))
    log = opened(files, 6)
    given, reached = log.find(key_hash("k"), log.end)
    assert (given, reached) == ([(30, 31), (23, 24), (10, 20), (3, 4)], 0)
    assert index_all(files, log) == 3
    assert places(log, "k")[0] == {3, 13, 23, 30}


@pytest.mark.parametrize("made", [True, False])
def test_who_does_not_wait_for_the_disk_is_told_what_to_read(*, made: bool) -> None:
    files = MemoryFiles()
    log = filled(files, SEGMENTS_MAX)
    if made:
        index_all(files, log)
    log.patient = False
    reads = 0
    while True:
        try:
            given, _ = log.find(key_hash("k"), log.end)
            break
        except NotAtHand as miss:
            miss.keep(miss.load())
            reads += 1
    assert reads == SEGMENTS_MAX  # each once, there or not
    assert given == (
        [(160, 161), *((at, at + 1) for at in range(153, 0, -10))] if made else [(0, 161)]
    )
    log.patient = True
    assert index_all(files, log) == (0 if made else SEGMENTS_MAX)
    assert log.find(key_hash("k"), log.end)[0][1:] == [(at, at + 1) for at in range(153, 0, -10)]


def test_what_is_known_to_have_no_keys_is_not_read_back() -> None:
    files = MemoryFiles()
    log = opened(files)
    plain, keyed = batch_of([None]), batch_of(["k"])
    for batch in [plain] * 10 + [keyed] + [plain] * 10:
        log.append(b"t", batch, len(batch))
        write(files, log)
    assert [each.keyed for each in log._closed] == [False, True]
    assert index_all(files, log) == 1
    assert log.find(key_hash("k"), 20) == ([(10, 11)], 0)
    assert log.find(key_hash("other"), 20) == ([], 0)
    again = opened(files, 6)
    assert again._active.keyed, "who knows what an earlier process has left there"
    assert again.find(key_hash("k"), 20) == ([(10, 11)], 0)


def test_an_index_of_a_segment_that_has_left_is_not_written() -> None:
    files = MemoryFiles()
    log = filled(files, 4)
    due = log.keys.due(lambda: None)
    assert due is not None
    made = due.load()
    while log._closed:
        log._leave()
    write(files, log)
    due.keep(made)
    write(files, log)
    assert [name for name in files.names() if name.endswith(KEYS_SUFFIX)] == []


def test_a_disk_that_has_no_room_for_indexes_ends_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = MemoryFiles.write

    def half(self: MemoryFiles, name: str, at: int, buffers: Sequence[bytes | memoryview]) -> None:
        if name.endswith(INDEXES):
            whole(self, name, at, [bytes(buffers[0])[:20]])
            raise OSError(errno.ENOSPC, "no space left on device")
        whole(self, name, at, buffers)

    files = MemoryFiles()
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFiles, "write", half)
        log = filled(files, 3)
        index_all(files, log)
        assert places(log, "k")[0] == set(range(31))
    log = opened(files, 6)
    assert index_all(files, log) == 3
    assert places(log, "k")[0] == {3, 13, 23, 30}
    assert [log.record(offset) is None for offset in range(31)] == [False] * 31


def test_a_disk_that_does_not_give_a_segment_ends_nothing() -> None:
    files = MemoryFiles()
    log = filled(files, 2)
    for segment in log._closed:
        files.remove(segment.name)
    assert index_all(files, log) == 2
    assert places(log, "k")[0] == set(range(21))


def test_delayed_messages_are_found_when_they_are_published_and_not_before() -> None:
    files = MemoryFiles()
    log = opened(files)
    for _ in range(20):
        batch = batch_of(["k"])
        log.append(DELAYED_TOPIC, batch, len(batch))
        write(files, log)
    index_all(files, log)
    assert places(log, "k")[0] == set(range(log._active.base, log.end))


def test_a_ring_gives_all_of_itself() -> None:
    ring: Ring[bytes] = Ring(b"q" * 16, 1, 1, capacity_bytes=2_000, topics_max=10, topics_spare=0)
    assert ring.find(key_hash("k"), 100) == ([], 0)
    for _ in range(50):
        ring.append(b"t", b"x" * 100, 100)
    assert places(ring, "k") == (set(range(ring.floor, ring.end)), 1)


def test_an_index_of_which_one_bucket_is_torn_is_made_again_once_it_was_asked_for_that() -> None:
    files = MemoryFiles()
    log = opened(files)
    batch = batch_of([f"key-{number}" for number in range(2_000)])
    for _ in range(11):
        assert log.append(b"t", batch, len(batch)) is not None
        write(files, log)
    index_all(files, log)
    (name,) = [name for name in files.names() if name.endswith(KEYS_SUFFIX)]
    whole = bytes(files.contents[name])
    files.contents[name][-3] ^= 1
    log = opened(files, 6)
    index_all(files, log)
    assert files.contents[name] != whole, "a start looks at its beginning"
    for number in range(2_000):
        log.find(key_hash(f"key-{number}"), log.committed)
    index_all(files, log)
    assert files.contents[name] == whole
