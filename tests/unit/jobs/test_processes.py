"""Handlers in processes of their own: real processes, and a real file of SQLite."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import process_program
import pytest
import sqlalchemy as sa
from alive import alive

import roq
from roq.errors import ConfigError, JobFailed
from roq.jobs import processes
from roq.jobs.jobs import Jobs
from roq.jobs.states import JobStatus
from roq.jobs.views import Action, JobFilter

SECONDS = 60.0


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    url = str(tmp_path / "jobs.db")
    monkeypatch.setenv("ROQ_JOBS", url)
    monkeypatch.setattr(processes, "STOP_SECONDS", 0.5)
    program = process_program.jobs
    with program.elsewhere(url):
        program.open()
        yield program


def until(what: Callable[[], bool]) -> None:
    end = monotonic() + SECONDS
    while not what():
        assert monotonic() < end
        threading.Event().wait(0.02)


def group(pid: int) -> list[int]:
    """The processes of a group."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(each.name)) == pid and alive(int(each.name)):
                found.append(int(each.name))
        except OSError:
            continue
    return found


def last(path: Path) -> int:
    return int(path.read_text().split()[-1])


def failure(jobs: Jobs, how: str) -> str:
    handle: Any = process_program.leaves.submit(how)
    with pytest.raises(JobFailed) as raised:
        handle.result(SECONDS)
    assert jobs.operate.job(handle.id).job.saved == 3
    return str(raised.value)


def test_a_crash_is_an_error_of_the_job_alone(jobs: Jobs) -> None:
    jobs.start(threads=2)
    first = process_program.where.submit().result(SECONDS)
    assert first != os.getpid()
    assert process_program.where.submit().result(SECONDS) == first
    assert "exit code 3" in failure(jobs, "exit")
    assert "SIGKILL" in failure(jobs, "kill")
    assert "has forked" in failure(jobs, "fork")
    assert "SystemExit: 4" in failure(jobs, "raise")
    assert "cannot be read" in failure(jobs, "rubbish")
    assert process_program.where.submit().result(SECONDS) != first
    with jobs.engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE effect (job INTEGER)"))
    done = process_program.completes.submit()
    assert done.wait(SECONDS) is JobStatus.COMPLETE
    with jobs.engine.begin() as connection:
        assert connection.execute(sa.text("SELECT job FROM effect")).scalars().all() == [done.id]


def test_what_does_not_stop_is_killed_with_all_that_it_has_started(
    jobs: Jobs, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    jobs.start(threads=1)
    handle: Any = process_program.deaf.submit(str(out))
    assert handle.wait(SECONDS) is JobStatus.TIMED_OUT
    process = last(out)
    until(lambda: not group(process))
    (error,) = jobs.operate.job(handle.id).errors
    assert "process was killed" in error.text
    assert process_program.where.submit().wait(SECONDS) is JobStatus.COMPLETE


def test_an_interruption_reaches_it_and_its_place_is_kept(jobs: Jobs, tmp_path: Path) -> None:
    out = tmp_path / "out"
    jobs.start(threads=1)
    handle: Any = process_program.stops.submit(str(out))
    until(out.exists)
    jobs.operate.act(jobs.operate.select(Action.INTERRUPT, JobFilter()), who="me")
    assert handle.wait(SECONDS) is JobStatus.INTERRUPTED
    assert jobs.operate.job(handle.id).job.saved == 8
    out.unlink()
    again: Any = process_program.stops.submit(str(out))
    until(out.exists)
    process = last(out)
    jobs.close()  # as SIGTERM does
    assert again.status() is JobStatus.CREATED
    assert not alive(process)
    jobs.start(threads=1)
    assert again.result(SECONDS) == 8


def test_an_instance_that_ends_kills_what_does_not(jobs: Jobs, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with jobs.database.write() as connection:
        jobs.instances.declare(connection, [process_program.deaf.facts])
    jobs.operate.set_limits("Deaf", {"time_limit": "600"}, who="me")
    jobs.start(threads=1, grace=0.2)
    handle: Any = process_program.deaf.submit(str(out))
    until(out.exists)
    process = last(out)
    jobs.close()
    until(lambda: not group(process))
    assert handle.status() is JobStatus.CREATED
    assert jobs.operate.instance_list() == []


def test_handlers_that_cannot_be_found_are_refused() -> None:
    jobs = roq.Jobs("unused.db")
    with pytest.raises(ConfigError, match="within a function"):
        jobs.type("Local", kind="process")(lambda job: None)

    async def coroutine(job: roq.Job) -> None: ...

    for kind in ("process", "thread", "fibre"):
        with pytest.raises(ConfigError):
            jobs.type("Async", kind=kind)(coroutine)
    with pytest.raises(ConfigError, match="no `async def`"):
        jobs.type("Sync", kind="async")(process_program.where.handler)


def test_a_process_that_cannot_be_started_or_says_half_is_an_error_of_the_job(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "SILENT_SECONDS", 1)
    jobs.start(threads=1)
    assert "hung up" in failure(jobs, "half")
    with monkeypatch.context() as patched:
        patched.setattr("sys.argv", ["\udce9"])  # no UTF-8
        handle: Any = process_program.where.submit()
        assert handle.wait(SECONDS) is JobStatus.FAILED
    assert process_program.where.submit().wait(SECONDS) is JobStatus.COMPLETE


def test_a_process_that_does_not_come_up_is_an_error_of_the_job(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "START_SECONDS", 0.2)
    monkeypatch.setattr(processes, "command", lambda _: ["sleep", "600"])
    jobs.start(threads=1)
    with pytest.raises(JobFailed, match="not ready after"):
        process_program.where.submit().result(SECONDS)
