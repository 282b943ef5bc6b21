"""What opening a log says when it cannot; what it finds is tested in test_segments.py."""

from __future__ import annotations

import errno

import pytest
from memory_files import MemoryFiles

from roq.log.files import LogRefused
from roq.log.recovery import LogSettings, open_log

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
