"""One group at a time, in a thread; the loop hears what has become of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest

from roq.exchange.disk_worker import DiskWorker


class Disk:
    """A disk that writes when it is let."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.failing: Exception | None = None
        self.goes = threading.Event()
        self.goes.set()

    def perform(self, group: str) -> None:
        assert self.goes.wait(30)
        if self.failing is not None:
            raise self.failing
        self.written.append(group)


class Loop:
    """Calls of the thread, run when they are waited for."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.done: list[str] = []
        self.failed: list[Exception] = []
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.worker: DiskWorker[str] = DiskWorker(
            self.disk.perform, self._calls.put, self.done.append, self.failed.append
        )

    def turn(self) -> None:
        self._calls.get(timeout=30)()


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.disk.goes.set()
    assert made.worker.close()


def test_a_group_is_written_and_the_loop_hears_of_it(loop: Loop) -> None:
    assert not loop.worker.busy
    loop.disk.goes.clear()
    loop.worker.begin("one")
    assert loop.worker.busy
    assert loop.done == []
    loop.disk.goes.set()
    loop.turn()
    assert (loop.done, loop.disk.written, loop.worker.busy) == (["one"], ["one"], False)
    loop.worker.begin("two")
    loop.turn()
    assert loop.done == ["one", "two"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("a bug")])
def test_a_failure_is_final(loop: Loop, error: Exception) -> None:
    loop.disk.failing = error
    loop.worker.begin("one")
    loop.turn()
    assert (loop.failed, loop.done) == ([error], [])
    assert loop.worker.busy, "nothing more is handed over"


def test_what_is_being_written_is_completed_before_the_end() -> None:
    loop = Loop()
    loop.worker.begin("one")
    assert loop.worker.close()
    assert loop.disk.written == ["one"]


def test_a_disk_that_hangs_does_not_hold_up_the_end() -> None:
    loop = Loop()
    loop.disk.goes.clear()
    loop.worker.begin("one")
    assert not loop.worker.close(0.01)
    loop.disk.goes.set()
    assert loop.worker.close()
