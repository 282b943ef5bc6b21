"""A small log in segments, as an exchange has left it."""

from __future__ import annotations

from memory_files import MemoryFiles

from roq.log.disk_groups import perform
from roq.log.recovery import LogSettings, open_log

BATCH = b"x" * 100


def settings(epoch: int, queue: bytes = b"q" * 16, *, ahead: bool = False) -> LogSettings:
    """Of that log, opened under this epoch."""
    return LogSettings(
        queue=queue, exchange=3, epoch=epoch, cluster="c", host="h", ring_bytes=1, topics_max=100,
        topics_spare=0, capacity_bytes=1 << 40, keep_us=1 << 50, now_us=1_000,
        segment_bytes=1 << 30, segment_entries=10, ahead=ahead,
    )  # fmt: skip


def made(count: int = 35, queue: bytes = b"q" * 16) -> MemoryFiles:
    """A log with so many entries, ten in each segment, appended one microsecond apart."""
    files = MemoryFiles()
    log = open_log(files, settings(5, queue))
    for number in range(count):
        log.advance_clock(1_000 + number)
        log.append(b"t", BATCH, len(BATCH))
        group = log.gather(lambda: b"")
        assert group is not None
        perform(files, group)
        log.commit(group.end)
    return files
