"""Values of rows, and the counters of a transaction."""

from __future__ import annotations

from msgspec.structs import replace

from roq.jobs.rows import Claimed, Deltas, spread
from roq.jobs.states import Attempts, JobStatus

RUN = Claimed(
    id=1, token=2, type="A", priority=10, created=5, sequence=0, attempts=Attempts(failures=1),
    restartable=True, items=7, saved=0,
)  # fmt: skip


def test_a_step_moves_number_items_and_failures() -> None:
    deltas = Deltas()
    deltas.move(JobStatus.RUNNING, [(RUN, JobStatus.FAILED, 2)])
    assert deltas.rows(3) == [
        ["A", 10, "FAILED", 3, 1, 7, 2],
        ["A", 10, "RUNNING", 3, -1, -7, -1],
    ]


def test_jobs_that_are_alike_are_counted_together() -> None:
    deltas = Deltas()
    other = replace(RUN, id=2, items=1)
    deltas.move(JobStatus.CREATED, [(each, JobStatus.RUNNING, 1) for each in (RUN, other, RUN)])
    assert deltas.rows(0) == [
        ["A", 10, "CREATED", 0, -3, -15, -3],
        ["A", 10, "RUNNING", 0, 3, 15, 3],
    ]


def test_what_cancels_out_is_not_written() -> None:
    deltas = Deltas()
    deltas.move(JobStatus.RUNNING, [(RUN, JobStatus.CREATED, 1)])
    deltas.move(JobStatus.CREATED, [(RUN, JobStatus.RUNNING, 1)])
    assert deltas.rows(0) == []


def test_order_is_priority_age_place_and_id() -> None:
    later = replace(RUN, id=9, created=6)
    low = replace(RUN, priority=100, created=1)
    second = replace(RUN, id=0, sequence=1)
    assert sorted([low, later, second, RUN], key=lambda run: run.order) == [RUN, second, later, low]


def test_ids_are_rows_of_one_column() -> None:
    assert spread([1, 2]) == [[1], [2]]
