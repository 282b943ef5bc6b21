"""The test job: every instance can run it, so that operators see whether jobs are run."""

from __future__ import annotations

import threading
from typing import Final

import msgspec

from roq.errors import InvalidRequest
from roq.jobs.limits import TypeLimits
from roq.jobs.rows import Body, NewJob
from roq.jobs.run import Job
from roq.jobs.types import CODEC, JobType, Submitter, priority_of

TYPE: Final = "roq.test"
SECONDS_MAX: Final = 3_600.0
JOBS_MAX: Final = 1_000
_STEP_SECONDS: Final = 0.1


class TrialFailed(Exception):
    """What a test job raises that is to fail."""


class TrialParams(msgspec.Struct, frozen=True):
    """What a test job does."""

    seconds: float = 1.0
    """So long it sleeps."""
    fail: bool = False
    """Then it raises."""


def run_trial(job: Job, params: TrialParams) -> None:
    """Sleep, a tenth of a second for each item, and fail if that is wanted."""
    for _ in job.each(range(_items(params))):
        threading.Event().wait(_STEP_SECONDS)
    if params.fail:
        raise TrialFailed("this test job was to fail")


def trial_type(submitter: Submitter) -> JobType[None]:
    """The type of test jobs, for an instance."""
    return JobType(
        submitter, run_trial, name=TYPE, items=_items, restartable=True,
        limits=TypeLimits(time_limit=2 * SECONDS_MAX),
    )  # fmt: skip


def trial_jobs(number: int, seconds: float, *, fail: bool, priority: int | str) -> list[NewJob]:
    """Test jobs to be submitted.

    Raises:
        InvalidRequest: too many, too long, or no such priority.
    """
    if not 1 <= number <= JOBS_MAX:
        raise InvalidRequest(f"1 to {JOBS_MAX:,} test jobs are submitted at once, not {number:,}")
    if not 0 <= seconds <= SECONDS_MAX:
        raise InvalidRequest(f"a test job sleeps for up to {SECONDS_MAX:,.0f} s, not {seconds:g}")
    params = TrialParams(seconds, fail)
    job = NewJob(
        TYPE, priority_of(priority), restartable=True, items=_items(params), tag="test",
        params=Body(CODEC, 1, msgspec.json.encode(params)),
    )  # fmt: skip
    return [job] * number


def _items(params: TrialParams) -> int:
    return round(params.seconds / _STEP_SECONDS)
