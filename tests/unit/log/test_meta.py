"""Whose log a folder holds."""

from __future__ import annotations

import msgspec
import pytest
from memory_files import MemoryFiles

from roq.log.files import META, LogRefused
from roq.log.meta import Meta, claim_folder, read_meta

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
