"""`roq sim run`: options reach the run, live or on the model; what came of it is an exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from runs import run_of, series_of

from roq.cli import sim_run as module
from roq.cli.commands import cli
from roq.cli.failures import wanted
from roq.simulation.lab.archive.document import RunState
from roq.simulation.lab.archive.folder import make, write_run, write_series
from roq.simulation.lab.archive.life import this_process


def roq(*arguments: str | Path | int) -> Result:
    return CliRunner().invoke(cli, ["sim", *map(str, arguments)], catch_exceptions=False)


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


class PaperRuns:
    """Live runs that end at once in this state; `wishes` are what was wanted."""

    def __init__(self) -> None:
        self.wishes: list[Any] = []
        self.state = RunState.COMPLETE

    def run(self, wish: Any, _show: object) -> Path:
        self.wishes.append(wish)
        folder = make(wish.out, f"run-{len(self.wishes)}")
        run = msgspec.structs.replace(run_of(folder.name), state=self.state, verdicts=[])
        write_run(folder, run)
        write_series(folder, series_of(2))
        return folder


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> PaperRuns:
    @contextmanager
    def show(*_: object) -> Iterator[None]:
        yield

    paper = PaperRuns()
    replaced: dict[str, Any] = {
        "roq.simulation.lab.live.run": paper,
        "roq.simulation.lab.live.show": SimpleNamespace(show=show),
    }
    monkeypatch.setattr(module, "wanted", lambda name: replaced.get(name) or wanted(name))
    return paper


def test_options_reach_the_live_run(tmp_path: Path, live: PaperRuns) -> None:
    result = roq(
        "run", "short", "--out", tmp_path, "--seed", 7, "--scale", 0.5, "--tasks", 3,
        "--no-traces", "--traces-at", "hdfs://x", "--cluster", "h:1", "--master", "local[2]",
        "--set", "policy=known", "--conf", "spark.a=b", "--executors", 2, "--ship", "--plain",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    (wish,) = live.wishes
    assert (wish.seed, wish.scale, wish.tasks, wish.traces, wish.plain, wish.ship) == (
        7, 0.5, 3, False, True, True,
    )  # fmt: skip
    assert (wish.traces_at, wish.cluster, wish.master) == ("hdfs://x", "h:1", "local[2]")
    assert wish.scenario.queue.rules["policy"] == "known"
    assert (wish.spark.conf, wish.spark.executors) == ({"spark.a": "b"}, 2)


def test_what_nobody_has_said_is_as_the_help_has_it(tmp_path: Path, live: PaperRuns) -> None:
    assert roq("run", "short", "--out", tmp_path).exit_code == 0
    (wish,) = live.wishes
    assert (wish.seed, wish.scale, wish.tasks, wish.traces, wish.cluster) == (1, 1.0, 0, True, "")
    assert "policy" not in wish.scenario.queue.rules


def test_an_interrupted_run_is_reported_and_no_other_one_begins(
    tmp_path: Path, live: PaperRuns
) -> None:
    live.state = RunState.INTERRUPTED
    result = roq("run", "short", "--repeat", 3, "--out", tmp_path)
    assert result.exit_code == 130
    assert len(live.wishes) == 1
    assert (tmp_path / "run-1" / "report.html").is_file()
    assert "run 1 of 3\n" in result.stderr


def test_a_model_that_is_interrupted_ends_with_130(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(wanted("roq.simulation.forecast.run"), "run", interrupted)
    assert roq("run", "short", "--model", "--out", tmp_path).exit_code == 130


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
    ],
)
def test_what_cannot_be_is_told_in_a_line(arguments: tuple[str, ...], text: str) -> None:
    result = roq(*arguments)
    assert result.exit_code != 0
    assert text in " ".join(result.output.split())
    assert "Traceback" not in result.output
