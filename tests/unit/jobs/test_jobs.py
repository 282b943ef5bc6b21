"""`roq.Jobs`: what programs call, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import roq
from roq.jobs.database import Undone
from roq.jobs.jobs import TRIES, Jobs
from roq.jobs.rows import Body, ReadyJob, Submitted
from roq.jobs.store import OWN_SHARD_MIN


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with roq.Jobs(str(tmp_path / "jobs.db")) as made:
        yield made


def test_nothing_is_made_before_it_is_needed(tmp_path: Path) -> None:
    jobs = roq.Jobs(str(tmp_path / "jobs.db"))
    assert "0 types" in repr(jobs)
    assert list(tmp_path.iterdir()) == []
    jobs.close()


def test_a_type_has_one_handler(jobs: Jobs) -> None:
    jobs.type("A")(lambda job: None)
    with pytest.raises(roq.ConfigError, match="two handlers"):
        jobs.type("A")(lambda job: None)


def test_an_instance_needs_a_type_that_there_is(jobs: Jobs) -> None:
    with pytest.raises(roq.ConfigError, match="no type at all"):
        jobs.worker()
    jobs.type("A")(lambda job: None)
    with pytest.raises(roq.ConfigError, match="no type B"):
        jobs.worker(types=["A", "B"])
    with pytest.raises(roq.ConfigError, match="threads"):
        jobs.worker(threads=0)


def test_one_of_a_kind(jobs: Jobs) -> None:
    kind = jobs.type("A")(lambda job: None)
    first = kind.submit(unique="u")
    with pytest.raises(roq.JobExists) as caught:
        kind.submit(unique="u")
    assert caught.value.id == first.id
    same = kind.submit(unique="u", on_unique="skip")
    assert (same.id, same.new, first.new) == (first.id, False, True)
    assert kind.submit(unique="v").id > first.id, "a refused one leaves nothing behind"


def test_a_job_is_there_with_the_users_commit_or_not_at_all(jobs: Jobs) -> None:
    kind = jobs.type("A")(lambda job: None)
    with jobs.engine.connect() as connection:
        gone = kind.submit(connection=connection)
        connection.rollback()
    with jobs.engine.begin() as connection:
        kept = kind.submit(connection=connection)
    with pytest.raises(roq.JobNotFound):
        roq.JobHandle(jobs, gone.id + 1, kind.decode_result).status()
    assert kept.status() is roq.JobStatus.CREATED
    assert [row.number for row in jobs.operate.counts()] == [1]


def test_jobs_of_unknown_types_are_left_alone(jobs: Jobs, tmp_path: Path) -> None:
    jobs.type("Mine")(lambda job: None)
    other = roq.Jobs(str(tmp_path / "jobs.db"))
    theirs = other.type("Theirs")(lambda job: None).submit()
    other.close()
    jobs.start(threads=1)
    assert jobs.types["Mine"].submit().wait(30) is roq.JobStatus.COMPLETE
    assert jobs.handle(theirs.id, jobs.types["Mine"]).status() is roq.JobStatus.CREATED
    assert [row.known for row in jobs.operate.counts()] == [True, False]


def test_nothing_to_submit(jobs: Jobs) -> None:
    assert jobs.type("A")(lambda job: None).submit_many([]) == []


def test_a_schedule_is_declared_and_not_written_before_an_instance_begins(jobs: Jobs) -> None:
    @jobs.type("A", items=len, restartable=True)
    def handle(job: roq.Job, params: list[int]) -> None: ...

    jobs.schedule("nightly", handle, [1, 2], cron="0 3 * * *", zone="Europe/Warsaw", priority="low")
    jobs.schedule("often", handle, [], every=1, catch_up="none", overlap="allow")
    assert jobs.operate.schedules.look() == []
    found = jobs.schedules["nightly"]
    assert (found.type, found.plan.priority, found.plan.items) == ("A", roq.LOW, 2)
    assert (found.params, found.restartable) == (Body("json", 1, b"[1,2]"), True)


@pytest.mark.parametrize(
    ("given", "error", "why"),
    [
        ({"name": ""}, roq.InvalidRequest, "name of a schedule"),
        ({"name": "a\0b"}, roq.InvalidRequest, "cannot be printed"),
        ({"name": "there"}, roq.ConfigError, "two schedules"),
        ({"params": "no list"}, roq.InvalidRequest, "params of type A"),
        ({"params": object()}, roq.InvalidRequest, "params of type A"),
        ({"params": [1.5]}, roq.InvalidRequest, "params of type A"),
        ({"priority": "soon"}, roq.InvalidRequest, "no priority"),
        ({"every": -1}, roq.InvalidRequest, "number of seconds"),
        ({"every": None, "cron": "0 0 31 4 *"}, roq.InvalidRequest, "Bad day-of-month"),
        ({"every": None, "cron": "0 0 * * *", "zone": "x"}, roq.InvalidRequest, "time zone 'x'"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(
    jobs: Jobs, given: dict[str, Any], error: type[Exception], why: str
) -> None:
    @jobs.type("A")
    def handle(job: roq.Job, params: list[int]) -> None: ...

    jobs.schedule("there", handle, [], every=1)
    all_of_it: dict[str, Any] = {"name": "new", "params": [], "every": 60, **given}
    with pytest.raises(error, match=why):
        jobs.schedule(all_of_it.pop("name"), handle, all_of_it.pop("params"), **all_of_it)
    assert list(jobs.schedules) == ["there"]


def test_a_schedule_has_a_type_of_the_same_program(jobs: Jobs, tmp_path: Path) -> None:
    with roq.Jobs(str(tmp_path / "other.db")) as other:
        theirs = other.type("A")(lambda job: None)
        with pytest.raises(roq.ConfigError, match="type that was made by this"):
            jobs.schedule("s", theirs, every=60)


def test_who_starts_an_instance_hears_why_it_cannot_begin(jobs: Jobs) -> None:
    jobs.type("A")(lambda job: None)
    jobs.open()
    with jobs.database.write() as connection:
        jobs.database.run(
            connection,
            "INSERT INTO job_instance (name, host, pid, threads, types, started, expires)"
            " VALUES ('o', 'elsewhere', 1, 1, '[]', 1, 9999999999999999)",
        )
    with pytest.raises(roq.ConfigError, match="another host"):
        jobs.start()


class Sink:
    """Keeps what would be sent."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    def send(self, jobs: Iterable[ReadyJob]) -> None:
        self.ids += [each.id for each in jobs]

    def close(self) -> None: ...


