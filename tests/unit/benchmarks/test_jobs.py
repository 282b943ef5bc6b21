"""What the benchmark of jobs makes of what it has measured."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from roq.benchmarks import jobs
from roq.benchmarks.durable import Store
from roq.benchmarks.jobs import DRAMATIQ, PROCRASTINATE, SQLITE_QUEUE, JobResults
from roq.benchmarks.results import environment


@pytest.fixture
def results() -> JobResults:
    return JobResults(
        environment=environment(),
        rounds=3,
        systems=[
            Store(SQLITE_QUEUE, "RoQ", "kept"),
            Store(DRAMATIQ, "a peer", "not kept"),
            Store(PROCRASTINATE, "another", "kept as well"),
        ],
        skipped={"gone": "it is not installed"},
        failures=["another: it broke"],
        rates={SQLITE_QUEUE: [3_000.0, 8_000.0, 900.0], DRAMATIQ: [1_000.0, 2_000.0, 450.0]},
    )


def test_they_are_compared_within_each_round(results: JobResults) -> None:
    told = dict(jobs.comparisons(results))
    assert told == {"roq_sqlite_queue by dramatiq_redis": "3.00 (2.00 – 4.00), wanted 3"}


def test_everything_is_shown_also_what_is_missing(results: JobResults) -> None:
    text = io.StringIO()
    jobs.show(results, Console(file=text, width=200))
    for part in ("not kept", "3,000", "it is not installed", "it broke", "3.00 (2.00"):
        assert part in text.getvalue()


def test_it_is_written_as_a_document(results: JobResults, tmp_path: Path) -> None:
    (document,) = jobs.write(results, tmp_path)
    assert msgspec.json.decode(document.read_bytes(), type=JobResults).rates == results.rates


class Slow:
    """Ends one job at each look."""

    def __init__(self) -> None:
        self.number = 0
        self.runs = False

    def start(self, directory: Path, processes: int, threads: int) -> None:
        self.runs = True

    def submit(self, number: int) -> None:
        assert self.runs
        self.number = min(number, 3)

    def left(self) -> int:
        self.number -= 1
        return max(0, self.number)

    def stop(self) -> None:
        self.runs = False


def test_each_is_started_for_its_turn_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one, hangs, told = Slow(), Slow(), io.StringIO()
    monkeypatch.setattr(hangs, "left", lambda: 1)
    everybody = [
        (Store("one", "One", ""), one, lambda: None),
        (Store("two", "Two", ""), hangs, lambda: None),
        (Store("three", "Three", ""), Slow(), lambda: "it is not here"),
    ]
    monkeypatch.setattr(jobs, "_everybody", lambda _: everybody)
    monkeypatch.setattr(jobs, "RUN_SECONDS", 0.05)
    found = jobs.measure(2, 0.001, Console(file=told))
    assert [len(rates) for rates in found.rates.values()] == [2]
    assert (found.skipped, len(found.failures)) == ({"three": "it is not here"}, 2)
    assert "skipped: Three" in told.getvalue()
    assert [one.runs, hangs.runs] == [False, False]
