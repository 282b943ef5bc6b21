"""A full cluster grows by a container and gives it back."""

from __future__ import annotations

import threading
import time

import pytest
import zmq
from zookeeper_server import EmbeddedZooKeeper

import roq.testing
from roq.protocol import documents
from roq.protocol.control import Done, Failure, ScaledOut, ScaleIn, ScaleOut
from roq.provider.docker import CLUSTER_LABEL
from roq.provider.engine import Engine
from roq.runtime.config import Section
from roq.testing.running import RunningCluster

pytestmark = [pytest.mark.docker, pytest.mark.long]
PATIENCE = 50.0


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


@pytest.mark.parametrize("network", ["bridge", "host"])
def test_a_full_cluster_grows_by_a_container_and_gives_it_back(
    engine: Engine, engine_url: str, host_image: str, gateway: str, network: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    before = {each.id for each in engine.labelled({CLUSTER_LABEL: ""})}
    own: Section = {
        "url": engine_url, "image": host_image, "network": network, "first_address": "127.0.9.30",
        "last_address": "127.0.9.40", "memory_mb": 1_024,
    }  # fmt: skip
    gcm: dict[str, Section] = {
        "network": {"bind": "0.0.0.0", "advertise": gateway},
        "provider": {"release_seconds": 0.5},
        "provider.docker": own,
    }
    with (
        EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper"), gateway) as zookeeper,
        roq.testing.cluster(
            registry="zookeeper",
            slots=1,
            provider="docker",
            hosts_max=1,
            zookeeper=zookeeper.address,
            gcm=gcm,
        ) as running,
        running.connect() as cluster,
    ):
        cluster.create_queue("q", limits={"exchanges_max": 2})
        queue_id = bytes.fromhex(cluster.describe("q").queue_id)
        made = ask(
            running,
            ScaleOut(id=7, queue="q", queue_id=queue_id, transaction="one", reason="a test"),
        )
        assert isinstance(made, ScaledOut), made
        (container,) = [
            each for each in engine.labelled({CLUSTER_LABEL: ""}) if each.id not in before
        ]
        assert made.host in {*container.addresses.values(), container.labels.get("roq.address")}
        with cluster.subscriber("q") as sub, cluster.publisher("q") as pub:
            pub.publish(b"through two exchanges, one of them in a container")
            assert sub.receive(timeout=PATIENCE) is not None
        gone = ask(running, ScaleIn(id=8, queue="q", queue_id=queue_id, number=2, reason="a test"))
        assert isinstance(gone, Done), gone
        deadline = time.monotonic() + PATIENCE
        while engine.find(container.id) is not None:
            assert time.monotonic() < deadline, "the host was not given back"
            threading.Event().wait(0.1)
        cluster.remove_queue("q")
