"""The log that a measurement needs is made as an exchange would leave it."""

from __future__ import annotations

from pathlib import Path

from roq.benchmarks.logs import forget_pages, make, settings
from roq.log.disk import DiskFiles
from roq.log.recovery import open_log
from roq.model import Limits


def test_a_log_is_as_large_as_it_is_to_be_and_opens(tmp_path: Path) -> None:
    entries = make(tmp_path / "log", 300_000, messages=2, size=50, topics=3, tail=100_000)
    forget_pages(tmp_path / "log")
    files = DiskFiles(tmp_path / "log")
    try:
        log = open_log(files, settings(Limits(), epoch=2))
        assert (log.floor, log.end) == (0, entries)
        assert log.kept >= 300_000
        assert log.topics == 3
    finally:
        files.close()
