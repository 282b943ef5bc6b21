"""Runs side by side: what differs is marked where it is sure, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from html_pages import read
from runs import partly_heard, run_of, series_of

from roq.simulation.lab.archive.document import Run, RunKind
from roq.simulation.lab.archive.folder import RunError, write_run, write_series
from roq.simulation.lab.report.comparison import page
from roq.simulation.lab.report.differences import GROUPS_MAX, spoken
from roq.simulation.lab.report.statistics import mean


def kept(parent: Path, run: Run, windows: int = 20) -> Path:
    folder = parent / run.id
    folder.mkdir()
    write_run(folder, run)
    write_series(folder, series_of(windows))
    return folder


def several(parent: Path, name: str, tasks: int, moves: Sequence[float]) -> list[Path]:
    return [
        kept(
            parent,
            msgspec.structs.replace(
                run_of(f"{name}{at}", latency_p99_ms=12 + at / 10, moves_failed=value),
                settings={"tasks": tasks}, seed=at,
            ),
        )
        for at, value in enumerate(moves)
    ]  # fmt: skip


def test_a_difference_is_marked_only_where_intervals_say_so(tmp_path: Path) -> None:
    folders = several(tmp_path, "a", 1, [10.0, 11.0, 12.0])
    folders += several(tmp_path, "b", 2, [20.0, 21.0, 22.0])
    text = read(page(folders)).text
    assert "11 ± 2.5" in text
    assert text.count("▲") == 1
    assert "▲ 91 % more, worse" in text
    assert "▼" not in text


def test_the_baseline_can_be_chosen(tmp_path: Path) -> None:
    folders = several(tmp_path, "a", 1, [10.0, 11.0, 12.0])
    folders += several(tmp_path, "b", 2, [20.0, 21.0, 22.0])
    assert "▼ 48 % less, better" in read(page(folders, baseline="b1")).text
    assert "tasks 2 (baseline)" in read(page(folders, baseline=str(tmp_path / "b1"))).text
    with pytest.raises(RunError, match="none of the runs"):
        page(folders, baseline="c")


def test_one_run_of_each_has_no_interval_and_no_mark(tmp_path: Path) -> None:
    folders = [*several(tmp_path, "a", 1, [10.0]), *several(tmp_path, "b", 2, [99.0])]
    text = read(page(folders)).text
    assert "▲" not in text
    assert " ± 0" not in text


def test_published_figures_stand_beside_runs_of_that_scenario(tmp_path: Path) -> None:
    runs = [run_of("a"), run_of("b", RunKind.MODEL)]
    folders = []
    for run in runs:
        scenario = msgspec.structs.replace(run.scenario, name="eqs-2011")
        folders.append(kept(tmp_path, msgspec.structs.replace(run, scenario=scenario)))
    text = read(page(folders)).text
    assert "published 2011" in text
    assert "5 ms to 16 ms" in text


def test_runs_of_different_lengths_are_laid_upon_each_other_by_share(tmp_path: Path) -> None:
    long = msgspec.structs.replace(run_of("b"), time_scale=10.0, seconds=200.0)
    folders = [kept(tmp_path, run_of("a")), kept(tmp_path, long, windows=200)]
    assert "% of the run" in read(page(folders)).text


def test_one_run_alone_and_runs_without_series_can_be_shown(tmp_path: Path) -> None:
    folder = kept(tmp_path, run_of("a"))
    read(page([folder]))
    (folder / "series.json").unlink()
    read(page([folder]))


def test_nothing_and_too_much_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nothing to compare"):
        page([])
    folders = [
        folder
        for tasks in range(GROUPS_MAX + 1)
        for folder in several(tmp_path, f"t{tasks}-", tasks, [1.0])
    ]
    with pytest.raises(RunError, match="different things"):
        page(folders)


@pytest.mark.parametrize(
    ("values", "unit", "text"),
    [
        ([1.0, 2.0, 3.0], "ms", "2 ± 2.5 ms"),
        ([1e6, 2e6, 3e6], "B/s", "2 ± 2.5 MB/s"),
        ([0.1, 0.2, 0.3], "share", "20 ± 25 %"),
        ([4.0, 4.0], "", "4"),
        ([60.0, 62.0], "s", "61 ± 13 s"),
    ],
)
def test_a_mean_and_its_interval_have_the_same_unit(
    values: list[float], unit: str, text: str
) -> None:
    assert spoken(mean(values), unit) == text


def test_what_was_not_heard_of_a_run_does_not_count_as_no_load(tmp_path: Path) -> None:
    folders = [kept(tmp_path, run_of(name)) for name in ("a", "b")]
    write_series(folders[0], partly_heard(series_of(20), 3))
    text = page(folders)
    told = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert told is not None
    throughput = msgspec.json.decode(told[1])["charts"][0]["rows"][0]["v"]
    assert throughput == [200] * 10 + [400] * 10
    assert "Where the statistics of a run were silent, it is left out" in read(text).text
    write_series(folders[1], partly_heard(series_of(20), *range(20)))
    read(page(folders))
