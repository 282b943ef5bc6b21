"""What becomes of a job: the table of its life, each edge of it, and what operators are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roq.errors import LocalProtocolError
from roq.jobs.states import (
    LIFE,
    LOSSES_MAX,
    RETRIES,
    RETRY_SECONDS,
    RETRY_SECONDS_MAX,
    AfterRun,
    Attempts,
    HeldFor,
    JobStatus,
    RunEnd,
    StaleReason,
    Waiting,
    after,
    claim_ahead,
    why_stale,
    why_waiting,
)

C, D, N, F, T = (
    JobStatus.CREATED, JobStatus.COMPLETE, JobStatus.INTERRUPTED, JobStatus.FAILED,
    JobStatus.TIMED_OUT,
)  # fmt: skip
NONE = Attempts()
TABLE = [
    # how it ends, had before,                       restartable, not restartable
    (RunEnd.DONE, NONE, D, D),
    (RunEnd.RAISED, NONE, C, F),
    (RunEnd.RAISED, Attempts(failures=RETRIES - 1), C, F),
    (RunEnd.RAISED, Attempts(failures=RETRIES), F, F),
    (RunEnd.REFUSED, NONE, F, F),
    (RunEnd.STOPPED, NONE, C, N),
    (RunEnd.UNSTARTED, NONE, C, C),
    (RunEnd.INTERRUPTED, NONE, N, N),
    (RunEnd.LIMIT, NONE, C, T),
    (RunEnd.LIMIT, Attempts(timeouts=RETRIES), T, T),
    (RunEnd.LOST, NONE, C, N),
    (RunEnd.LOST, Attempts(losses=LOSSES_MAX - 1), C, N),
    (RunEnd.LOST, Attempts(losses=LOSSES_MAX), F, N),
]


def ended(end: RunEnd, had: Attempts, *, restartable: bool, jitter: float = 0.0) -> AfterRun:
    return after(end, had, restartable=restartable, jitter=lambda: jitter)


@pytest.mark.parametrize(("end", "had", "again", "once"), TABLE)
def test_each_end_of_a_run(end: RunEnd, had: Attempts, again: JobStatus, once: JobStatus) -> None:
    assert ended(end, had, restartable=True).status is again
    assert ended(end, had, restartable=False).status is once


def test_the_table_has_every_end_and_every_step_out_of_running() -> None:
    assert {end for end, *_ in TABLE} == set(RunEnd)
    assert {status for *_, a, b in TABLE for status in (a, b)} == set(
        LIFE.follow[JobStatus.RUNNING]
    )


def test_each_kind_of_failure_is_counted_by_itself() -> None:
    had = Attempts(1, 1, 1)
    counted = {
        RunEnd.RAISED: Attempts(2, 1, 1),
        RunEnd.REFUSED: Attempts(2, 1, 1),
        RunEnd.LIMIT: Attempts(1, 2, 1),
        RunEnd.LOST: Attempts(1, 1, 2),
    }
    for end in RunEnd:
        assert ended(end, had, restartable=True).attempts == counted.get(end, had)


def test_nothing_else_follows() -> None:
    for before in JobStatus:
        for status in set(JobStatus) - {before} - set(LIFE.follow.get(before, ())):
            with pytest.raises(LocalProtocolError):
                LIFE.step(before, status)


def test_the_wait_before_another_try_grows_and_is_spread() -> None:
    first = ended(RunEnd.RAISED, NONE, restartable=True)
    second = ended(RunEnd.RAISED, Attempts(failures=1), restartable=True, jitter=0.5)
    assert first.delay == RETRY_SECONDS / 2
    assert second.delay == 2 * RETRY_SECONDS * 0.75
    late = after(
        RunEnd.RAISED, Attempts(failures=90), restartable=True, jitter=lambda: 0.999, retries=100
    )
    assert RETRY_SECONDS_MAX / 2 < late.delay <= RETRY_SECONDS_MAX


def test_an_instance_claims_ahead_only_what_is_short() -> None:
    assert claim_ahead(8, 0.01) == 0
    assert claim_ahead(8, 0.001) == 80
    assert claim_ahead(8, 0.0) == 500


WAITS = Waiting(
    type="Resize", held=HeldFor.NO, seconds_to_due=0.0, parents=0, failed_parents=(), key=None,
    instances=2, all_on=True, type_on=True, limit=None, slots=0, ahead=False,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, "next one of its type"),
        ({"ahead": True}, "others of its type go first"),
        ({"limit": 2, "slots": 2}, "its limit in the cluster"),
        ({"instances": 0}, "no living instance"),
        ({"type_on": False}, "`roq jobs on Resize`"),
        ({"all_on": False}, "`roq jobs on`"),
        ({"held": HeldFor.KEY, "key": "k"}, "key 'k' goes first"),
        ({"held": HeldFor.LATER, "seconds_to_due": 5.4}, "due in 5 s"),
        ({"held": HeldFor.PARENTS, "parents": 3}, "waits for 3 other jobs"),
        (
            {"held": HeldFor.PARENTS, "failed_parents": (7,)},
            "did not complete (7): restart them, or delete it",
        ),
    ],
)
def test_each_waiting_job_says_why(change: dict[str, object], told: str) -> None:
    assert told in why_waiting(replace(WAITS, **change))  # type: ignore[arg-type]


def test_a_message_that_came_too_early_for_its_job_is_another_reason() -> None:
    row = (C, 4, HeldFor.NO)
    assert why_stale(4, row) is StaleReason.CHANGED
    assert why_stale(3, row) is StaleReason.OUTDATED
