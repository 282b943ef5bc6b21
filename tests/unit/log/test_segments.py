"""The log on disk where the contract says nothing: age, what is lost, groups, and many files."""

from __future__ import annotations

import errno
import random

import pytest
from memory_files import MemoryFiles
from xxhash import xxh3_64_intdigest

from roq.log.cursors import cursor
from roq.log.disk_groups import perform, perform_sync
from roq.log.files import INDEX_SUFFIX, META, SEGMENT_SUFFIX, LogRefused
from roq.log.log import NotAtHand, NotGiven
from roq.log.patient_reads import PatientReads
from roq.log.records import HEAD_BYTES, Found, RecordKind
from roq.log.recovery import LEAP, LogSettings, open_log
from roq.log.segment_reader import INDEXES_MAX, scan
from roq.log.segments import SegmentLog
from roq.log.steady_clock import STANDS_SECONDS
from roq.log.survey import LogSurvey
from roq.protocol.channel import FetchRequest

BATCH = b"x" * 100
STANDS_US = int(STANDS_SECONDS * 1_000_000)


def settings(epoch: int = 5, **others: object) -> LogSettings:
    given: dict[str, object] = {
        "queue": b"q" * 16, "exchange": 3, "cluster": "c", "host": "10.0.0.1", "ring_bytes": 1,
        "topics_max": 100, "topics_spare": 0, "capacity_bytes": 1 << 40, "keep_us": 1 << 50,
        "now_us": 1_000, "segment_bytes": 1 << 20, "segment_entries": 10, **others,
    }  # fmt: skip
    return LogSettings(epoch=epoch, **given)  # type: ignore[arg-type]


def write(files: MemoryFiles, log: SegmentLog[bytes], count: int, topic: bytes = b"t") -> None:
    """Append one batch after the other, each in a group of its own."""
    for _ in range(count):
        assert log.append(topic, BATCH, len(BATCH)) is not None
        commit(files, log)


def commit(files: MemoryFiles, log: SegmentLog[bytes], snapshot: bytes = b"") -> None:
    group = log.gather(lambda: snapshot)
    assert group is not None
    perform(files, group)
    log.commit(group.end)
    log.check()


def pass_time(log: SegmentLog[bytes], time_us: int) -> None:
    """Both clocks go on to this time of the wall clock."""
    log.advance_clock(time_us)
    log.tell_time(time_us / 1_000_000, time_us)


def let_age(log: SegmentLog[bytes]) -> None:
    """So much time passes that what another process has left counts as old, and a bit more."""
    log.tell_time(0.0, log.time_us)
    log.tell_time(STANDS_SECONDS, log.time_us + STANDS_US)


def segments(files: MemoryFiles) -> list[str]:
    return sorted(name for name in files.names() if name.endswith(SEGMENT_SUFFIX))


def test_nothing_counts_before_its_group_was_committed() -> None:
    files = MemoryFiles()
    log = open_log(files, settings())
    log.append(b"t", BATCH, len(BATCH))
    assert (log.committed, log.end) == (0, 1)
    first = log.gather(lambda: b"")
    assert first is not None
    log.append(b"t", BATCH, len(BATCH))
    assert log.gather(lambda: b"") is None, "one group at a time"
    assert log.unsynced_bytes > 2 * len(BATCH)
    assert log.record(0) is not None
    perform(files, first)
    log.commit(first.end)
    assert (log.committed, log.end) == (1, 2)
    commit(files, log)
    assert log.unsynced_bytes == 0


def test_a_group_is_one_write_and_no_batch_is_copied() -> None:
    files = MemoryFiles()
    log = open_log(files, settings())
    batches = [bytes([number]) * 50 for number in range(9)]
    for batch in batches:
        log.append(b"t", batch, len(batch))
    group = log.gather(lambda: b"")
    assert group is not None
    assert all(record[2] is batch for record, batch in zip(group.records, batches, strict=True))
    before = files.writes
    perform(files, group)
    assert files.writes == before + 1


