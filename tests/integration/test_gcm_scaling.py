"""A real queue is given exchanges, has them emptied and taken away, while messages flow."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial

import pytest
from commands import roq as roq_command
from commands import until

import roq
from roq.client.admin.management import wait_result
from roq.client.admin.views import ScalingRules
from roq.client.io.engine import Engine
from roq.errors import ExchangeNotFound, RequestError, Unavailable
from roq.model import endpoint_of
from roq.protocol.control import Answer, Control, Done, Failure, ScaledOut, ScaleIn, ScaleOut
from roq.runtime.rpc import RpcClient
from roq.testing import RunningCluster
from roq.testing.history import History

pytestmark = pytest.mark.integration

QUEUE = "by-hand"
PUBLISHERS = 4
TURN_SECONDS = 0.005
ANSWER_SECONDS = 60.0
QUIET_SECONDS = 0.3
"""So long what is doubled may come yet."""


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


class Traffic:
    """Publishers that never pause, and a subscriber that takes notes."""

    def __init__(self, cluster: roq.Cluster) -> None:
        self.written, self.read = History(), History()
        self.received = 0
        self._publishers = [cluster.publisher(QUEUE) for _ in range(PUBLISHERS)]
        self._subscriber = cluster.subscriber(QUEUE, on_gap=partial(self.read.gap, "reader"))
        self._ending, self._spoken = threading.Event(), threading.Event()
        self._patience_ends = 0.0
        self._threads = [
            threading.Thread(target=self._speak),
            threading.Thread(target=self._listen),
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(2 * ANSWER_SECONDS)
        for publisher in self._publishers:
            publisher.close()
        self._subscriber.close()

    def _speak(self) -> None:
        number = 0
        while not self._ending.wait(TURN_SECONDS):
            for publisher in self._publishers:
                number += 1
                payload = b"%d" % number
                publisher.publish(payload, topic="t")
                self.written.sent(publisher.id, "t", payload)
        for publisher in self._publishers:
            publisher.flush(ANSWER_SECONDS)
        self._patience_ends = time.monotonic() + ANSWER_SECONDS
        self._spoken.set()

    def _listen(self) -> None:
        while True:
            message = self._subscriber.receive(timeout=QUIET_SECONDS)
            if message is not None:
                self.read.received("reader", message)
                self.received += 1
            elif self._spoken.is_set() and (
                self.received >= self.written.messages() or time.monotonic() > self._patience_ends
            ):
                return


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
    traffic = Traffic(cluster)
    try:
        assert until(lambda: traffic.received > 100)
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
    finally:
        traffic.end()
    verdict = traffic.written.merge(traffic.read).check()
    assert verdict.ok, verdict
    assert verdict.sent == verdict.received > 0


def test_what_cannot_be_removed_is_told_in_a_sentence(
    roq_cluster: RunningCluster, cluster: roq.Cluster
) -> None:
    with pytest.raises(RequestError, match="last exchange of queue 'by-hand'"):
        cluster.remove_exchange(QUEUE, "x1")
    with pytest.raises(ExchangeNotFound, match="there are x1"):
        cluster.remove_exchange(QUEUE, "x7")
    refused = roq_command("exchange", "remove", QUEUE, "x7", cluster=roq_cluster.address)
    assert refused.returncode == 1
    assert b"emptying x7 of queue by-hand" in refused.stderr
    assert b"roq exchange list" in refused.stderr
