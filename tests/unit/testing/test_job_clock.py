"""Jobs of a program on a clock of the test's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import roq
import roq.testing
from roq.jobs.states import RunEnd

program = roq.Jobs("nowhere/jobs.db")
seen: list[tuple[str, datetime | None]] = []


@program.type("Note")
def note(job: roq.Job, params: str) -> str:
    seen.append((params, job.scheduled()))
    return params.upper()


@program.type("Fails", restartable=True)
async def fails(job: roq.Job) -> None:
    raise ValueError(job.attempt)


@program.type("Effect")
def effect(job: roq.Job, params: bool) -> None:
    with program.engine.connect() as connection:
        job.finish(connection=connection)
        if params:
            connection.commit()


program.schedule("nightly", note, "night", cron="0 3 * * *", zone="Europe/Warsaw")


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


def test_a_job_runs_when_it_is_told_to() -> None:
    with roq.testing.jobs(program) as clock:
        handle = note.submit("a")
        assert handle.status() is roq.JobStatus.CREATED
        assert clock.run() == 1
        assert handle.result(0) == "A"
        assert seen == [("a", None)]
        assert clock.run() == 0


def test_a_day_has_a_night_and_due_times_come_in_order() -> None:
    with roq.testing.jobs(program) as clock:
        begin = clock.now
        assert begin == datetime(2030, 1, 1, tzinfo=UTC)
        note.submit("late", due=begin + timedelta(hours=3))
        note.submit("early", due=begin + timedelta(hours=1))
        assert clock.advance(86_400) == 3
        night = begin + timedelta(hours=2)
        assert seen == [("early", None), ("night", night), ("late", None)]
        assert clock.now == begin + timedelta(days=1)
        program.operate.schedules.switch("nightly", False, who="me")
        assert clock.advance(10 * 86_400) == 0
        program.operate.schedules.switch("nightly", True, who="me")
        assert clock.run() == 1, "it catches up with the last one"


def test_what_fails_is_tried_again_as_time_passes() -> None:
    with roq.testing.jobs(program) as clock:
        handle = fails.submit()
        assert clock.run() == 1
        assert handle.status() is roq.JobStatus.CREATED
        assert clock.advance(600) == 2
        assert handle.status() is roq.JobStatus.FAILED
        assert clock.ended == [("Fails", RunEnd.RAISED)] * 3


def test_a_handler_must_commit_what_it_finishes() -> None:
    with roq.testing.jobs(program) as clock:
        kept, undone = effect.submit(True), effect.submit(False)
        assert clock.run() == 2
        assert (kept.status(), undone.status()) == (
            roq.JobStatus.COMPLETE, roq.JobStatus.FAILED,
        )  # fmt: skip


def test_what_is_off_does_not_run() -> None:
    with roq.testing.jobs(program) as clock:
        note.submit("a")
        program.operate.switch(False, who="me", type="Note")
        assert clock.advance(5 * 86_400) == 0
        program.operate.switch(True, who="me", type="Note")
        program.operate.switch(False, who="me")
        note.submit("b", due=clock.now + timedelta(hours=1))
        assert clock.advance(86_400) == 0


def test_each_block_begins_anew_and_the_programs_database_is_not_touched() -> None:
    for _ in range(2):
        with roq.testing.jobs(program, datetime(2027, 3, 28, tzinfo=UTC)) as clock:
            assert note.submit("a").id == 1
            assert clock.now.year == 2027
    assert not Path("nowhere").exists()
    assert program.database.name.endswith("nowhere/jobs.db")
    with pytest.raises(roq.Unavailable):
        note.submit("a")


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(roq.InvalidRequest, match="time zone"):
        roq.testing.jobs(program, datetime(2030, 1, 1)).__enter__()  # noqa: DTZ001
    with roq.testing.jobs(program) as clock, pytest.raises(roq.InvalidRequest, match="go back"):
        clock.advance(-1)
    with roq.Jobs(str(tmp_path / "jobs.db")) as busy:
        busy.type("A")(lambda job: None)
        busy.start(threads=1)
        with pytest.raises(roq.ConfigError, match="instances run"):
            roq.testing.jobs(busy).__enter__()
