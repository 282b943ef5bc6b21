"""What opening a log says when it cannot; what it finds is tested in test_segments.py."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from memory_files import MemoryFiles

from roq.log.disk_groups import perform, write
from roq.log.files import (
    INDEX_SUFFIX,
    NEW_SUFFIX,
    SEGMENT_SUFFIX,
    LogRefused,
    index_name,
    parse_name,
    segment_name,
)
from roq.log.index import SegmentIndex
from roq.log.log import NotAtHand
from roq.log.records import HEAD_BYTES
from roq.log.recovery import LogSettings, open_log
from roq.log.segments import SegmentLog
from roq.simulation.virtual.lossy_files import LossyFiles

SETTINGS = LogSettings(
    queue=b"q" * 16, exchange=3, epoch=5, cluster="c", host="10.0.0.1", ring_bytes=1 << 20,
    topics_max=100, topics_spare=0, capacity_bytes=1 << 40, keep_us=1 << 50, now_us=1_000,
)  # fmt: skip


class FailingFiles(MemoryFiles):
    """A folder that cannot be written to."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.error = OSError(number, "as the system says", "0000.segment")

    def create(self, name: str) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "make room"),
        (errno.EDQUOT, "make room"),
        (errno.EACCES, "host manager's user must be able to write"),
        (errno.EROFS, "host manager's user must be able to write"),
        (errno.EIO, "Look at the disk; the log stays as it is"),
    ],
)
def test_a_folder_that_cannot_be_written_is_named_with_what_helps(number: int, remedy: str) -> None:
    with pytest.raises(LogRefused, match=remedy) as raised:
        open_log(FailingFiles(number), SETTINGS)
    assert "exchange 3 cannot be opened: as the system says (0000.segment)" in str(raised.value)


def test_a_new_log_has_the_epoch_of_its_process_as_generation_and_is_empty() -> None:
    files = MemoryFiles()
    log = open_log(files, SETTINGS)
    assert (log.generation, log.floor, log.end, log.committed) == (5, 0, 0, 0)
    assert log.recovered.snapshot is None
    assert log.recovered.problems == []


def fill(files: MemoryFiles, log: SegmentLog[bytes], count: int) -> list[bytes]:
    """So many batches, each committed; gives all that the log has."""
    for _ in range(count):
        batch = b"batch %d" % log.end
        assert log.append(b"t", batch, len(batch)) is not None
        group = log.gather(lambda: b"")
        assert group is not None
        perform(files, group)
        log.commit(group.end)
    found, offset = [], 0
    while (offset := log.following(offset)) < log.end:
        record = log.record(offset)
        found += [] if record is None else [bytes(record[2])]
        offset += 1
    return found


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("epoch", [9, 7, 5])
def test_what_a_process_of_no_later_epoch_has_committed_stays(epoch: int, *, ahead: bool) -> None:
    """A registry that was restored from a copy counts on from there."""
    files, given = MemoryFiles(), replace(SETTINGS, ring_bytes=1, segment_entries=10, ahead=ahead)
    fill(files, open_log(files, given), 25)
    fill(files, open_log(files, replace(given, epoch=9)), 25)
    for _ in range(3):
        log = open_log(files, replace(given, epoch=epoch))
        end, wanted = log.end, fill(files, log, 25)
        log = open_log(files, replace(given, epoch=epoch))
        assert log.end >= end + 25
        assert fill(files, log, 0) == wanted
        assert (log.recovered.problems, log.recovered.lost) == ([], [])
    epochs = [place[1] for name in sorted(files.names()) if (place := parse_name(name))]
    assert epochs == sorted(epochs)


def test_files_that_are_none_of_a_log_are_left_alone_and_told() -> None:
    files = MemoryFiles()
    fill(files, open_log(files, SETTINGS), 3)
    foreign = [
        "ssh.keys",
        "book.idx",
        "draft.new",
        "3-4.seg",
        "notes.txt",
        f"{10**20 - 1}-{5:020d}.seg",
    ]
    half = f"{3:020d}-{5:020d}.seg{NEW_SUFFIX}"
    for name in [*foreign, half]:
        files.contents[name] = bytearray(b"mine")
    log = open_log(files, replace(SETTINGS, epoch=6))
    assert [name for name in foreign if name not in files.contents] == []
    assert half not in files.contents
    assert [text.split()[0] for text in log.recovered.problems] == sorted(foreign)


class NoRoomForIndexes(MemoryFiles):
    """A folder that takes everything but the help, of which it takes a part."""

    def __init__(self, part: float, *, removes: bool) -> None:
        super().__init__()
        self.part, self.removes = part, removes

    def write(self, name: str, at: int, buffers: Sequence[bytes | memoryview]) -> None:
        if name.endswith(INDEX_SUFFIX):
            data = b"".join(map(bytes, buffers))
            part = self.part if self.part > 1 else self.part * len(data)
            super().write(name, at, [data[: int(part)]])
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(name, at, buffers)

    def remove(self, name: str) -> None:
        if name.endswith(INDEX_SUFFIX) and not self.removes:
            raise OSError(errno.EIO, "Input/output error")
        super().remove(name)


