"""How runs have ended, and how long they took."""

from __future__ import annotations

from roq.jobs.run_times import BOUNDS, RunTimes
from roq.jobs.states import RunEnd


def test_runs_are_counted_by_end_and_time() -> None:
    times = RunTimes()
    for seconds in (0.0, BOUNDS[0], 0.02, 10_000.0):
        times.ended("A", RunEnd.DONE, seconds)
    times.ended("A", RunEnd.UNSTARTED, None)
    assert times.ends == {("A", RunEnd.DONE): 4, ("A", RunEnd.UNSTARTED): 1}
    assert times.buckets["A"] == [2, 0, 1, 0, 0, 0, 0, 0, 0, 1]
    assert times.seconds["A"] == BOUNDS[0] + 0.02 + 10_000.0
