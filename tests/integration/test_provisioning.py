"""A full cluster gets another host for a queue that grows, and gives it back: real processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq
from waiting import eventually

import roq
import roq.testing
from roq.protocol import documents
from roq.protocol.control import Done, Failure, ScaledOut, ScaleIn, ScaleOut
from roq.provider.process import working_in
from roq.testing.running import RunningCluster

pytestmark = pytest.mark.integration
PATIENCE = 60.0


@pytest.fixture(scope="module")
def running() -> Iterator[RunningCluster]:
    settings = {"provider": {"release_seconds": 0.5}}
    with roq.testing.cluster(
        registry="zookeeper", slots=1, provider="local", hosts_max=1, gcm=settings
    ) as cluster:
        yield cluster


def ask(running: RunningCluster, message: ScaleOut | ScaleIn) -> ScaledOut | Done | Failure:
    """As a monitor asks the leader."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(f"tcp://{running.address}")
        socket.send(documents.encode(message))
        assert socket.poll(PATIENCE * 1_000), "no answer"
        answer = documents.decode(socket.recv(), ScaledOut | Done | Failure)
        assert isinstance(answer, ScaledOut | Done | Failure)
        return answer


def wish(cluster: roq.Cluster, transaction: str) -> ScaleOut:
    queue_id = bytes.fromhex(cluster.describe("q").queue_id)
    return ScaleOut(id=7, queue="q", queue_id=queue_id, transaction=transaction, reason="a test")


def hosts(cluster: roq.Cluster) -> list[str]:
    return [host.host for host in cluster.hosts()]


def test_a_full_cluster_grows_by_a_host_and_gives_it_back(running: RunningCluster) -> None:
    with running.connect() as cluster:
        cluster.create_queue("q", limits={"exchanges_max": 2})
        before = hosts(cluster)
        made = ask(running, wish(cluster, "one"))
        assert isinstance(made, ScaledOut), made
        assert (made.id, made.number) == (7, 2)
        assert made.host not in before
        assert ask(running, wish(cluster, "one")) == made, "the same transaction, the same exchange"

        with cluster.subscriber("q") as sub, cluster.publisher("q") as pub:
            pub.publish(b"through two exchanges on two hosts")
            message = sub.receive(timeout=PATIENCE)
        assert message is not None

        queue_id = bytes.fromhex(cluster.describe("q").queue_id)
        gone = ask(running, ScaleIn(id=8, queue="q", queue_id=queue_id, number=2, reason="a test"))
        assert isinstance(gone, Done), gone
        eventually(lambda: hosts(cluster) == before, "the host was not given back")
        eventually(lambda: not working_in(running.folder / "hosts"), "something of it is left")
        cluster.remove_queue("q")


def test_a_queue_that_wants_more_hosts_than_allowed_is_told(running: RunningCluster) -> None:
    with running.connect() as cluster:
        cluster.create_queue("q", limits={"exchanges_max": 5})
        assert isinstance(ask(running, wish(cluster, "one")), ScaledOut)
        refused = ask(running, wish(cluster, "two"))
        assert isinstance(refused, Failure)
        assert refused.id == 7
        assert "all hosts that it may: 1" in refused.COMMENT
        cluster.remove_queue("q")
