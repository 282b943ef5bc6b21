"""The test job: sleeping, failing, and run by every instance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import roq
from roq.errors import ConfigError, InvalidRequest, JobFailed
from roq.jobs.handle import JobHandle
from roq.jobs.jobs import Jobs
from roq.jobs.states import LOW
from roq.jobs.trial import JOBS_MAX, SECONDS_MAX, TYPE, trial_jobs, trial_type

SECONDS = 30.0


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with roq.Jobs(str(tmp_path / "jobs.db"), jitter=lambda: 0.0) as made:
        made.type("Other")(lambda job: None)
        yield made


def test_every_instance_runs_it(jobs: Jobs) -> None:
    operate = jobs.operate
    with jobs.database.write() as connection:
        jobs.instances.declare(connection, [trial_type(jobs).facts])
    operate.set_limits(TYPE, {"retries": "0"}, who="me")
    jobs.start(threads=2)
    (good,) = operate.submit_trials(1, 0.2, fail=False, priority="low", who="me")
    (bad,) = operate.submit_trials(1, 0.0, fail=True, priority="high", who="me")
    assert JobHandle[None](jobs, good, lambda _: None).result(SECONDS) is None
    with pytest.raises(JobFailed, match="was to fail"):
        JobHandle[None](jobs, bad, lambda _: None).result(SECONDS)
    page = operate.job(good).job
    assert (page.priority, page.items, page.saved, page.tag) == (LOW, 2, 2, "test")
    assert [row.action for row in operate.audit()] == ["test", "test", "set"]


def test_one_for_certain_types_does_not(jobs: Jobs) -> None:
    jobs.start(threads=1, types=["Other"])
    operate = jobs.operate
    (job,) = operate.submit_trials(1, 0.0, fail=False, priority="low", who="me")
    assert "no living instance" in operate.job(job).why


def test_no_program_takes_its_name(jobs: Jobs) -> None:
    with pytest.raises(ConfigError, match="two handlers"):
        jobs.type(TYPE)(lambda job: None)


@pytest.mark.parametrize(
    ("number", "seconds"),
    [(0, 1.0), (JOBS_MAX + 1, 1.0), (1, -1.0), (1, SECONDS_MAX + 1), (1, float("nan"))],
)
def test_too_much_is_refused(number: int, seconds: float) -> None:
    with pytest.raises(InvalidRequest):
        trial_jobs(number, seconds, fail=False, priority="high")
