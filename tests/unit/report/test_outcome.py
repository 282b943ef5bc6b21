"""A run in a sentence."""

from __future__ import annotations

import msgspec
import pytest
from runs import run_of

from roq.simulation.lab.archive.document import Run, RunKind, RunState
from roq.simulation.lab.archive.verdicts import judge
from roq.simulation.lab.report.outcome import Tone, found, outcome, wanted
from roq.simulation.scenario.scenario import Expectation, What


def run_with(*expected: tuple[What, float], kind: RunKind = RunKind.LIVE) -> Run:
    """All are `at most`; figures are those of the support module."""
    run = run_of("a", kind)
    wanted_ones = [Expectation(what=what, op="<=", value=value) for what, value in expected]
    return msgspec.structs.replace(run, verdicts=judge(wanted_ones, run.figures))


@pytest.mark.parametrize(
    ("run", "tone", "headline"),
    [
        (run_with(("moves", 4)), Tone.GOOD, "The expectation is met"),
        (run_with(("moves", 4), ("lost", 0)), Tone.GOOD, "Both expectations are met"),
        (run_with(("moves", 1), ("lost", 0)), Tone.BAD, "1 of 2 expectations not met"),
        (run_with(("moves", 4), ("sent", 1)), Tone.OPEN, "1 of 2 expectations could not be judged"),
        (run_with(("moves", 4), ("sent", 1), kind=RunKind.MODEL), Tone.GOOD,
         "All that a model can tell is as expected"),
        (run_with(("sent", 1), kind=RunKind.MODEL), Tone.OPEN,
         "1 of 1 expectation could not be judged"),
        (run_with(), Tone.PLAIN, "Complete"),
    ],
)  # fmt: skip
def test_the_headline_says_what_came_of_what_was_expected(
    run: Run, tone: Tone, headline: str
) -> None:
    assert outcome(run)[:2] == (tone, headline)


def test_a_run_that_failed_says_why_and_does_not_pass() -> None:
    run = msgspec.structs.replace(run_with(("moves", 4)), state=RunState.FAILED, error="no host")
    assert outcome(run) == (Tone.BAD, "The run failed", "no host")


def test_what_is_just_missed_does_not_look_as_if_it_was_reached() -> None:
    run = run_of("a", latency_p99_ms=10.0001)
    verdict = run.verdicts[1]
    assert (wanted(verdict.expected), found(verdict)) == ("at most 10 ms", "10.0001 ms")
