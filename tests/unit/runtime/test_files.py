from pathlib import Path

import pytest

from roq.runtime.files import DRAFT, write_whole


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_what_cannot_be_written_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, b"one")
    (tmp_path / ("other" + DRAFT)).mkdir()
    with pytest.raises(OSError, match="directory"):
        write_whole(tmp_path / "other", b"two")
    assert path.read_bytes() == b"one"
