"""Whose log a folder holds."""

from __future__ import annotations

import errno
import random

import msgspec
import pytest
from memory_files import MemoryFiles

from roq.log.files import META, LogRefused
from roq.log.meta import BYTES_MAX, Meta, claim_folder, is_there, read_meta
from roq.simulation.virtual.lossy_files import LossyFiles

MINE = Meta(cluster="c", queue="71" * 16, exchange=1, generation=3, host="h")


def test_a_new_folder_says_whose_it_is_and_the_next_process_finds_that() -> None:
    files = MemoryFiles()
    assert claim_folder(files, MINE) == MINE
    later = msgspec.structs.replace(MINE, generation=9)
    assert claim_folder(files, later) == MINE, "the log keeps its generation"
    assert read_meta(files) == MINE


@pytest.mark.parametrize(
    ("what", "value"), [("cluster", "d"), ("queue", "72" * 16), ("exchange", 2), ("host", "i")]
)
def test_a_folder_of_another_one_is_refused(what: str, value: object) -> None:
    files = MemoryFiles()
    claim_folder(files, MINE)
    with pytest.raises(LogRefused, match=f"belongs to {what}"):
        claim_folder(files, msgspec.structs.replace(MINE, **{what: value}))


def test_a_folder_of_a_later_process_a_copy_in_part_and_garbage_are_refused() -> None:
    files = MemoryFiles()
    claim_folder(files, MINE)
    with pytest.raises(LogRefused, match="later process"):
        claim_folder(files, msgspec.structs.replace(MINE, generation=2))
    files.contents[META][:] = b"{}"
    with pytest.raises(LogRefused, match="cannot be read"):
        read_meta(files)
    files.contents = {"00000000000000000000-3.seg": bytearray()}
    with pytest.raises(LogRefused, match="copied in part"):
        claim_folder(files, MINE)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cannot be read"),
        (b'{"format": 1, "cluster": "c"', "cannot be read"),
        (bytes(BYTES_MAX + 1), f"more than {BYTES_MAX} bytes"),
        (msgspec.json.encode(msgspec.structs.replace(MINE, queue="orders")), "non-hexadecimal"),
        (msgspec.json.encode(msgspec.structs.replace(MINE, format=2)), "install the newer version"),
    ],
)
def test_what_is_no_file_of_a_log_says_what_to_do(data: bytes, why: str) -> None:
    files = MemoryFiles()
    files.contents[META] = bytearray(data)
    with pytest.raises(LogRefused, match=why) as raised:
        read_meta(files)
    assert "Restore it from a copy" in str(raised.value) or "install" in str(raised.value)


def test_where_a_log_was_no_other_one_is_made() -> None:
    files = MemoryFiles()
    with pytest.raises(LogRefused, match="mount the disk that it is on"):
        claim_folder(files, MINE, has_log=True)
    assert not is_there(files.names())
    claim_folder(files, MINE)
    assert is_there(files.names())
    assert claim_folder(files, MINE, has_log=True) == MINE


def test_a_name_that_was_not_on_the_disk_is_there_before_segments_are() -> None:
    """The start that made it has failed at the last step; a power cut may take the name alone."""
    files = LossyFiles()

    def fail(call: str) -> None:
        if call == "sync_folder":
            raise OSError(errno.EIO, "EIO")

    files.fail = fail
    with pytest.raises(OSError, match="EIO"):
        claim_folder(files, MINE)
    files.fail = lambda _: None
    assert claim_folder(files, MINE) == MINE
    files.create("00000000000000000000-00000000000000000003.seg")
    for seed in range(20):
        assert META in files.power_cut(random.Random(seed)).names()
