"""Children that stand still are replaced; those that work, or cannot, are not."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest
from elastic_traffic import LIMIT, traffic
from reported import reported
from waiting import eventually

import roq
import roq.testing
from roq.testing import RunningCluster

pytestmark = [pytest.mark.integration, pytest.mark.long]

HUNG_SECONDS = 2.0


@pytest.fixture(scope="module")
def running() -> Iterator[RunningCluster]:
    with roq.testing.cluster(hcm={"children": {"hung_seconds": HUNG_SECONDS}}) as found:
        yield found


def test_an_exchange_and_a_monitor_that_are_stopped_are_replaced_and_nothing_is_lost(
    running: RunningCluster, cluster: roq.Cluster
) -> None:
    with traffic(cluster, "hung", 3, policy="spread") as flow:
        flow.rate = LIMIT * 0.5
        cluster.add_exchange("hung")
        for name in ("hung.x1", "hung.monitor"):
            before = reported(cluster, name)
            os.kill(before.pid, signal.SIGSTOP)
            eventually(lambda: reported(cluster, name).epoch > before.epoch)  # noqa: B023
            eventually(lambda: reported(cluster, name).state == "running")  # noqa: B023
        flow.end()
    flow.judge()
    log = next((running.folder / "log").glob("host*.log")).read_text()
    assert log.count("and is stopped; ended by signal 9") == 2


def test_a_child_that_is_held_again_and_again_and_never_for_long_is_not_killed(
    cluster: roq.Cluster,
) -> None:
    cluster.create_queue("held")
    before = reported(cluster, "held.x1")
    pause = threading.Event()
    for _ in range(6):  # for longer than that altogether
        os.kill(before.pid, signal.SIGSTOP)
        pause.wait(0.4)
        os.kill(before.pid, signal.SIGCONT)
        pause.wait(0.3)
    assert reported(cluster, "held.x1") == before
    cluster.remove_queue("held")


def test_a_host_manager_that_stood_still_does_not_take_its_children_for_hung(
    running: RunningCluster, cluster: roq.Cluster
) -> None:
    cluster.create_queue("calm")
    before = [reported(cluster, name).pid for name in ("calm.x1", "calm.monitor")]
    manager = running.pid("host 127.0.0.1")
    pause = threading.Event()
    for _ in range(2):
        os.kill(manager, signal.SIGSTOP)
        pause.wait(HUNG_SECONDS + 0.5)
        os.kill(manager, signal.SIGCONT)
        pause.wait(1.0)
    eventually(lambda: [reported(cluster, f"calm.{n}").pid for n in ("x1", "monitor")] == before)
    assert [reported(cluster, f"calm.{n}").restarts for n in ("x1", "monitor")] == [0, 0]
    cluster.remove_queue("calm")
