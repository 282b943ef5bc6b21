"""`roq bench` chooses what is measured, how long and where it is kept; it says when nothing was."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from roq.cli import bench as module
from roq.cli.bench import RESULTS, bench


class Bench:
    """In the place of all modules that measure: keeps what they are asked, and measures `rates`."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.asked: list[Any] = []
        self.written: list[Path] = []
        self.rates = [7]

    def wanted(self, name: str, _what: str, _install: str) -> Bench:
        self.loaded.append(name.rpartition(".")[2])
        return self

    def full(self, *rounds: int, **besides: int) -> Any:
        return ("full", *rounds, besides)

    def quick(self, *rounds: int, **besides: int) -> Any:
        return ("quick", *rounds, besides)

    def measure(self, *given: Any, **named: Any) -> dict[str, Any] | SimpleNamespace:
        self.asked.append((*(each for each in given if not hasattr(each, "print")), named))
        return SimpleNamespace(rates=self.rates)

    def nothing_measured(self, results: SimpleNamespace) -> str:
        return "" if results.rates else "no room"

    def show(self, _results: object, _console: object) -> None: ...

    def write(self, _results: object, directory: Path) -> list[Path]:
        self.written.append(directory)
        return [directory / "a.json"]


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench()
    monkeypatch.setattr(module, "wanted", bench.wanted)
    monkeypatch.setattr(module, "print_json", lambda _: print("{}"))  # noqa: T201
    return bench


def roq(*arguments: str) -> Result:
    return CliRunner().invoke(bench, [*arguments])


@pytest.mark.parametrize(
    ("arguments", "plan"),
    [
        ([], ("full", {"busy": 0, "idle": 0})),
        (["--quick", "--rounds", "3"], ("quick", 3, {"busy": 0, "idle": 0})),
        (["--busy", "1", "--idle", "5"], ("full", {"busy": 1, "idle": 5})),
    ],
)
def test_the_plan_is_as_it_was_asked_for(arguments: list[str], plan: Any, paper: Bench) -> None:
    assert roq(*arguments).exit_code == 0
    assert paper.asked == [(plan, {"compare": False})]


@pytest.mark.parametrize(
    ("arguments", "places"),
    [
        ([], []),
        (["--compare"], [RESULTS]),
        (["--output", "here"], [Path("here")]),
        (["--compare", "--output", "here"], [Path("here")]),
        (["--groups"], [RESULTS]),
        (["--jobs", "--output", "here"], [Path("here")]),
    ],
)
def test_results_are_written_where_it_was_said_or_where_comparisons_are(
    arguments: list[str], places: list[Path], paper: Bench
) -> None:
    done = roq(*arguments)
    assert done.exit_code == 0
    assert paper.written == places
    assert done.stderr.count("written: ") == len(places)


@pytest.mark.parametrize(
    ("arguments", "loaded", "asked"),
    [
        (["--groups"], "groups", (5, 1.0, {})),
        (["--requests", "--quick"], "requests", (2, 0.4, {})),
        (["--requests", "--limits", "--rounds", "3"], "request_limits", (3, 1.0, {})),
        (["--durable"], "durable",
         (5, 1.0, {"backlog_bytes": 1_000_000_000, "cold_bytes": 1 << 30})),
        (["--durable", "--quick"], "durable",
         (2, 0.4, {"backlog_bytes": 200_000_000, "cold_bytes": 1 << 28})),
        (["--jobs"], "jobs", (5, 1.0, {})),
        (["--jobs", "--backlog", "9"], "backlog", (5, 1.0, {"number": 9, "held_minutes": 0})),
        (["--jobs", "--backlog", "9", "--held-minutes", "2"], "backlog",
         (5, 1.0, {"number": 9, "held_minutes": 2})),
    ],
)  # fmt: skip
def test_what_is_measured_apart_gets_its_rounds_seconds_and_sizes(
    arguments: list[str], loaded: str, asked: Any, paper: Bench
) -> None:
    assert roq(*arguments).exit_code == 0
    assert (paper.loaded, paper.asked) == ([loaded], [asked])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--durable", "--groups"], "give one of them"),
        (["--jobs", "--compare"], "without --compare"),
        (["--requests", "--busy", "1"], "without --compare"),
        (["--groups", "--idle", "1"], "without --compare"),
        (["--backlog", "9"], "give --jobs"),
        (["--jobs", "--held-minutes", "1"], "give --backlog"),
        (["--limits"], "give --requests"),
        (["--rounds", "0"], "--rounds"),
    ],
)
def test_what_does_not_go_together_is_wrong_usage_and_measures_nothing(
    arguments: list[str], text: str, paper: Bench
) -> None:
    done = roq(*arguments)
    assert done.exit_code == 2
    assert text in " ".join(done.output.split())
    assert paper.loaded == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(["--compare"], "nothing of RoQ was measured: no room"), (["--jobs"], "nothing was measured")],
)
def test_where_nothing_was_measured_nothing_is_written(
    arguments: list[str], text: str, paper: Bench
) -> None:
    paper.rates = []
    done = roq(*arguments)
    assert done.exit_code == 1
    assert done.stderr == f"Error: {text}\n  No results are written.\n"
    assert paper.written == []


@pytest.mark.parametrize("arguments", [["--json"], ["--json", "--groups"]])
def test_json_is_all_that_stands_on_standard_output(arguments: list[str], paper: Bench) -> None:
    assert roq(*arguments).stdout == "{}\n"
