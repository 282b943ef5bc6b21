"""Processes that are killed while publishers move: no message is lost by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from elastic_traffic import LIMIT, Traffic, child, eventually, traffic

import roq
from roq.protocol.kpi import MoveKpi
from roq.testing import RunningCluster

pytestmark = pytest.mark.integration


@pytest.fixture
def cluster(roq_cluster: RunningCluster) -> Iterator[roq.Cluster]:
    with roq_cluster.connect() as cluster:
        yield cluster


def moves(running: Traffic) -> list[str]:
    return running.states(MoveKpi)


def accepted(running: Traffic) -> int:
    return moves(running).count("accepted")


def test_a_target_that_is_killed_and_killed_again_while_publishers_move_there(
    roq_cluster: RunningCluster, cluster: roq.Cluster
) -> None:
    with traffic(cluster, "doomed", 6, policy="spread") as running:
        running.rate = LIMIT * 0.5
        cluster.add_exchange("doomed")
        eventually(lambda: "started" in moves(running), 40)
        child(roq_cluster, "doomed", 2).kill()
        eventually(lambda: accepted(running) >= 1, 40)
        child(roq_cluster, "doomed", 2).kill()
        eventually(lambda: accepted(running) >= 4, 40)
    running.judge()


def test_an_exchange_is_killed_as_soon_as_publishers_have_left_it(
    roq_cluster: RunningCluster, cluster: roq.Cluster
) -> None:
    with traffic(cluster, "killed-when-left", 6, policy="spread") as running:
        running.rate = LIMIT * 0.5
        cluster.add_exchange("killed-when-left")
        eventually(lambda: accepted(running) > 0, 40)
        child(roq_cluster, "killed-when-left", 1).kill()
        eventually(lambda: accepted(running) >= 3, 40)
    running.judge()


def test_a_monitor_is_killed_while_publishers_are_on_their_way(
    roq_cluster: RunningCluster, cluster: roq.Cluster
) -> None:
    with traffic(cluster, "headless", 6, policy="spread") as running:
        running.rate = LIMIT * 0.5
        cluster.add_exchange("headless")
        eventually(lambda: "started" in moves(running), 40)
        child(roq_cluster, "headless").kill()
        # Some obey the monitor that is dead: no statistics tell of it, but the next one sees it.
        eventually(lambda: Counter(running.places()) == {"x1": 3, "x2": 3}, 40)
    running.judge()
