"""What is told of how soon things happen to a job."""

from __future__ import annotations

from roq.benchmarks.job_times import JobTimes, told


def test_each_figure_stands_beside_what_was_wanted() -> None:
    measured = JobTimes(
        begin_ms=3.25, begin_p99_ms=9.0, used_percent=97.0, handed_over_seconds=1.5,
        elsewhere_seconds=16.0,
    )  # fmt: skip
    assert told("here", measured) == [
        ("here: idle, submit → handler begins, p50, ms", "3.2, wanted ≤ 10"),
        ("here: slots handed over, s", "1.5, wanted ≤ 2"),
        ("here: owner killed → runs elsewhere, s", "16.0, wanted ≤ 20"),
        ("here: limits used, %", "97.0, wanted ≥ 95"),
    ]
