"""Two monitors of one queue are alive: one of them steps aside, and nobody loses a message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil
import pytest
import zmq
from elastic_traffic import LIMIT, Traffic, child, traffic
from waiting import eventually

import roq
import roq.testing
from roq.model import Limits
from roq.protocol import documents
from roq.protocol.control import Failure, Started, StartMonitor
from roq.protocol.kpi import MoveKpi, QueueKpi
from roq.testing import RunningCluster

pytestmark = [pytest.mark.integration, pytest.mark.long]


@contextmanager
def suspended(process: psutil.Process) -> Iterator[None]:
    process.suspend()
    try:
        yield
    finally:
        process.resume()


def monitor_epoch(flow: Traffic) -> int:
    """Of the monitor whose statistics came last."""
    told = flow.told(QueueKpi)
    return told[-1].monitor_epoch if told else 0  # type: ignore[union-attr]


def start_another_monitor(running: RunningCluster, cluster: roq.Cluster, host: str) -> None:
    """As a configuration manager would that takes the monitor for lost."""
    queue_id = bytes.fromhex(cluster.describe("two").queue_id)
    start = StartMonitor(id=1, queue="two", queue_id=queue_id, leader_epoch=1, limits=Limits())
    [control] = [each.control for each in cluster.hosts() if each.host == host]
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(control)
        socket.send(documents.encode(start))
        assert socket.poll(30_000)
        answer = documents.decode(socket.recv(), Started | Failure)  # type: ignore[arg-type]
        assert isinstance(answer, Started) or "being stopped" in answer.COMMENT


def test_a_monitor_that_was_taken_for_lost_and_comes_back_steps_aside() -> None:
    with (
        roq.testing.cluster(registry="zookeeper", hosts=2) as running,
        running.connect() as cluster,
    ):
        first, second = running.hosts
        with traffic(cluster, "two", 4, host=first, policy="spread") as flow, ExitStack() as still:
            flow.rate = LIMIT * 0.5
            cluster.add_exchange("two", host=second)
            eventually(lambda: flow.states(MoveKpi).count("accepted") >= 2)
            old = child(running, "two")
            before = monitor_epoch(flow)
            still.enter_context(suspended(psutil.Process(running.pid(f"host {first}"))))
            with suspended(old):
                # Nobody on that host says anything, so the queue gets a monitor on the other one;
                # its exchange goes on there, and finds that monitor by itself.
                eventually(lambda: monitor_epoch(flow) > before)
                eventually(lambda: set(flow.places()) <= {"x1", "x2"})
            eventually(lambda: not old.is_running() or old.status() == "zombie")
            still.close()
            eventually(lambda: flow.exchanges() == 2)
            flow.end()
        flow.judge()


def test_a_monitor_that_nobody_has_asked_for_is_stopped_and_disturbs_nobody(
    roq_cluster: RunningCluster,
) -> None:
    first, second = roq_cluster.hosts[:2]
    with (
        roq_cluster.connect() as cluster,
        traffic(cluster, "two", 4, host=first, policy="spread") as flow,
    ):
        flow.rate = LIMIT * 0.3
        cluster.add_exchange("two", host=second)
        eventually(lambda: set(flow.places()) == {"x1", "x2"})
        start_another_monitor(roq_cluster, cluster, second)
        count = len(flow.told(QueueKpi))
        eventually(lambda: len(flow.told(QueueKpi)) > count + 3)
        eventually(lambda: flow.exchanges() == 2)
        eventually(lambda: set(flow.places()) == {"x1", "x2"})
        assert cluster.describe("two").host == first
    flow.judge()