def test_the_last_segment_leaves_when_another_one_has_its_snapshot() -> None:
    files = MemoryFiles()
    log = open_log(files, settings())
    write(files, log, 3)
    log.want_snapshot()
    commit(files, log)
    again = open_log(files, settings(6, keep_us=10, now_us=2_000))
    let_age(again)
    commit(files, again)
    assert again.floor == 3, "all has left, and nothing has come"
    assert open_log(files, settings(7, keep_us=10, now_us=3_000)).end == 3, "none is used again"


def test_old_segments_leave_by_age_and_their_files_with_them() -> None:
    files = MemoryFiles()
    log = open_log(files, settings(keep_us=50))
    pass_time(log, 1_000)
    write(files, log, 10)
    pass_time(log, 1_040)
    write(files, log, 10)
    assert log.floor == 0
    pass_time(log, 1_051)
    write(files, log, 1)
    assert (log.floor, log.end) == (10, 21)
    assert len(segments(files)) == 2
    assert log.gone > 0
    assert log.next_of(b"t", 0) == 10


@pytest.mark.parametrize("jump_us", [1 << 45, -(1 << 45)])
def test_a_clock_that_jumps_neither_drops_nor_keeps_what_this_process_has_taken(
    jump_us: int,
) -> None:
    files = MemoryFiles()
    begun_us = 1 << 50
    log = open_log(files, settings(keep_us=5 * STANDS_US, now_us=begun_us))
    for step in range(8):  # longer than a jump has to stand
        now_us = step * STANDS_US
        wall_us = begun_us + now_us + (jump_us if step >= 2 else 0)
        log.advance_clock(wall_us)
        log.tell_time(now_us / 1_000_000, wall_us)
        write(files, log, 10)
        assert log.floor == max(0, 10 * (step - 5)), step


def test_what_was_found_leaves_when_the_clock_has_gone_evenly_for_a_while() -> None:
    files = MemoryFiles()
    write(files, open_log(files, settings(now_us=1_000)), 25)
    day_us = 86_400_000_000

    def start(epoch: int, walls: list[int]) -> SegmentLog[bytes]:
        """A process that lives for so many minutes, with what the wall clock is ahead in each."""
        log = open_log(files, settings(epoch, keep_us=day_us, now_us=1_000 + walls[0]))
        for minute, ahead_us in enumerate(walls):
            wall_us = 1_000 + minute * 60_000_000 + ahead_us
            log.advance_clock(wall_us)
            log.tell_time(minute * 60.0, wall_us)
            group = log.gather(lambda: b"")
            if group is not None:
                perform(files, group)
                log.commit(group.end)
        return log

    short, wrong = int(STANDS_SECONDS) // 60, 2 * day_us
    assert start(6, [wrong] * short).floor == 0, "it may be set right yet"
    assert start(7, [wrong] * (short - 1) + [0] * 2 * short).floor == 0, "and it was"
    assert start(8, [0] * 3 + [wrong] * (short - 1)).floor == 0
    assert start(9, [wrong] * (short + 3)).floor == 25, "that is no mistake: nobody was there"
    assert start(10, [wrong] * 2 * short).end == 25


def test_a_log_with_large_snapshots_is_mostly_batches_and_a_start_counts_only_those() -> None:
    files = MemoryFiles()
    small = {"segment_bytes": 1_000, "segment_entries": 1_000, "capacity_bytes": 60_000}
    log = open_log(files, settings(**small))
    for _ in range(400):
        assert log.append(b"t", BATCH, len(BATCH)) is not None
        commit(files, log, b"s" * 4_000)
    sizes = [len(files.read(name, 0, 1 << 20)) for name in segments(files)]
    assert min(sizes[:-1]) >= 20_000, "as many bytes of batches as of four snapshots"
    assert sum(sizes) <= 60_000 * 5 / 4 + max(sizes)
    again = open_log(files, settings(6, **small))
    assert (again.kept, again.floor) == (log.kept, log.floor)
    again.append(b"t", b"", 0)
    commit(files, again)
    assert again.floor == log.floor > 0, "what had room has room"


