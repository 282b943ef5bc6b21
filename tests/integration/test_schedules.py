"""Schedules of two instances that are killed: each time is fired, once, on both databases."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import environment, until
from job_lab import Lab
from postgres import postgres
from sqlalchemy import text

from roq.jobs.timetable import SECOND

pytestmark = pytest.mark.integration

SUPPORT = Path(__file__).parents[1] / "support"
SECONDS = 60.0
KILLS = 2


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'jobs.db'}"
        return
    with postgres() as found:
        yield found


@pytest.fixture
def lab(url: str) -> Iterator[Lab]:
    made = Lab(url)
    yield made
    made.close()


def begin(url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "roq", "jobs", "work", "schedule_program:jobs", "--threads", "2"],
        env=environment(ROQ_JOBS=url), cwd=SUPPORT, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def fired(lab: Lab) -> list[tuple[int, int | None]]:
    """Times and their jobs."""
    with lab.database.read() as connection:
        rows = connection.execute(text("SELECT time, job FROM job_fired ORDER BY time"))
        return [(row.time, row.job) for row in rows]


def more(lab: Lab, number: int) -> bool:
    """Wait until there are so many more times than now."""
    before = len(fired(lab))
    return until(lambda: len(fired(lab)) >= before + number, SECONDS)


def test_each_time_is_fired_once_whoever_is_killed(lab: Lab, url: str) -> None:
    processes = [begin(url), begin(url)]
    try:
        assert more(lab, 2)
        for number in range(KILLS):
            processes[number].kill()
            processes.append(begin(url))
            assert more(lab, 2)
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(SECONDS)
    finally:
        for process in processes:
            process.kill()
            process.wait(SECONDS)
    found = fired(lab)
    first, last = found[0][0], found[-1][0]
    assert [time for time, _ in found] == list(range(first, last + 1, SECOND))
    jobs = [job for _, job in found]
    assert None not in jobs
    assert len(set(jobs)) == len(jobs)
    assert sum(row.number for row in lab.jobs.operate.counts()) == len(jobs)
    lab.check()
