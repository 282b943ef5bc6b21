"""Groups on their way to the disk: several may be written before one sync settles them."""

from __future__ import annotations

import random

import pytest
from memory_files import MemoryFiles

from roq.log.disk_groups import Group, perform, remove, settle, sync_indexes, write
from roq.log.recovery import LogSettings, open_log
from roq.log.segment_reader import Segment, load_brief
from roq.log.segments import FOLLOWS_BYTES, SegmentLog
from roq.simulation.virtual.lossy_files import LossyFiles

BATCH = b"x" * 100


class Synced(MemoryFiles):
    """Files that count their syncs."""

    syncs = 0

    def sync(self, name: str) -> None:
        self.syncs += 1
        super().sync(name)


def settings(epoch: int = 5) -> LogSettings:
    return LogSettings(
        queue=b"q" * 16, exchange=3, epoch=epoch, cluster="c", host="h", ring_bytes=1,
        topics_max=100, topics_spare=0, capacity_bytes=1 << 40, keep_us=1 << 50, now_us=1_000,
        segment_entries=100,
    )  # fmt: skip


def log_of(files: MemoryFiles) -> SegmentLog[bytes]:
    """With a segment that is there."""
    log = open_log(files, settings())
    first = gathered(log, 1)
    assert first is not None
    perform(files, first)
    log.commit(first.end)
    assert log.follows_bytes == FOLLOWS_BYTES
    log.follows_bytes = 2 * len(BATCH)
    return log


def gathered(log: SegmentLog[bytes], count: int, changes: bytes = b"") -> Group[bytes] | None:
    for _ in range(count):
        log.append(b"t", BATCH, len(BATCH))
    return log.gather(lambda: b"snapshot", lambda: changes)


def test_what_is_written_behind_what_is_synced_is_settled_by_one_sync() -> None:
    files = Synced()
    log = log_of(files)
    before = files.syncs
    first = gathered(log, 1)
    assert first is not None
    write(files, first)
    assert gathered(log, 1) is None, "too little to be written for itself"
    second = gathered(log, 1)
    assert second is not None
    assert (second.at > first.at, second.synced, len(second.records)) == (True, 1, 2)
    write(files, second)
    settle(files, [first, second])
    assert files.syncs == before + 1
    for group, end in ((first, 2), (second, 4)):
        log.commit(group.end)
        assert (log.committed, log.synced) == (end, end)
        log.check()
    again = open_log(files, settings(6))
    assert [again.record(offset)[2] for offset in range(4)] == [BATCH] * 4  # type: ignore[index]


def test_changes_are_taken_once_at_a_time() -> None:
    log = log_of(MemoryFiles())
    first = gathered(log, 1, b"first")
    assert first is not None
    assert first.changes is not None
    second = gathered(log, 3, b"second")
    assert second is not None
    assert second.changes is None, "else nobody knew which of them are kept"
    log.commit(first.end)
    third = gathered(log, 3, b"second")
    assert third is not None
    assert third.changes is not None
    assert third.changes[0] == b"second"


@pytest.mark.parametrize("what", ["head", "snapshot", "full"])
def test_nothing_is_written_behind_what_is_more_than_a_part_of_a_file(what: str) -> None:
    log = log_of(MemoryFiles())
    if what == "full":
        assert gathered(log, 99) is not None
        assert gathered(log, 3) is None, "a segment begins where everything before is synced"
        return
    if what == "snapshot":
        log.want_snapshot()
    else:
        log = open_log(MemoryFiles(), settings())
        log.follows_bytes = 1
    first = gathered(log, 3)
    assert first is not None
    assert (first.head is not None, first.snapshot is not None) == (what == "head", True)
    assert gathered(log, 3) is None
    log.commit(first.end)
    second = gathered(log, 3)
    assert second is not None
    log.want_snapshot()
    assert gathered(log, 3) is None, "it would tell of changes that were not taken"
    log.commit(second.end)
    third = gathered(log, 0)
    assert third is not None
    assert third.snapshot is not None


def test_a_sync_that_one_of_several_wants_is_made() -> None:
    files = Synced()
    log = log_of(files)
    first, second = gathered(log, 1), gathered(log, 3)
    assert first is not None
    assert second is not None
    before, second.sync = files.syncs, False
    settle(files, [first, second])
    assert files.syncs == before + 1


def test_files_that_leave_hold_nobody_up() -> None:
    files = MemoryFiles()
    log = log_of(files)
    first = gathered(log, 1)
    assert first is not None
    first.removed.append("old.seg")
    files.create("old.seg")
    write(files, first)
    second = gathered(log, 3)
    assert second is not None, "it is written before the file is removed"
    settle(files, [first])
    assert "old.seg" in files.names()
    remove(files, first.removed)
    assert "old.seg" not in files.names()


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_takes_the_newest_index_only(seed: int) -> None:
    files = LossyFiles()
    log = open_log(files, settings())
    while len(log._closed) < 5:
        group = gathered(log, 50)
        assert group is not None
        perform(files, group)
        log.commit(group.end)
        sync_indexes(files, [name for name, _ in group.indexes])
    files.fail = lambda call: None if call != "sync" else refuse()
    sync_indexes(files, [name for name in files.names() if name.endswith(".idx")])  # a help only
    files = files.power_cut(random.Random(seed))

    def there(segment: Segment) -> bool:
        return load_brief(files, segment) is not None

    assert all(map(there, log._closed[:-1]))


def refuse() -> None:
    raise OSError(5, "Input/output error")
