"""Policies and providers of others that do everything wrong, in the daemons that use them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import bad_plugins
import pytest
import zmq
from elastic_traffic import LIMIT, traffic
from waiting import eventually

import roq
import roq.testing
from roq.client.admin.views import ScalingRules
from roq.protocol import documents
from roq.protocol.control import Done, Failure, ScaledOut, ScaleOut
from roq.protocol.kpi import MoveKpi, QueueKpi
from roq.testing import RunningCluster

pytestmark = [pytest.mark.integration, pytest.mark.long]
PATIENCE = 30.0


@pytest.fixture(scope="module")
def mood(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("moods") / "mood"
    path.write_text("fails")
    return path


@pytest.fixture(scope="module")
def running(mood: Path) -> Iterator[RunningCluster]:
    settings = {
        "provider": {"call_seconds": 2, "register_seconds": 1},
        "provider.moody": {"mood": str(mood)},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", bad_plugins.install(mood.parent))
        with roq.testing.cluster(slots=3, provider="moody", gcm=settings) as running:
            yield running
            assert running.ended() == []


@pytest.fixture
def cluster(running: RunningCluster) -> Iterator[roq.Cluster]:
    with running.connect() as cluster:
        yield cluster


def grow(running: RunningCluster, cluster: roq.Cluster, transaction: str) -> Failure:
    """As a monitor asks the leader, who has no room."""
    queue_id = bytes.fromhex(cluster.describe("full").queue_id)
    request = ScaleOut(
        id=7, queue="full", queue_id=queue_id, transaction=transaction, reason="a test"
    )
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(f"tcp://{running.address}")
        socket.send(documents.encode(request))
        assert socket.poll(PATIENCE * 1_000), "no answer"
        answer = documents.decode(socket.recv(), ScaledOut | Done | Failure)
    assert isinstance(answer, Failure)
    return answer


def test_with_any_policy_messages_flow_and_newcomers_are_served(cluster: roq.Cluster) -> None:
    with traffic(cluster, "ruled", 2, policy="static") as flow:
        flow.rate = LIMIT * 0.5
        cluster.add_exchange("ruled")
        for name in ("raises", "loops", "confused"):
            eventually(lambda: bool(flow.told(QueueKpi)), seconds=PATIENCE)
            before = flow.told(QueueKpi)[-1].policy_errors  # type: ignore[union-attr]
            cluster.set_rules("ruled", ScalingRules(name="test", policy=name))

            def spoilt(name: str = name, before: int = before) -> bool:
                last = flow.told(QueueKpi)[-1]
                return last.policy == name and last.policy_errors >= before + 2  # type: ignore[union-attr]

            eventually(spoilt, seconds=PATIENCE)
            with cluster.publisher("ruled", timeout=PATIENCE) as newcomer:
                newcomer.publish(b"hello", topic="n")
                flow.written.sent(newcomer.id, "n", b"hello")
        cluster.set_rules("ruled", ScalingRules(name="test", policy="spread"))
        eventually(lambda: "accepted" in flow.states(MoveKpi), seconds=PATIENCE)
    flow.judge()


def test_whatever_the_provider_does_who_wants_to_grow_is_told_and_messages_flow(
    running: RunningCluster, cluster: roq.Cluster, mood: Path
) -> None:
    with traffic(cluster, "full", 2, policy="static") as flow:
        flow.rate = LIMIT * 0.5
        for _ in range(2):
            cluster.add_exchange("full")
        for state, words in {
            "fails": "no room in the rack",
            "exits": "could not make host",
            "nonsense": "instead of a host",
            "hangs": "no answer within 2 s",
            "paper": "did not register within 1 s",
        }.items():
            mood.write_text(state)
            answer = grow(running, cluster, state)
            assert answer.id == 7
            assert answer.CODE == "no_capacity"
            assert words in answer.COMMENT or words in log_of(running)
        assert {each.name for each in cluster.exchanges("full")} == {"x1", "x2", "x3"}
    flow.judge()


def log_of(running: RunningCluster) -> str:
    return (running.folder / "log" / "gcm.log").read_text()
