"""A picture can be drawn of every run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from kpi_samples import exchange, move, scale, subscriber
from runs import partly_heard, run_of, series_of

from roq.simulation.lab.archive.document import RunKind
from roq.simulation.lab.archive.folder import RunError, write_run, write_series
from roq.simulation.lab.report.charts import Bounds
from roq.simulation.lab.report.picture import Caption, write, write_record
from roq.simulation.real.record import Record

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("windows", [0, 1, 30])
def test_a_run_of_any_length_is_drawn(tmp_path: Path, windows: int) -> None:
    write_run(tmp_path, run_of("a"))
    write_series(tmp_path, series_of(windows))
    write(tmp_path, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)


def test_a_run_of_which_nothing_more_is_known_is_drawn(tmp_path: Path) -> None:
    write_run(tmp_path, run_of("a", RunKind.MODEL))
    write(tmp_path, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)


def test_texts_are_no_formulas_and_strange_letters_no_error(tmp_path: Path) -> None:
    run = run_of("a")
    title = r"$\frac{1}{0$ 測試 👩 \x1b"
    write_run(
        tmp_path,
        msgspec.structs.replace(
            run, scenario=msgspec.structs.replace(run.scenario, title=title), error=title
        ),
    )
    write_series(tmp_path, series_of(3))
    write(tmp_path, tmp_path / "a.png")


def test_a_picture_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    write_run(tmp_path, run_of("a"))
    with pytest.raises(RunError, match="No such file"):
        write(tmp_path, tmp_path / "away" / "a.png")
    with pytest.raises(RunError, match="cannot be drawn"):
        write(tmp_path, tmp_path / "a.strange")


@pytest.mark.parametrize("silent", [range(4, 9), range(30)])
def test_a_run_that_was_not_heard_all_along_is_drawn(tmp_path: Path, silent: range) -> None:
    write_run(tmp_path, run_of("a"))
    write_series(tmp_path, partly_heard(series_of(30), *silent))
    write(tmp_path, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_record_becomes_a_picture(tmp_path: Path, suffix: str) -> None:
    record = Record(0.0)
    record.mark(0.0, "a light load")
    record.take([exchange(float(when), 1, 1_000 * when, publishers=2) for when in range(10)])
    record.take([exchange(float(when), 2, 500 * when, publishers=1) for when in range(4, 8)])
    record.take([scale(3.0, "out", "started"), scale(3.6, "out", "done", 2, 0.6)])
    record.take([move(4.0, "aa", "accepted"), move(5.0, "bb", "failed")])
    record.take([subscriber(float(when), "cc", 4.0) for when in range(10)])
    path = tmp_path / f"picture{suffix}"
    write_record(record, path, Caption("title", "subtitle", "footer"), Bounds(600.0))
    assert path.stat().st_size > 5_000
