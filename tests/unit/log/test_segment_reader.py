"""A log on disk that was told not to wait: it says what has to be read, and goes on from there."""

from __future__ import annotations

import random

import pytest
from memory_files import MemoryFiles

from roq.log import segment_reader
from roq.log.cursors import Cursor, cursor
from roq.log.disk_groups import perform
from roq.log.log import NotAtHand
from roq.log.patient_reads import PatientReads
from roq.log.records import (
    ALIGN,
    HEAD_BYTES,
    RECORD_BYTES,
    Found,
    RecordKind,
    pack_record,
    read_record,
)
from roq.log.recovery import LogSettings, open_log
from roq.log.segment_reader import CHUNKS_MAX, READ_AHEAD_BYTES, SCAN_BYTES, scan
from roq.log.segments import SegmentLog
from roq.protocol.channel import FetchRequest
from roq.protocol.entry import EntryKind, pack_entry

TOPICS = [b"a", b"b", b"c"]


def log_of(chance: random.Random, sizes: list[int]) -> SegmentLog[bytes]:
    """A log of entries of these sizes, of which memory holds the last one at most."""
    files = MemoryFiles()
    log = open_log(
        files,
        LogSettings(
            queue=b"q" * 16, exchange=3, epoch=5, cluster="c", host="h", ring_bytes=1,
            topics_max=100, topics_spare=0, capacity_bytes=1 << 40, keep_us=1 << 50, now_us=1_000,
            segment_bytes=1 << 20, segment_entries=50,
        ),
    )  # fmt: skip
    for size in sizes:
        log.append(chance.choice(TOPICS), bytes([size % 251]) * size, size)
        group = log.gather(lambda: b"")
        assert group is not None
        perform(files, group)
        log.commit(group.end)
    return log


def taken(found: Cursor, log: SegmentLog[bytes]) -> list[int]:
    """All offsets that a cursor finds, each read as well; what is not at hand is read for it."""
    offsets: list[int] = []
    while True:
        try:
            offset = found.offset(0.0)
            if offset is None:
                if found.done:
                    return offsets
                continue
            record = log.record(offset)
        except NotAtHand as miss:
            assert not log.patient
            miss.keep(miss.load())
            continue
        assert record is not None
        assert set(record[2]) <= {record[3] % 251}
        offsets.append(offset)
        found.advance()


