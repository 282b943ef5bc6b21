"""`roq sim sweep`: which combinations are played, what is shown, and an end before all are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from runs import run_of

from roq.cli.commands import cli
from roq.simulation.forecast import sweep as sweeps
from roq.simulation.forecast.sweep import Swept


def roq(*arguments: str | Path | int) -> Result:
    return CliRunner().invoke(cli, ["sim", *map(str, arguments)], catch_exceptions=False)


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


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is conducted; of ten runs three are through when it ends."""
    given: list[Any] = []

    def conduct(order: Any, _progress: object) -> Swept:
        given.append(order)
        return Swept(
            table=[{"scenario": "short", "moves": 1234.0, "load": 0.5}], runs=3, wanted=10,
            took=2.0, folder=Path("there"), written=[], machine=run_of("a").machine,
        )  # fmt: skip

    monkeypatch.setattr(sweeps, "conduct", conduct)
    return given


def test_what_is_complete_is_shown_and_an_end_before_all_is_an_exit_code(orders: list[Any]) -> None:
    result = roq("sweep", "short", "--local")
    assert result.exit_code == 130
    assert result.stdout.split() == ["scenario", "moves", "load", "short", "1,234", "0.500"]
    assert result.stderr == "3 of 10 runs in 2.0 s; written: there\n"


def test_ctrl_c_before_anything_is_complete_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Swept:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeps, "conduct", interrupted)
    result = roq("sweep", "short", "--local")
    assert (result.exit_code, result.stdout) == (130, "")


def test_options_reach_the_sweep(orders: list[Any]) -> None:
    roq(
        "sweep", "a", "b", "--vary", "cooldown_seconds=2,10", "--set", "policy=known", "--seeds", 3,
        "--queues", 4, "--master", "local[2]", "--executor-memory", "2g", "--results-at", "s3a://x",
    )  # fmt: skip
    roq("sweep", "a", "--local", "--workers", 2, "--metric", "moves")
    spark, local = orders
    assert (spark.scenarios, spark.seeds, spark.queues) == (("a", "b"), 3, 4)
    assert spark.vary == {"cooldown_seconds": [2, 10]}
    assert spark.settings == {"policy": "known"}
    assert (spark.spark, spark.master, spark.results_at) == (True, "local[2]", "s3a://x")
    assert spark.wish.executor_memory == "2g"
    assert len(spark.metrics) > 3
    assert (local.spark, local.workers, local.metrics) == (False, 2, ("moves",))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
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