def test_half_of_a_log_stays_however_large_its_snapshots_are() -> None:
    files = MemoryFiles()
    small = {"segment_bytes": 1_000, "segment_entries": 1_000, "capacity_bytes": 60_000}
    log, least = open_log(files, settings(**small)), 60_000
    for _ in range(600):
        assert log.append(b"t", BATCH, len(BATCH)) is not None
        commit(files, log, b"s" * 20_000)
        least = min(least, log.kept) if log.gone else least
    assert log.gone > 0
    assert least >= 29_000, "one batch may be on its way"


def test_what_is_empty_for_long_gives_its_files_back_without_new_batches() -> None:
    files = MemoryFiles()
    log = open_log(files, settings(keep_us=50))
    pass_time(log, 1_000)
    write(files, log, 11)
    pass_time(log, 2_000)
    group = log.gather(lambda: b"")
    assert group is not None
    assert group.snapshot is not None, "the active one is complete, as all in it is old"
    for _ in range(2):
        assert group is not None
        perform(files, group)
        log.commit(group.end)
        group = log.gather(lambda: b"")
    assert group is None
    assert (log.floor, log.end) == (11, 11)
    assert len(segments(files)) == 1
    log.check()
    assert (open_log(files, settings(6, keep_us=50, now_us=2_000)).end) == 11


def test_a_log_whose_entries_have_all_left_goes_on_where_it_was_however_often_it_starts() -> None:
    files = MemoryFiles()
    log = open_log(files, settings(keep_us=50))
    write(files, log, 12)
    for epoch in range(6, 12):
        log = open_log(files, settings(epoch, keep_us=50, now_us=1_000 * epoch))
        let_age(log)
        assert (log.end, log.committed) == (12, 12)
        group = log.gather(lambda: b"what the exchange knows")
        if group is not None:
            perform(files, group)
            log.commit(group.end)
        log.check()
        if epoch > 6:
            assert (log.recovered.since, log.recovered.snapshot) == (12, b"what the exchange knows")
    assert log.floor == 12
    assert len(segments(files)) == 1


@pytest.mark.parametrize("seed", range(30))
def test_a_bit_that_flips_in_an_old_segment_costs_the_entries_that_it_hits(seed: int) -> None:
    chance = random.Random(seed)
    files = MemoryFiles()
    write(files, open_log(files, settings()), 35)
    name = segments(files)[chance.randrange(3)]
    at = chance.randrange(files.size(name))
    hit = [
        found.offset
        for found in scan(files, name, HEAD_BYTES)
        if found.kind == RecordKind.BATCH and found.at <= at < found.at + found.size
    ]
    files.contents[name][at] ^= 1 << chance.randrange(8)
    if chance.random() < 0.5:  # or what the index says is all there is to go by
        for each in [each for each in files.names() if each.endswith(INDEX_SUFFIX)]:
            files.remove(each)
    log = open_log(files, settings(6))
    missing = [offset for offset in range(35) if log.record(offset) is None]
    assert missing == hit
    assert log.unreadable == len(missing)
    for offset in range(35):
        record = log.record(offset)
        assert (record is None) is (offset in missing)
        assert record is None or record[2] == BATCH


def test_a_block_that_stands_where_another_one_belongs_is_not_taken_for_it() -> None:
    files = MemoryFiles()
    write(files, open_log(files, settings()), 25)
    name = segments(files)[0]
    third, fourth = [
        found for found in scan(files, name, HEAD_BYTES) if found.kind == RecordKind.BATCH
    ][3:5]
    assert third.size == fourth.size
    moved = files.contents[name][third.at : third.at + third.size]
    files.contents[name][fourth.at : fourth.at + fourth.size] = moved
    log = open_log(files, settings(6))
    assert log.record(3) is not None
    assert log.record(4) is None


