"""The real disk: what it is asked for is there, and one process has a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roq.log.disk import BUFFERS_MAX, DiskFiles
from roq.log.files import META, LogRefused
from roq.log.meta import read_meta


@pytest.fixture
def files(tmp_path: Path) -> Iterator[DiskFiles]:
    files = DiskFiles(tmp_path / "a" / "log")
    yield files
    files.close()


def test_what_was_written_is_read(files: DiskFiles) -> None:
    parts: list[bytes | memoryview] = [b"%d," % number for number in range(2 * BUFFERS_MAX + 7)]
    files.create("one")
    files.write("one", 0, parts)
    whole = b"".join(parts)
    files.write("one", len(whole), [memoryview(b"end"), b""])
    files.sync("one")
    files.sync_folder()
    assert files.size("one") == len(whole) + 3
    assert files.read("one", 0, 1 << 20) == whole + b"end"
    assert files.read("one", len(whole) - 1, 2) == b",e"
    assert files.read("one", 1 << 20, 5) == b""


def test_a_system_that_takes_little_at_once_gets_all_of_it(
    files: DiskFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def little(descriptor: int, buffers: list[bytes], at: int) -> int:
        return os.pwrite(descriptor, memoryview(b"".join(map(bytes, buffers)))[:5], at)

    monkeypatch.setattr(os, "pwritev", little)
    files.create("one")
    files.write("one", 0, [b"abc", b"", b"defghij", memoryview(b"klmno")])
    assert files.read("one", 0, 100) == b"abcdefghijklmno"


def test_a_sync_of_the_folder_that_failed_fails_whoever_asks_for_the_next_one(
    files: DiskFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_once(_: int) -> None:
        monkeypatch.undo()  # the system tells it once
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail_once)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            files.sync_folder()


def test_a_folder_that_is_there_may_not_have_been_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a" / "b" / "log"
    folder.mkdir(parents=True)
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda at: synced.add(os.fstat(at).st_ino))
    DiskFiles(folder).close()
    assert synced >= {each.stat().st_ino for each in (folder.parent, tmp_path / "a", tmp_path)}
    (folder / META).touch()
    synced.clear()
    DiskFiles(folder).close()
    assert not synced, "a start need not do it again"


def test_what_stands_above_and_belongs_to_others_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_file = os.open

    def refuse(path: str | Path, *arguments: Any, **more: Any) -> int:
        if path == tmp_path:
            raise PermissionError(13, "Permission denied")
        return open_file(path, *arguments, **more)

    monkeypatch.setattr(os, "open", refuse)
    DiskFiles(tmp_path / "a" / "log").close()


def test_files_are_renamed_replaced_and_removed(files: DiskFiles) -> None:
    files.create("one")
    files.write("one", 0, [b"1"])
    files.rename("one", "two")
    files.write("two", 1, [b"2"])
    assert files.read("two", 0, 9) == b"12"
    files.create("two")
    assert files.read("two", 0, 9) == b""
    files.remove("two")
    files.remove("two")
    assert files.names() == []
    with pytest.raises(FileNotFoundError):
        files.read("two", 0, 1)


def test_many_files_take_few_descriptors(files: DiskFiles) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(100):
        files.create(str(number))
        files.write(str(number), 0, [b"x"])
    assert all(files.read(str(number), 0, 1) == b"x" for number in range(100))
    assert len(list(Path("/proc/self/fd").iterdir())) < before + 50


def test_a_second_process_is_refused_until_the_first_one_has_ended(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from roq.log.disk import DiskFiles; "
    program += "files = DiskFiles(Path(sys.argv[1])); print('has it', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as other:  # fmt: skip
        assert other.stdout is not None
        assert other.stdout.readline() == b"has it\n"
        with pytest.raises(LogRefused, match="another process has the log"):
            DiskFiles(tmp_path)
        other.kill()
        other.wait()
    DiskFiles(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(LogRefused, match="cannot be used"):
        DiskFiles(tmp_path / "file" / "log")


def test_a_pipe_or_a_loop_of_links_under_the_name_of_a_file_is_told_at_once(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    try:
        for make in (os.mkfifo, lambda path: path.symlink_to(path.name), Path.mkdir):
            made = tmp_path / META
            make(made)
            with pytest.raises(OSError, match=r"Illegal seek|symbolic links|directory") as raised:
                read_meta(files)
            assert raised.value.filename == META
            made.rmdir() if made.is_dir() else made.unlink()
    finally:
        files.close()
