"""Instances as processes that are killed, stopped and told to end."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from alive import alive
from commands import environment
from job_lab import Lab
from sqlalchemy import event

import roq
from roq.jobs.rows import Body
from roq.jobs.states import JobStatus

pytestmark = pytest.mark.integration

SUPPORT = Path(__file__).parents[1] / "support"
Start = Callable[[], subprocess.Popen[str]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def start(file: Path) -> Iterator[Start]:
    """Start an instance; those that still run in the end are killed."""
    started = []

    def begin() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "roq", "jobs", "work", "job_program:jobs", "--threads", "2"],
            env=environment(ROQ_JOBS=str(file)), cwd=SUPPORT, text=True, stderr=subprocess.PIPE,
        )  # fmt: skip
        started.append(process)
        return process

    yield begin
    for each in started:
        if each.poll() is None:
            each.kill()
        each.communicate()


@pytest.fixture
def lab(file: Path) -> Iterator[Lab]:
    made = Lab(f"sqlite:///{file}")
    yield made
    made.close()


def until(what: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until this is so."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        threading.Event().wait(0.02)


def lines(path: Path) -> list[list[int]]:
    if not path.exists():
        return []
    return [[int(each) for each in line.split()] for line in path.read_text().splitlines()]


def submit(lab: Lab, kind: str, path: Path | None = None, *, again: bool = True) -> int:
    params = None if path is None else Body("json", 1, f'"{path}"'.encode())
    return lab.submit(kind, params=params, restartable=again)


def ended(lab: Lab, job: int) -> bool:
    return lab.status(job) not in {JobStatus.CREATED, JobStatus.RUNNING}


def test_a_job_of_a_killed_process_runs_again_once(lab: Lab, start: Start, tmp_path: Path) -> None:
    out, once = tmp_path / "lines", tmp_path / "once"
    job, kept = submit(lab, "Line", out), submit(lab, "Once", once, again=False)
    first = start()
    until(lambda: len(lines(out)) == 1 and len(lines(once)) == 1)
    first.kill()
    second = start()
    until(lambda: ended(lab, job) and ended(lab, kept))
    assert (lab.status(job), lab.status(kept)) == (JobStatus.COMPLETE, JobStatus.INTERRUPTED)
    assert lines(out) == [[1, 2, first.pid], [2, 4, second.pid]]
    assert len(lines(once)) == 1
    assert "died" in lab.jobs.operate.job(kept).errors[0].text
    lab.check()


def test_a_process_that_was_stopped_cannot_finish_what_another_one_runs(
    lab: Lab, start: Start, tmp_path: Path
) -> None:
    out = tmp_path / "lines"
    job = submit(lab, "Line", out)
    first = start()
    until(lambda: len(lines(out)) == 1)
    first.send_signal(signal.SIGSTOP)
    # As if it had been stopped for longer than an instance may be silent.
    lab.kill(lab.jobs.operate.instance_list()[0].id)
    start()
    until(lambda: ended(lab, job))
    first.send_signal(signal.SIGCONT)
    until(lambda: len(lab.jobs.operate.instance_list()) == 2)
    first.send_signal(signal.SIGTERM)
    told = first.communicate(timeout=60)[1]
    assert "1 outdated" in told
    assert lab.jobs.operate.job(job).result.text == "4"  # type: ignore[union-attr]
    lab.check()


def test_a_process_that_is_told_to_end_gives_its_jobs_back(
    lab: Lab, start: Start, tmp_path: Path
) -> None:
    out = tmp_path / "lines"
    job, once = submit(lab, "Line", out), submit(lab, "Once", tmp_path / "once", again=False)
    process = start()
    until(lambda: len(lines(out)) == 1 and len(lines(tmp_path / "once")) == 1)
    process.send_signal(signal.SIGTERM)
    told = process.communicate(timeout=60)[1]
    assert process.returncode == 0, told
    assert (lab.status(job), lab.status(once)) == (JobStatus.CREATED, JobStatus.INTERRUPTED)
    assert lab.field(job, "losses") == 0
    assert lab.jobs.operate.instance_list() == []
    lab.check()


def test_handlers_that_end_the_process_or_fork(lab: Lab, start: Start) -> None:
    fork = submit(lab, "Fork")
    start()
    until(lambda: ended(lab, fork))
    assert lab.status(fork) is JobStatus.COMPLETE
    leaves = submit(lab, "Exit")
    until(lambda: lab.status(leaves) is JobStatus.RUNNING)
    (row,) = lab.jobs.operate.running()
    assert row.owner is not None
    until(lambda: not _lives(lab.jobs.operate.instance_list()[0].pid))
    lab.kill(row.owner)
    start()
    until(lambda: ended(lab, leaves))
    assert lab.status(leaves) is JobStatus.COMPLETE
    lab.check()


def _lives(pid: int) -> bool:
    with Path(f"/proc/{pid}/stat").open() as file:
        return file.read().split()[2] != "Z"


def test_a_full_disk_is_told_and_nothing_is_lost(file: Path) -> None:
    with roq.Jobs(str(file)) as jobs:
        kind = jobs.type("A")(lambda job, params: params)
        kind.submit("small")
        with jobs.database.engine.connect() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        jobs.close()
        event.listen(
            jobs.database.engine, "connect",
            lambda made, _record: made.execute(f"PRAGMA max_page_count={pages + 4}"),
        )  # fmt: skip
        with pytest.raises(roq.Unavailable, match="make room on its disk"):
            kind.submit("x" * 1_000_000)
        assert [row.number for row in jobs.operate.counts()] == [1]


def test_nothing_is_left_of_a_killed_instance(lab: Lab, start: Start, tmp_path: Path) -> None:
    out = tmp_path / "out"
    job = submit(lab, "Aside", out)
    instance = start()
    until(lambda: bool(lines(out)))
    theirs = lines(out)[-1][2:]
    instance.kill()
    instance.wait()
    until(lambda: not any(map(alive, theirs)), 10.0)
    assert lab.status(job) is JobStatus.RUNNING  # until it has been silent for long enough
