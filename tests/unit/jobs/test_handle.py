"""A handle waits for a job's end, and gives its result or says why there is none."""

from __future__ import annotations

import pytest

from roq.errors import JobFailed, JobNotFound, Unavailable
from roq.jobs.handle import JobHandle
from roq.jobs.rows import Body
from roq.jobs.states import JobStatus


class Looks:
    """What a database says, one look after the other."""

    def __init__(self, *statuses: JobStatus | None) -> None:
        self.statuses = list(statuses)
        self.pauses: list[float] = []

    def status_of(self, job: int) -> tuple[JobStatus, str | None] | None:
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return None if status is None else (status, "ValueError: no")

    def result_of(self, job: int) -> Body | None:
        return Body("json", 1, b"7")

    def wait_for_change(self, seconds: float) -> None:
        self.pauses.append(seconds)


def handle(looks: Looks) -> JobHandle[int]:
    return JobHandle(looks, 4, lambda body: int(body.body) if body else 0)


def test_it_looks_less_and_less_often() -> None:
    looks = Looks(JobStatus.CREATED, JobStatus.RUNNING, JobStatus.RUNNING, JobStatus.COMPLETE)
    assert handle(looks).result() == 7
    assert looks.pauses == sorted(set(looks.pauses))


def test_a_job_that_did_not_complete_has_no_result() -> None:
    with pytest.raises(JobFailed, match="job 4 is TIMED_OUT: ValueError: no") as caught:
        handle(Looks(JobStatus.TIMED_OUT)).result()
    assert caught.value.status == JobStatus.TIMED_OUT


def test_waiting_has_an_end() -> None:
    with pytest.raises(Unavailable, match="RUNNING after 0 s"):
        handle(Looks(JobStatus.RUNNING)).wait(0)


def test_a_job_that_is_deleted_is_not_there() -> None:
    with pytest.raises(JobNotFound):
        handle(Looks(JobStatus.RUNNING, None)).wait()