def test_a_reader_is_told_of_what_the_disk_has_lost() -> None:
    files = MemoryFiles()
    log = open_log(files, settings())
    write(files, log, 25)
    name = segments(files)[0]
    files.contents[name][HEAD_BYTES + 3 * (files.size(name) - HEAD_BYTES) // 11 + 90] ^= 1
    request = FetchRequest(queue=b"q" * 16, generation=5, id=1, prefixes=[b""], first=0, until=25)
    whole = cursor(log, PatientReads(log), request)
    offsets = []
    while (offset := whole.offset(0.0)) is not None:
        offsets.append(offset)
        whole.advance()
    assert len(offsets) == 24
    assert whole.evicted == 1
    assert whole.done


def test_segments_that_are_gone_are_told_and_the_others_are_read() -> None:
    files = MemoryFiles()
    write(files, open_log(files, settings()), 45)
    gone = segments(files)[2]
    files.remove(gone)
    files.contents[segments(files)[1]] = bytearray()
    log = open_log(files, settings(6))
    assert sum(behind - first for first, behind in log.recovered.lost) == 20
    assert any("cannot be read" in problem for problem in log.recovered.problems)
    assert (log.floor, log.end) == (0, 45)
    assert log.record(15) is None
    assert log.record(25) is None
    assert log.record(9) is not None
    assert log.next_of(b"t", 10) == 30
    log.check()


@pytest.mark.parametrize("gone", range(3))
def test_times_are_found_beside_a_segment_that_is_gone(gone: int) -> None:
    files = MemoryFiles()
    log = open_log(files, settings())
    for number in range(40):
        log.advance_clock(2_000 + number)
        write(files, log, 1)
    files.contents[segments(files)[gone]] = bytearray()
    for name in [name for name in files.names() if name.endswith(INDEX_SUFFIX)]:
        files.remove(name)
    log = open_log(files, settings(6, now_us=9_000))
    for offset in [each for each in range(40) if log.record(each) is not None]:
        assert log.floor <= log.seek(2_000 + offset) <= offset
    readable = [log.seek(2_000 + offset) for offset in range(40) if offset // 10 != gone]
    assert readable == sorted(readable)


def test_a_segment_that_the_disk_does_not_give_is_neither_lost_nor_passed_over() -> None:
    class Broken(MemoryFiles):
        broken = ""

        def read(self, name: str, at: int, size: int) -> bytes:
            if self.broken and name.startswith(self.broken):
                raise OSError(5, "Input/output error")
            return super().read(name, at, size)

    files = Broken()
    write(files, open_log(files, settings()), 35)
    log = open_log(files, settings(6))
    files.broken = segments(files)[1].removesuffix(SEGMENT_SUFFIX)
    assert [each for each in range(35) if log.record(each) is None] == list(range(10, 20))
    with pytest.raises(NotGiven) as refused:
        log.next_of(b"t", 10)
    assert (refused.value.until, log.next_of(b"t", 20)) == (20, 20)
    assert (log.unreadable, log.is_lost(12)) == (0, False)
    files.broken = ""  # it may have been out of descriptors
    assert all(log.record(each) is not None for each in range(35))
    log.check()


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "The disk is full: make room, or give the queue less to keep"),
        (errno.EROFS, "The host manager's user must be able to write there"),
        (errno.EIO, "Look at the disk; the log stays as it is"),
    ],
)
def test_a_start_that_cannot_write_says_what_to_do_and_changes_nothing(
    number: int, remedy: str
) -> None:
    class Refusing(MemoryFiles):
        refuses = False

        def create(self, name: str) -> None:
            if self.refuses:
                raise OSError(number, "it is refused")
            super().create(name)

    files = Refusing()
    write(files, open_log(files, settings()), 25)
    before = {name: bytes(data) for name, data in files.contents.items()}
    files.refuses = True
    with pytest.raises(LogRefused) as refused:
        open_log(files, settings(6))
    why = "the log of exchange 3 cannot be opened: it is refused. "
    assert str(refused.value) == why + remedy
    assert {name: bytes(data) for name, data in files.contents.items()} == before
    files.refuses = False
    assert [at for at in range(25) if open_log(files, settings(7)).record(at) is None] == []


