"""A thousand clients lose the same thing at one instant: all come back, nobody else notices."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Iterator

import pytest
from crowd import Crowd, CrowdConsole, CrowdPublisher
from flow import again, child, flow, kill
from waiting import eventually

import roq
import roq.testing
from roq.client.admin.management import Management
from roq.client.io.engine import Engine, wait_result
from roq.model import Limits
from roq.protocol.control import ClusterInfo, Located
from roq.testing import RunningCluster

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.long]

CLIENTS = 1_000


@pytest.fixture(scope="module")
def running(restarting: RunningCluster) -> Iterator[RunningCluster]:
    with roq.connect(*restarting.managers) as cluster:
        cluster.create_queue("crowd", host="127.0.0.1")
        cluster.create_queue("steady", host="127.0.0.2")
    yield restarting
    with roq.connect(*restarting.managers) as cluster:
        for queue in ("crowd", "steady"):
            cluster.remove_queue(queue)


@pytest.fixture
def cluster(running: RunningCluster) -> Iterator[roq.Cluster]:
    with roq.connect(*running.managers) as cluster:
        yield cluster


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    crowd = Crowd()
    yield crowd
    crowd.close()


class Listener:
    """A subscriber, and what it got: per topic, in order."""

    def __init__(self, cluster: roq.Cluster, queue: str) -> None:
        self.got: defaultdict[str, list[int]] = defaultdict(list)
        self.gaps: list[object] = []
        self._ending = threading.Event()
        self._subscriber = cluster.subscriber(queue, on_gap=self.gaps.append)
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while not self._ending.is_set():
            message = self._subscriber.receive(timeout=0.2)
            if message is not None:
                self.got[message.topic].append(int(message.payload))

    def close(self) -> None:
        self._ending.set()
        self._thread.join(30)
        self._subscriber.close()


def located(cluster: roq.Cluster, queue: str) -> Located:
    description = cluster.describe(queue)
    return Located(
        QName=queue, queue_id=bytes.fromhex(description.queue_id), monitor=description.monitor,
        statistics=description.statistics, limits=Limits(),
    )  # fmt: skip


def test_a_thousand_publishers_lose_their_exchange_and_all_of_them_come_back_at_once(
    running: RunningCluster, cluster: roq.Cluster, crowd: Crowd
) -> None:
    dice = random.Random(7)
    queue = located(cluster, "crowd")
    publishers = [CrowdPublisher(crowd, number, queue, dice) for number in range(CLIENTS)]
    crowd.members += publishers
    listener = Listener(cluster, "crowd")
    try:
        with flow(cluster, "steady") as messages:
            _publish_all(publishers)
            crowd.all_content()
            _publish_all(publishers)
            # In the middle of it, for some have their acknowledgement and some have not.
            crowd.run(lambda: sum(each.content for each in publishers) > CLIENTS // 3)
            kill(child(running, "crowd", 1))
            for publisher in publishers:
                publisher.lost()
                publisher.publish()
            crowd.all_content()
            messages.goes_on()
            wanted = {f"crowd-{number}": [1, 2, 3] for number in range(CLIENTS)}
            eventually(lambda: sum(map(len, listener.got.values())) >= 3 * CLIENTS)
            assert listener.got == wanted, "each message once, in its order"
            assert not listener.gaps
    finally:
        listener.close()


def _publish_all(publishers: list[CrowdPublisher]) -> None:
    for publisher in publishers:
        publisher.publish()


def test_a_thousand_consoles_lose_the_leading_manager_and_the_next_one_answers_all_of_them(
    running: RunningCluster, cluster: roq.Cluster, crowd: Crowd
) -> None:
    infos = [_info(address) for address in running.managers]
    leader = next(number for number, info in enumerate(infos) if info.leader)
    states: set[str] = set()
    with flow(cluster, "steady") as messages:
        part = f"gcm {leader + 1}"
        before = running.pid(part)
        kill(before)
        dice = random.Random(8)
        managers = [infos[leader].management, infos[1 - leader].management]
        consoles = [
            CrowdConsole(crowd, managers, _command(number), dice) for number in range(CLIENTS)
        ]
        crowd.members += consoles
        crowd.all_content()
        for number, console in enumerate(consoles):
            wanted = (0, "") if number % 2 else (1101, "queue_not_found")
            assert (console.answer["RESULT"], console.answer.get("CODE", "")) == wanted
        # The reports of hosts got through all the while.
        eventually(lambda: _states(cluster, states) == {"live"}, states)
        assert states <= {"live", "awaited", "silent"}
        messages.goes_on()
        again(lambda: running.pid(part), before)


def _states(cluster: roq.Cluster, seen: set[str]) -> set[str]:
    states = {str(host.state) for host in cluster.hosts()}
    seen |= states
    return states


def _command(number: int) -> dict[str, object]:
    """One that reads, or one that changes (and cannot)."""
    return {"CMD": 2101} if number % 2 else {"CMD": 2001, "QName": f"nobody-{number}"}


def _info(address: str) -> ClusterInfo:
    engine = Engine()
    engine.start()
    try:
        return wait_result(Management(engine, [f"tcp://{address}"]).info(30.0), 30.0)
    finally:
        engine.close()
