"""The log of a durable exchange in a real folder: what is read back does not hold the loop up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import msgspec
import pytest
import zmq
from keyed_batch import batch_of

from roq.exchange import disk_log
from roq.exchange.disk_log import DiskLog
from roq.exchange.disk_room import PLENTY_BYTES, PLENTY_FILES, Room
from roq.exchange.events import Received
from roq.exchange.machine import ExchangeCore
from roq.exchange.reader_turns import Outcome, ReaderTurns
from roq.log.disk import DiskFiles
from roq.log.disk_groups import Group, settle
from roq.log.files import LogRefused
from roq.model import Limits
from roq.protocol import documents
from roq.protocol.channel import SEEK, Seek, SeekRequest
from roq.protocol.columns import key_hash
from roq.protocol.spec import ExchangeSpec
from roq.runtime.reactor import Reactor

BATCH = b"x" * 40_000


def test_an_exchange_that_has_had_a_log_makes_no_other_one(tmp_path: Path) -> None:
    with pytest.raises(LogRefused, match=f"{tmp_path}: there was a log, and it is not there"):
        Made(tmp_path, has_log=True)
    Made(tmp_path).disk.close()
    Made(tmp_path, has_log=True).disk.close()


class Made:
    """A log, and the calls that its threads have asked the loop for."""

    def __init__(
        self,
        folder: Path,
        *,
        ahead: bool = False,
        log_bytes: int = 1 << 30,
        has_log: bool = False,
    ) -> None:
        self.later: list[Callable[[], None]] = []
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.failed: list[str] = []
        values = {
            "child": "q.x1", "queue": "q", "queue_id": b"q" * 16, "epoch": 5, "bind": "127.0.0.1",
            "advertise": "127.0.0.1", "ports": (0, 0), "manager": "", "monitor": "", "number": 1,
            "host": "127.0.0.1", "log": str(folder), "ahead": ahead, "has_log": has_log,
            "limits": Limits(ring_bytes=1 << 20, message_bytes=1 << 16, log_bytes=log_bytes),
        }  # fmt: skip
        spec = msgspec.convert(values, ExchangeSpec)
        self.disk = DiskLog(spec, 1_000, self, lambda: None, self.failed.append)
        self.log = self.disk.log
        for _ in range(60):
            self.log.append(b"t", BATCH, len(BATCH))
        self.disk.write_on(bytes, bytes)
        self.turn()

    def turn(self) -> None:
        self.calls.get(timeout=30)()

    def until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self.turn()

    def commit(self) -> None:
        """Have all of it committed."""
        while self.log.committed < self.log.end:
            self.disk.write_on(bytes, bytes)
            self.turn()

    def call_soon(self, function: Callable[[], None]) -> None:
        self.calls.put(function)

    call_here = call_soon

    def call_later(self, delay: float, function: Callable[[], None]) -> None:
        assert delay
        self.later.append(function)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    one = Made(tmp_path / "log")
    yield one
    one.disk.close()


def test_a_small_log_takes_no_more_of_the_disk_than_it_may(tmp_path: Path) -> None:
    made = Made(tmp_path / "log", log_bytes=1 << 20)
    for _ in range(100):
        made.log.append(b"t", BATCH, len(BATCH))
        made.commit()
    made.until(lambda: made.disk._remover is not None and not made.disk._remover.busy)
    assert made.log.floor > 0
    size = sum(path.stat().st_size for path in (tmp_path / "log").iterdir())
    made.disk.close()
    assert size <= 1.25 * (1 << 20)


class SlowRemoval:
    """Files are removed when `go_on` says so."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Semaphore(0)
        self._may = threading.Semaphore(0)
        self.threads: set[str] = set()
        remove = disk_log.remove

        def removing(files: DiskFiles, names: list[str]) -> None:
            self.threads.add(threading.current_thread().name)
            self.begun.release()
            assert self._may.acquire(timeout=30)
            remove(files, names)

        patch.setattr(disk_log, "remove", removing)

    def go_on(self) -> None:
        self._may.release()


def leave(made: Made, times: int) -> None:
    """Append until the oldest segment has left, so often."""
    for _ in range(times):
        floor = made.log.floor
        while made.log.floor == floor:
            made.log.append(b"t", BATCH, len(BATCH))
            made.commit()
        made.log.append(b"t", BATCH, len(BATCH))
        made.commit()  # with what is to be removed