def test_what_is_wrong_or_not_there_is_lost_for_good() -> None:
    files = MemoryFiles()
    write(files, open_log(files, settings()), 35)
    log = open_log(files, settings(6))
    files.remove(segments(files)[1])
    for name in [name for name in files.names() if name.endswith(INDEX_SUFFIX)]:
        files.remove(name)
    files.contents[segments(files)[0]][-20] ^= 1
    assert [each for each in range(35) if log.record(each) is None] == list(range(9, 20))
    assert (log.unreadable, log.is_lost(9), log.is_lost(12), log.is_lost(8)) == (
        10, True, True, False,
    )  # fmt: skip


@pytest.mark.parametrize("readers", [1, 3])
def test_who_does_not_wait_finds_a_topic_behind_more_segments_than_are_kept_in_memory(
    readers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roq.log.index.TOPICS_FILTERED_MAX", 0)  # every segment may have it
    files = MemoryFiles()
    log = open_log(files, settings())
    write(files, log, 1, b"rare")
    write(files, log, 10 * 2 * INDEXES_MAX)
    write(files, log, 1, b"rare")
    write(files, log, 25)
    log = open_log(files, settings(6))
    log.patient = False
    waiting, loads = list(range(1, 1 + readers)), 0
    while waiting:
        at_least = waiting.pop(0)
        try:
            assert log.next_of(b"rare", at_least) == 1 + 10 * 2 * INDEXES_MAX
        except NotAtHand as miss:
            miss.keep(miss.load())
            waiting.append(at_least)
            loads += 1
            assert loads <= readers * len(segments(files))


def test_foreign_files_are_left_alone_and_named() -> None:
    files = MemoryFiles()
    write(files, open_log(files, settings()), 3)
    files.contents["notes.txt"] = bytearray(b"hello")
    log = open_log(files, settings(6))
    assert log.end == 3
    assert log.recovered.problems == ["notes.txt is no file of a log; it was left alone"]
    assert files.contents["notes.txt"] == b"hello"


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ({"queue": b"r" * 16}, "belongs to queue"),
        ({"exchange": 4}, "belongs to exchange 3, not to exchange 4"),
        ({"cluster": "other"}, "belongs to cluster c, not to cluster other"),
        ({"host": "10.0.0.2"}, "belongs to host 10.0.0.1, not to host 10.0.0.2"),
        ({"epoch": 4}, "made by a later process"),
    ],
)
def test_the_log_of_another_one_is_refused(others: dict[str, object], text: str) -> None:
    files = MemoryFiles()
    write(files, open_log(files, settings()), 3)
    before = {name: bytes(data) for name, data in files.contents.items()}
    with pytest.raises(LogRefused, match=text):
        open_log(files, settings(**{"epoch": 6, **others}))  # type: ignore[arg-type]
    assert {name: bytes(data) for name, data in files.contents.items()} == before


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "cannot be read"),
        (b"{}", "cannot be read"),
        (
            b'{"format":2,"cluster":"c","queue":"","exchange":3,"generation":5,"host":"h"}',
            "has format 2, and this RoQ reads format 1",
        ),
    ],
)
def test_a_folder_that_does_not_say_whose_it_is_is_refused(content: bytes, text: str) -> None:
    files = MemoryFiles()
    write(files, open_log(files, settings()), 3)
    files.contents[META] = bytearray(content)
    with pytest.raises(LogRefused, match=text):
        open_log(files, settings(6))


def test_a_folder_that_was_copied_in_part_is_refused() -> None:
    files = MemoryFiles()
    write(files, open_log(files, settings()), 3)
    files.remove(META)
    with pytest.raises(LogRefused, match="copied in part"):
        open_log(files, settings(6))


