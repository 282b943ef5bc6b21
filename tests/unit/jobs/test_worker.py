"""An instance at work: real threads, a real file of SQLite."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Queue
from time import time_ns

import pytest
import sqlalchemy as sa

import roq
from roq.jobs import worker
from roq.jobs.database import POOL
from roq.jobs.held import BLOCK
from roq.jobs.jobs import Jobs
from roq.jobs.pool import RunThreads
from roq.jobs.rows import Look, ReadyJob, Want
from roq.jobs.states import StaleReason
from roq.jobs.views import Action, JobFilter
from roq.jobs.worker import JobWorker

SECONDS = 30.0


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with roq.Jobs(str(tmp_path / "jobs.db"), jitter=lambda: 0.0) as made:
        yield made


def test_jobs_are_run_and_give_results(jobs: Jobs) -> None:
    @jobs.type("Double")
    def double(job: roq.Job, params: int) -> int:
        return 2 * params

    @jobs.type("Async")
    async def triple(job: roq.Job, params: int) -> int:
        await asyncio.sleep(0)
        return 3 * params

    handles = double.submit_many(range(50))
    running = jobs.start(threads=3)
    assert [each.result(SECONDS) for each in handles] == [2 * each for each in range(50)]
    assert triple.submit(5).result(SECONDS) == 15
    jobs.close()
    assert running.stats.complete == 51
    assert jobs.operate.instance_list() == []


def test_low_never_goes_before_high_that_waits(jobs: Jobs) -> None:
    order: list[int] = []

    @jobs.type("A")
    def run(job: roq.Job, params: int) -> None:
        order.append(params)

    priorities = [roq.LOW, roq.HIGH, roq.DEFAULT] * 30
    handles = [run.submit(each, priority=each) for each in priorities]
    jobs.start(threads=1)
    for each in handles:
        each.wait(SECONDS)
    assert order == sorted(priorities)


def test_what_raises_is_tried_again_and_kept_as_failed(jobs: Jobs) -> None:
    attempts: list[int] = []

    @jobs.type("Fails", restartable=True)
    def fails(job: roq.Job) -> None:
        attempts.append(job.attempt)
        raise ValueError("as always")

    handle = fails.submit()
    jobs.start(threads=1)
    with pytest.raises(roq.JobFailed, match="ValueError: as always"):
        handle.result(SECONDS)
    assert attempts == [1, 2, 3]


def test_a_stopped_job_goes_on_at_its_item(jobs: Jobs) -> None:
    seen: list[int] = []
    reached = threading.Event()

    @jobs.type("Items", restartable=True, items=len)
    def items(job: roq.Job, params: list[int]) -> int:
        for each in job.each(params):
            seen.append(each)
            if each == 2 and job.attempt == 1 and job.token == 2:
                reached.set()
                while not job.interrupted:
                    reached.wait(0.01)
        return job.saved

    handle = items.submit([1, 2, 3, 4])
    first = jobs.start(threads=1)
    assert reached.wait(SECONDS)
    first.stop()
    jobs.close()
    assert handle.status() is roq.JobStatus.CREATED
    jobs.start(threads=1)
    assert handle.result(SECONDS) == 4
    assert seen == [1, 2, 3, 4]


def test_an_operator_interrupts_a_job_in_a_thread_and_a_coroutine(jobs: Jobs) -> None:
    begun = threading.Semaphore(0)

    @jobs.type("Thread", restartable=True)
    def thread(job: roq.Job) -> None:
        begun.release()
        while True:
            job.check()
            threading.Event().wait(0.01)

    @jobs.type("Task", restartable=True)
    async def task(job: roq.Job) -> None:
        begun.release()
        await asyncio.Event().wait()

    handles = [thread.submit(), task.submit()]
    jobs.start(threads=2)
    for _ in handles:
        assert begun.acquire(timeout=SECONDS)
    operate = jobs.operate
    assert operate.act(operate.select(Action.INTERRUPT, JobFilter()), who="me") == 2
    for each in handles:
        assert each.wait(SECONDS) is roq.JobStatus.INTERRUPTED


def test_a_job_over_its_time_is_stopped(jobs: Jobs) -> None:
    @jobs.type("Slow", time_limit=0.1)
    def slow(job: roq.Job) -> None:
        while True:
            job.check()
            threading.Event().wait(0.01)

    handle = slow.submit()
    jobs.start(threads=1)
    assert handle.wait(SECONDS) is roq.JobStatus.TIMED_OUT


def test_a_job_that_does_not_stop_is_ended_without_it_and_its_end_refused(jobs: Jobs) -> None:
    go = threading.Event()

    @jobs.type("Deaf", time_limit=0.1)
    def deaf(job: roq.Job) -> str:
        go.wait(SECONDS)
        return "late"

    handle = deaf.submit()
    running = jobs.start(threads=4)
    assert handle.wait(SECONDS) is roq.JobStatus.TIMED_OUT
    go.set()
    jobs.close()
    assert handle.status() is roq.JobStatus.TIMED_OUT
    assert running.stats.outdated == 1


def test_an_instance_with_too_many_such_jobs_wants_to_be_replaced(jobs: Jobs) -> None:
    go = threading.Event()

    @jobs.type("Deaf", time_limit=0.1)
    def deaf(job: roq.Job) -> None:
        go.wait(SECONDS)

    deaf.submit()
    with pytest.raises(roq.Unavailable, match="start the process again"):
        jobs.worker(threads=1, grace=0.1).run()
    go.set()


def test_effects_and_completion_are_one_commit(jobs: Jobs) -> None:
    with jobs.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE effect (job INTEGER)")

    @jobs.type("Effect", restartable=True)
    def effect(job: roq.Job, params: bool) -> None:
        with jobs.engine.connect() as connection:
            connection.exec_driver_sql("INSERT INTO effect VALUES (:id)", {"id": job.id})
            job.finish(job.id, connection=connection)
            if params:
                connection.commit()

    kept, undone = effect.submit(True), effect.submit(False)
    jobs.start(threads=1)
    assert kept.result(SECONDS) == kept.id
    with pytest.raises(roq.JobFailed, match="was not committed"):
        undone.result(SECONDS)
    with jobs.database.read() as connection:
        rows = connection.exec_driver_sql("SELECT job FROM effect").scalars().all()
    assert rows == [kept.id]


def test_off_is_off(jobs: Jobs) -> None:
    @jobs.type("A")
    def run(job: roq.Job) -> None:
        """Nothing."""

    jobs.operate.switch(False, who="me")
    running = jobs.start(threads=1)
    handle = run.submit()
    with pytest.raises(roq.Unavailable):
        handle.wait(1.5 * worker.LOOK_SECONDS)
    assert running.stats.claimed == 0
    jobs.operate.switch(True, who="me")
    assert handle.wait(SECONDS) is roq.JobStatus.COMPLETE


def test_one_that_was_taken_for_dead_drops_its_runs_and_begins_anew(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "RENEW_SECONDS", 0.0)
    begun = threading.Event()

    @jobs.type("A", restartable=True)
    def run(job: roq.Job) -> int:
        if job.attempt == 1:
            begun.set()
            while True:
                job.check()
                threading.Event().wait(0.01)
        return job.token

    handle = run.submit()
    running = jobs.start(threads=2)
    assert begun.wait(SECONDS)
    first = running.id
    with jobs.database.write() as connection:
        connection.exec_driver_sql("UPDATE job_instance SET expires = 1")
        jobs.instances.reap(connection)
    assert handle.result(SECONDS) == 4
    assert running.id > first
    jobs.close()
    assert running.stats.outdated == 1


def test_one_whose_entry_was_undone_does_not_take_the_id_of_the_next(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    @jobs.type("A")
    def run(job: roq.Job) -> None:
        pass

    def undone(*_: object) -> None:
        raise roq.Unavailable("no room")

    first, second = jobs.worker(threads=1), jobs.worker(threads=1)
    first.enter()
    monkeypatch.setattr(first._schedules, "declare", undone)
    with pytest.raises(roq.Unavailable):
        first._born_again()
    second.enter()
    assert second.id != first.id
    for each in (first, second):
        each._database.close()


def test_limits_of_instances_and_of_the_cluster_hold(jobs: Jobs) -> None:
    lock, now, most = threading.Lock(), {"One": 0, "Two": 0}, {"One": 0, "Two": 0}

    def run(job: roq.Job) -> None:
        with lock:
            now[job.type] += 1
            most[job.type] = max(most[job.type], now[job.type])
        threading.Event().wait(0.005)
        with lock:
            now[job.type] -= 1

    one = jobs.type("One", threads=1)(run)
    two = jobs.type("Two", cluster_limit=2)(run)
    handles = one.submit_many([None] * 10) + two.submit_many([None] * 20)
    jobs.start(threads=8)
    jobs.start(threads=8)
    for each in handles:
        assert each.wait(SECONDS) is roq.JobStatus.COMPLETE
    assert most["One"] <= 2
    assert most["Two"] == 2


def test_an_instance_declares_schedules_of_its_types_and_fires_all(jobs: Jobs) -> None:
    seen: Queue[tuple[str, str]] = Queue()

    def handle(job: roq.Job) -> None:
        assert job.scheduled() is not None
        seen.put((job.type, job.tag))

    one, two = jobs.type("One")(handle), jobs.type("Two")(handle)
    jobs.schedule("first", one, every=1)
    jobs.schedule("second", two, every=1)
    jobs.schedule("never", two, cron="0 0 29 2 *")
    jobs.start(threads=1, types=["One"])
    assert {seen.get(timeout=SECONDS) for _ in range(2)} == {("One", "first")}
    operate = jobs.operate.schedules
    assert [row.name for row in operate.look()] == ["first"]
    jobs.start(threads=1, types=["Two"])
    found = set()
    while found != {("One", "first"), ("Two", "second")}:
        found.add(seen.get(timeout=SECONDS))
    rows = {row.name: row for row in operate.look()}
    assert set(rows) == {"first", "never", "second"}
    assert (rows["never"].jobs, rows["never"].last) == ([], None)
    times = [fired.time for fired in rows["first"].jobs]
    assert len(set(times)) == len(times)


def test_jobs_that_are_off_fire_no_schedules(jobs: Jobs) -> None:
    fired = threading.Event()
    kind = jobs.type("A")(lambda job: fired.set())
    jobs.schedule("s", kind, every=1)
    jobs.operate.switch(False, who="me")
    running = jobs.start(threads=1)
    assert not fired.wait(1.5 + 2 * worker.LOOK_SECONDS)
    assert jobs.operate.counts() == []
    jobs.operate.switch(True, who="me")
    assert fired.wait(SECONDS)
    assert running.stats.claimed > 0


def eventually(jobs: Jobs, condition: Callable[[], bool]) -> None:
    for _ in range(int(SECONDS / 0.05)):
        if condition():
            return
        jobs.wait_for_change(0.05)
    raise AssertionError("not in time")


def interrupt(jobs: Jobs, job: int) -> None:
    operate = jobs.operate
    assert operate.act(operate.select(Action.INTERRUPT, JobFilter(ids=(job,))), who="me") == 1


def test_after_short_jobs_no_more_long_ones_are_claimed_than_there_are_threads(jobs: Jobs) -> None:
    go = threading.Event()

    @jobs.type("Tiny")
    def tiny(job: roq.Job) -> None:
        """Nothing."""

    @jobs.type("Long")
    def long(job: roq.Job) -> None:
        go.wait(SECONDS)

    @jobs.type("Coroutine")
    async def coroutine(job: roq.Job) -> None:
        await asyncio.to_thread(go.wait, SECONDS)

    tiny.submit_many([None] * 200)
    running = jobs.start(threads=2)
    eventually(jobs, lambda: running.stats.complete == 200)
    handles = long.submit_many([None] * 10) + coroutine.submit_many([None] * 10)
    eventually(jobs, lambda: running.stats.claimed == 202)
    last = jobs.handle(tiny.submit().id, tiny)
    with pytest.raises(roq.Unavailable):
        last.wait(1.5 * worker.LOOK_SECONDS)
    assert running.stats.claimed == 202
    go.set()
    for each in handles:
        assert each.wait(SECONDS) is roq.JobStatus.COMPLETE


def test_what_waits_for_a_thread_too_long_goes_back(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()

    @jobs.type("A")
    def run(job: roq.Job, params: bool) -> None:
        if params:
            go.wait(SECONDS)

    running = jobs.start(threads=1)
    monkeypatch.setattr(running._room, "ahead", lambda *_: 0 if running._running else 50)
    blocking, *waiting = run.submit_many([True, False, False])
    eventually(jobs, lambda: running.stats.claimed >= 1)
    eventually(jobs, lambda: all(each.status() == "CREATED" for each in waiting))
    assert blocking.status() is roq.JobStatus.RUNNING
    go.set()
    for each in (blocking, *waiting):
        assert each.wait(SECONDS) is roq.JobStatus.COMPLETE
    with jobs.database.read() as connection:
        assert connection.exec_driver_sql("SELECT sum(losses + failures) FROM job").scalar() == 0


def test_what_is_interrupted_before_it_begins_is_not_begun(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "HEAP_SECONDS", SECONDS)
    go = threading.Event()
    began: list[int] = []

    @jobs.type("A")
    def run(job: roq.Job) -> None:
        began.append(job.id)
        go.wait(SECONDS)

    running = jobs.start(threads=1)
    monkeypatch.setattr(running._room, "ahead", lambda *_: 50)
    blocking = run.submit()
    eventually(jobs, lambda: bool(began))
    waiting = run.submit()
    eventually(jobs, lambda: waiting.status() is roq.JobStatus.RUNNING)
    interrupt(jobs, waiting.id)
    assert waiting.wait(SECONDS) is roq.JobStatus.INTERRUPTED
    go.set()
    assert blocking.wait(SECONDS) is roq.JobStatus.COMPLETE
    assert began == [blocking.id]


def test_jobs_stop_when_the_database_does_not_answer(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "DOUBT_SECONDS", 1.0)
    begun, frozen = threading.Event(), threading.Event()
    stopped: list[bool] = []

    @jobs.type("A", restartable=True)
    def run(job: roq.Job) -> None:
        if not stopped:
            begun.set()
            while not job.interrupted:
                threading.Event().wait(0.01)
            stopped.append(frozen.is_set())
            frozen.clear()
            job.check()

    handle = run.submit()
    running = jobs.start(threads=1)
    look = running._instances.look

    def slow(connection: sa.Connection, owner: int, *, whole: bool) -> Look:
        if begun.is_set() and not stopped:
            frozen.set()
            while not stopped:
                threading.Event().wait(0.01)
        return look(connection, owner, whole=whole)

    monkeypatch.setattr(running._instances, "look", slow)
    assert handle.wait(SECONDS) is roq.JobStatus.COMPLETE
    assert stopped == [True]


def test_handlers_may_use_all_connections_of_the_engine(jobs: Jobs) -> None:
    @jobs.type("A")
    def run(job: roq.Job) -> None:
        """Nothing."""

    run.submit_many([None] * 3)
    with contextlib.ExitStack() as held:
        for _ in range(POOL):
            held.enter_context(jobs.engine.connect())
        running = jobs.start(threads=1)
        eventually(jobs, lambda: running.stats.complete == 3)


def test_what_a_lost_commit_has_claimed_is_run(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    @jobs.type("A")
    def run(job: roq.Job) -> int:
        return job.token

    jobs.open()
    running = jobs.worker(threads=1)
    write, lost = running._database.write, []

    @contextlib.contextmanager
    def loses_an_answer() -> Iterator[sa.Connection]:
        with write() as connection:
            yield connection
            claimed = connection.exec_driver_sql("SELECT id FROM job WHERE status = 'RUNNING'")
            now = None if lost else claimed.scalar()
        if now is not None:
            lost.append(now)
            raise roq.Unavailable("the connection was lost, and the commit was not")

    monkeypatch.setattr(running._database, "write", loses_an_answer)
    thread = threading.Thread(target=running.run)
    thread.start()
    handle = run.submit()
    assert handle.result(SECONDS) == 4
    assert lost == [handle.id]
    running.stop()
    thread.join()


def test_what_a_lost_commit_may_have_claimed_counts_against_the_limit(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    @jobs.type("Limited", cluster_limit=1)
    def run(job: roq.Job) -> None: ...

    jobs.open()
    monkeypatch.setattr(worker, "LOOK_SECONDS", 2.0)
    running = jobs.worker(threads=2)
    write, seen, lost = running._database.write, list[int](), list[int]()

    @contextlib.contextmanager
    def loses_an_answer() -> Iterator[sa.Connection]:
        with write() as connection:
            yield connection
            asked = "SELECT count(*) FROM job WHERE status = 'RUNNING'"
            seen.append(connection.exec_driver_sql(asked).scalar_one())
        if seen[-1] and not lost:
            lost.append(seen[-1])
            raise roq.Unavailable("the connection was lost, and the commit was not")

    monkeypatch.setattr(running._database, "write", loses_an_answer)
    thread = threading.Thread(target=running.run)
    thread.start()
    for handle in run.submit_many([None, None]):
        assert handle.wait(SECONDS)
    running.stop()
    thread.join()
    assert max(seen) == 1


class Messages:
    """A queue that brings what it is given."""

    connected = True

    def __init__(self) -> None:
        self.held: list[ReadyJob] = []
        self.settled: list[int] = []

    def take(self, wants: Iterable[Want]) -> list[ReadyJob]:
        room = {want.type: want.most for want in wants}
        return [job for job in sorted(self.held) if room.get(job.type, 0) > 0]

    def settle(self, jobs: Iterable[ReadyJob]) -> None:
        for job in jobs:
            self.held.remove(job)
            self.settled.append(job.id)

    def look(self, look: Look) -> None: ...

    def close(self) -> None: ...


def test_messages_of_jobs_without_a_slot_are_kept_and_hold_up_no_others(jobs: Jobs) -> None:
    @jobs.type("Limited", cluster_limit=1)
    def limited(job: roq.Job) -> None:
        """Nothing."""

    @jobs.type("Free")
    def free(job: roq.Job) -> None:
        """Nothing."""

    jobs.operate.dispatch("queue", who="me")
    with jobs.database.write() as connection:
        jobs.instances.declare(connection, [limited.facts])
        other = jobs.instances.register(connection, "other", 1, 1, ["Limited"])
        connection.exec_driver_sql("UPDATE job_slot SET owner = :other", {"other": other})
    messages = Messages()
    running = JobWorker(
        jobs.store, jobs.instances, jobs.types, threads=1, messages=lambda _ready: messages
    )
    handles = [limited.submit(), limited.submit(), free.submit()]
    messages.held = [
        ReadyJob(100, each.id, 1, name)
        for each, name in zip(handles, ("Limited", "Limited", "Free"), strict=True)
    ]
    messages.held.append(ReadyJob(100, 999, 1, "Free"))
    thread = threading.Thread(target=running.run)
    thread.start()
    assert handles[2].wait(SECONDS) is roq.JobStatus.COMPLETE
    eventually(jobs, lambda: len(messages.settled) == 2)
    assert messages.settled == [handles[2].id, 999], "the last one is stale"
    with jobs.database.write() as connection:
        connection.exec_driver_sql("UPDATE job_slot SET owner = NULL")
    for each in handles:
        assert each.wait(SECONDS) is roq.JobStatus.COMPLETE
    eventually(jobs, lambda: messages.held == [])
    assert running.stats.stale == {StaleReason.GONE: 1}
    running.stop()
    thread.join()


def test_what_a_message_brings_waits_for_what_is_more_important_of_another_type(
    jobs: Jobs,
) -> None:
    order: list[str] = []

    @jobs.type("A")
    def unimportant(job: roq.Job) -> None:
        order.append("A")

    @jobs.type("B")
    def important(job: roq.Job) -> None:
        order.append("B")

    jobs.operate.dispatch("queue", who="me")
    messages = Messages()
    running = JobWorker(
        jobs.store, jobs.instances, jobs.types, threads=1, messages=lambda _ready: messages
    )
    low = [unimportant.submit(priority=roq.LOW) for _ in range(2)]
    high = [important.submit(priority=roq.HIGH) for _ in range(2)]
    messages.held = [ReadyJob(roq.LOW, each.id, 1, "A") for each in low]
    thread = threading.Thread(target=running.run)
    thread.start()
    for each in (*low, *high):
        assert each.wait(SECONDS) is roq.JobStatus.COMPLETE
    eventually(jobs, lambda: messages.held == [])
    assert order == ["B", "B", "A", "A"], "the messages of B are still on their way"
    running.stop()
    thread.join()


def test_an_instance_with_a_queue_does_nothing_for_commits_of_others(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    @jobs.type("A")
    def run(job: roq.Job) -> None:
        """Nothing."""

    monkeypatch.setattr(worker, "LOOK_SECONDS", SECONDS)
    jobs.operate.dispatch("queue", who="me")
    messages = Messages()
    running = JobWorker(
        jobs.store, jobs.instances, jobs.types, threads=1, messages=lambda _ready: messages
    )
    running.enter()
    running._threads = RunThreads(1, running._done)
    running._turn()
    writes: list[None] = []
    monkeypatch.setattr(jobs.store, "write", lambda: writes.append(None))
    running._committed()
    assert not running._wake.is_set(), "it is not even woken"
    running.hint()
    running._turn()
    assert writes == []
    messages.connected = False
    running._committed()
    assert running._wake.is_set(), "without its queue it asks the database"
    running._threads.close()


@pytest.mark.parametrize("limit", [None, 1])
@pytest.mark.parametrize("queue", [False, True])
def test_the_next_job_is_claimed_with_the_end_of_a_long_one(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, limit: int | None, queue: bool
) -> None:
    goes_on = threading.Semaphore(0)

    @jobs.type("A", cluster_limit=limit)
    def run(job: roq.Job) -> None:
        goes_on.acquire()

    monkeypatch.setattr(worker, "LOOK_SECONDS", SECONDS)
    messages = Messages()
    jobs.operate.dispatch("queue" if queue else "database", who="me")
    running = JobWorker(
        jobs.store, jobs.instances, jobs.types, threads=1, messages=lambda _ready: messages
    )
    running.enter()
    ended = threading.Semaphore(0)
    monkeypatch.setattr(running._wake, "set", ended.release)
    running._threads = RunThreads(1, running._done)
    messages.held = [ReadyJob(roq.DEFAULT, run.submit().id, 1, "A") for _ in range(3)]
    for number in range(1, 4):
        running._turn()
        assert running.stats.claimed == number, "in the transaction that has the end of the last"
        goes_on.release()
        assert ended.acquire(timeout=SECONDS)
    running._turn()
    assert running.stats.complete == 3
    running._threads.close()


def test_those_that_are_due_at_once_are_let_go_at_once_however_many(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "LOOK_SECONDS", 2 * SECONDS)

    @jobs.type("A")
    def run(job: roq.Job, params: int) -> None:
        pass

    handles = run.submit_many(range(2 * BLOCK + 1), due=datetime.now(UTC) + timedelta(hours=1))
    with jobs.engine.begin() as connection:
        connection.execute(sa.text("UPDATE job SET due = 1"))
    jobs.start(threads=1)
    assert handles[-1].wait(SECONDS) is roq.JobStatus.COMPLETE


def test_all_old_results_are_deleted_however_many(jobs: Jobs) -> None:
    @jobs.type("A")
    def run(job: roq.Job) -> None:
        """Nothing."""

    run.submit_many([None] * 1_001)
    with jobs.database.write() as connection:
        connection.exec_driver_sql("UPDATE job SET status = 'COMPLETE', ended = 1")
        connection.exec_driver_sql("UPDATE job_count SET status = 'COMPLETE'")
    jobs.start(threads=1)
    eventually(jobs, lambda: jobs.operate.counts() == [])


def test_a_clock_that_is_set_forward_does_not_bury_its_own_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "RENEW_SECONDS", SECONDS)
    step = 0
    with roq.Jobs(str(tmp_path / "jobs.db"), clock=lambda: time_ns() // 1000 + step) as jobs:
        go = threading.Event()

        @jobs.type("A")
        def run(job: roq.Job) -> None:
            go.wait(SECONDS)

        handle = run.submit()
        running = jobs.start(threads=1)
        eventually(jobs, lambda: handle.status() is roq.JobStatus.RUNNING)
        first = running.id
        later = run.submit(due=datetime.now(UTC) + timedelta(seconds=18))
        step = 20_000_000
        # What is due by the new clock is seen by the look that might bury.
        eventually(jobs, lambda: jobs.operate.job(later.id).job.held == "")
        assert (running.id, handle.status()) == (first, roq.JobStatus.RUNNING)
        go.set()
        assert handle.wait(SECONDS) is roq.JobStatus.COMPLETE


def test_threads_that_do_not_hear_an_operator_are_too_many_as_well(jobs: Jobs) -> None:
    go = threading.Event()

    @jobs.type("Deaf", time_limit=1.0)
    def deaf(job: roq.Job) -> None:
        interrupt(jobs, job.id)
        go.wait(SECONDS)

    deaf.submit()
    with pytest.raises(roq.Unavailable, match="start the process again"):
        jobs.worker(threads=1, grace=0.1).run()
    go.set()


def test_what_was_raised_after_finish_is_told(jobs: Jobs) -> None:
    @jobs.type("A")
    def run(job: roq.Job) -> None:
        with jobs.engine.begin() as connection:
            job.finish(connection=connection)
            raise ValueError("the real reason")

    handle = run.submit()
    jobs.start(threads=1)
    with pytest.raises(roq.JobFailed, match="the real reason"):
        handle.result(SECONDS)


def test_what_waits_for_a_job_goes_on_when_its_handler_has_committed_it(jobs: Jobs) -> None:
    @jobs.type("A")
    def run(job: roq.Job) -> None:
        with jobs.engine.begin() as connection:
            job.finish(connection=connection)

    first = run.submit(key="k")
    handles = [first, run.submit(key="k"), run.submit(after=[first])]
    jobs.start(threads=2)
    for each in handles:
        assert each.wait(SECONDS) is roq.JobStatus.COMPLETE


def test_a_type_without_slots_does_not_hold_up_others_and_is_told_at_once(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "RENEW_SECONDS", SECONDS)

    @jobs.type("Limited", cluster_limit=1)
    def limited(job: roq.Job) -> None:
        """Nothing."""

    @jobs.type("Free")
    def free(job: roq.Job) -> None:
        """Nothing."""

    waiting = [limited.submit() for _ in range(5)]
    with jobs.database.write() as connection:
        jobs.instances.declare(connection, [limited.facts])
        other = jobs.instances.register(connection, "other", 1, 1, ["Limited"])
        connection.exec_driver_sql("UPDATE job_slot SET owner = :other", {"other": other})
    handle = free.submit()
    running = jobs.start(threads=1)
    assert handle.wait(SECONDS) is roq.JobStatus.COMPLETE
    assert {each.status() for each in waiting} == {roq.JobStatus.CREATED}
    eventually(
        jobs,
        lambda: (
            (running.id, ["Limited"])
            in [(each.id, each.wants) for each in jobs.operate.instance_list()]
        ),
    )
