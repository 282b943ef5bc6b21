"""Batches: all of one is submitted, or nothing, and how far it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

import roq
from roq.jobs import batches
from roq.jobs.jobs import Jobs
from roq.jobs.schema import JOB


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with roq.Jobs(str(tmp_path / "jobs.db")) as made:
        made.type("Part")(part)
        made.type("Sum")(total)
        yield made


def part(job: roq.Job, params: int) -> int:
    return params


def total(job: roq.Job) -> str:
    return job.tag


def test_the_last_one_runs_when_all_others_are_done(jobs: Jobs) -> None:
    batch = jobs.batch("import 7")
    for n in range(30):
        batch.add(jobs.types["Part"], n)
    with pytest.raises(roq.InvalidRequest, match="not submitted yet"):
        batch.progress()
    last = batch.then(jobs.types["Sum"])
    assert repr(batch) == "<roq.JobBatch 'import 7': 30 jobs>"
    assert [(row.number, row.complete, row.failed) for row in [batch.progress()]] == [(30, 0, 0)]
    jobs.start(threads=2)
    assert last.result(30) == "import 7"
    assert [each.result(0) for each in batch.handles] == list(range(30))
    told = batch.progress()
    assert (told.number, told.complete, told.status) == (30, 30, roq.JobStatus.COMPLETE)


def test_a_batch_is_submitted_once_and_with_types_of_its_own(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = jobs.batch("b")
    other = roq.Jobs(str(tmp_path / "other.db")).type("Part")(part)
    with pytest.raises(roq.ConfigError, match="its own"):
        batch.add(other, 1)
    monkeypatch.setattr(batches, "MEMBERS_MAX", 1)
    batch.add(jobs.types["Part"], 1)
    with pytest.raises(roq.InvalidRequest, match="make several"):
        batch.add(jobs.types["Part"], 2)
    batch.then(jobs.types["Sum"])
    for again in (lambda: batch.add(jobs.types["Part"], 1), lambda: batch.then(jobs.types["Sum"])):
        with pytest.raises(roq.InvalidRequest, match="is submitted"):
            again()
    with pytest.raises(roq.InvalidRequest, match="name of a batch"):
        jobs.batch("")
    with pytest.raises(roq.JobNotFound, match="of no batch"):
        jobs.batch_of(batch.handles[0].id)


def test_one_that_is_there_already_leaves_nothing_of_the_batch(jobs: Jobs) -> None:
    there = jobs.types["Part"].submit(0, unique="u")
    batch = jobs.batch("b")
    batch.add(jobs.types["Part"], 1)
    batch.add(jobs.types["Part"], 2, unique="u")
    with pytest.raises(roq.JobExists):
        batch.then(jobs.types["Sum"])
    assert [row.number for row in jobs.operate.counts()] == [1]
    skips = jobs.batch("b")
    for _ in range(2):
        skips.add(jobs.types["Part"], 2, unique="u", on_unique="skip")
    last = skips.then(jobs.types["Sum"])
    assert [each.id for each in skips.handles] == [there.id, there.id]
    assert jobs.operate.job(last.id).parents == [there.id]
    assert skips.progress().number == 1


def test_one_that_is_there_already_leaves_nothing_in_a_transaction_that_goes_on(
    jobs: Jobs,
) -> None:
    jobs.types["Part"].submit(0, unique="u")
    batch = jobs.batch("b")
    batch.add(jobs.types["Part"], 1)
    batch.add(jobs.types["Part"], 2, unique="u")
    with jobs.engine.begin() as connection:
        with pytest.raises(roq.JobExists):
            batch.then(jobs.types["Sum"], connection=connection)
        connection.exec_driver_sql("CREATE TABLE mine (n INTEGER)")
    with jobs.engine.begin() as connection:
        connection.exec_driver_sql("SELECT n FROM mine")
    assert [row.number for row in jobs.operate.counts()] == [1]
    jobs.start(threads=1)
    jobs.handle(1, jobs.types["Part"]).result(30)
    assert batch.then(jobs.types["Sum"]).result(30) == "b"


def test_in_a_transaction_of_the_users_nobody_has_to_find_out_for_whom_the_last_one_waits(
    jobs: Jobs,
) -> None:
    held = []
    there = jobs.types["Part"].submit(0, unique="u")
    for on_unique in ("raise", "skip"):
        batch = jobs.batch("b")
        for n in range(3):
            batch.add(jobs.types["Part"], n)
        if on_unique == "skip":
            batch.add(jobs.types["Part"], 3, unique="u", on_unique="skip")
        with jobs.engine.begin() as connection:
            last = batch.then(jobs.types["Sum"], connection=connection)
            asked = select(JOB.c.held, JOB.c.waits).where(JOB.c.id == last.id)
            held += [tuple(row) for row in connection.execute(asked)]
    assert held == [("parents", 3), ("later", 4)], "another's job may be COMPLETE by the commit"
    jobs.start(threads=1)
    assert last.result(30) == "b"
    assert there.status() is roq.JobStatus.COMPLETE


def test_nothing_comes_to_a_batch_while_it_is_being_submitted(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = jobs.batch("b")
    batch.add(jobs.types["Part"], 1)
    write = jobs.submit_batch

    def meanwhile(*given: Any) -> Any:
        for other in (
            lambda: batch.add(jobs.types["Part"], 2), lambda: batch.then(jobs.types["Sum"])
        ):  # fmt: skip
            with pytest.raises(roq.InvalidRequest, match="is submitted"):
                other()
        return write(*given)

    monkeypatch.setattr(jobs, "submit_batch", meanwhile)
    batch.then(jobs.types["Sum"])
    assert len(batch.handles) == 1
    assert [row.number for row in jobs.operate.counts()] == [1, 1]


def test_without_jobs_the_last_one_runs_at_once(jobs: Jobs) -> None:
    last = jobs.batch("none").then(jobs.types["Sum"])
    jobs.start(threads=1)
    assert last.result(30) == "none"
