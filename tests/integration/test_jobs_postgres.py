"""Jobs in a real PostgreSQL: the same SQL, and what SQLite has not got."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from job_contract import StoreContract
from job_lab import Lab, new
from postgres import postgres
from schedule_contract import MINUTE, ScheduleContract, schedule
from waiting import eventually

import roq
from roq.errors import InvalidRequest
from roq.jobs.rows import Want
from roq.jobs.states import JobStatus, RunEnd
from roq.jobs.views import Action, JobFilter

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture
def lab(server: str) -> Iterator[Lab]:
    made = Lab(server)
    made.empty()
    yield made
    made.close()


class TestPostgreSQL(StoreContract):
    """All of it."""


class TestSchedules(ScheduleContract):
    """All of it, on the clock of the database."""

    def test_two_fire_at_once_and_each_time_has_one_job(self, lab: Lab) -> None:
        self.declare(lab, *(schedule(name) for name in "abc"))
        for name in "abc":
            self.missed(lab, 1, name)
        operate = lab.jobs.operate.schedules
        with lab.database.write() as one:
            assert operate.fire_due(one) == 3
            with lab.database.write() as two:
                assert operate.fire_due(two) == 0, "they are left to the other one"
        assert self.fire(lab) == 0
        assert lab.jobs.operate.counts()[0].number == 3

    def test_no_hosts_clock_counts(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("roq.jobs.database.time_ns", lambda: 0)
        self.declare(lab, schedule())
        self.missed(lab, 1)
        assert self.fire(lab) == 1
        (fired,) = self.shown(lab).jobs
        with lab.database.read() as connection:
            assert lab.database.now(connection) - fired.time < 2 * MINUTE


def test_two_claim_at_once_and_get_different_jobs(lab: Lab) -> None:
    for _ in range(4):
        lab.submit()
    one, two = lab.instance(), lab.instance()
    with lab.database.write() as mine:
        held = lab.store.candidates(mine, [_want()], 2)
        assert {run.id for run in lab.claim(two)}.isdisjoint(job for job, _, _ in held)
        assert len(lab.store.claim(mine, one, [_want()], held, set())) == 2
    lab.check()


def test_a_claim_and_the_funeral_of_its_instance_exclude_each_other(lab: Lab) -> None:
    job, mine = lab.submit(), lab.instance()
    with lab.database.write() as claiming:
        jobs = lab.store.candidates(claiming, [_want()], 1)
        assert len(lab.store.claim(claiming, mine, [_want()], jobs, set())) == 1
        with lab.database.write() as reaping:
            # It has expired, but its row is in use: nobody can take it for dead now.
            assert lab.instances.reap(reaping) == 0
    lab.kill(mine)
    assert lab.status(job) is roq.JobStatus.CREATED
    lab.check()


@pytest.mark.parametrize(
    "wanted", [JobFilter(tag="\0"), JobFilter(priority=2**40), JobFilter(ids=(2**63,))]
)
def test_what_postgresql_cannot_hold_is_refused(lab: Lab, wanted: JobFilter) -> None:
    lab.submit()
    with pytest.raises(InvalidRequest, match="cannot hold"):
        lab.jobs.operate.select(Action.DELETE, wanted)


def test_a_restart_meets_a_submission_with_the_same_unique(lab: Lab) -> None:
    mine = lab.instance()
    jobs = [lab.submit(unique=each, restartable=False) for each in "uv"]
    for run in lab.claim(mine):
        lab.finish(mine, run, RunEnd.RAISED)
    operate = lab.jobs.operate
    selection = operate.select(Action.RESTART, JobFilter())
    with ThreadPoolExecutor(1) as pool:
        with lab.database.write() as connection:
            lab.store.submit(connection, [new(unique="u")], foreign=True)
            restarting = pool.submit(operate.act, selection, who="me")
            eventually(lambda: waits_for_a_lock(lab), "the restart waits for the submission")
        assert restarting.result() == 1
    assert [lab.status(job) for job in jobs] == [JobStatus.FAILED, JobStatus.CREATED]
    lab.check()


def test_an_instance_is_told_at_once(server: str, lab: Lab) -> None:
    done = threading.Event()
    with roq.Jobs(server) as jobs:

        @jobs.type("Told")
        def told(_job: roq.Job) -> None:
            done.set()

        jobs.start(threads=1)
        told.submit().wait(30)
        other = roq.Jobs(server)
        handle = other.type("Told")(told.handler).submit()
        assert handle.wait(30) is roq.JobStatus.COMPLETE
        other.close()
    assert done.is_set()


def test_a_job_is_there_with_the_users_commit_or_not_at_all(server: str, lab: Lab) -> None:
    with roq.Jobs(server) as jobs:

        @jobs.type("A", restartable=True)
        def run(_job: roq.Job, params: int) -> int:
            return params

        with jobs.engine.connect() as connection:
            gone = run.submit(1, connection=connection)
            connection.rollback()
            kept = run.submit(2, connection=connection)
            # Neither its row nor its counters make anybody wait.
            other = run.submit(3)
            connection.commit()
        with pytest.raises(roq.JobNotFound):
            gone.status()
        assert {kept.status(), other.status()} == {roq.JobStatus.CREATED}
    lab.check()


def _want() -> Want:
    return Want("A", 10, 1_000_000)


def waits_for_a_lock(lab: Lab) -> bool:
    """Whether some transaction waits for the end of another one."""
    with lab.database.read() as connection:
        found = lab.database.run(connection, "SELECT 1 FROM pg_locks WHERE NOT granted").first()
    return found is not None
