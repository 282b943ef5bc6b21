"""A lock that refuses its own thread, and that no raising signal handler leaves taken."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from roq.client.io.engine import Engine
from roq.client.io.lock import ClientLock
from roq.errors import Reentered


class Hurry(Exception):
    """What the signal handler raises."""


def test_its_own_thread_is_refused_and_told_what_to_do() -> None:
    guard = ClientLock("the publisher of q")
    guard.check()
    with (
        guard.lock,
        pytest.raises(Reentered, match=r"inside the publisher of q.*Let it leave a note"),
    ):
        guard.check()
    guard.check()


def test_another_thread_waits_instead() -> None:
    guard, found = ClientLock("it"), list[int | None]()

    def look() -> None:
        guard.check()
        found.append(guard.within(0.01, lambda: 1))
        found.append(guard.within(30.0, lambda: 2))

    thread = threading.Thread(target=look)
    with guard.lock:
        thread.start()
        deadline = time.monotonic() + 30
        while not found and time.monotonic() < deadline:
            thread.join(0.01)
        assert guard.within(1.0, lambda: 3) is None, "by itself it is refused"
    thread.join(30)
    assert found == [None, 2]
    assert guard.within(1.0, lambda: 3) == 3
    assert not guard.held()


def test_an_engine_knows_whether_a_thread_is_inside_any_of_its_guards() -> None:
    engine = Engine("guards")
    engine.start()
    try:
        one, two = engine.guard("one"), engine.guard("two")
        engine.check_outside()
        with two.lock, pytest.raises(Reentered, match="two"):
            engine.run_sync(lambda: None)
        with one.lock, pytest.raises(Reentered, match="one"):
            engine.check_outside()
        engine.run_sync(lambda: None)
        del one, two
        assert not engine._guards
    finally:
        engine.close()


def test_a_signal_handler_that_raises_leaves_it_free() -> None:
    guard, wanted = ClientLock("it"), False

    def hurry(*_: object) -> None:
        nonlocal wanted
        if wanted:
            wanted = False  # once in each attempt
            raise Hurry

    before = signal.signal(signal.SIGALRM, hurry)
    hurried, deadline = 0, time.monotonic() + 1.0
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        while time.monotonic() < deadline:
            try:
                wanted = True
                while wanted:  # a handler that was called by the garbage collector raises nowhere
                    guard.check()
                    with guard.lock:
                        guard.held()
                    guard.within(1.0, guard.held)
            except Hurry:
                hurried += 1
            assert not guard.held()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert hurried
