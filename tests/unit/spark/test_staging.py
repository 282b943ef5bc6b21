"""What tasks have written is published once, whichever driver decides, and whatever is left."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")

from roq.errors import ConfigError  # noqa: E402 - after the check that Arrow is there
from roq.spark import staging  # noqa: E402
from roq.spark.staging import SCHEMA, Attempt, Staging, StagingBroken, query_of  # noqa: E402


def rows(*pairs: tuple[str, bytes]) -> object:
    given = [{"topic": topic, "payload": payload} for topic, payload in pairs]
    return pa.RecordBatch.from_pylist(given, schema=SCHEMA)


def test_what_was_staged_is_read_back(tmp_path: Path) -> None:
    folder = Staging(str(tmp_path))
    attempt = folder.write([rows(("t", b"1")), rows(), rows(("u", b"2"), ("u", b"3"))])
    assert attempt.rows == 3
    found = [pair for batch in folder.read(attempt) for pair in batch.to_pylist()]
    assert [row["payload"] for row in found] == [b"1", b"2", b"3"]


def test_a_task_without_rows_leaves_no_file(tmp_path: Path) -> None:
    folder = Staging(str(tmp_path))
    assert folder.write([rows()]) == Attempt("", 0)
    assert list((tmp_path / "attempts").iterdir()) == []


def test_what_was_decided_first_stands(tmp_path: Path) -> None:
    folder = Staging(str(tmp_path))
    first, later = folder.write([rows(("t", b"1"))]), folder.write([rows(("t", b"2"))])
    assert not folder.begun
    assert folder.decide(4, [first]) == [first]
    assert Staging(str(tmp_path)).decide(4, [later]) == [first]
    assert folder.begun
    assert not folder.done(4)
    folder.finish(4, [first, later])
    assert folder.done(4)
    assert list((tmp_path / "attempts").iterdir()) == []


def test_of_two_drivers_that_decide_at_once_the_first_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Staging(str(tmp_path))
    first, later = folder.write([rows(("t", b"1"))]), folder.write([rows(("t", b"2"))])
    folder.decide(4, [first])
    monkeypatch.setattr(Staging, "_exists", lambda self, path: not path.endswith("/4.json"))
    assert folder.decide(4, [later]) == [first]
    assert [path.name for path in (tmp_path / "batches").iterdir()] == ["4.json"]


def test_a_file_that_is_not_whole_is_noticed(tmp_path: Path) -> None:
    folder = Staging(str(tmp_path))
    attempt = folder.write([rows(("t", b"1" * 1_000))])
    path = tmp_path / "attempts" / f"{attempt.name}.arrow"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(StagingBroken, match=attempt.name):
        list(folder.read(attempt))
    path.unlink()
    with pytest.raises(StagingBroken, match=attempt.name):
        list(folder.read(attempt))


def test_a_decision_that_cannot_be_read_is_no_decision(tmp_path: Path) -> None:
    folder = Staging(str(tmp_path))
    (tmp_path / "batches" / "4.json").write_text("[[1")
    with pytest.raises(StagingBroken, match=r"4\.json"):
        folder.decide(4, [])


def test_old_remains_are_swept_and_new_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Staging(str(tmp_path))
    old, new = folder.write([rows(("t", b"1"))]), folder.write([rows(("t", b"2"))])
    os.utime(tmp_path / "attempts" / f"{old.name}.arrow", (1, 1))
    monkeypatch.setattr(staging, "KEEP_ATTEMPTS", timedelta(hours=1))
    folder.sweep()
    assert [path.stem for path in (tmp_path / "attempts").iterdir()] == [new.name]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="stagingLocation"):
        Staging(str(tmp_path / "file" / "below"))
    with pytest.raises(ConfigError, match="stagingLocation"):
        Staging("nothing://there")


def test_the_name_of_a_writer_stays_until_its_folder_is_emptied(tmp_path: Path) -> None:
    name = Staging(str(tmp_path / "roq")).writer("q1")
    assert Staging(str(tmp_path / "roq")).writer("q1") == name
    assert Staging(str(tmp_path / "roq")).writer("") == name
    shutil.rmtree(tmp_path / "roq")
    assert Staging(str(tmp_path / "roq")).writer("q1") != name


@pytest.mark.parametrize("text", [None, "", "[]", '{"di": 1}', "{"])
def test_a_checkpoint_that_does_not_say_whose_it_is_is_nobodys(
    tmp_path: Path, text: str | None
) -> None:
    if text is not None:
        (tmp_path / "metadata").write_text(text)
    assert query_of(str(tmp_path)) == query_of("") == ""
