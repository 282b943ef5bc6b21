"""`roq sim report`, `compare` and `export`: which run is meant, what is written, what is shown."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from runs import run_of, series_of

from roq.cli import sim_report as module
from roq.cli.commands import cli
from roq.cli.failures import wanted
from roq.simulation.lab.archive.document import RunKind
from roq.simulation.lab.archive.folder import make, write_run, write_series


def roq(*arguments: str | Path | int) -> Result:
    return CliRunner().invoke(cli, ["sim", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A folder with two runs of the same and one of another kind."""
    for name, kind in (("a", RunKind.LIVE), ("b", RunKind.LIVE), ("c", RunKind.MODEL)):
        folder = make(tmp_path, name)
        write_run(folder, run_of(name, kind))
        write_series(folder, series_of(20))
    return tmp_path


@pytest.fixture
def instead(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What takes the place of modules that need more than a run on disk."""
    replaced: dict[str, Any] = {
        "roq.simulation.lab.report.picture": SimpleNamespace(write=lambda *_: None),
    }
    monkeypatch.setattr(module, "wanted", lambda name: replaced.get(name) or wanted(name))
    return replaced


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


def test_options_for_runs_are_refused_for_a_sweep(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").touch()
    result = roq("report", tmp_path, "--json", "--open")
    assert result.exit_code == 2
    assert "is a sweep: leave out --json, --open, which only runs take" in result.output


def test_of_a_sweep_the_table_is_made_again(tmp_path: Path, instead: dict[str, Any]) -> None:
    again: list[Any] = []
    instead["roq.simulation.forecast.sweep"] = SimpleNamespace(again=lambda place: (place, "made"))
    instead["roq.cli.sim_sweep"] = SimpleNamespace(show_sweep=again.append)
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "sweep.json").touch()
    assert roq("report", "s", "--runs", tmp_path).exit_code == 0
    assert roq("report", tmp_path / "s").exit_code == 0
    assert again == [(tmp_path / "s", "made")] * 2


@pytest.mark.parametrize(
    ("options", "given"),
    [
        (["--evaluate"], {"remote": "", "leave_out": False}),
        (["--remote", "sc://h:1", "--leave-out"], {"remote": "sc://h:1", "leave_out": True}),
        ([], None),
    ],
)
def test_figures_are_worked_out_again_only_if_that_is_wanted(
    options: list[str], given: dict[str, Any] | None, kept: Path, instead: dict[str, Any]
) -> None:
    asked: list[Any] = []
    instead["roq.simulation.lab.traces.evaluate"] = SimpleNamespace(
        evaluate=lambda folder, **more: asked.append((folder, more))
    )
    assert roq("report", "a", "--runs", kept, *options).exit_code == 0
    assert asked == ([] if given is None else [(kept / "a", given)])


def test_all_figures_are_shown_if_that_is_wanted(kept: Path, instead: dict[str, Any]) -> None:
    asked: list[bool] = []
    instead["roq.simulation.lab.report.terminal"] = SimpleNamespace(
        show=lambda *_, everything: asked.append(everything)
    )
    assert [roq("report", "a", "--runs", kept, *more).exit_code for more in ([], ["--all"])] == [
        0
    ] * 2
    assert asked == [False, True]


@pytest.mark.parametrize("there", [True, False])
def test_the_page_is_opened_or_it_is_said_that_there_is_no_browser(
    there: bool, kept: Path, instead: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda page: asked.append(page) or there)
    assert roq("report", "a", "--runs", kept).exit_code == 0
    assert asked == []
    page = kept / "a" / "report.html"
    told = roq("report", "a", "--runs", kept, "--open").stderr
    assert asked == [page.as_uri()]
    assert ("there is no browser here" in told) is not there
    assert f"report: {page}\n" in told


def test_a_page_that_cannot_be_written_is_an_error(kept: Path) -> None:
    (kept / "file").touch()
    done = roq("compare", "a", "b", "--runs", kept, "--output", kept / "file" / "page.html")
    assert done.exit_code == 1
    assert done.stderr.endswith("page.html: cannot be written: File exists\n")


def test_runs_are_compared_with_the_first_or_with_the_one_that_is_named(
    kept: Path, instead: dict[str, Any]
) -> None:
    based: list[Any] = []
    instead["roq.simulation.lab.report.differences"] = SimpleNamespace(
        compared=lambda folders, base: based.append(([each.name for each in folders], base))
    )
    instead["roq.simulation.lab.report.terminal"] = SimpleNamespace(compare=lambda *_: None)
    for more in ([], ["--baseline", "c"]):
        output = kept / "page.html"
        assert roq("compare", "a", "c", "--runs", kept, "--output", output, *more).exit_code == 0
    assert based == [(["a", "c"], None), (["a", "c"], "c")]


def test_traces_are_exported_as_lines(kept: Path, instead: dict[str, Any]) -> None:
    def lines(folder: Path, *, leave_out: bool) -> list[list[object]]:
        return [[folder.name, leave_out], ["x,y", 1.5]]

    instead["roq.simulation.lab.traces.export"] = SimpleNamespace(lines=lines)
    assert roq("export", "b", "--runs", kept).stdout == 'b,False\n"x,y",1.5\n'
    assert roq("export", "b", "--runs", kept, "--leave-out").stdout.startswith("b,True\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("report", "nobody", "--runs", "."), "there is no run 'nobody'"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(arguments: tuple[str, ...], text: str) -> None:
    result = roq(*arguments)
    assert result.exit_code != 0
    assert text in " ".join(result.output.split())
    assert "Traceback" not in result.output
