"""What the benchmark of Spark does around Spark: ways in turn, their cost, its targets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from runs import run_of

from roq.benchmarks import spark as module
from roq.benchmarks.spark import CHUNK, QUEUE, Result, Round, cpu_seconds, fill, main, measure
from roq.simulation.real.results import Target


def test_ways_take_turns_and_the_first_round_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    used = iter(range(100))
    monkeypatch.setattr(module, "cpu_seconds", lambda: float(next(used)))
    rounds = measure({"a": lambda: done.append("a"), "b": lambda: done.append("b")}, 2)
    assert "".join(done) == "baabba"
    assert [each.way for each in rounds] == ["a", "b", "b", "a"]
    assert all(each.cpu_seconds == 1.0 for each in rounds)
    assert all(each.seconds >= 0.0 for each in rounds)


def test_cpu_time_is_that_of_this_process_and_grows_with_its_work() -> None:
    before = cpu_seconds()
    while cpu_seconds() <= before:
        sum(range(10_000))
    assert before > 0.0


class PaperCluster:
    def __init__(self) -> None:
        self.queues: list[Any] = []
        self.published: list[list[bytes]] = []
        self.flushed = 0

    def __enter__(self) -> PaperCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def create_queue(self, name: str, **given: Any) -> None:
        self.queues.append((name, given))

    def publisher(self, queue: str) -> PaperCluster:
        assert queue == QUEUE
        return self

    def publish_many(self, payloads: list[bytes], topic: str) -> None:
        assert topic == "rows"
        self.published.append(payloads)

    def flush(self, timeout: float) -> None:
        assert timeout > 0
        self.flushed = len(self.published)


def test_the_queue_holds_every_message_in_the_memory_of_one_exchange(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = PaperCluster()
    monkeypatch.setattr(module.roq, "connect", lambda _: cluster)
    fill("h:1", CHUNK + 3, 12)
    every = [payload for chunk in cluster.published for payload in chunk]
    assert every == [b"%010d\0\0" % number for number in range(CHUNK + 3)]
    assert cluster.flushed == 2
    ((name, given),) = cluster.queues
    assert (name, given["durability"], given["limits"]["exchanges_max"]) == (QUEUE, "none", 1)
    assert given["limits"]["ring_bytes"] > 12 * (CHUNK + 3)


def result(*reached: bool) -> Result:
    return Result(
        machine=run_of("a").machine, spark="4", rows=1_000, message_bytes=100, tasks=2,
        rounds=[Round(way="roq", seconds=1.0, cpu_seconds=2.0)],
        rows_per_second={"roq": 1_234_567.0}, cores={"roq": 1.5}, cpu_us_per_row={"roq": 0.25},
        targets=[
            Target(text="t", measured=2.0 if each else 0.5, goal=1.0, at_least=True)
            for each in reached
        ],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("reached", "ok"), [((True, False), True), ((False, False), False), ((True, True), True)]
)
def test_one_of_the_goals_is_enough(reached: tuple[bool, ...], ok: bool) -> None:
    assert result(*reached).ok is ok


@pytest.mark.parametrize(
    ("arguments", "name", "asked"),
    [
        ([], "spark", (3_000_000, 100, 5, 2, False)),
        (["--write", "--rows", "2000", "--size", "50", "--rounds", "1", "--tasks", "4"],
         "spark_write", (2_000, 50, 1, 4, True)),
    ],
)  # fmt: skip
def test_options_reach_the_measurement_and_its_result_is_shown_and_kept(
    arguments: list[str], name: str, asked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    def run(*numbers: Any, write: bool) -> Result:
        given.append((*numbers[:4], write))
        return result(True)

    monkeypatch.setattr(module, "run", run)
    done = CliRunner().invoke(main, [*arguments, "--output", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert given == [asked]
    (document,) = tmp_path.glob("*.json")
    assert document.stem.startswith(name)
    assert json.loads(document.read_text())["rows"] == 1_000
    assert "1,234,567" in done.output
    assert f"{1.234567 * asked[1]:,.0f}" in done.output


def test_a_goal_that_is_missed_is_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "run", lambda *_, **__: result(False))
    assert CliRunner().invoke(main, ["--output", str(tmp_path)]).exit_code != 0
