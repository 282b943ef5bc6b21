"""An instance at work: real threads, a real file of SQLite."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue

import pytest

import roq
from roq.jobs import worker
from roq.jobs.jobs import Jobs
from roq.jobs.views import Action, JobFilter

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
