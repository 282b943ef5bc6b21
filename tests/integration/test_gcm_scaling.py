"""A real queue is given exchanges, has them emptied and taken away, while messages flow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from commands import roq as roq_command
from flow import flow

import roq
from roq.client.admin.views import ScalingRules
from roq.client.io.engine import Engine, wait_result
from roq.errors import ExchangeNotFound, RequestError, Unavailable
from roq.model import endpoint_of
from roq.protocol.control import Answer, Control, Done, Failure, ScaledOut, ScaleIn, ScaleOut
from roq.runtime.rpc import RpcClient
from roq.testing import RunningCluster

pytestmark = pytest.mark.integration

QUEUE = "by-hand"
ANSWER_SECONDS = 60.0


@pytest.fixture
def cluster(roq_cluster: RunningCluster) -> Iterator[roq.Cluster]:
    with roq_cluster.connect() as cluster:
        cluster.create_queue(QUEUE, host=roq_cluster.hosts[0])
        # Nothing moves, comes or goes unless somebody asks for it.
        cluster.set_rules(QUEUE, ScalingRules(name="by hand", policy="static"))
        yield cluster
        cluster.remove_queue(QUEUE)


class Leader:
    """The client port of the configuration manager, as a monitor uses it."""

    def __init__(self, address: str) -> None:
        self._engine = Engine()
        self._engine.start()
        host, _, port = address.rpartition(":")
        endpoint = endpoint_of(host, int(port))
        self._client = self._engine.run_sync(
            lambda: RpcClient(self._engine.reactor, self._engine.context, endpoint)
        )

    def ask(self, message: Control) -> Answer | Unavailable:
        future: Future[Answer | Unavailable] = Future()
        self._engine.call_soon(
            lambda: self._client.request(message, ANSWER_SECONDS, future.set_result)
        )
        return wait_result(future, ANSWER_SECONDS)

    def close(self) -> None:
        self._engine.run_sync(self._client.close)
        self._engine.close()


@pytest.fixture
def leader(roq_cluster: RunningCluster) -> Iterator[Leader]:
    leader = Leader(roq_cluster.address)
    yield leader
    leader.close()


def exchanges(cluster: roq.Cluster) -> dict[str, str]:
    return {each.name: each.origin for each in cluster.exchanges(QUEUE)}


def test_exchanges_come_and_go_under_load_and_no_message_is_missed(
    roq_cluster: RunningCluster, cluster: roq.Cluster, leader: Leader
) -> None:
    queue_id = bytes.fromhex(cluster.describe(QUEUE).queue_id)
    more = ScaleOut(queue=QUEUE, queue_id=queue_id, transaction="first", reason="a test")
    made = [leader.ask(more) for _ in range(2)]
    assert [each.number for each in made if isinstance(each, ScaledOut)] == [2, 2]
    assert exchanges(cluster) == {"x1": "creation", "x2": "scaling"}
    assert cluster.exchanges(QUEUE)[1].host == roq_cluster.hosts[1]
    with flow(cluster, QUEUE) as running:
        removed = roq_command(
            "exchange", "remove", QUEUE, "x1", "--json", cluster=roq_cluster.address
        )
        assert removed.returncode == 0, removed.stderr
        assert json.loads(removed.stdout) == {"ok": True, "queue": QUEUE, "exchange": "x1"}
        assert exchanges(cluster) == {"x2": "scaling"}
        second = leader.ask(
            ScaleOut(queue=QUEUE, queue_id=queue_id, transaction="second", reason="")
        )
        assert isinstance(second, ScaledOut)
        assert second.number == 3
        # Nobody was moved there, so nothing is in it.
        less = ScaleIn(queue=QUEUE, queue_id=queue_id, number=3, reason="a test")
        assert isinstance(leader.ask(less), Done)
        assert exchanges(cluster) == {"x2": "scaling"}
        last = leader.ask(ScaleIn(queue=QUEUE, queue_id=queue_id, number=2, reason="a test"))
        assert isinstance(last, Failure)
    assert running.verdict.sent == running.verdict.received


def test_what_cannot_be_removed_is_told_in_a_sentence(
    roq_cluster: RunningCluster, cluster: roq.Cluster
) -> None:
    with pytest.raises(RequestError, match="last exchange of queue 'by-hand'"):
        cluster.remove_exchange(QUEUE, "x1")
    with pytest.raises(ExchangeNotFound, match="there are x1"):
        cluster.remove_exchange(QUEUE, "x7")
    refused = roq_command("exchange", "remove", QUEUE, "x7", cluster=roq_cluster.address)
    assert refused.returncode == 1
    assert b"asking queue by-hand to empty x7" in refused.stderr
    assert b"roq exchange list" in refused.stderr
