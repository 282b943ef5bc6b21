"""Jobs in a real PostgreSQL: the same SQL, and what SQLite has not got."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from job_contract import HeldContract, StoreContract
from job_lab import Lab, new
from postgres import frozen, postgres, stopped
from schedule_contract import MINUTE, ScheduleContract, schedule
from waiting import eventually

import roq
from roq.errors import InvalidRequest, Unavailable
from roq.jobs import database, worker
from roq.jobs.database import Undone
from roq.jobs.instances import JobInstances
from roq.jobs.room import JobPlaces
from roq.jobs.rows import Body, Deltas, Ended, Want
from roq.jobs.states import JobStatus, RunEnd
from roq.jobs.store import JobStore
from roq.jobs.views import Action, JobFilter

pytestmark = [pytest.mark.integration, pytest.mark.long]


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


class TestPostgreSQL(StoreContract, HeldContract):
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
        assert len(lab.store.claim(mine, one, [_want()], held, JobPlaces(2)).runs) == 2
    lab.check()


def test_a_claim_and_the_funeral_of_its_instance_exclude_each_other(lab: Lab) -> None:
    job, mine = lab.submit(), lab.instance()
    with lab.database.write() as claiming:
        jobs = lab.store.candidates(claiming, [_want()], 1)
        assert len(lab.store.claim(claiming, mine, [_want()], jobs, JobPlaces(1)).runs) == 1
        with lab.database.write() as reaping:
            # It has expired, but its row is in use: nobody can take it for dead now.
            assert lab.instances.reap(reaping) == 0
    lab.kill(mine)
    assert lab.status(job) is roq.JobStatus.CREATED
    lab.check()


def test_a_connection_that_the_server_has_ended_is_replaced_unless_it_was_just_used(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off() -> None:
        with lab.database.read() as connection:
            lab.database.now(connection)
        with sa.create_engine(lab.database.url, poolclass=sa.NullPool).begin() as other:
            other.exec_driver_sql(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )

    cut_off()
    with pytest.raises(Unavailable):
        lab.submit()
    monkeypatch.setattr(database, "FRESH_SECONDS", 0.0)
    cut_off()
    lab.submit()
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


def test_two_that_replace_a_unique_job_count_it_once(lab: Lab) -> None:
    lab.submit(unique="u", items=1)

    def replace() -> None:
        """From where its insert has met the other one."""
        deltas = Deltas()
        with lab.database.write() as connection:
            job = new(unique="u", on_unique="replace", items=7)
            assert lab.store._there_already(connection, job, deltas).outcome == "replaced"
            lab.store.count(connection, deltas)

    with ThreadPoolExecutor(1) as pool:
        with lab.database.write() as connection:
            lab.store.submit(connection, [new(unique="u", on_unique="replace", items=5)])
            again = pool.submit(replace)
            eventually(lambda: waits_for_a_lock(lab), "the second waits for the first")
        again.result()
    lab.check()


def test_what_is_replaced_while_a_message_has_it_claimed_runs_as_it_was_told(lab: Lab) -> None:
    job, mine = lab.submit(unique="u", params=Body("json", 1, b"1")), lab.instance()
    with ThreadPoolExecutor(1) as pool:
        with lab.database.write() as connection:
            later = new(unique="u", on_unique="replace", params=Body("json", 1, b"2"))
            (told,) = lab.store.submit(connection, [later])
            assert told.outcome == "replaced"
            claiming = pool.submit(lab.claim_named, mine, job, 1)
            eventually(lambda: waits_for_a_lock(lab), "the claim waits for the replacement")
        (run,) = claiming.result()
    assert run.params == later.params
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


@pytest.fixture
def instance(lab: Lab) -> Iterator[JobInstances]:
    """The SQL of an instance, with connections of its own: it waits for no lock for long."""
    store = JobStore(lab.database.for_instance(), lambda: 0.0)
    yield JobInstances(store)
    store.database.close()


def test_a_users_open_transaction_holds_up_no_instance(lab: Lab, instance: JobInstances) -> None:
    mine, store = lab.instance(), instance._store
    parent, next_ = lab.submit(key="k"), lab.submit(key="k")
    (run,) = lab.claim(mine)
    with lab.database.write() as users:
        (child,) = store.submit(users, [new(parents=(parent,), key="c")], foreign=True)
        with store.write() as connection:
            assert instance.renew(connection, mine)
            assert store.finish(connection, mine, [Ended(run, RunEnd.STOPPED, 0)])
        (run,) = lab.claim(mine)
        with store.write() as connection:
            instance.save(connection, mine, [(run, 7)])
            assert store.finish(connection, mine, [Ended(run, RunEnd.DONE, 0)])
            assert store.release_due(connection) == 0
            assert instance.delete(connection, [parent]) == 0, "a transaction needs it"
        assert [run.id for run in lab.claim(mine)] == [next_]
    lab.release()
    assert [run.id for run in lab.claim(mine)] == [child.id]
    lab.check()


def test_a_handlers_open_transaction_holds_up_no_others_of_its_key(
    lab: Lab, instance: JobInstances
) -> None:
    mine, store = lab.instance(), instance._store
    parent, child = lab.submit(key="k"), lab.submit()
    lab.set("job", "held = 'parents', waits = 1", child)
    with lab.database.write() as connection:
        store.write_edges(connection, [[parent, child]])
    lab.set("job", "children = 1", parent)
    (run,) = lab.claim(mine)
    with lab.database.write() as users:
        assert store.finish(users, mine, [Ended(run, RunEnd.DONE, 0)], foreign=True)
        with store.write() as connection:
            next_ = store.submit(connection, [new(key="k")])[0].id
            late = store.submit(connection, [new(parents=(child,))], foreign=True)[0].id
            assert store.release_due(connection) == 0
        assert lab.claim(mine) == []
    lab.release()
    assert [run.id for run in lab.claim(mine)] == [child, next_]
    assert lab.field(late, "held") == "parents"
    lab.check()


def test_one_that_waits_for_a_lock_says_so_soon(lab: Lab, instance: JobInstances) -> None:
    job = lab.submit()
    with lab.database.write() as users:
        lab.database.run(users, "UPDATE job SET tag = 'x' WHERE id = :id", id=job)
        with (
            pytest.raises(roq.Unavailable, match="open for too long"),
            instance._store.write() as connection,
        ):
            lab.database.run(connection, "UPDATE job SET tag = 'y' WHERE id = :id", id=job)


def test_a_job_is_not_deleted_while_another_one_comes_to_wait_for_it(lab: Lab) -> None:
    parent = lab.submit()
    for foreign in (False, True):
        with lab.database.write() as submitting:
            lab.store.submit(submitting, [new(parents=(parent,))], foreign=foreign)
            assert lab.delete(parent) == 0
        assert lab.delete(parent) == 0
    lab.check()


@pytest.mark.parametrize("foreign", [False, True])
def test_none_comes_to_wait_for_a_job_that_is_being_deleted(lab: Lab, foreign: bool) -> None:
    parent, told = lab.submit(), queue.SimpleQueue[BaseException | None]()

    def submit() -> None:
        try:
            with lab.database.write() as connection:
                lab.store.submit(connection, [new(parents=(parent,))], foreign=foreign)
        except roq.JobNotFound as error:
            told.put(error)
        else:
            told.put(None)

    with lab.database.write() as deleting:
        assert lab.instances.delete(deleting, [parent]) == 1
        thread = threading.Thread(target=submit)
        thread.start()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while True:
            with lab.database.read() as connection:
                if lab.database.run(connection, waiting).scalar_one():
                    break
            threading.Event().wait(0.02)
    thread.join(30)
    assert isinstance(told.get(timeout=30), roq.JobNotFound)
    lab.check()


def test_what_the_database_has_undone_is_told_apart(lab: Lab) -> None:
    for code in ("40P01", "40001"):
        with pytest.raises(Undone), lab.database.write() as connection:
            connection.exec_driver_sql(f"DO $$ BEGIN RAISE SQLSTATE '{code}'; END $$")


def test_jobs_stop_when_the_server_is_frozen(
    server: str, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "DOUBT_SECONDS", 2.0)
    begun, stopped = threading.Event(), threading.Event()
    with roq.Jobs(server) as jobs:

        @jobs.type("A", restartable=True)
        def run(job: roq.Job) -> None:
            begun.set()
            while not job.interrupted and not stopped.is_set():
                threading.Event().wait(0.01)
            stopped.set()

        handle = run.submit()
        jobs.start(threads=1)
        assert begun.wait(30)
        with frozen(server):
            assert stopped.wait(30)
        assert handle.wait(60) is roq.JobStatus.COMPLETE


def test_each_job_ends_though_the_server_is_started_anew_under_load(
    server: str, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow this machine is, the instance is not taken for dead: so each job runs once.
    monkeypatch.setattr(worker, "DOUBT_SECONDS", 600.0)
    monkeypatch.setattr("roq.jobs.instances.EXPIRE_SECONDS", 600.0)
    runs: Counter[int] = Counter()
    with roq.Jobs(server) as jobs:

        @jobs.type("A")
        def run(_job: roq.Job, params: int) -> None:
            runs[params] += 1
            threading.Event().wait(0.002)

        handles = run.submit_many(range(2_000))
        running = jobs.start(threads=8)
        eventually(lambda: running.stats.complete > 200, "it works")
        with stopped(server):
            assert running.stats.complete < 2_000
            with pytest.raises(Unavailable):
                run.submit(0)
        more = run.submit_many(range(2_000, 2_100))
        ends = {each.wait(90) for each in [*handles, *more]}
    assert ends == {roq.JobStatus.COMPLETE}
    assert runs == Counter(range(2_100))
    lab.check()


def _want() -> Want:
    return Want("A", 10, 1_000_000)


def waits_for_a_lock(lab: Lab) -> bool:
    """Whether some transaction waits for the end of another one."""
    with lab.database.read() as connection:
        found = lab.database.run(connection, "SELECT 1 FROM pg_locks WHERE NOT granted").first()
    return found is not None
