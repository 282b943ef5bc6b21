"""Runs that differ by chance alone are one group."""

from __future__ import annotations

from pathlib import Path

import msgspec
from runs import run_of, series_of

from roq.simulation.lab.archive.document import Run, RunKind, RunState
from roq.simulation.lab.archive.folder import write_run, write_series
from roq.simulation.lab.report.groups import differing, groups


def kept(parent: Path, run: Run) -> Path:
    folder = parent / run.id
    folder.mkdir()
    write_run(folder, run)
    write_series(folder, series_of(20))
    return folder


def test_seeds_and_times_make_no_group_and_settings_do(tmp_path: Path) -> None:
    runs = [
        run_of("a", moves=4.0),
        msgspec.structs.replace(run_of("b", moves=6.0), seed=2, began_us=5),
        msgspec.structs.replace(run_of("c"), settings={"master": "local[4]", "tasks": 8}),
        run_of("d", RunKind.MODEL),
    ]
    made = groups([kept(tmp_path, run) for run in runs])
    assert [[run.id for run in group.runs] for group in made] == [["a", "b"], ["c"], ["d"]]
    assert made[0].values("moves") == [4.0, 6.0]
    assert [group.name for group in made] == ["live, tasks 2", "live, tasks 8", "model, tasks 2"]
    assert differing(made) == [("kind", ["live", "live", "model"]), ("tasks", ["2", "8", "2"])]


def test_a_run_that_did_not_end_is_left_out_of_figures(tmp_path: Path) -> None:
    broken = msgspec.structs.replace(run_of("b", moves=90.0), state=RunState.INTERRUPTED)
    (group,) = groups([kept(tmp_path, run_of("a")), kept(tmp_path, broken)])
    assert [run.id for run in group.left_out] == ["b"]
    assert group.values("moves") == [4.0]


def test_a_folder_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    folder = kept(tmp_path, run_of("a"))
    (group,) = groups([folder, folder, tmp_path / "." / "a"])
    assert len(group.runs) == 1


def test_groups_that_nothing_names_have_different_names(tmp_path: Path) -> None:
    other = run_of("b")
    about = msgspec.structs.replace(other.scenario, about="changed by hand")
    made = groups(
        [
            kept(tmp_path, run_of("a")),
            kept(tmp_path, msgspec.structs.replace(other, scenario=about)),
        ]
    )
    assert len({group.name for group in made}) == 2


def test_what_was_measured_does_not_tell_runs_apart(tmp_path: Path) -> None:
    runs = [run_of(name, took_seconds=took) for name, took in (("a", 0.1), ("b", 0.2))]
    (group,) = groups([kept(tmp_path, run) for run in runs])
    assert len(group.runs) == 2


def test_a_group_is_named_by_the_fewest_things_that_tell_it_apart(tmp_path: Path) -> None:
    model = msgspec.structs.replace(
        run_of("b", RunKind.MODEL), time_scale=0.5, settings={"cells": 1}
    )
    made = groups([kept(tmp_path, run_of("a")), kept(tmp_path, model)])
    assert [group.name for group in made] == ["live", "model"]