@pytest.mark.parametrize("seed", range(12))
def test_what_is_read_ahead_is_what_is_read_with_patience(seed: int) -> None:
    chance = random.Random(seed)
    size = chance.choice([200, 3_000, READ_AHEAD_BYTES // 2])
    log = log_of(chance, [chance.randrange(size) for _ in range(200)])
    requests = [
        FetchRequest(id=1, queue=b"q", generation=5, prefixes=prefixes, first=0, until=200)
        for prefixes in ([b""], [b"a", b"c"])
    ]
    wants = [(topic, chance.randrange(150), 200) for topic in TOPICS]
    requests.append(FetchRequest(id=1, queue=b"q", generation=5, wants=wants))
    for request in requests:
        log.patient = True
        with_patience = taken(cursor(log, PatientReads(log), request), log)
        assert with_patience
        log.patient = False
        assert taken(cursor(log, PatientReads(log), request), log) == with_patience


def test_a_large_entry_is_read_as_a_whole_and_costs_one_place() -> None:
    sizes = [3 * READ_AHEAD_BYTES, 10, 2 * READ_AHEAD_BYTES, 10, 5 * READ_AHEAD_BYTES, 1]
    log = log_of(random.Random(1), sizes)
    log.patient = False
    request = FetchRequest(id=1, queue=b"q", generation=5, prefixes=[b""], first=0, until=6)
    found = cursor(log, PatientReads(log), request)
    for _ in range(20):
        try:
            if found.offset(0.0) is None:
                break
            found.advance()
        except NotAtHand as miss:
            data = miss.load()
            miss.keep(data)
            assert not isinstance(data, bytes) or len(data) <= 5 * READ_AHEAD_BYTES + 1_000
    assert found.done


def test_what_was_read_is_kept_while_others_read() -> None:
    """Whoever is first in line finds what was read for it, so everybody gets on."""
    log = log_of(random.Random(2), [READ_AHEAD_BYTES // 4] * 120)
    log.patient = False
    readers = [
        cursor(
            log,
            PatientReads(log),
            FetchRequest(id=1, queue=b"q", generation=5, prefixes=[b""], first=at, until=100),
        )
        for at in range(0, 100, 100 // (2 * CHUNKS_MAX))
    ]
    steps = 0
    while readers:
        steps += 1
        assert steps < 50_000
        one = readers.pop(0)
        try:
            while one.offset(0.0) is not None:
                one.advance()
                break
            if not one.done:
                readers.append(one)
        except NotAtHand as miss:
            miss.keep(miss.load())
            readers.insert(0, one)


@pytest.mark.parametrize("size", [500, 2 * READ_AHEAD_BYTES])
def test_who_does_not_wait_is_answered_though_the_system_refuses_to_read(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(random.Random(3), [size] * 4)

    def refuse(*_: object) -> bytes:
        raise OSError(24, "Too many open files")

    log.patient = False
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFiles, "read", refuse)
        for _ in range(3):
            try:
                assert log.record(1) is None
                break
            except NotAtHand as miss:
                miss.keep(miss.load())
        else:
            raise AssertionError("it asks for the same for ever")
    assert not log.is_lost(1)
    log.patient = True
    assert log.record(1) is not None
    assert log.unreadable == 0


@pytest.mark.parametrize("removed", [False, True])
def test_what_leaves_while_it_is_read_for_a_late_reader_is_no_loss(*, removed: bool) -> None:
    """It is told as gone, as all that has left; not as what the disk has lost."""
    log = log_of(random.Random(1), [10] * 600)
    files = log._reader._files
    log.patient = False
    with pytest.raises(NotAtHand) as raised:
        log.record(2)
    log.release(100)
    group = log.gather(lambda: b"")
    assert group is not None
    if removed:
        perform(files, group)
    raised.value.keep(raised.value.load())
    assert (log.floor, log.unreadable) == (100, 0)
    request = FetchRequest(id=1, queue=b"", generation=5, prefixes=[b""], until=log.committed)
    late = cursor(log, PatientReads(log), request)
    assert taken(late, log) == list(range(100, 600))
    assert (late.evicted, log.unreadable) == (100, 0)


# --- a segment that is gone over ------------------------------------------------------------------


class PiecesRead(MemoryFiles):
    """Notes how much is read at once; behind what it has a file is a hole."""

    def __init__(self, contents: bytes, hole: int = 0) -> None:
        super().__init__()
        self.contents["x.seg"] = bytearray(contents)
        self.hole = hole
        self.most = 0

    def size(self, name: str) -> int:
        return super().size(name) + self.hole

    def read(self, name: str, at: int, size: int) -> bytes:
        self.most = max(self.most, size)
        end = min(self.size(name), at + size)
        return super().read(name, at, size).ljust(max(0, end - at), b"\0")


def packed(offset: int, body: bytes) -> bytes:
    frame = pack_entry(EntryKind.ENTRY, 3, b"q" * 16, 5, offset, 0, 0)
    start, padding = pack_record(RecordKind.BATCH, b"topic", frame, body, len(body), 0)
    return start + body + padding


def whole(data: bytes) -> list[Found]:
    """The records that begin anywhere, each behind the one before."""
    found: list[Found] = []
    at = HEAD_BYTES
    while at < len(data):
        record = read_record(data, at)
        found += [record] if record else []
        at += record.size if record else ALIGN
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_segment_is_gone_over_piece_by_piece_whatever_is_damaged(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(segment_reader, "SCAN_BYTES", chance.choice([1, 100, 333, 4_000]))
    bodies = [chance.randbytes(chance.choice([0, 50, 700])) for _ in range(60)]
    data = bytearray(HEAD_BYTES) + b"".join(map(packed, range(60), bodies))
    for _ in range(chance.choice([0, 3, 30])):
        at = chance.randrange(len(data))
        data[at : at + chance.choice([1, 8, 500])] = bytes(chance.choice([1, 8, 500]))
    data = data[: -chance.randrange(1, 200)] if seed % 2 else data
    files = PiecesRead(bytes(data))
    assert scan(files, "x.seg", HEAD_BYTES) == whole(bytes(data))
    assert files.most <= max(RECORD_BYTES + 5 + 700, 4_000)


def test_a_segment_with_a_large_hole_takes_no_more_memory_than_another_one() -> None:
    large = packed(1, bytes(2 * SCAN_BYTES))
    files = PiecesRead(bytes(HEAD_BYTES) + packed(0, b"one") + large, hole=10 * SCAN_BYTES)
    assert [found.offset for found in scan(files, "x.seg", HEAD_BYTES)] == [0, 1]
    assert files.most == len(large)
