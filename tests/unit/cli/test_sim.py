"""`roq sim` without Spark: scenarios, the model, reports; what is wrong is said in a line."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from runs import run_of, series_of

from roq.cli.commands import cli
from roq.simulation.lab.archive.document import RunKind, RunState
from roq.simulation.lab.archive.folder import make, write_run, write_series
from roq.simulation.lab.archive.life import this_process


def roq(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["sim", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A folder with two runs of the same and one of another kind."""
    for name, kind in (("a", RunKind.LIVE), ("b", RunKind.LIVE), ("c", RunKind.MODEL)):
        folder = make(tmp_path, name)
        write_run(folder, run_of(name, kind))
        write_series(folder, series_of(20))
    return tmp_path


def test_every_command_has_a_help_of_its_own() -> None:
    names = ("list", "show", "run", "report", "compare", "sweep", "export")
    listed = roq("--help").output
    for name in names:
        assert f"  {name} " in listed
        assert "Options:" in roq(name, "--help").output


def test_scenarios_are_listed_and_shown() -> None:
    names = [each["name"] for each in json.loads(roq("list", "--json").output)]
    assert {"short", "ramp", "eqs-2011"} <= set(names)
    for name in names:
        assert name in roq("list").output
        shown = roq("show", name)
        assert shown.exit_code == 0
        assert "EXPECTED" in shown.output
        assert json.loads(roq("show", name, "--json").output)["name"] == name


def test_no_scenario_steers_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text('title: "a\\e[2J\\u202eb"\nphases: [{name: a, seconds: 5}]\n')
    shown = roq("show", path)
    assert shown.exit_code == 0
    assert "a\ufffd[2J\ufffdb" in shown.output


def test_a_scenario_with_a_mistake_is_told_with_file_line_and_key(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("title: mine\nphases:\n  - name: a\n    seconds: -1\n")
    result = roq("show", path)
    assert result.exit_code != 0
    assert f"{path}:4: phases[0].seconds" in result.output


def test_a_run_of_the_model_is_kept_with_its_report(tmp_path: Path) -> None:
    result = roq("run", "short", "--model", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    (folder,) = tmp_path.iterdir()
    assert {"run.json", "series.json", "report.html", "report.png"} <= {
        path.name for path in folder.iterdir()
    }
    assert "Half a minute in which a queue has to grow" in result.output


def test_runs_are_repeated_with_one_seed_after_the_other(tmp_path: Path) -> None:
    assert roq("run", "short", "--model", "--repeat", 2, "--out", tmp_path).exit_code == 0
    seeds = [json.loads((each / "run.json").read_text())["seed"] for each in tmp_path.iterdir()]
    assert sorted(seeds) == [1, 2]


def test_what_was_not_as_expected_is_an_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "title: mine\nphases:\n  - {name: a, seconds: 5, publishers: [{rate: 1}]}\n"
        'expect:\n  - {what: exchanges_most, op: ">=", value: 9}\n'
    )
    result = roq("run", path, "--model", "--out", tmp_path / "runs")
    assert result.exit_code == 1
    assert roq("run", path, "--model", "--json", "--out", tmp_path / "runs").exit_code == 1


def test_a_sweep_gives_a_row_for_each_combination(tmp_path: Path) -> None:
    result = roq(
        "sweep", "short", "--local", "--workers", 1, "--seeds", 2, "--out", tmp_path,
        "--vary", "cooldown_seconds=2,10", "--metric", "moves", "--metric", "exchange_hours",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    heading, *rows = result.stdout.splitlines()
    assert heading.split() == [
        "scenario", "cooldown_seconds", "runs", "moves", "moves", "±",
        "exchange_hours", "exchange_hours", "±",
    ]  # fmt: skip
    assert [row.split()[:3] for row in rows] == [["short", "2", "2"], ["short", "10", "2"]]
    assert "4 of 4 runs" in result.stderr
    (folder,) = tmp_path.iterdir()
    assert {"sweep.json", "runs.parquet", "table.csv"} <= {each.name for each in folder.iterdir()}


def test_options_for_runs_are_refused_for_a_sweep(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").touch()
    result = roq("report", tmp_path, "--json", "--open")
    assert result.exit_code == 2
    assert "is a sweep: leave out --json, --open, which only runs take" in result.output


def test_runs_whose_process_was_killed_are_told_by_the_next_one_and_only_by_that(
    tmp_path: Path,
) -> None:
    lost = msgspec.structs.replace(this_process(), start=-1)
    for name, cluster in (("a", "its own"), ("b", "10.0.0.1:5000")):
        run = msgspec.structs.replace(
            run_of(name), state=RunState.RUNNING, process=lost, settings={"cluster": cluster}
        )
        write_run(make(tmp_path, name), run)
    assert "Abandoned" in roq("report", tmp_path / "a").output
    told, again = (roq("run", "short", "--master", "local[1]", "--out", tmp_path) for _ in "ab")
    assert f"a was abandoned: the process that ran it ({lost.pid}) was killed\n" in told.stderr
    assert "was killed; its queues, b…, are still in 10.0.0.1:5000\n" in told.stderr
    assert "fewer slots" in told.stderr
    assert "abandoned" not in again.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("run", "nobody"), "there is no scenario 'nobody'"),
        (("run", "short", "--model", "--tasks", "2"), "--tasks is for a live run"),
        (("run", "short", "--queues", "2"), "--queues is for a model"),
        (("run", "short", "--set", "nothing=1"), "there is no rule 'nothing'"),
        (("run", "short", "--set", "nothing"), "'nothing' is not of the form NAME=VALUE"),
        (("run", "short", "--model", "--set", "nothing=1"), "nothing called 'nothing'"),
        (("run", "short", "--scale", "0"), "--scale"),
        (("report", "nobody", "--runs", "."), "there is no run 'nobody'"),
        (("sweep", "short", "--local", "--metric", "beauty"), "there is no figure 'beauty'"),
        (("sweep", "short", "--local", "--vary", "cooldown_seconds"), "not of the form NAME=VALUE"),
        (("sweep", "short", "--local", "--set", "nothing=1"), "nothing called 'nothing'"),
        (("sweep", "nobody", "--local"), "there is no scenario 'nobody'"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(arguments: tuple[str, ...], text: str) -> None:
    result = roq(*arguments)
    assert result.exit_code != 0
    assert text in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_the_latest_run_is_reported_if_nobody_says_which(kept: Path) -> None:
    result = roq("report", "--runs", kept)
    assert result.exit_code == 0
    assert "A test" in result.output
    assert json.loads(roq("report", "a", "--runs", kept, "--json").stdout)["id"] == "a"
    assert "<!doctype html>" in (kept / "a" / "report.html").read_text().lower()


def test_runs_are_compared_on_a_page(kept: Path, tmp_path: Path) -> None:
    page = tmp_path / "deep" / "page.html"
    result = roq("compare", "a", "b", "c", "--runs", kept, "--output", page)
    assert result.exit_code == 0, result.output
    assert page.is_file()
    result = roq("compare", "a", "b", "--runs", kept, "--baseline", "nobody", "--output", page)
    assert result.exit_code != 0
