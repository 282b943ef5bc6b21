"""Two monitors that share the exchanges of a queue between them: nobody loses a message by it."""

from __future__ import annotations

import pytest
import zmq
from elastic_traffic import LIMIT, child, eventually, traffic

import roq
from roq.model import Limits
from roq.protocol import documents
from roq.protocol.control import Started, StartMonitor
from roq.testing import RunningCluster

pytestmark = pytest.mark.integration


def start_another_monitor(running: RunningCluster, cluster: roq.Cluster, host: str) -> None:
    """As a configuration manager would that takes the monitor for lost."""
    queue_id = bytes.fromhex(cluster.describe("split").queue_id)
    start = StartMonitor(id=1, queue="split", queue_id=queue_id, leader_epoch=1, limits=Limits())
    [control] = [each.control for each in cluster.hosts() if each.host == host]
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(control)
        socket.send(documents.encode(start))
        assert socket.poll(10_000)
        assert isinstance(documents.decode(socket.recv(), Started), Started)


def test_publishers_leave_an_exchange_that_reports_to_another_monitor(
    roq_cluster: RunningCluster,
) -> None:
    first, second = roq_cluster.hosts[:2]
    with (
        roq_cluster.connect() as cluster,
        traffic(cluster, "split", 4, host=first, policy="spread") as flow,
    ):
        flow.rate = LIMIT * 0.3
        cluster.add_exchange("split", host=second)
        eventually(lambda: set(flow.places()) == {"x1", "x2"}, 15)
        monitor = child(roq_cluster, "split")
        start_another_monitor(roq_cluster, cluster, second)
        # Subscribers are told that there is no x2 any more, although it works and acknowledges.
        eventually(lambda: flow.exchanges() == 1, 10)
        eventually(lambda: set(flow.places()) == {"x1"}, 15)
        assert monitor.is_running()
    flow.judge()
