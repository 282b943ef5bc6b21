"""Commits of others are noticed."""

from __future__ import annotations

import threading
from pathlib import Path

from job_lab import Lab

from roq.jobs.watch import ChangeWatch, Ticker


def test_a_commit_of_another_connection_is_noticed(tmp_path: Path) -> None:
    lab = Lab(str(tmp_path / "jobs.db"))
    changed = threading.Event()
    watch = ChangeWatch(lab.database, changed.set)
    assert changed.wait(30)
    for _ in range(3):
        changed.clear()
        lab.submit()
        assert changed.wait(30)
    watch.close()
    lab.close()


def test_a_ticker_calls_until_it_is_closed() -> None:
    called = threading.Semaphore(0)
    ticker = Ticker(0.001, called.release)
    for _ in range(3):
        assert called.acquire(timeout=30)
    ticker.close()
    while called.acquire(blocking=False):
        pass
    assert not called.acquire(timeout=0.05)
