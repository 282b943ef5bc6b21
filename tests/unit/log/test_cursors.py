"""Cursors over a log whose disk refuses to read for a while: nothing of it is passed over."""

from __future__ import annotations

import pytest
from memory_files import MemoryFiles

from roq.log.cursors import cursor
from roq.log.disk_groups import perform
from roq.log.files import INDEX_SUFFIX, SEGMENT_SUFFIX
from roq.log.log import NotAtHand, NotGiven
from roq.log.patient_reads import AGAIN_SECONDS, REFUSED_SECONDS, PatientReads
from roq.log.recovery import LogSettings, open_log
from roq.log.segments import SegmentLog
from roq.protocol.channel import FetchRequest


class ShortOfFiles(MemoryFiles):
    """Refuses to read what is named so."""

    refused: tuple[str, ...] = ()

    def read(self, name: str, at: int, size: int) -> bytes:
        if name.endswith(self.refused):
            raise OSError(24, "Too many open files")
        return super().read(name, at, size)


ALL = (SEGMENT_SUFFIX, INDEX_SUFFIX)


def log_of(entries: int) -> tuple[SegmentLog[bytes], ShortOfFiles]:
    """A log of which memory holds the last entry at most; ten in each segment."""
    files = ShortOfFiles()
    log = open_log(
        files,
        LogSettings(
            queue=b"q" * 16, exchange=3, epoch=5, cluster="c", host="h", ring_bytes=1,
            topics_max=100, topics_spare=0, capacity_bytes=1 << 40, keep_us=1 << 50, now_us=1_000,
            segment_bytes=1 << 20, segment_entries=9,
        ),
    )  # fmt: skip
    for _ in range(entries):
        log.append(b"a", b"0123456789", 10)
        group = log.gather(lambda: b"")
        assert group is not None
        perform(files, group)
        log.commit(group.end)
    return log, files


SPAN = FetchRequest(id=1, queue=b"q", generation=5, prefixes=[b""], first=0, until=35)
WANTS = FetchRequest(id=1, queue=b"q", generation=5, wants=[(b"a", 0, 35)])


@pytest.mark.parametrize("request_", [SPAN, WANTS])
@pytest.mark.parametrize("refused", [ALL, (SEGMENT_SUFFIX,)])
@pytest.mark.parametrize("begun", [False, True])
def test_what_the_disk_refuses_for_a_while_comes(
    request_: FetchRequest, refused: tuple[str, ...], begun: bool
) -> None:
    log, files = log_of(40)
    found = cursor(log, PatientReads(log), request_)
    offsets = []
    if begun:
        assert found.offset(0.0) == 0
        found.advance()
        offsets = [0]
    files.refused = refused
    for second in range(int(REFUSED_SECONDS)):
        try:
            while (offset := found.offset(second * AGAIN_SECONDS)) is not None:
                offsets.append(offset)  # of what was read ahead
                found.advance()
        except NotGiven:
            pass
        assert found.reached == len(offsets)
        assert not found.done
    files.refused = ()
    while (offset := found.offset(REFUSED_SECONDS)) is not None:
        offsets.append(offset)
        found.advance()
    assert offsets == list(range(35))
    assert found.done
    assert found.evicted == log.unreadable == 0


@pytest.mark.parametrize("request_", [SPAN, WANTS])
def test_what_it_refuses_for_good_is_passed_over_and_counted(request_: FetchRequest) -> None:
    log, files = log_of(40)
    reads = PatientReads(log)
    found = cursor(log, reads, request_)
    files.refused = ALL
    now = 0.0
    offsets = []
    while not found.done:
        assert now <= 2 * REFUSED_SECONDS
        try:
            while (offset := found.offset(now)) is not None:
                offsets.append(offset)
                found.advance()
        except NotGiven:
            now += AGAIN_SECONDS
    assert now >= REFUSED_SECONDS
    assert reads.lost > 0
    assert found.evicted == (reads.lost if request_ is SPAN else 0)
    assert len(offsets) < 35, "what was at hand has come all the same"


def test_segments_that_are_refused_for_good_are_passed_over_by_who_does_not_wait_for_the_disk() -> (
    None
):
    log, files = log_of(150)  # there are indexes in memory of the last of them only
    files.refused = ALL
    log.patient = False
    found = cursor(log, PatientReads(log), WANTS)
    now, offsets = 0.0, list[int]()
    for _ in range(1_000):
        try:
            while (offset := found.offset(now)) is not None:
                offsets.append(offset)
                found.advance()
        except NotGiven:
            now += AGAIN_SECONDS
        except NotAtHand as miss:
            miss.keep(miss.load())
        if found.done:
            break
    assert found.done, "several segments in a row"
    assert now >= REFUSED_SECONDS
