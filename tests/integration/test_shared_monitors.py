"""Monitors of several queues in one process: together as long as all goes well, alone if not."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import psutil
import pytest
from reported import reported
from waiting import eventually

import roq
import roq.testing
from roq.testing import RunningCluster

pytestmark = pytest.mark.integration


@pytest.fixture
def running() -> Iterator[RunningCluster]:
    settings = {"monitor": {"queues_per_process": 2}, "children": {"orphan_seconds": 60}}
    with roq.testing.cluster(registry="zookeeper", restart=True, hcm=settings) as found:
        yield found


def pid(cluster: roq.Cluster, queue: str) -> int:
    """The process of a queue's monitor, once it runs."""
    eventually(lambda: reported(cluster, f"{queue}.monitor").state == "running")
    return reported(cluster, f"{queue}.monitor").pid


def works(cluster: roq.Cluster, queue: str) -> None:
    """Both ends of a queue find it."""
    with cluster.subscriber(queue) as subscriber, cluster.publisher(queue) as publisher:
        publisher.publish(b"x")
        message = subscriber.receive(20)
        assert message is not None
        assert message.payload == b"x"


def test_as_many_monitors_as_are_allowed_share_a_process_and_one_is_removed_alone(
    cluster: roq.Cluster,
) -> None:
    for queue in ("a", "b", "c"):
        cluster.create_queue(queue)
    first, second, third = (pid(cluster, queue) for queue in ("a", "b", "c"))
    assert first == second != third
    cluster.remove_queue("a")
    works(cluster, "b")
    assert pid(cluster, "b") == first
    # There is room for another one now.
    cluster.create_queue("d")
    assert pid(cluster, "d") in {first, third}
    cluster.remove_queue("b")
    cluster.remove_queue("c")
    cluster.remove_queue("d")
    eventually(lambda: not any(psutil.pid_exists(each) for each in (first, third)))


def test_when_their_process_dies_all_are_back_and_who_dies_again_is_alone(
    cluster: roq.Cluster,
) -> None:
    cluster.create_queue("a")
    cluster.create_queue("b")
    for round_ in range(2):
        before = {queue: reported(cluster, f"{queue}.monitor") for queue in ("a", "b")}
        assert before["a"].pid == before["b"].pid
        os.kill(before["a"].pid, signal.SIGKILL)
        for queue, old in before.items():
            eventually(lambda: reported(cluster, f"{queue}.monitor").epoch > old.epoch)  # noqa: B023
            works(cluster, queue)
        together = pid(cluster, "a") == pid(cluster, "b")
        assert together == (round_ == 0)


def test_the_next_life_of_the_host_manager_ends_one_monitor_of_a_process_that_it_has_adopted(
    running: RunningCluster, cluster: roq.Cluster
) -> None:
    cluster.create_queue("a")
    cluster.create_queue("b")
    shared = pid(cluster, "a")
    assert pid(cluster, "b") == shared
    manager = running.pid("host 127.0.0.1")
    os.kill(manager, signal.SIGKILL)
    log = next((running.folder / "log").glob("host*.log"))
    eventually(lambda: log.read_text().count("ready in cluster") == 2)
    eventually(lambda: pid(cluster, "a") == pid(cluster, "b") == shared)
    cluster.remove_queue("a")
    assert psutil.pid_exists(shared)
    works(cluster, "b")
    assert pid(cluster, "b") == shared
    # Its own monitors have another process.
    cluster.create_queue("c")
    assert pid(cluster, "c") != shared


def test_a_monitor_process_that_is_told_to_end_is_replaced_like_one_that_crashed(
    cluster: roq.Cluster,
) -> None:
    cluster.create_queue("a")
    cluster.create_queue("b")
    before = pid(cluster, "a")
    os.kill(before, signal.SIGTERM)
    for queue in ("a", "b"):
        eventually(lambda: pid(cluster, queue) != before)  # noqa: B023
        works(cluster, queue)
