"""Commits of others are noticed."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from job_lab import Lab

from roq.jobs.watch import ChangeWatch, Ticker, Wake


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


def test_a_wait_ends_when_it_was_woken_before() -> None:
    wake = Wake()
    for _ in range(3):
        wake.set()
    wake.wait(3600)
    began = threading.Event()

    def wait() -> None:
        began.set()
        wake.wait(3600)

    thread = threading.Thread(target=wait)
    thread.start()
    assert began.wait(30)
    wake.set()
    thread.join(30)
    assert not thread.is_alive()


def test_the_waiting_thread_itself_may_wake_at_any_moment() -> None:
    """As the handler of a signal does, which runs between any two steps of that thread."""
    wake, done = Wake(), threading.Event()

    def wait() -> None:
        sys.setprofile(lambda *_: wake.set())
        wake.wait(0.01)
        wake.wait(0.01)
        sys.setprofile(None)
        done.set()

    threading.Thread(target=wait, daemon=True).start()
    assert done.wait(30)
