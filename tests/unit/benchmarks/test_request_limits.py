"""What the benchmark of limits makes of what it has measured."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from roq.benchmarks import request_limits
from roq.benchmarks.processes import BenchmarkError
from roq.benchmarks.request_limits import FETCHED, IDLE, LimitResults, moved
from roq.benchmarks.results import environment


@pytest.fixture
def results() -> LimitResults:
    return LimitResults(
        environment=environment(),
        rounds=3,
        rates={FETCHED: [9_000.0, 12_000.0, 11_000.0], IDLE: [0.5, 1.5, 1.25]},
        failures=["one of them: it broke"],
    )


def test_medians_are_held_against_what_is_wanted(results: LimitResults) -> None:
    found = {each.text: (each.measured, each.reached) for each in results.verdicts}
    assert found == {FETCHED: (11_000.0, True), IDLE: (1.25, False)}


def test_everything_is_shown_also_what_is_missing(results: LimitResults, tmp_path: Path) -> None:
    text = io.StringIO()
    request_limits.show(results, Console(file=text, width=200))
    for part in ("11,000/s", "reached", "1.25 %", "missed", "it broke"):
        assert part in text.getvalue()
    (document,) = request_limits.write(results, tmp_path)
    assert msgspec.json.decode(document.read_bytes(), type=LimitResults).rates == results.rates


def test_the_last_request_that_was_in_hand_counts() -> None:
    lines = ["begin 1 10.0", "end 1 10.2", "begin 2 10.4", "begin 3 10.5", "begin"]
    others = ["begin 2 11.25", "begin 3 11.75", "begin 9 19.0", "end 2 13.0", "begin"]
    assert moved(lines, others, 11.0) == 0.75, "1 had ended, 9 is none of them"
    with pytest.raises(BenchmarkError, match="1 of its 2 requests were not run elsewhere"):
        moved(lines, others[1:], 11.0)
    with pytest.raises(BenchmarkError, match="had no request"):
        moved(lines[:2], others, 11.0)


def test_who_was_cut_off_had_in_hand_what_ended_behind_that() -> None:
    lines = ["begin 1 10.9", "end 1 11.1", "begin 2 11.0", "lost 0 11.2", "end 2 11.3"]
    lines.append("begin 3 11.4")
    assert moved(lines, ["begin 2 11.5"], 11.0) == 0.5, "1 was answered, 3 came later"
