"""Threads that wait for requests read what comes, and take it in."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

from roq.client.io.lock import ClientLock
from roq.client.request.reader import OutcomeReader
from roq.model import LogId

ONE = LogId(1, 1)


class PaperShell:
    """A publisher's, to which one thing comes whenever somebody waits."""

    failure: Exception | None = None

    def __init__(self) -> None:
        self._connections = SimpleNamespace()
        link = SimpleNamespace(number=4, log=ONE)
        self.machine = SimpleNamespace(links=SimpleNamespace(all=[link]))
        self.coming: deque[bytes] = deque()
        self.woken = 0

    def wait_for(self, condition: Callable[[], bool], _timeout: float) -> bool:
        if self.coming:
            self._connections.on_outcomes(4, [self.coming.popleft()])
        return condition()

    def wake(self) -> None:
        self.woken += 1


class Scene:
    def __init__(self) -> None:
        self.shell = PaperShell()
        self.told: deque[tuple[LogId, list[bytes]]] = deque()
        self.taken: list[tuple[LogId, list[bytes]]] = []
        self.heard: list[int] = []
        self.guard = ClientLock("it")
        self.calls: list[Callable[[], None]] = []
        engine = SimpleNamespace(call_soon=self.calls.append)
        self.reader = OutcomeReader(
            cast("Any", engine), cast("Any", self.shell), self.guard, self.told,
            has_news=lambda: bool(self.told), has_word=lambda: bool(self.told),
            take_in=self.take_in,
            on_news=lambda: self.heard.append(len(self.reader.threads)), on_cut=lambda: None,
        )  # fmt: skip

    def take_in(self) -> bool:
        assert self.guard.held()
        while self.told:
            self.taken.append(self.told.popleft())
        return True

    def wait(self, count: int, seconds: float) -> bool | None:
        return self.reader.wait_for(lambda: len(self.taken) == count, monotonic() + seconds)


def test_who_waits_takes_in_what_comes() -> None:
    scene = Scene()
    scene.shell.coming += b"a", b"b"
    assert scene.wait(2, 20.0)
    assert scene.taken == [(ONE, [b"a"]), (ONE, [b"b"])]
    assert scene.heard == [1, 1], "nobody else need look while a thread waits"
    assert not scene.reader.threads


def test_it_ends_in_time_whoever_has_the_lock() -> None:
    scene = Scene()
    assert scene.wait(1, 0.0) is False
    taken, over = threading.Event(), threading.Event()

    def hold() -> None:
        with scene.guard.lock:
            taken.set()
            over.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait(20)
    scene.told.append((ONE, [b"a"]))
    assert scene.wait(1, 0.0) is False
    over.set()
    thread.join()


def test_nothing_comes_of_a_publisher_that_has_ended() -> None:
    scene = Scene()
    scene.shell.failure = RuntimeError()
    assert scene.wait(1, 20.0) is None


def test_what_may_be_lost_is_asked_for_and_only_who_waits_is_woken() -> None:
    scene = Scene()
    scene.shell._connections.on_cut()
    assert len(scene.calls) == 1
    scene.reader.wake()
    assert scene.shell.woken == 0
    scene.reader.threads = {1}
    scene.reader.wake()
    assert scene.shell.woken == 1


def test_it_ends_in_time_however_much_comes_for_others() -> None:
    scene, turns = Scene(), [0]

    def take_in() -> bool:
        turns[0] += 1
        assert turns[0] < 3, "for ever"
        return True

    scene.reader._take_in = take_in
    scene.told.append((ONE, [b"a"]))
    assert scene.wait(1, 0.0) is False


def test_who_is_interrupted_anywhere_waits_no_more_when_it_has_waited_again() -> None:
    for line in range(1, 30):
        scene, lines = Scene(), [line]

        def trace(frame: FrameType, event: str, _: object, lines: list[int] = lines) -> Any:
            if frame.f_code.co_filename.endswith("request/reader.py") and event == "line":
                lines[0] -= 1
                if not lines[0]:
                    raise KeyboardInterrupt
            return trace

        scene.shell.coming.append(b"a")
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            scene.wait(1, 20.0)
        except KeyboardInterrupt:
            pass
        else:
            break
        finally:
            sys.settrace(before)
        scene.wait(5, 0.0)
        assert not scene.reader.threads, line
    else:
        pytest.fail("it was interrupted every time")
