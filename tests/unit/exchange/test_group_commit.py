"""What comes while groups are synced is written, and synced together; the loop hears in order."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest
from waiting import eventually

from roq.exchange.group_commit import GroupCommit


class Disk:
    """A disk that writes and syncs when it is let."""

    def __init__(self) -> None:
        self.steps: SimpleQueue[str] = SimpleQueue()
        """What has begun."""
        self.writes, self.syncs = threading.Event(), threading.Event()
        self.writes.set()
        self.syncs.set()
        self.failing: dict[str, Exception] = {}

    def write(self, group: str) -> None:
        self.step(f"write {group}", self.writes)

    def settle(self, groups: list[str]) -> None:
        self.step(f"sync {' '.join(groups)}", self.syncs)

    def step(self, what: str, goes: threading.Event) -> None:
        self.steps.put(what)
        assert goes.wait(30)
        if what in self.failing:
            raise self.failing[what]


class Loop:
    """Calls of the threads, run when they are waited for."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.done: list[list[str]] = []
        self.failed: list[Exception] = []
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.writer: GroupCommit[str] = GroupCommit(
            self.disk.write, self.disk.settle, self.calls.put, self.calls.put, self.done.append,
            self.failed.append,
        )  # fmt: skip

    def turn(self) -> None:
        self.calls.get(timeout=30)()

    def step(self) -> str:
        return self.disk.steps.get(timeout=30)

    def write(self, group: str) -> None:
        """Hand it over, and wait until it is written, or its write has failed."""
        assert not self.writer.busy
        self.writer.write(group)
        assert self.step() == f"write {group}"

    def idle(self) -> None:
        """Wait until a group may be handed over."""
        eventually(lambda: not self.writer.busy)


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.disk.writes.set()
    made.disk.syncs.set()
    assert made.writer.close()


def test_a_group_is_written_and_synced_and_the_loop_hears_of_it(loop: Loop) -> None:
    loop.disk.writes.clear()
    loop.write("one")
    assert loop.writer.busy
    loop.disk.writes.set()
    loop.turn()
    assert (loop.done, loop.step(), loop.writer.busy) == ([["one"]], "sync one", False)
    loop.write("two")
    loop.turn()
    assert loop.done == [["one"], ["two"]]


def test_what_comes_during_a_sync_is_written_and_synced_together_afterwards(loop: Loop) -> None:
    loop.disk.syncs.clear()
    loop.write("one")
    assert loop.step() == "sync one"
    for group in ("two", "three"):
        loop.idle()
        loop.write(group)
    loop.idle()
    assert (loop.done, loop.disk.steps.empty()) == ([], True)
    loop.disk.syncs.set()
    assert loop.step() == "sync two three"
    loop.turn()
    loop.turn()
    assert [group for groups in loop.done for group in groups] == ["one", "two", "three"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("a bug")])
@pytest.mark.parametrize("what", ["write one", "sync one"])
def test_a_failure_is_final(loop: Loop, error: Exception, what: str) -> None:
    loop.disk.failing[what] = error
    loop.write("one")
    loop.turn()
    assert (loop.failed, loop.done) == ([error], [])
    assert loop.writer.busy, "nothing more is handed over"


def test_what_is_written_when_a_sync_fails_is_not_synced_by_another_one(loop: Loop) -> None:
    loop.disk.syncs.clear()
    loop.write("one")
    assert loop.step() == "sync one"
    loop.idle()
    loop.disk.writes.clear()
    loop.write("two")
    error = loop.disk.failing["sync one"] = OSError(5, "Input/output error")
    loop.disk.syncs.set()
    loop.turn()
    loop.disk.writes.set()
    assert loop.writer.close()
    assert (loop.failed, loop.done) == ([error], [])
    assert loop.disk.steps.empty(), "what the system has dropped nobody knows"
    assert loop.calls.empty()
    assert loop.writer.busy


def test_a_group_that_was_handed_over_as_another_one_failed_is_not_written(loop: Loop) -> None:
    loop.disk.failing["write a"] = OSError(5, "Input/output error")
    loop.disk.writes.clear()
    loop.write("a")
    loop.disk.writes.set()
    loop.turn()
    loop.writer.write("b")  # as if the loop had not heard of it
    assert loop.writer.close()
    assert loop.disk.steps.empty()
    assert loop.done == []


def test_what_was_synced_before_a_write_failed_is_told(loop: Loop) -> None:
    loop.disk.syncs.clear()
    loop.write("one")
    assert loop.step() == "sync one"
    loop.idle()
    error = loop.disk.failing["write two"] = OSError(28, "No space left on device")
    loop.write("two")
    loop.turn()
    assert loop.failed == [error]
    loop.disk.syncs.set()
    loop.turn()
    assert loop.done == [["one"]]
    assert loop.writer.busy


def test_what_is_under_way_is_completed_before_the_end() -> None:
    loop = Loop()
    loop.writer.write("one")
    assert loop.writer.close()
    loop.turn()
    assert loop.done == [["one"]]


def test_a_group_that_is_on_the_disk_is_held_by_no_thread() -> None:
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    writer: GroupCommit[set[int]] = GroupCommit(len, len, len, calls.put, len, repr)  # type: ignore[arg-type]
    group = {1}
    held = weakref.ref(group)
    writer.write(group)
    del group
    calls.get(timeout=30)()
    eventually(lambda: held() is None)
    assert writer.close()


def test_while_one_thread_tells_in_place_of_the_loop_the_other_one_settles() -> None:
    disk, loop_calls, told = Disk(), SimpleQueue[Callable[[], None]](), list[str]()
    telling, go_on = threading.Event(), threading.Event()

    def in_place(call: Callable[[], None]) -> None:
        if telling.is_set():  # as the loop's turn is taken
            loop_calls.put(call)
            return
        telling.set()
        call()

    def done(groups: list[str]) -> None:
        if not told:
            writer.write("two")
            assert go_on.wait(30)
        told.extend(groups)

    writer: GroupCommit[str] = GroupCommit(
        disk.write, disk.settle, loop_calls.put, in_place, done, lambda error: None
    )
    writer.write("one")
    steps = [disk.steps.get(timeout=30) for _ in range(4)]
    assert steps == ["write one", "sync one", "write two", "sync two"], "though one is being told"
    assert told == []
    call = loop_calls.get(timeout=30)
    go_on.set()
    assert writer.close()
    call()
    assert told == ["one", "two"]


def test_a_disk_that_hangs_does_not_hold_up_the_end() -> None:
    loop = Loop()
    loop.disk.writes.clear()
    loop.write("one")
    assert not loop.writer.close(0.01)
    loop.disk.writes.set()
    assert loop.writer.close()
