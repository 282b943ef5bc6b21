"""What stands on disk about a host, and that nothing outside its folder is ever meant."""

from pathlib import Path

import pytest

from roq.provider.process import Identity
from roq.provider.record import HostFolder, HostRecord, all_hosts, folder_of

RECORD = HostRecord(
    address="127.0.0.2", created=1.5, labels={"queue": "q"},
    process=Identity(pid=1, start=2, boot="b"),
)  # fmt: skip


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = HostFolder(tmp_path, "c", "n")
    assert folder.read() is None
    folder.write(RECORD)
    assert folder.read() == RECORD
    assert [each.name for each in folder.path.iterdir()] == ["host.json"]


@pytest.mark.parametrize("data", [b"", b"[]", b'{"address": 1}', b"\xff", b"{" * 70_000])
def test_a_file_that_is_no_record_is_none(tmp_path: Path, data: bytes) -> None:
    folder = HostFolder(tmp_path, "c", "n")
    folder.write(RECORD)
    (folder.path / "host.json").write_bytes(data)
    assert folder.read() is None


@pytest.mark.parametrize("handle", ["", "c", "c/", "/n", "../n", "c/..", "c/n/x", "c/a b", "*/*"])
def test_a_handle_never_means_anything_outside(tmp_path: Path, handle: str) -> None:
    assert folder_of(tmp_path, handle) is None


def test_a_handle_names_the_folder(tmp_path: Path) -> None:
    folder = HostFolder(tmp_path, "c", "n")
    found = folder_of(tmp_path, folder.handle)
    assert found is not None
    assert found.path == folder.path == tmp_path / "c" / "n"


def test_the_hosts_of_a_cluster_are_those_with_a_folder(tmp_path: Path) -> None:
    for cluster, name in (("c", "b"), ("c", "a"), ("d", "x")):
        HostFolder(tmp_path, cluster, name).write(RECORD)
    (tmp_path / "c" / "file").touch()
    (tmp_path / "lock").touch()
    assert [each.name for each in all_hosts(tmp_path, "c")] == ["a", "b"]
    assert [each.handle for each in all_hosts(tmp_path)] == ["c/a", "c/b", "d/x"]


def test_the_end_of_a_log_is_short(tmp_path: Path) -> None:
    folder = HostFolder(tmp_path, "c", "n")
    folder.write(RECORD)
    assert folder.last_words() == ""
    folder.log.write_text("".join(f"line {number}\n" for number in range(10_000)))
    assert folder.last_words().splitlines() == [f"line {number}" for number in range(9_992, 10_000)]


def test_the_last_host_takes_the_folder_of_its_cluster_along(tmp_path: Path) -> None:
    one, two = (HostFolder(tmp_path, "c", name) for name in ("one", "two"))
    one.write(RECORD)
    two.write(RECORD)
    one.erase()
    assert (tmp_path / "c").exists()
    two.erase()
    assert not (tmp_path / "c").exists()
