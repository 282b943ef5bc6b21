"""What bad input gets: a test for each kind, through the public interface and a real file.

Elsewhere: a cron expression that never fires (`test_timetable`), a file of another host
(`test_instances`), a full disk (`test_jobs_processes`), limits (`test_limits`, `test_types`),
handlers that crash, fork or are deaf (`test_processes`, `test_pool`), stale forms
(`test_job_pages`), a newer schema (`test_schema`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

import roq
from roq.errors import InvalidRequest, JobFailed, JobNotFound, MessageTooLarge, Unavailable
from roq.jobs import database
from roq.jobs.jobs import Jobs
from roq.jobs.rows import Body, NewJob
from roq.jobs.states import DEFAULT, JobStatus
from roq.jobs.views import Action, JobFilter

pytestmark = pytest.mark.integration

SECONDS = 60.0
HOSTILE = "\0<script>alert(1)</script>'; DROP TABLE job; --\x1b[2J\u202e%s:now"


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with roq.Jobs(str(tmp_path / "jobs.db"), jitter=lambda: 0.0) as made:

        @made.type("Echo")
        def echo(job: roq.Job, params: str) -> str:
            return params

        yield made


def put(jobs: Jobs, kind: str, params: Body | None) -> int:
    """What a program of another version has submitted."""
    with jobs.open().database.write() as connection:
        return jobs.store.submit(connection, [NewJob(kind, DEFAULT, True, params=params)])[0].id


def test_params_that_cannot_be_read_fail_at_once_with_the_reason(jobs: Jobs) -> None:
    bodies = {
        "cannot be read": Body("json", 1, b"5"),
        "truncated": Body("json", 1, b'"' + b"\xff" * 9),
        "encoded by 'pickle'": Body("pickle", 1, b"cos\nsystem\n"),
        "version 7": Body("json", 7, b'"a"'),
        "no params": None,
    }
    ids = {reason: put(jobs, "Echo", body) for reason, body in bodies.items()}
    put(jobs, "Echo", Body("json", 1, b"[" * 100_000))
    strange = put(jobs, "Of another program", None)
    jobs.start(threads=2)
    for reason, job in ids.items():
        handle = jobs.handle(job, jobs.types["Echo"])
        assert handle.wait(SECONDS) is JobStatus.FAILED
        error = jobs.operate.job(job).job.error or ""
        assert reason in error
        assert jobs.operate.job(job).job.failures == 1  # not tried again, though restartable
    # A type that nobody here knows is left, and named.
    page = jobs.operate.job(strange)
    assert page.job.status is JobStatus.CREATED
    assert "no living instance runs type Of another program" in page.why
    assert [row.type for row in jobs.operate.counts() if not row.known] == ["Of another program"]


def test_texts_of_any_kind_come_back_as_they_were(jobs: Jobs) -> None:
    echo = jobs.types["Echo"]
    jobs.start(threads=1)
    assert echo.submit(HOSTILE).result(SECONDS) == HOSTILE
    for given in ({"tag": HOSTILE}, {"key": HOSTILE}, {"unique": HOSTILE}):
        with pytest.raises(InvalidRequest):
            echo.submit("a", **given)
    with pytest.raises(MessageTooLarge, match="store them elsewhere"):
        echo.submit("x" * 100_000_000)

    @jobs.type("Large")
    def large(job: roq.Job) -> str:
        return "x" * 20_000_000

    jobs.close()
    jobs.start(threads=1)
    with pytest.raises(JobFailed, match="20,000,002 bytes"):
        large.submit().result(SECONDS)


def test_times_before_now_are_now_and_others_are_waited_for(jobs: Jobs) -> None:
    echo = jobs.types["Echo"]
    last = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
    later = echo.submit("a", due=last)
    jobs.start(threads=1)
    for due in (datetime(1, 1, 1, tzinfo=UTC), datetime.now(UTC) - timedelta(days=9)):
        assert echo.submit("b", due=due).result(SECONDS) == "b"
    page = jobs.operate.job(later.id)
    assert (page.job.status, "it is due in" in page.why) == (JobStatus.CREATED, True)


def test_jobs_cannot_wait_in_a_circle(jobs: Jobs) -> None:
    echo = jobs.types["Echo"]
    first = echo.submit("a")
    for parent in (first.id + 1, first.id + 2, -1, 2**70):
        with pytest.raises(JobNotFound):  # its own id, or that of a later one
            echo.submit("b", after=[parent])
    jobs.operate.act(jobs.operate.select(Action.DELETE, JobFilter()), who="me")
    with pytest.raises(JobNotFound):
        echo.submit("b", after=[first])


def test_filters_are_values_and_never_sql(jobs: Jobs) -> None:
    echo = jobs.types["Echo"]
    handle = echo.submit("a", tag="x' OR '1'='1")
    for text in ("' OR '1'='1", "%", "*", "'; DELETE FROM job; --"):
        for wanted in (
            JobFilter(tag=text), JobFilter(key=text), JobFilter(types=(text,)),
            JobFilter(fingerprint=text),
        ):  # fmt: skip
            assert jobs.operate.jobs(wanted) == []
            assert jobs.operate.select(Action.DELETE, wanted).number == 0
        with pytest.raises(InvalidRequest):
            jobs.operate.set_limits(text, {"threads": "1"}, who="me")
    assert handle.status() is JobStatus.CREATED
    assert [row.id for row in jobs.operate.jobs(JobFilter(tag="x' OR '1'='1"))] == [handle.id]


def test_a_database_that_only_reads_is_told(jobs: Jobs, tmp_path: Path) -> None:
    jobs.open().close()
    url = f"sqlite:///file:{tmp_path / 'jobs.db'}?mode=ro&uri=true"
    with roq.Jobs(url) as other:
        other.type("Echo")(jobs.types["Echo"].handler)
        with pytest.raises(Unavailable, match="cannot be written"):
            other.types["Echo"].submit("a")


def test_a_pool_without_connections_is_told_and_instances_go_on(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.2)
    with roq.Jobs(jobs.database.name) as other:
        echo = other.type("Echo")(jobs.types["Echo"].handler)
        handle = echo.submit("a")
        with contextlib.ExitStack() as held:
            for _ in range(database.POOL):
                held.enter_context(other.engine.connect())
            with pytest.raises(Unavailable, match="were in use"):
                echo.submit("b")
            done = threading.Event()
            worker = jobs.start(threads=1)
            while not worker.stats.complete:
                done.wait(0.02)
        assert handle.wait(SECONDS) is JobStatus.COMPLETE
        with other.engine.connect() as connection:
            assert connection.execute(sa.text("SELECT count(*) FROM job")).scalar() == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError])
def test_handlers_may_raise_anything(jobs: Jobs, error: type[BaseException]) -> None:
    @jobs.type("Raises")
    def raises(job: roq.Job) -> None:
        raise error("now")

    jobs.start(threads=1)
    with pytest.raises(JobFailed, match=error.__name__):
        raises.submit().result(SECONDS)
    assert jobs.types["Echo"].submit("a").result(SECONDS) == "a"


def test_a_handler_that_swallows_an_interruption_ends_as_it_says(jobs: Jobs) -> None:
    begun = threading.Event()

    @jobs.type("Swallows")
    def swallows(job: roq.Job) -> str:
        begun.set()
        while True:
            try:
                job.check()
                threading.Event().wait(0.01)
            except roq.JobInterrupted:
                return "all the same"

    jobs.start(threads=1)
    handle = swallows.submit()
    assert begun.wait(SECONDS)
    jobs.operate.act(jobs.operate.select(Action.INTERRUPT, JobFilter()), who="me")
    assert handle.result(SECONDS) == "all the same"
