"""Runs are kept in folders, and read again; what is damaged or foreign is refused by name."""

from __future__ import annotations

import os
from math import inf, nan
from pathlib import Path

import msgspec
import pytest
from runs import run_of, series_of

from roq.simulation.lab.archive.document import VERSION
from roq.simulation.lab.archive.folder import (
    RunError,
    find,
    make,
    new_id,
    read_run,
    read_series,
    runs,
    write_run,
    write_series,
)


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    folder = make(tmp_path, "ramp-live-1")
    write_run(folder, run_of("ramp-live-1"))
    write_series(folder, series_of(3))
    assert read_run(folder) == run_of("ramp-live-1")
    assert read_series(folder) == series_of(3)
    assert sorted(path.name for path in folder.iterdir()) == ["run.json", "series.json"]


def test_an_id_names_scenario_kind_and_time() -> None:
    assert new_id("ramp", "live", 0.0) == "ramp-live-19700101-000000"


def test_a_name_that_is_taken_gets_a_number(tmp_path: Path) -> None:
    assert [make(tmp_path, "a").name for _ in range(3)] == ["a", "a-2", "a-3"]


def test_a_run_is_found_by_path_by_id_and_as_the_latest(tmp_path: Path) -> None:
    for number, name in enumerate(("old", "new")):
        write_run(make(tmp_path, name), run_of(name))
        os.utime(tmp_path / name / "run.json", (number, number))
    assert find("old", tmp_path) == tmp_path / "old"
    assert find(str(tmp_path / "old")) == tmp_path / "old"
    assert find("latest", tmp_path) == tmp_path / "new"
    assert [folder.name for folder in runs(tmp_path)] == ["old", "new"]


@pytest.mark.parametrize("name", ["nobody", "../old", "", "latest", "a" * 5_000, "a\0b"])
def test_a_run_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError, match="there is no run"):
        find(name, tmp_path / "empty")


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"version": 1}', b'{"version": "1"}', b"\xff"]
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "run.json").write_bytes(text)
    with pytest.raises(RunError, match=r"run\.json: is damaged"):
        read_run(tmp_path)


def test_a_later_version_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, msgspec.structs.replace(run_of("a"), version=VERSION + 1))
    with pytest.raises(RunError, match="later RoQ"):
        read_run(tmp_path)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"series\.json: cannot be read"):
        read_series(tmp_path)


def test_a_figure_that_is_no_number_is_missing(tmp_path: Path) -> None:
    run = msgspec.structs.replace(run_of("a"), figures={"lost": nan, "moves": inf, "sent": 5.0})
    write_run(tmp_path, run)
    assert read_run(tmp_path).figures == {"sent": 5.0}


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "series.json")
    with pytest.raises(RunError, match="it is no file"):
        read_series(tmp_path)