def removing(
    folder: Path, patch: pytest.MonkeyPatch, times: int = 1
) -> tuple[Made, SlowRemoval, list[int]]:
    """A log of which so many segments have left, while the first is removed; and how far it was
    committed each time that was told."""
    slow, made = SlowRemoval(patch), Made(folder, log_bytes=1 << 20)
    committed: list[int] = []
    made.disk._committed = lambda: committed.append(made.log.committed)
    leave(made, times)
    assert slow.begun.acquire(timeout=30)
    return made, slow, committed


def test_nobody_waits_for_the_removal_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, slow, _ = removing(tmp_path / "log", monkeypatch)
    end = made.log.end
    made.log.append(b"t", BATCH, len(BATCH))
    made.commit()
    assert made.log.committed == end + 1
    assert slow.threads == {"log remover"}
    slow.go_on()
    made.until(lambda: made.disk._remover is not None and not made.disk._remover.busy)
    names = {path.name for path in (tmp_path / "log").glob("*.seg")}
    segments = [*made.log._closed, made.log._active]
    assert names == {each.name for each in segments}
    assert made.disk.close()


def test_what_came_while_files_left_is_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(tmp_path / "log", log_bytes=1 << 20)
    given: list[Group[bytes]] = []
    write = made.disk._writer.write
    monkeypatch.setattr(
        made.disk._writer, "write", lambda group: given.append(group) or write(group)
    )
    made.disk._committed = lambda: made.disk.write_on(bytes, bytes)  # as an exchange does
    alone = 0
    for _ in range(100):
        made.log.append(b"t", BATCH, len(BATCH))
        made.disk.write_on(bytes, bytes)
        made.until(lambda: made.log.committed == made.log.end)
        if given[-1].removed and not given[-1].records:  # it is under way, and nothing else
            alone += 1
            made.log.append(b"t", BATCH, len(BATCH))
            made.until(lambda: made.log.committed == made.log.end)
    assert alone > 3
    assert made.disk.close()


def test_room_is_told_when_files_have_left_though_others_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, slow, _ = removing(tmp_path / "log", monkeypatch)
    told: list[Room] = []
    made.disk.measured = told.append
    left = 1 << 30, 1 << 40, 1 << 20, 1 << 20
    monkeypatch.setattr(made.disk._files, "room", lambda: left)
    monkeypatch.setattr(made.disk._reader, "busy", True)
    slow.go_on()
    made.until(lambda: bool(told))
    assert told == [Room(*left)]
    assert made.disk.close()


def test_nothing_is_written_while_more_than_the_disk_is_at_waits_for_its_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, slow, committed = removing(tmp_path / "log", monkeypatch, times=2)
    made.log.append(b"t", BATCH, len(BATCH))
    made.disk.write_on(bytes, bytes)
    assert not made.disk._writer.busy
    assert made.log.committed < made.log.end
    told = len(committed)
    slow.go_on()
    made.until(lambda: len(committed) > told)  # so that the exchange has it written
    made.commit()
    slow.go_on()
    made.until(lambda: made.disk._remover is not None and not made.disk._remover.busy)
    assert made.disk.close()


def test_indexes_are_synced_and_nobody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may = threading.Event()
    synced: dict[str, str] = {}

    def sync(files: DiskFiles, name: str) -> None:
        assert may.wait(timeout=30)
        synced[name] = threading.current_thread().name
        sync_beside(files, name)

    sync_beside = DiskFiles.sync_beside
    monkeypatch.setattr(DiskFiles, "sync_beside", sync)
    made = Made(tmp_path / "log")
    made.log._segment_entries = 60
    for number in range(5):
        for _ in range(60):
            made.log.append(b"t", BATCH, len(BATCH))
        made.commit()
        assert made.log.committed == 60 * (2 + number)
    assert not synced
    may.set()
    names = {path.name for path in (tmp_path / "log").glob("*.idx")}
    assert len(names) == 5
    made.until(lambda: names <= synced.keys())
    assert set(synced.values()) == {"index syncer"}
    assert made.disk.close()


