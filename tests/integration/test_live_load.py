"""A task of a live run against a real cluster, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import msgspec
import pytest
from waiting import eventually

import roq
from roq.simulation.lab.live.clocks import Anchor, Clock, anchor
from roq.simulation.lab.live.driver import Driver
from roq.simulation.lab.live.load import Job, perform
from roq.simulation.lab.live.plan import Plan, plan
from roq.simulation.lab.live.verdict import TaskTally, count
from roq.simulation.lab.traces.messages import ClientTrace, Trace, decode
from roq.simulation.scenario.scenario import Phase, PublisherGroup, Scenario, SubscriberGroup
from roq.testing.running import RunningCluster

pytestmark = [pytest.mark.integration, pytest.mark.long]

QUEUES = ("live", "live-messages", "live-traces")


@pytest.fixture
def queues(roq_cluster: RunningCluster) -> Iterator[roq.Cluster]:
    with roq_cluster.connect() as cluster:
        for name in QUEUES:
            cluster.create_queue(name)
        yield cluster
        for name in QUEUES:
            cluster.remove_queue(name)


def plan_of(seconds: float) -> Plan:
    phase = Phase(
        name="load",
        seconds=seconds,
        publishers=[PublisherGroup(count=3, rate=100.0, size=60)],
        subscribers=[SubscriberGroup(count=2)],
    )
    return plan(Scenario(name="a-test", title="", phases=[phase]), tasks=1)


def job_of(made: Plan, address: str, now: Anchor) -> bytes:
    return msgspec.msgpack.encode(
        Job(
            run="r", task=0, tag=9, addresses=[address], queue=QUEUES[0], messages=QUEUES[1],
            traces=QUEUES[2], share=made.shares[0], marks=made.marks, prefixes=made.prefixes,
            seed=1, window_seconds=1.0, anchor=now,
        )
    )  # fmt: skip


class Task:
    """One task in a thread."""

    def __init__(self, job: bytes) -> None:
        self.tally = TaskTally(task=-1)
        self.thread = threading.Thread(target=self._run, args=(job,))
        self.thread.start()

    def _run(self, job: bytes) -> None:
        self.tally = msgspec.msgpack.decode(perform(job), type=TaskTally)


def is_all_told(traces: roq.Subscriber, told: list[Trace], *, sent: int, received: int) -> bool:
    """Take what has come; whether publishers and subscribers have told of so many messages.

    More than that is found as well: it is asked again until nothing comes.
    """
    told.extend(decode(each.payload) for each in iter(lambda: traces.receive(0.3), None))
    clients = [trace for trace in told if isinstance(trace, ClientTrace)]
    sums = {
        role: sum(each.messages for each in clients if each.role == role)
        for role in ("publisher", "subscriber")
    }
    return sums == {"publisher": sent, "subscriber": received}


@pytest.mark.parametrize("machine", ["", "another machine"])
def test_a_task_sends_and_receives_what_its_plan_says(
    queues: roq.Cluster, roq_cluster: RunningCluster, machine: str
) -> None:
    """On another machine it asks for the time, and says how wrong it may be."""
    made, now = plan_of(3.0), anchor()
    given = msgspec.structs.replace(now, machine=machine or now.machine)
    clock = Clock(now.wall_us - now.monotonic_us)
    with (
        queues.subscriber(QUEUES[2]) as traces,
        Driver(queues, QUEUES[1], made, "r", clock) as driver,
    ):
        task = Task(job_of(made, roq_cluster.address, given))
        eventually(lambda: driver.ready == 1)
        assert bool(driver.clock_error) == bool(machine)
        driver.begin()
        eventually(lambda: driver.all_sent)
        driver.finish()
        task.thread.join(60)
        told: list[Trace] = []
        eventually(lambda: is_all_told(traces, told, sent=900, received=1_800))
    tally = task.tally
    assert tally.trouble == ""
    counts = count(made, [tally])
    assert (counts.sent, counts.received, counts.owed) == (900, 1_800, 1_800)
    assert (counts.lost, counts.doubled, counts.reordered, counts.failed) == (0, 0, 0, 0)
    assert [trace.number for trace in told] == list(range(len(told)))
    clients = [trace for trace in told if isinstance(trace, ClientTrace)]
    assert {each.begin_us - driver.begin_us for each in clients} == {0, 1_000_000, 2_000_000}
    for each in clients:
        assert sum(each.latency.values()) == each.messages
        if each.role == "subscriber":
            assert bool(each.clock_error) == bool(machine)


def test_a_task_that_is_stopped_tells_what_it_has_done(
    queues: roq.Cluster, roq_cluster: RunningCluster
) -> None:
    made, now = plan_of(600.0), anchor()
    with (
        queues.subscriber(QUEUES[2], "client") as traces,
        Driver(queues, QUEUES[1], made, "r", Clock(now.wall_us - now.monotonic_us)) as driver,
    ):
        task = Task(job_of(made, roq_cluster.address, now))
        eventually(lambda: driver.ready == 1)
        driver.begin()
        eventually(lambda: traces.receive(0.1) is not None)
        driver.stop()
        task.thread.join(60)

    counts = count(made, [task.tally])
    assert task.tally.trouble == ""
    assert counts.sent > 0
    assert counts.lost == 0


def test_a_task_that_cannot_go_on_says_why(
    queues: roq.Cluster, roq_cluster: RunningCluster
) -> None:
    made, now = plan_of(3.0), anchor()
    missing = msgspec.structs.replace(
        msgspec.msgpack.decode(job_of(made, roq_cluster.address, now), type=Job), queue="no-such"
    )
    with Driver(queues, QUEUES[1], made, "r", Clock(now.wall_us - now.monotonic_us)) as driver:
        task = Task(msgspec.msgpack.encode(missing))
        eventually(lambda: bool(driver.troubles))
        task.thread.join(60)

    assert "no-such" in driver.troubles[0]
    assert "no-such" in task.tally.trouble
