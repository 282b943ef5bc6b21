"""An event that a signal's handler may set, in the middle of whatever its thread does."""

from __future__ import annotations

import queue
import signal
import sys
import threading
from collections.abc import Callable

import pytest

from roq.runtime.signals import SignalEvent

BOUND = 30
"""Seconds after which a thread is taken for locked out."""


def in_time(function: Callable[[], object]) -> bool:
    done = threading.Event()
    threading.Thread(target=lambda: (function(), done.set()), daemon=True).start()
    return done.wait(BOUND)


def test_it_stays_set_until_it_is_cleared() -> None:
    event = SignalEvent()
    assert not event.is_set()
    assert not event.wait(0)
    for _ in range(3):
        event.set()
    for _ in range(3):
        assert event.wait(BOUND)
    assert event.is_set()
    event.clear()
    assert not event.is_set()
    assert not event.wait(0.001)


@pytest.mark.parametrize("was_set", [False, True])
def test_a_time_that_is_over_is_not_waited_for(was_set: bool) -> None:
    event = SignalEvent()
    if was_set:
        event.set()
    assert event.wait(-0.5) is was_set
    assert event.take(-0.5) is was_set


def test_what_is_taken_is_set_once() -> None:
    event = SignalEvent()
    for _ in range(3):
        event.set()
        event.set()
        assert event.take(BOUND)
        assert not event.is_set()
        assert not event.take(0.001)


class Counted:
    """The queue of an event, which tells how many threads have begun to wait at it."""

    def __init__(self, wakes: queue.SimpleQueue[None]) -> None:
        self.begun = threading.Semaphore(0)
        self.put, self.empty, self._wakes = wakes.put, wakes.empty, wakes

    def get(self, timeout: float | None) -> None:
        self.begun.release()
        self._wakes.get(timeout=timeout)


def test_all_threads_that_wait_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    event, gone = SignalEvent(), threading.Semaphore(0)
    counted = Counted(event._wakes)
    monkeypatch.setattr(event, "_wakes", counted)

    def wait() -> None:
        event.wait()
        gone.release()

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert all(counted.begun.acquire(timeout=BOUND) for _ in threads)
    assert not gone.acquire(blocking=False)
    event.set()
    assert all(gone.acquire(timeout=BOUND) for _ in threads)
    assert event.wait(0)


@pytest.mark.parametrize("name", ["set", "clear", "wait", "take"])
def test_its_own_thread_may_set_it_in_the_middle_of_a_call(name: str) -> None:
    """As a handler does, which runs between any two steps of the main thread."""
    event = SignalEvent()
    calls = {
        "set": event.set,
        "clear": event.clear,
        "wait": lambda: event.wait(0.01),
        "take": lambda: event.take(0.01),
    }

    def run() -> None:
        sys.setprofile(lambda *_: event.set())
        calls[name]()
        calls[name]()
        sys.setprofile(None)

    assert in_time(run)


def test_handlers_that_interrupt_each_other_and_a_wait_end_it() -> None:
    event, seen = SignalEvent(), 0

    def handler(*_: object) -> None:
        nonlocal seen
        seen += 1
        event.set()

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    try:
        for _ in range(1_000):
            assert event.take(BOUND)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen >= 1_000
