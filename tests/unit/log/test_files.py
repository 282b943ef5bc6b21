"""What the files of a log are called, and when a file has its name."""

from __future__ import annotations

import pytest
from memory_files import MemoryFiles

from roq.log.files import NEW_SUFFIX, index_name, keys_name, parse_name, put_whole, segment_name


def test_a_segment_says_by_its_name_where_it_begins_and_who_has_written_it() -> None:
    name = segment_name(1_000, 7)
    assert parse_name(name) == (1_000, 7)
    assert segment_name(5, 10**9) < segment_name(10, 1), "in order of their names"
    assert index_name(name) == name.replace(".seg", ".idx")
    assert keys_name(name) == name.replace(".seg", ".keys")


@pytest.mark.parametrize(
    "name",
    [
        "log.json", "", "-.seg", f"{1:020d}.seg", f"{1:020d}-{1:019d}.seg", f"{1:020d}-{1:020d}",
        f"{1:020d}-{1:020d}.idx", f"{1:020d}-{'x' * 20}.seg", f"{1:020d}-{'٣' * 20}.seg",
        segment_name(1, 1) + NEW_SUFFIX,
    ],
)  # fmt: skip
def test_other_files_are_no_segments(name: str) -> None:
    assert parse_name(name) is None


def test_a_file_has_its_name_when_it_is_whole() -> None:
    files = MemoryFiles()
    put_whole(files, "a", [b"x", memoryview(b"yz")])
    put_whole(files, "a", [b"second"])
    assert files.names() == ["a"]
    assert files.read("a", 0, 100) == b"second"
