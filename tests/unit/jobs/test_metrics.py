"""What an instance tells those who watch machines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import roq
from roq.errors import Unavailable
from roq.jobs.jobs import Jobs
from roq.jobs.metrics import JobMetrics
from roq.jobs.operate import JobOperations
from roq.jobs.states import StaleReason

SECONDS = 30.0
Figures = dict[tuple[str, ...], float]


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with roq.Jobs(str(tmp_path / "jobs.db")) as made:
        yield made


def figures(metrics: JobMetrics) -> Figures:
    answer = metrics.respond("/metrics")
    assert answer.status == 200
    return {
        (sample.name, *(text for _, text in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def test_jobs_of_the_database_and_runs_of_the_instance(jobs: Jobs) -> None:
    @jobs.type("Good", items=lambda params: params)
    def good(job: roq.Job, params: int) -> None: ...

    @jobs.type("Bad")
    def bad(job: roq.Job) -> None:
        raise ValueError

    @jobs.type("Off")
    def off(job: roq.Job) -> None: ...

    jobs.open()
    with jobs.database.write() as connection:
        jobs.instances.declare(connection, [off.facts])
    jobs.operate.switch(False, who="me", type="Off")
    worker = jobs.start(threads=2)
    worker.stats.stale[StaleReason.GONE] += 2
    metrics = JobMetrics(jobs.operate, worker, "127.0.0.1", 0)
    good.submit(5).wait(SECONDS)
    bad.submit(priority="low").wait(SECONDS)
    off.submit()
    jobs.close()
    told = figures(metrics)
    assert told["roq_jobs", "default", "COMPLETE", "Good"] == 1
    assert told["roq_jobs_items", "default", "COMPLETE", "Good"] == 5
    assert told["roq_jobs_failures", "low", "FAILED", "Bad"] == 1
    assert told["roq_jobs_oldest_seconds", "default", "Off"] >= 0
    assert told["roq_jobs_stalled", "off", "Off"] == 1
    assert told["roq_jobs_runs_total", "raised", "Bad"] == 1
    assert told["roq_jobs_stale_total", "gone"] == 2
    assert told["roq_jobs_run_seconds_count", "Good"] == 1
    assert told["roq_jobs_run_seconds_bucket", "+Inf", "Good"] == 1
    assert (told["roq_jobs_instance_threads",], told["roq_jobs_database_away",]) == (2, 0)
    assert metrics.respond("/healthz").status == 200
    assert metrics.respond("/else").status == 404
    metrics.close()


def test_a_database_that_is_away_is_a_figure(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_self: object) -> int:
        raise Unavailable("gone")

    jobs.type("A")(lambda job: None)
    metrics = JobMetrics(jobs.operate, jobs.worker(), "127.0.0.1", 0)
    monkeypatch.setattr(JobOperations, "now", away)
    told = figures(metrics)
    assert told["roq_jobs_database_away",] == 1
    assert told["roq_jobs_instance_running",] == 0
    assert metrics.respond("/healthz").status == 503
    metrics.close()
