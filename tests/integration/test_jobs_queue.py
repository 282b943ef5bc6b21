"""Jobs dispatched by a RoQ queue: messages too many, too few and too late change nothing."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from waiting import eventually

import roq
from roq.jobs import dispatch
from roq.jobs.jobs import Jobs
from roq.jobs.rows import ReadyJob
from roq.jobs.views import Action, JobFilter
from roq.jobs.worker import JobWorker
from roq.testing import RunningCluster

pytestmark = pytest.mark.integration

SECONDS = 60.0


@pytest.fixture
def jobs(
    roq_cluster: RunningCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Jobs]:
    queue = f"jobs-{abs(hash(request.node.name))}"
    with roq.Jobs(str(tmp_path / "jobs.db"), roq_cluster.address, queue=queue) as made:
        made.operate.dispatch("queue", who="test")
        yield made
    with roq_cluster.connect() as cluster:
        cluster.remove_queue(queue)


def test_each_job_runs_once_though_each_message_comes_ten_times(jobs: Jobs) -> None:
    runs: Counter[int] = Counter()
    lock = threading.Lock()

    @jobs.type("A", restartable=True)
    def run(job: roq.Job, params: int) -> int:
        with lock:
            runs[params] += 1
        return params

    first, second = jobs.start(threads=3), jobs.start(threads=3)
    handles = run.submit_many(range(200))
    for _ in range(9):
        jobs._sending().send(ReadyJob(roq.DEFAULT, each.id, 1, "A") for each in handles)
    assert [each.result(SECONDS) for each in handles] == list(range(200))
    assert set(runs.values()) == {1}
    jobs.close()
    assert first.stats.claimed + second.stats.claimed == 200
    assert (first.stats.stale + second.stats.stale).total() > 0


def test_jobs_whose_messages_are_lost_are_sent_again(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "LOST_SECONDS", 1.0)
    monkeypatch.setattr(dispatch, "LOOK_SECONDS", 1.0)

    @jobs.type("A")
    def run(job: roq.Job) -> None:
        """Nothing."""

    jobs.open()
    with jobs.database.write() as connection:
        # As a program does it that dies between its commit and its message.
        told = jobs.store.submit(connection, [run.new() for _ in range(5)], sent=True)
    jobs.start(threads=2)
    for each in told:
        handle = jobs.handle(each.id, run)
        assert handle.wait(SECONDS) is roq.JobStatus.COMPLETE


def test_low_never_goes_before_high(jobs: Jobs) -> None:
    order: list[int] = []

    @jobs.type("A")
    def run(job: roq.Job, params: int) -> None:
        order.append(params)

    priorities = [roq.LOW, roq.HIGH, roq.DEFAULT] * 20
    jobs.operate.switch(False, who="test")
    handles = [run.submit(each, priority=each) for each in priorities]
    jobs.start(threads=1)
    jobs.operate.switch(True, who="test")
    for each in handles:
        each.wait(SECONDS)
    assert order == sorted(priorities)


def test_to_requeue_all_is_safe(jobs: Jobs) -> None:
    runs: Counter[int] = Counter()

    @jobs.type("A")
    def run(job: roq.Job, params: int) -> None:
        runs[params] += 1

    operate = jobs.operate
    operate.switch(False, who="test")
    handles = run.submit_many(range(30))
    jobs.start(threads=1)
    for _ in range(3):
        assert operate.act(operate.select(Action.REQUEUE, JobFilter()), who="test") == 30
    operate.switch(True, who="test")
    for each in handles:
        each.wait(SECONDS)
    assert set(runs.values()) == {1}


def test_a_cluster_that_is_away_leaves_the_database(tmp_path: Path) -> None:
    with roq.Jobs(str(tmp_path / "jobs.db"), "127.0.0.1:1") as jobs:
        jobs.operate.dispatch("queue", who="test")

        @jobs.type("A")
        def run(job: roq.Job) -> None:
            """Nothing."""

        handle = run.submit()
        jobs.start(threads=1)
        assert handle.wait(SECONDS) is roq.JobStatus.COMPLETE


def test_a_queue_that_is_removed_and_made_anew_strands_no_job(
    jobs: Jobs, roq_cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "AWAY_SECONDS", 1.0)
    runs: Counter[int] = Counter()
    lock = threading.Lock()

    @jobs.type("A")
    def run(job: roq.Job, params: int) -> None:
        with lock:
            runs[params] += 1

    jobs.operate.switch(False, who="test")
    worker = jobs.start(threads=3)
    eventually(lambda: worker._by_queue, "jobs come by the queue", SECONDS)
    handles = run.submit_many(range(200))
    with roq_cluster.connect() as cluster:
        cluster.remove_queue(jobs.queue)
        cluster.create_queue(jobs.queue, durability="none")
    jobs.operate.switch(True, who="test")
    assert {each.wait(SECONDS) for each in handles} == {roq.JobStatus.COMPLETE}
    assert set(runs.values()) == {1}
    eventually(lambda: worker._by_queue, "they come by the queue again", SECONDS)


def test_the_dispatch_is_switched_while_jobs_come_wait_and_run(jobs: Jobs) -> None:
    runs: Counter[int] = Counter()
    lock, go_on = threading.Lock(), threading.Event()

    @jobs.type("A")
    def run(job: roq.Job, params: int) -> None:
        with lock:
            runs[params] += 1
        if params % 10 == 0:
            go_on.wait(SECONDS)

    workers = [jobs.start(threads=3) for _ in range(2)]
    handles, stop = list[roq.JobHandle](), threading.Event()

    def submit() -> None:
        while not stop.wait(0.05):
            handles.extend(run.submit_many(range(len(handles), len(handles) + 5)))

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        for mechanism in ("queue", "database", "queue"):
            go_on.clear()
            eventually(lambda: sum(each.running for each in workers) == 6, "all run", SECONDS)
            jobs.operate.dispatch(mechanism, who="test")
            for each in workers:
                reached = partial(_hears_by, each, mechanism)
                eventually(reached, mechanism, SECONDS)
            go_on.set()
    finally:
        stop.set()
        go_on.set()
        thread.join()
    assert {each.wait(SECONDS) for each in handles} == {roq.JobStatus.COMPLETE}
    assert runs == Counter(range(len(handles)))


def _hears_by(worker: JobWorker, mechanism: str) -> bool:
    return worker._by_queue == (mechanism == "queue")