def test_a_segment_of_a_newer_format_is_refused() -> None:
    files = MemoryFiles()
    write(files, open_log(files, settings()), 13)
    first = files.contents[segments(files)[0]]
    first[4] = 2
    first[64:72] = xxh3_64_intdigest(first[:64]).to_bytes(8, "little")
    with pytest.raises(LogRefused, match="has format 2: install the version"):
        open_log(files, settings(6))


def test_a_log_goes_on_under_its_generation_and_offsets() -> None:
    files = MemoryFiles()
    write(files, open_log(files, settings()), 12)
    for epoch in range(6, 12):
        log = open_log(files, settings(epoch))
        assert (log.generation, log.end, log.committed) == (5, epoch * 2, epoch * 2)
        write(files, log, 2, b"other")
    assert log.next_of(b"other", 0) == 12
    assert [log.record(offset) is not None for offset in range(24)] == [True] * 24


def test_starts_that_write_nothing_leave_no_files_behind() -> None:
    files = MemoryFiles()
    write(files, open_log(files, settings()), 3)
    counts = set()
    for epoch in range(6, 20):
        open_log(files, settings(epoch)).check()
        counts.add(len(segments(files)))
    assert max(counts) <= 2


def test_a_log_that_runs_ahead_begins_a_segment_when_all_is_synced() -> None:
    files = MemoryFiles()
    log = open_log(files, settings(ahead=True))
    write(files, log, 1)
    assert log.synced == 1, "what a start cannot do without is synced at once"
    write(files, log, 8)
    assert (log.committed, log.synced) == (9, 1)
    assert log.unsynced_bytes > 8 * len(BATCH)
    for _ in range(2):
        log.append(b"t", BATCH, len(BATCH))
    assert log.gather(lambda: b"") is None, "nobody knew that so much would come"
    assert log.sync_wanted
    sync = log.gather_sync()
    assert sync is not None
    assert log.gather_sync() is None, "one at a time"
    perform_sync(files, sync)
    log.commit_sync(sync.end)
    assert log.synced == 9
    commit(files, log)
    assert len(segments(files)) == 2


def test_the_next_process_leaves_offsets_out_that_may_have_been_shown() -> None:
    files = MemoryFiles()
    log = open_log(files, settings(ahead=True, segment_entries=100))
    write(files, log, 15)
    log = open_log(files, settings(6, ahead=True))
    assert log.end == log.committed == log.synced == 15 + LEAP
    assert log.recovered.lost == []
    assert [log.following(offset) for offset in (3, 14, 15, 15 + LEAP)] == [
        3, 14, 15 + LEAP, 15 + LEAP,
    ]  # fmt: skip
    write(files, log, 2)
    reader = cursor(
        log,
        PatientReads(log),
        FetchRequest(id=1, queue=b"", generation=5, prefixes=[b""], until=log.end),
    )
    found = []
    while not reader.done:
        offset = reader.offset(0.0)
        if offset is not None:
            found.append(offset)
            reader.advance()
    assert found == [*range(15), 15 + LEAP, 16 + LEAP]
    assert reader.evicted == 0
    assert sum(len(each.lost) for each in LogSurvey(files).segments()) == 0


def test_a_start_looks_through_no_segment_for_each_change_of_a_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = 0

    def count(self: Found, other: object) -> bool:
        nonlocal compared
        compared += 1
        return tuple(self) == other

    files = MemoryFiles()
    log = open_log(files, settings(segment_entries=100))
    for number in range(50):
        log.append(b"t", BATCH, len(BATCH))
        group = log.gather(lambda: b"", lambda: b"%d" % number)  # noqa: B023 - called at once
        assert group is not None
        perform(files, group)
        log.commit(group.end)
    monkeypatch.setattr(Found, "__eq__", count)
    log = open_log(files, settings(6))
    assert log.recovered.changes == [b"%d" % number for number in range(1, 50)]
    assert compared < 50


