"""Logs of exchanges that are not wanted any more go; what somebody may want is left, and named."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hcm_host import QUEUE_ID
from waiting import eventually

from roq.hcm.log_folders import LogFolders
from roq.log.disk import DiskFiles
from roq.log.disk_groups import perform
from roq.log.files import META, LogRefused
from roq.log.meta import Meta, claim_folder
from roq.log.recovery import LogSettings, open_log

X1 = "orders.x1"


def test_a_log_that_has_held_something_is_left_and_named(tmp_path: Path) -> None:
    folders = LogFolders(tmp_path)
    for number, entries in ((1, 0), (2, 1)):
        files = DiskFiles(folders.path(QUEUE_ID, number))
        log = open_log(
            files,
            LogSettings(
                queue=QUEUE_ID, exchange=number, epoch=5, cluster="c", host="h", ring_bytes=1,
                topics_max=9, topics_spare=0, capacity_bytes=1 << 40, keep_us=1 << 50, now_us=1,
            ),
        )  # fmt: skip
        for _ in range(entries):
            log.append(b"t", b"batch", 5)
        group = log.gather(lambda: b"")
        if group is not None:
            perform(files, group)
        files.close()
        folders.erase(f"orders.x{number}", QUEUE_ID, number, empty=True)
    assert folders.numbers(QUEUE_ID) == [2]
    assert folders.left() == LogFolders(tmp_path).left() == [
        ("orders.x2", folders.path(QUEUE_ID, 2))
    ]  # fmt: skip
    assert not folders.erase("orders.x3", QUEUE_ID, 3, empty=True)
    assert len(folders.left()) == 1, "there is none"
    assert folders.erase("orders.x2", QUEUE_ID, 2, empty=True), "it was there, and is"
    assert folders.erase("orders.x2", QUEUE_ID, 2)
    assert folders.left() == []


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("of", [(b"r" * 16, 1), (QUEUE_ID, 2)])
def test_the_log_of_another_exchange_that_was_moved_there_is_left(
    *, empty: bool, of: tuple[bytes, int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A start has refused it, and so its exchange is removed: what was moved is still wanted."""
    folders = LogFolders(tmp_path)
    path = folders.path(QUEUE_ID, 1)
    files = DiskFiles(path)
    queue, exchange = of
    claim_folder(
        files,
        Meta(cluster="c", queue=queue.hex(), exchange=exchange, generation=5, host="h"),
    )
    files.close()
    folders.erase(X1, QUEUE_ID, 1, empty=empty)
    assert (path / META).exists()
    assert f"it is the log of exchange x{exchange} of queue {queue.hex()}" in caplog.text
    assert folders.left() == [(X1, path)], "the host compares that name with those that run"


def test_a_log_goes_also_while_a_life_of_the_same_pid_has_left_some_to_be_removed(
    tmp_path: Path,
) -> None:
    """In a container a host manager has the same pid each time."""
    folders = LogFolders(tmp_path)
    for number in (1, 2):
        left = tmp_path / f"removed-{os.getpid()}-{number}"
        left.mkdir()
        (left / "segment").touch()
    path = folders.path(QUEUE_ID, 1)
    path.mkdir(parents=True)
    assert folders.erase(X1, QUEUE_ID, 1)
    assert not path.exists()


def test_a_log_is_removed_at_once_by_name_and_then_file_by_file(tmp_path: Path) -> None:
    folders = LogFolders(tmp_path / "logs")
    assert folders.numbers(QUEUE_ID) == []
    for number in (1, 12):
        folders.path(QUEUE_ID, number).mkdir(parents=True)
        (folders.path(QUEUE_ID, number) / "0.seg").write_bytes(b"x" * 100)
    (tmp_path / "logs" / QUEUE_ID.hex() / "notes").mkdir()
    assert folders.numbers(QUEUE_ID) == [1, 12]
    folders.erase("orders.x12", QUEUE_ID, 12)
    assert folders.numbers(QUEUE_ID) == [1]
    folders.erase("orders.x12", QUEUE_ID, 12)
    eventually(lambda: not list((tmp_path / "logs").glob("removed-*")), "the files are removed")
    (tmp_path / "logs" / QUEUE_ID.hex() / "notes").rmdir()
    folders.erase(X1, QUEUE_ID, 1)
    eventually(lambda: not list((tmp_path / "logs").iterdir()), "nothing of the queue is left")


def test_a_log_that_the_disk_does_not_let_go_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = LogFolders(tmp_path / "logs")
    path = folders.path(QUEUE_ID, 1)
    path.mkdir(parents=True)

    def refuse(_: Path, __: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", refuse)
        with pytest.raises(LogRefused, match=f"{path} stays: Input/output error"):
            folders.erase(X1, QUEUE_ID, 1)
    assert folders.erase(X1, QUEUE_ID, 1)
    eventually(lambda: not list((tmp_path / "logs").iterdir()), "the files are removed")
    (tmp_path / "logs" / QUEUE_ID.hex()).touch()
    with pytest.raises(LogRefused, match="logs stay"):
        folders.numbers(QUEUE_ID)


def test_of_a_disk_that_answers_nothing_no_log_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = LogFolders(tmp_path / "logs")
    (tmp_path / "logs" / "q").mkdir(parents=True)
    (tmp_path / "logs" / "q" / "x1.left").write_text("orders.x1")
    (tmp_path / "logs" / "q" / "x1").mkdir()
    assert [child for child, _ in folders.left()] == ["orders.x1"]

    def refuse(_: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "is_dir", refuse)
    assert folders.left() == []


def test_a_log_is_lacking_only_if_that_is_certain(tmp_path: Path) -> None:
    folders = LogFolders(tmp_path / "logs")
    path = folders.path(QUEUE_ID, 1)
    assert folders.lacks(QUEUE_ID, 1)
    path.mkdir(parents=True)
    (path / "lock").touch()
    assert folders.lacks(QUEUE_ID, 1), "made by a process that found no log"
    (path / META).touch()
    assert not folders.lacks(QUEUE_ID, 1)
    (path / META).rename(path / "0000000000000000-0000000000000001.seg")
    assert not folders.lacks(QUEUE_ID, 1), "a part of one: its process says what is wrong"
    path.parent.rename(tmp_path / "moved")
    path.parent.symlink_to(path.parent)
    assert not folders.lacks(QUEUE_ID, 1), "the system does not tell"


def test_what_an_earlier_life_was_removing_goes(tmp_path: Path) -> None:
    (tmp_path / "removed-7-1" / "deep").mkdir(parents=True)
    LogFolders(tmp_path).tidy()
    eventually(lambda: not list(tmp_path.iterdir()), "it is removed")
