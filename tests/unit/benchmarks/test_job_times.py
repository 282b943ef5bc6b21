"""What is told of how soon things happen to a job."""

from __future__ import annotations

import time

from roq.benchmarks.job_times import JobTimes, begin_ms, told


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


def test_the_start_of_the_instance_is_no_latency_of_an_idle_one() -> None:
    waits = iter([1_700_000_000, *[9_000_000] * 3])
    found = begin_ms(lambda: time.monotonic_ns() + next(waits), 3, 0.0)
    assert len(found) == 3
    assert max(found) < 1_700