@pytest.mark.parametrize("removes", [True, False])
@pytest.mark.parametrize("part", [50, 200, 0.5])
def test_a_disk_without_room_for_an_index_starts_the_log_all_the_same(
    part: float, *, removes: bool
) -> None:
    """Of one whose brief, the first 56 bytes and more, was whole no start made it again."""
    files = NoRoomForIndexes(part, removes=removes)
    given = replace(SETTINGS, ring_bytes=1, segment_entries=50)
    wanted = fill(files, open_log(files, given), 125)
    for epoch in (6, 7):
        log = open_log(files, replace(given, epoch=epoch))
        assert fill(files, log, 0) == wanted
        assert log.recovered.indexes == []
        there = [files.size(name) for name in files.names() if name.endswith(INDEX_SUFFIX)]
        assert sum(there) == 0, "they take no room"
        assert not (there and removes)
    mended = MemoryFiles()
    mended.contents = files.contents
    log = open_log(mended, replace(given, epoch=8))
    assert fill(mended, log, 0) == wanted
    assert len(log.recovered.indexes) == 3, "they are synced once there is a group"
    assert open_log(mended, replace(given, epoch=9)).recovered.indexes == []


class Crowded(MemoryFiles):
    """A disk that holds so many bytes, and takes of what is written what it has room for."""

    room = 1 << 40

    def write(self, name: str, at: int, buffers: Sequence[bytes | memoryview]) -> None:
        data = b"".join(map(bytes, buffers))
        fits = data[: max(0, self.room - sum(map(len, self.contents.values())))]
        super().write(name, at, [fits])
        if len(fits) < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")


def test_an_index_that_does_not_fit_takes_no_room_from_a_start() -> None:
    files, given = Crowded(), replace(SETTINGS, ring_bytes=1, segment_entries=100)
    wanted = fill(files, open_log(files, given), 105)
    first = min(name for name in files.names() if name.endswith(SEGMENT_SUFFIX))
    needed = files.size(index_name(first))
    files.remove(index_name(first))
    last = max(name for name in files.names() if name.endswith(SEGMENT_SUFFIX))
    del files.contents[last][-8:]  # so that a start writes what is left of the last group again
    files.room = sum(map(len, files.contents.values())) + 600
    assert needed > 600
    log = open_log(files, replace(given, epoch=6))
    assert fill(files, log, 0) == wanted[:104]
    assert index_name(first) not in files.names()


@pytest.mark.parametrize("keeps", [200, 0.5, -1])
@pytest.mark.parametrize("patient", [True, False])
def test_an_index_that_is_torn_behind_its_brief_is_made_again_by_who_finds_it_so(
    keeps: float, *, patient: bool
) -> None:
    """A power cut leaves that: a start reads the brief alone."""
    files, given = MemoryFiles(), replace(SETTINGS, ring_bytes=1, segment_entries=50)
    wanted = fill(files, open_log(files, given), 125)
    first, _, _ = (name for name in sorted(files.names()) if name.endswith(SEGMENT_SUFFIX))
    name = index_name(first)
    whole = bytes(files.contents[name])
    del files.contents[name][int(keeps if abs(keeps) >= 1 else keeps * len(whole)) :]
    log = open_log(files, replace(given, epoch=6))
    assert name not in log.recovered.indexes
    log.patient = patient
    for _ in range(2):
        try:
            assert log.record(3) is not None
        except NotAtHand as miss:
            miss.keep(miss.load())
    group = log.gather(lambda: b"")
    assert group is not None
    assert [each for each, _ in group.indexes] == [name]
    perform(files, group)
    log.commit(group.end)
    assert bytes(files.contents[name]) == whole
    assert log.gather(lambda: b"") is None
    log.patient = True
    assert fill(files, log, 0) == wanted


def test_an_index_that_no_disk_takes_is_handed_over_once() -> None:
    """Else a log that is only read would gather one with each look at its segment."""
    files = NoRoomForIndexes(0.5, removes=True)
    given = replace(SETTINGS, ring_bytes=1, segment_entries=10)
    fill(files, open_log(files, given), 25)
    log = open_log(files, replace(given, epoch=6))
    for _ in range(3):
        log._reader._loaded.clear()
        assert log.record(3) is not None
    assert len(log._indexes) == 1


def test_an_index_that_tells_of_losses_and_is_torn_is_made_again_by_the_start() -> None:
    files, given = MemoryFiles(), replace(SETTINGS, ring_bytes=1, segment_entries=10)
    fill(files, open_log(files, given), 25)
    first = min(name for name in files.names() if name.endswith(SEGMENT_SUFFIX))
    at = files.contents[first].index(b"batch 3")
    files.contents[first][at] ^= 1
    files.remove(index_name(first))
    open_log(files, replace(given, epoch=6))
    whole = bytes(files.contents[index_name(first)])
    del files.contents[index_name(first)][-1:]
    log = open_log(files, replace(given, epoch=7))
    assert (log.recovered.lost, log.recovered.indexes) == ([(3, 4)], [index_name(first)])
    assert bytes(files.contents[index_name(first)]) == whole


