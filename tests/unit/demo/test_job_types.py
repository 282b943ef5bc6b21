"""What the demo of jobs runs, on a clock of the test's."""

from __future__ import annotations

from roq.demo import job_types
from roq.jobs.states import JobStatus
from roq.jobs.views import Action, JobFilter
from roq.testing import jobs


def test_types_do_what_they_are_shown_for() -> None:
    with jobs(job_types.jobs) as clock:
        batch = job_types.jobs.batch("import 1")
        for n in range(4):
            batch.add(job_types.part, n)
        last = batch.then(job_types.report, batch.name)
        flaky = job_types.flaky.submit()
        resized = job_types.resize.submit(job_types.Images(["a.png", "b.png"]))
        clock.advance(10)
        assert (resized.result(0), flaky.result(0)) == (800, 2)
        assert (batch.progress().complete, batch.progress().failed) == (3, 1)
        assert "heartbeat" in {row.tag for row in job_types.jobs.operate.jobs(JobFilter())}
        failed = JobFilter(statuses=(JobStatus.FAILED,))
        operate = job_types.jobs.operate
        assert operate.act(operate.select(Action.RESTART, failed), who="me") == 1
        clock.advance(1)
        assert last.result(0) == "import 1: all parts are there"