def test_messages_of_all_that_may_be_claimed_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, sink = roq.Jobs(str(tmp_path / "jobs.db"), "127.0.0.1:1"), Sink()
    monkeypatch.setattr(jobs, "_sending", lambda: sink)
    kind = jobs.type("A")(lambda job: None)
    done = kind.submit()
    with jobs.database.write() as connection:
        connection.exec_driver_sql("UPDATE job SET status = 'COMPLETE'")
    jobs.operate.dispatch("queue", who="me")
    past = datetime(2020, 1, 1, tzinfo=UTC)
    ready = [kind.submit(due=past), kind.submit(after=[done]), kind.submit()]
    kind.submit(due=datetime(2999, 1, 1, tzinfo=UTC))
    kind.submit(after=[ready[0]])
    assert sink.ids == [each.id for each in ready]
    jobs.close()


def test_a_submission_that_the_database_has_undone_is_tried_again(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = jobs.type("A")(lambda job: None)
    submit, undone = jobs.store.submit, [1, 2]

    def unlucky(*args: Any, **given: Any) -> list[Submitted]:
        told = submit(*args, **given)
        if undone:
            undone.pop()
            raise Undone("in favour of another one")
        return told

    monkeypatch.setattr(jobs.store, "submit", unlucky)
    kind.submit(unique="u")
    assert [row.number for row in jobs.operate.counts()] == [1]
    undone += [0] * TRIES
    with pytest.raises(roq.Unavailable):
        kind.submit()
    assert undone == []


def test_a_user_replaces_without_touching_what_others_count(jobs: Jobs) -> None:
    kind = jobs.type("A", items=lambda params: params)(lambda job, params: None)
    kind.submit(1, unique="u")
    with jobs.engine.begin() as connection:
        kind.submit(5, unique="u", on_unique="replace", connection=connection)
    with jobs.database.read() as connection:
        rows = connection.exec_driver_sql("SELECT shard, items FROM job_count ORDER BY shard").all()
    assert tuple(rows[0]) == (0, 1)
    assert [items for shard, items in rows if shard >= OWN_SHARD_MIN] == [4]