class IndexesOfAnotherUser(MemoryFiles):
    """A folder whose indexes can be read, and neither be written again nor removed."""

    def create(self, name: str) -> None:
        if name.endswith(INDEX_SUFFIX):
            raise PermissionError(errno.EACCES, "Permission denied", name)
        super().create(name)

    def remove(self, name: str) -> None:
        if name.endswith(INDEX_SUFFIX):
            raise PermissionError(errno.EACCES, "Permission denied", name)
        super().remove(name)


@pytest.mark.parametrize("entries", [0, 7, 12])
def test_an_index_that_ends_elsewhere_and_cannot_be_made_again_hides_and_invents_nothing(
    entries: int,
) -> None:
    """With fewer entries than the segment it would have the rest lost; with more it would name
    offsets of the next one, under topics of its own."""
    files, given = IndexesOfAnotherUser(), replace(SETTINGS, ring_bytes=1, segment_entries=10)
    log = open_log(files, given)
    topics = [b"t", *(b"u" for _ in range(24))]
    for topic in topics:
        assert log.append(topic, b"batch", 5) is not None
        group = log.gather(lambda: b"")
        assert group is not None
        perform(files, group)
        log.commit(group.end)
    first = min(name for name in files.names() if name.endswith(SEGMENT_SUFFIX))
    index = SegmentIndex(0)
    for _ in range(entries):
        index.add(b"t", HEAD_BYTES)
    files.contents[index_name(first)] = bytearray(index.brief(1, 1, 1).pack() + index.pack())
    log = open_log(files, replace(given, epoch=6))
    assert [offset for offset in range(25) if log.record(offset) is None] == []
    assert log.unreadable == 0
    assert [log.next_of(b"t", at) for at in (0, 1)] == [0, None]
    assert [log.next_of(b"u", at) for at in range(1, 25)] == list(range(1, 25))


@pytest.mark.parametrize("kept", [0, HEAD_BYTES, HEAD_BYTES + 40])
def test_a_segment_that_has_begun_claims_what_stands_before_it_also_without_a_record(
    kept: int,
) -> None:
    """It begins where everything before is synced. Else one record that rots in the last group
    takes that whole group along, and what is acknowledged next stands where no start finds it."""
    files, given = MemoryFiles(), replace(SETTINGS, ring_bytes=1, segment_entries=10)
    log = open_log(files, given)
    for _ in range(10):
        assert log.append(b"t", b"batch", 5) is not None
    group = log.gather(lambda: b"")
    assert group is not None
    perform(files, group)
    log.commit(group.end)
    fill(files, log, 1)
    first, second = segment_name(0, 5), segment_name(10, 5)
    del files.contents[second][kept:]
    files.contents.pop(index_name(first), None)
    at = [place for place in range(len(files.contents[first]))
          if files.contents[first].startswith(b"batch", place)]  # fmt: skip
    files.contents[first][at[2]] ^= 1
    log = open_log(files, replace(given, epoch=6))
    log.check()
    assert (log.end, log.recovered.lost) == (10, [(2, 3)])
    fill(files, log, 25)
    log = open_log(files, replace(given, epoch=7))
    assert [offset for offset in range(log.end) if log.record(offset) is None] == [2]
    assert log.end == 35


@pytest.mark.parametrize("base", [0, 20, 40, 5_000_000_000])
@pytest.mark.parametrize("data", [b"", b"RQSG", bytes(500)])
def test_a_copy_that_was_cut_short_costs_nothing_whatever_its_name_says(
    data: bytes, base: int
) -> None:
    """Of a late process with a low base it would have all others not count; with a high one it
    would have the log end there."""
    files, given = MemoryFiles(), replace(SETTINGS, ring_bytes=1, segment_entries=10)
    wanted = fill(files, open_log(files, given), 25)
    files.contents[segment_name(base, 9)] = bytearray(data)
    log = open_log(files, replace(given, epoch=6))
    log.check()
    assert log.end == 25
    assert fill(files, log, 0) == wanted


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("entries", [0, 1, 7])
def test_a_snapshot_that_may_not_be_on_the_disk_is_written_again_before_it_is_believed(
    entries: int, *, ahead: bool
) -> None:
    """The last group of a process that was killed had only this snapshot, and no sync."""
    files, given = LossyFiles(), replace(SETTINGS, ahead=ahead)
    log = open_log(files, given)
    for _ in range(entries + 1):
        log.want_snapshot()
        if entries:
            assert log.append(b"t", b"batch", 5) is not None
        group = log.gather(lambda: b"before")
        assert group is not None
        perform(files, group)
        log.commit(group.end)
    log.want_snapshot()
    group = log.gather(lambda: b"after")
    assert group is not None
    assert (group.snapshot is not None, group.records) == (True, [])
    write(files, group)
    assert open_log(files, replace(given, epoch=6)).recovered.snapshot == b"after"
    for seed in range(50):
        after = files.power_cut(random.Random(seed))
        assert open_log(after, replace(given, epoch=7)).recovered.snapshot == b"after"
