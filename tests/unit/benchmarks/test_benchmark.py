"""A whole benchmark: who takes part, what is kept, and that everything is stopped again."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from bench_results import made
from rich.console import Console

from roq.benchmarks import benchmark, plan
from roq.benchmarks.benchmark import contenders, measure, nothing_measured, write
from roq.benchmarks.results import Idle, Results


def test_peers_take_part_only_if_they_are_wanted_and_everybody_has_a_key_of_its_own() -> None:
    cluster: Any = SimpleNamespace()
    ours = [each.key for each in contenders(cluster, compare=False)]
    everybody = [each.key for each in contenders(cluster, compare=True)]
    assert all(key.startswith("roq") for key in ours)
    assert everybody[: len(ours)] == ours
    assert len(set(everybody)) == len(everybody)
    stages = (*plan.full().stages, *plan.full().fan_out, *plan.full().flood)
    assert {key for stage in stages for key in stage.contenders} == set(everybody)


class PaperCluster:
    def __init__(self) -> None:
        self.done: list[str] = []

    def idle(self, _seconds: float) -> Idle:
        self.done.append("idle")
        return Idle(1.0, 1.0, {})

    def fill_rings(self) -> None:
        self.done.append("fill")

    def make_flood_queue(self) -> None:
        self.done.append("flood")


class PaperRunner:
    """In the place of what runs the plan."""

    made: list[PaperRunner]
    skips: dict[str, str]
    breaks = False

    def __init__(self, everybody: list[Any], _folder: Path, _observer: object) -> None:
        self.keys = [each.key for each in everybody]
        self.skipped, self.samples, self.failures = self.skips, list[Any](), list[Any]()
        self.done: list[Any] = []
        self.made.append(self)

    def start(self) -> None:
        self.done.append("start")

    def run(self, chosen: plan.Plan) -> None:
        self.done.append(chosen)
        if self.breaks:
            raise KeyboardInterrupt

    def stop(self) -> None:
        self.done.append("stop")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PaperCluster:
    @contextmanager
    def directory() -> Iterator[str]:
        yield str(tmp_path)

    paper = PaperCluster()
    monkeypatch.setattr(PaperRunner, "made", [], raising=False)
    monkeypatch.setattr(PaperRunner, "skips", {}, raising=False)
    monkeypatch.setattr(benchmark, "RoqCluster", lambda: paper)
    monkeypatch.setattr(benchmark, "Runner", PaperRunner)
    monkeypatch.setattr(benchmark, "temporary_directory", directory)
    return paper


def measured(*, compare: bool = False) -> Results:
    return measure(plan.quick(), Console(file=io.StringIO()), compare=compare)


def test_everything_is_measured_in_order_and_summed_up(cluster: PaperCluster) -> None:
    results = measured(compare=True)
    (runner,) = PaperRunner.made
    assert runner.done == ["start", plan.quick(), "stop"]
    assert cluster.done == ["idle", "fill", "flood"]
    assert list(results.titles) == runner.keys
    assert results.idle is not None
    assert (results.rounds, results.seconds_per_run) == (2, 0.4)


def test_without_peers_only_what_roq_does_is_planned(cluster: PaperCluster) -> None:
    measured()
    (runner,) = PaperRunner.made
    assert runner.done[1] == plan.only_roq(plan.quick())


def test_a_cluster_that_does_not_start_is_asked_for_nothing(
    cluster: PaperCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PaperRunner, "skips", {plan.ROQ_BATCHES: "no port"})
    results = measured()
    assert (cluster.done, results.idle) == ([], None)
    assert nothing_measured(results) == "no port"


def test_everything_is_stopped_whatever_happens(
    cluster: PaperCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PaperRunner, "breaks", True)
    with pytest.raises(KeyboardInterrupt):
        measured()
    assert PaperRunner.made[0].done[-1] == "stop"


def test_what_measured_nothing_says_why() -> None:
    results = made()
    assert nothing_measured(results) == ""
    peers = [one for one in results.figures if one.contender == plan.ZMQ_PROXY]
    failed = msgspec.structs.replace(results, figures=peers)
    assert nothing_measured(failed) == "no answer within 60 s"
    skipped = {plan.ROQ_BATCHES: "no Java runtime"}
    left_out = msgspec.structs.replace(results, figures=[], failures=[], skipped=skipped)
    assert nothing_measured(left_out) == "no Java runtime"
    assert nothing_measured(msgspec.structs.replace(left_out, skipped={})) == "nothing was tried"


def test_results_are_a_document_and_a_picture_in_a_folder_that_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark.picture, "draw", lambda _, path: path.touch())
    folder = tmp_path / "deep" / "results"
    document, drawing = write(made(), folder)
    assert (document.parent, drawing.parent) == (folder, folder)
    assert drawing.is_file()
    assert msgspec.json.decode(document.read_bytes(), type=Results) == made()