def test_offsets_that_were_left_out_are_no_loss_when_what_stood_before_them_has_left() -> None:
    files = MemoryFiles()
    write(files, open_log(files, settings(ahead=True)), 5)
    for start, epoch in enumerate(range(6, 10), 1):  # the later ones find no entry at all
        log = open_log(files, settings(epoch, ahead=True, keep_us=50, now_us=1_000 * epoch))
        let_age(log)
        group = log.gather(lambda: b"")
        if group is not None:
            perform(files, group)
            log.commit(group.end)
        log.check()
        assert (log.floor, log.end) == (5, 5 + start * LEAP)
        assert len(segments(files)) == 1
    write(files, log, 2)
    request = FetchRequest(id=1, queue=b"", generation=5, prefixes=[b""], first=5, until=log.end)
    reader = cursor(log, PatientReads(log), request)
    assert reader.offset(0.0) == 5 + 4 * LEAP, "a reader that had read everything goes on"
    assert reader.evicted == 0
    assert log.seek(0) == 5 + 4 * LEAP
    assert log.next_of(b"t", 0) == 5 + 4 * LEAP


@pytest.mark.parametrize("complete", [{"segment_bytes": 2_000}, {"segment_entries": 7}])
def test_what_completes_a_segment_is_synced_so_that_the_next_one_can_begin(
    complete: dict[str, int],
) -> None:
    files = MemoryFiles()
    log = open_log(files, settings(ahead=True, **{"segment_entries": 50, **complete}))
    synced: dict[str, list[bool]] = {}
    while len(synced) < 3:
        log.append(b"t", BATCH, len(BATCH))
        group = log.gather(lambda: b"")
        assert group is not None, "it need not wait for a sync"
        synced.setdefault(group.segment, []).append(group.sync)
        perform(files, group)
        log.commit(group.end)
    first, second, _ = synced.values()
    assert first == second == [True, *[False] * (len(first) - 2), True]
    assert len(first) > 2


def test_a_segment_does_not_leave_while_it_is_synced() -> None:
    files = MemoryFiles()
    log = open_log(files, settings(ahead=True, segment_entries=5, capacity_bytes=3_000))
    write(files, log, 3)
    sync = log.gather_sync()
    assert sync is not None
    write(files, log, 30)
    assert log.floor == 0
    perform_sync(files, sync)
    log.commit_sync(sync.end)
    write(files, log, 1)
    assert log.floor > sync.end
    write(files, log, 1)
    assert sync.segment not in files.names()
    log.check()


def change(files: MemoryFiles, log: SegmentLog[bytes]) -> None:
    """A change of groups is written, and no entry."""
    group = log.gather(lambda: b"", lambda: b"changes")
    assert group is not None
    assert not group.records
    perform(files, group)
    log.commit(group.end)


def test_changes_of_groups_without_entries_are_to_be_synced_as_well() -> None:
    files = MemoryFiles()
    log = open_log(files, settings(ahead=True))
    write(files, log, 3)
    sync = log.gather_sync()
    assert sync is not None
    log.commit_sync(sync.end)
    assert not log.sync_due
    change(files, log)
    assert log.sync_due
    sync = log.gather_sync()
    assert sync is not None
    assert not log.sync_due
    change(files, log)  # which that sync may not reach
    log.commit_sync(sync.end)
    assert log.sync_due
    log.want_snapshot()
    commit(files, log)
    assert not log.sync_due, "a snapshot is synced, and what stands before it"


def test_changes_in_a_segment_that_is_complete_need_no_sync_as_the_next_one_tells_all() -> None:
    files = MemoryFiles()
    log = open_log(files, settings(ahead=True, segment_entries=5))
    write(files, log, 5)
    change(files, log)
    assert log.sync_due
    log.append(b"t", BATCH, len(BATCH))
    group = log.gather(lambda: b"")
    assert group is not None
    assert group.head is not None
    assert log.gather_sync() is None, "the file is not there yet"
    perform(files, group)
    log.commit(group.end)
    assert not log.sync_due