def test_indexes_that_a_start_makes_again_are_synced_behind_its_first_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut takes them again, and the next start makes all of them once more."""
    first = Made(tmp_path / "log")
    first.log._segment_entries = 60
    for _ in range(3):
        for _ in range(60):
            first.log.append(b"t", BATCH, len(BATCH))
        first.commit()
    assert first.disk.close()
    for path in (tmp_path / "log").glob("*.idx"):
        path.unlink()
    synced = set()

    def sync(files: DiskFiles, name: str) -> None:
        sync_beside(files, name)
        synced.add(name)

    sync_beside = DiskFiles.sync_beside
    monkeypatch.setattr(DiskFiles, "sync_beside", sync)
    again = Made(tmp_path / "log")
    names = {path.name for path in (tmp_path / "log").glob("*.idx")}
    assert len(names) == 3
    again.until(lambda: names <= synced)
    assert again.disk.close()


def test_a_file_that_cannot_be_removed_ends_what_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(tmp_path / "log", log_bytes=1 << 20)
    monkeypatch.setattr(DiskFiles, "remove", refuse)
    leave(made, 1)
    made.until(lambda: bool(made.failed))
    (why,) = made.failed
    assert why == f"cannot remove files of its log in {tmp_path / 'log'}: Input/output error"
    made.log.append(b"t", BATCH, len(BATCH))
    made.disk.write_on(bytes, bytes)
    assert not made.disk._writer.busy
    made.disk.close()


def test_what_is_in_memory_is_there_at_once(made: Made) -> None:
    assert made.log.hot.floor > 1
    record = made.disk.at_hand(lambda: made.log.record(59), lambda: None)
    assert record is not None
    assert made.log.patient


def test_what_is_on_the_disk_is_read_in_a_thread_and_asked_for_again(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The segment that is written is in the system's memory; another process has an old one.
    made.log._reader._growing = ""
    readers: list[str] = []
    read = DiskFiles.read

    def seen(files: DiskFiles, name: str, at: int, size: int) -> bytes:
        readers.append(threading.current_thread().name)
        return read(files, name, at, size)

    monkeypatch.setattr(DiskFiles, "read", seen)
    again: list[str] = []
    found = None
    for _ in range(10):
        found = made.disk.at_hand(lambda: made.log.record(1), lambda: again.append("again"))
        if found is not None:
            break
        assert made.disk.at_hand(lambda: made.log.record(0), lambda: again.append("again")) is None
        assert made.calls.qsize() <= 1, "one thing is read at a time"
        made.turn()
    assert found is not None
    assert found[2] == BATCH
    assert again
    assert set(readers) == {"log reader"}
    assert made.failed == []


def test_a_segment_that_is_complete_gets_an_index_of_its_keys_from_a_thread_of_its_own(
    tmp_path: Path,
) -> None:
    made = Made(tmp_path / "log")
    made.log._segment_entries = 60
    batch = batch_of(["k"])
    made.log.append(b"t", batch, len(batch))
    before = {thread.name for thread in threading.enumerate()}
    assert "key indexer" not in before, "there was nothing to do for it"
    while not (files := [*tmp_path.rglob("*.keys")]):
        made.disk.write_on(bytes, bytes)
        made.turn()
    assert made.log.find(key_hash("k"), 61) == ([(60, 61)], 0)
    made.disk.close()
    assert "key indexer" not in {thread.name for thread in threading.enumerate()}
    assert made.failed == []
    assert len(files) == 1


def test_an_index_that_is_being_made_does_not_hold_up_the_end_of_a_process(tmp_path: Path) -> None:
    made = Made(tmp_path / "log")
    made.disk._closing.set()
    with pytest.raises(InterruptedError):
        made.disk._give_way()
    made.disk.close()


def test_a_question_about_old_entries_waits_for_the_disk_and_the_loop_does_not(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.log._reader._growing = ""
    limits = Limits(ring_bytes=1 << 20, message_bytes=1 << 16)
    core = cast(
        "ExchangeCore[bytes | zmq.Frame]",
        ExchangeCore(b"q" * 16, 1, 5, limits, late=made.log),
    )
    core.begin(0.0, 1_000)
    sent: list[tuple[bytes, ...]] = []

    def send(_route: bytes, parts: tuple[bytes, ...], _batch: object) -> Outcome:
        sent.append(parts)
        return Outcome.SENT

    turns = ReaderTurns(
        cast("Reactor", made), core, send, lambda _: None, lambda: None, made.disk.at_hand,
    )  # fmt: skip
    readers: set[str] = set()
    read = DiskFiles.read

    def seen(files: DiskFiles, name: str, at: int, size: int) -> bytes:
        readers.add(threading.current_thread().name)
        return read(files, name, at, size)

    monkeypatch.setattr(DiskFiles, "read", seen)
    for number in range(2):
        question = SeekRequest(id=number, queue=b"q" * 16, time_us=1)
        core.handle(Received(b"reader", (SEEK, documents.encode(question))), 0.0)
    turns.look()
    while len(sent) < 2:
        made.turn()
    answers = [documents.decode(parts[1], Seek) for parts in sent]
    assert [(each.id, each.offset) for each in answers] == [(0, 0), (1, 0)]
    assert readers == {"log reader"}
    core.requests.check()


def refuse(*_: object) -> None:
    raise OSError(5, "Input/output error")


def ahead_of_the_disk(folder: Path) -> Made:
    """A log that has committed one entry that is not on the disk."""
    made = Made(folder, ahead=True)
    made.log.append(b"t", BATCH, len(BATCH))
    made.disk.write_on(bytes, bytes)
    made.turn()
    assert (made.log.committed, made.log.synced) == (61, 60)
    return made


def test_changes_of_groups_are_synced_in_time_though_no_batch_comes(tmp_path: Path) -> None:
    made = ahead_of_the_disk(tmp_path / "log")
    (sync_in_time,) = made.later
    sync_in_time()
    made.turn()
    assert made.log.synced == 61
    assert made.disk.settled
    made.later.clear()
    made.disk.write_on(bytes, lambda: b"changes")
    made.turn()
    assert not made.disk.settled
    (sync_in_time,) = made.later
    sync_in_time()
    made.turn()
    assert made.disk.settled
    assert len(made.later) == 1, "and that is all"
    made.disk.close()


def test_after_a_sync_that_failed_another_one_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ahead_of_the_disk(tmp_path / "log")
    made.log.want_snapshot()
    monkeypatch.setattr(DiskFiles, "sync", refuse)
    made.disk.write_on(bytes, bytes)
    made.turn()
    assert len(made.failed) == 1
    (sync_in_time,) = made.later
    sync_in_time()  # the system tells each error once: this one returns
    made.turn()
    assert made.log.synced == 60, "what the system has dropped nobody knows"
    made.disk.close()


def test_after_a_sync_beside_that_failed_nothing_more_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ahead_of_the_disk(tmp_path / "log")
    monkeypatch.setattr(DiskFiles, "sync_beside", refuse)
    (sync_in_time,) = made.later
    made.log.want_snapshot()
    made.disk.write_on(bytes, bytes)
    sync_in_time()
    made.turn()
    made.turn()
    assert len(made.failed) == 1
    # The group with the snapshot was under way: it may be told before the failure, or not at all.
    before = made.log.committed, made.log.synced
    made.log.append(b"t", BATCH, len(BATCH))
    made.disk.write_on(bytes, lambda: pytest.fail("changes are taken"))
    assert made.disk.close()
    assert made.calls.empty()
    assert (made.log.committed, made.log.synced) == before


@pytest.mark.parametrize(("more", "looks"), [(PLENTY_BYTES, 0), (-1, 3)])
def test_where_the_disk_has_plenty_it_is_not_looked_behind_each_group(
    made: Made, monkeypatch: pytest.MonkeyPatch, more: int, looks: int
) -> None:
    limits = Limits()
    room = (
        limits.disk_free_bytes + more, 1 << 40, limits.disk_free_files + PLENTY_FILES, 1 << 20,
    )  # fmt: skip
    asked, told = list[int](), list[Room]()
    monkeypatch.setattr(made.disk._files, "room", lambda: asked.append(1) or room)
    made.disk.measured = told.append
    made.disk.look_now()
    assert (len(asked), len(told)) == (1, 1)
    for _ in range(3):
        made.log.append(b"t", BATCH, len(BATCH))
        made.disk.write_on(bytes, bytes)
        made.turn()
    assert len(asked) == len(told) == 1 + looks, "what was measured is told once"
    monkeypatch.setattr(disk_log, "LOOK_BYTES", len(BATCH))
    made.log.append(b"t", BATCH, len(BATCH))
    made.disk.write_on(bytes, bytes)
    made.turn()
    assert len(asked) == 2 + looks, "now and then it is"


def test_what_waited_to_be_written_when_it_was_looked_counts_when_it_is_written(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits, asked = Limits(), list[int]()
    room = limits.disk_free_bytes + PLENTY_BYTES, 1 << 40, 1 << 20, 1 << 20
    monkeypatch.setattr(made.disk._files, "room", lambda: asked.append(1) or room)
    monkeypatch.setattr(disk_log, "LOOK_BYTES", 2 * len(BATCH))

    def append() -> None:
        for _ in range(2):
            made.log.append(b"t", BATCH, len(BATCH))

    def settling(*given: Any) -> None:
        settle(*given)
        if len(asked) == 1:
            append()  # while the first group is written

    monkeypatch.setattr(disk_log, "settle", settling)
    made.disk.look_now()
    append()
    for looks in (2, 3):
        made.disk.write_on(bytes, bytes)
        made.turn()
        assert len(asked) == looks
