"""The judge of killed jobs finds what must not be."""

from __future__ import annotations

import pytest

from roq.simulation.real.job_judge import JobEnd, judge

GOOD = ["begin 1 2 100", "begin 1 4 200", "refused 1 2 100", "taken 1 4 200", "begin 2 2 100"]
ENDS = [JobEnd(1, "Effect", "COMPLETE", 4), JobEnd(2, "Once", "INTERRUPTED", 3)]
EFFECTS = {1: 4}


def test_what_is_as_promised_is_counted() -> None:
    verdict = judge(ENDS, EFFECTS, GOOD)
    assert verdict.wrong == []
    assert (verdict.runs, verdict.again, verdict.refused) == (3, 1, 1)
    assert verdict.jobs == {"COMPLETE": 1, "INTERRUPTED": 1}


@pytest.mark.parametrize(
    ("ends", "effects", "more", "wrong"),
    [
        (ENDS, EFFECTS, ["begin 1 4 300"], "run 4 was begun twice"),
        (ENDS, EFFECTS, ["begin 1 6 300"], "run 6 was begun after it was complete"),
        (ENDS, EFFECTS, ["begin 2 4 300"], "it was to be run once"),
        (ENDS, EFFECTS, ["taken 1 2 300"], "the end of run 2 was taken"),
        (ENDS, EFFECTS, ["refused 1 4 300"], "was refused, and has its effect"),
        (ENDS, {1: 2}, [], "its effect is that of run 2"),
        (ENDS, {}, [], "it has no effect"),
        (ENDS, {1: 4, 2: 2}, [], "run 2 has its effect"),
        ([JobEnd(2, "Once", "RUNNING", 2)], {}, [], "it has not ended"),
        ([JobEnd(3, "Returns", "COMPLETE", 2)], {}, [], "was not begun"),
    ],
)
def test_what_is_not_is_named(
    ends: list[JobEnd], effects: dict[int, int], more: list[str], wrong: str
) -> None:
    assert any(wrong in each for each in judge(ends, effects, [*GOOD, *more]).wrong)