def test_a_snapshot_that_somebody_wants_is_not_ahead_of_the_disk() -> None:
    files = MemoryFiles()
    log = open_log(files, settings(ahead=True))
    write(files, log, 2)
    assert log.synced < log.committed
    wanted = log.want_snapshot()
    group = log.gather(lambda: b"snapshot")
    assert group is not None
    perform(files, group)
    log.commit(group.end)
    assert (log.told, log.synced) == (wanted, log.committed)


def test_files_that_leave_alone_say_nothing_of_what_is_not_synced() -> None:
    files = MemoryFiles()
    log = open_log(files, settings(ahead=True, keep_us=500, segment_bytes=2_000))
    pass_time(log, 1_000)
    while len(segments(files)) < 2:
        write(files, log, 1)
    pass_time(log, 1_400)
    write(files, log, 2)
    synced = log.synced
    assert synced < log.committed
    pass_time(log, 1_600)
    group = log.gather(lambda: b"")
    assert group is not None
    assert group.removed
    assert not group.segment
    perform(files, group)
    log.commit(group.end)
    assert log.synced == synced
    assert len(segments(files)) == 1


def test_a_log_that_runs_ahead_no_more_tells_on_what_was_left_out() -> None:
    files = MemoryFiles()
    write(files, open_log(files, settings(ahead=True)), 5)
    open_log(files, settings(6, ahead=True))
    log = open_log(files, settings(7))
    write(files, log, 1)
    log = open_log(files, settings(8))
    assert log.recovered.lost == []
    assert log.following(5) == 5 + LEAP
    assert log.record(5 + LEAP) is not None
    assert sum(len(each.lost) for each in LogSurvey(files).segments()) == 0


@pytest.mark.parametrize("ahead", [True, False])
def test_what_is_taken_from_behind_a_leap_is_there_at_every_later_start(ahead: bool) -> None:
    files = MemoryFiles()
    log = open_log(files, settings(ahead=True))
    for change in (b"first", b"second"):
        group = log.gather(lambda: b"snapshot", lambda: change)  # noqa: B023 - called at once
        assert group is not None
        perform(files, group)
        log.commit(group.end)
    log = open_log(files, settings(6, ahead=True))
    log.append(b"t", BATCH, len(BATCH))
    group = log.gather(lambda: b"never whole")
    assert group is not None
    group.snapshot = None  # the power cut has torn it
    perform(files, group)
    for epoch in range(7, 11):
        log = open_log(files, settings(epoch, ahead=ahead))
        assert (log.recovered.snapshot, log.recovered.changes) == (b"snapshot", [b"second"])
        assert log.record(LEAP) is not None
        assert log.recovered.lost == []


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("first", [0, 3])
def test_a_segment_without_entries_does_not_grow_for_ever(first: int, ahead: bool) -> None:
    files = MemoryFiles()
    log = open_log(files, settings(ahead=ahead))
    write(files, log, first)
    log = open_log(files, settings(6, ahead=ahead, segment_bytes=10_000))
    sizes = set()
    for number in range(200):
        told = b"%d" % number
        group = log.gather(lambda: b"s" * 3_000 + told, lambda: told.ljust(500))  # noqa: B023
        assert group is not None
        perform(files, group)
        log.commit(group.end)
        log.check()
        sizes.add(max(map(len, files.contents.values())))
        if number % 17 == 0:
            again = MemoryFiles()
            again.contents = {name: bytearray(data) for name, data in files.contents.items()}
            recovered = open_log(again, settings(7, ahead=ahead)).recovered
            assert recovered.snapshot is not None
            newest = recovered.changes[-1] if recovered.changes else recovered.snapshot[3_000:]
            assert int(newest) == number
            assert recovered.lost == []
    assert max(sizes) < 17_000, "five snapshots and what a group brings"
    write(files, log, 1, b"behind")
    offset = log.end - 1
    for epoch in (8, 9):
        log = open_log(files, settings(epoch, ahead=ahead))
        found = log.record(offset)
        assert found is not None
        assert found[0].name == b"behind"
        assert log.recovered.lost == []
