"""Processes that are killed while publishers move: no message is lost by it."""

from __future__ import annotations

from collections import Counter

import pytest
from commands import alive
from elastic_traffic import LIMIT, Traffic, child, traffic
from waiting import eventually

import roq
from roq.protocol.kpi import MoveKpi
from roq.testing import RunningCluster

pytestmark = [pytest.mark.integration, pytest.mark.long]
RESTED = 90.0
"""Seconds: a publisher that could not go where it was sent rests, longer each time."""


def moves(running: Traffic) -> list[str]:
    return running.states(MoveKpi)


def accepted(running: Traffic) -> int:
    return moves(running).count("accepted")


def killed(cluster: RunningCluster, queue: str, number: int = 0) -> None:
    """Kill an exchange, or the monitor; another one runs when it returns."""
    process = child(cluster, queue, number)
    process.kill()
    eventually(lambda: not alive(process))
    child(cluster, queue, number)


def even(running: Traffic) -> bool:
    """Who went back to where he was, goes where he was sent again."""
    return Counter(running.places()) == {"x1": 3, "x2": 3}


def test_a_target_that_is_killed_and_killed_again_while_publishers_move_there(
    roq_cluster: RunningCluster, cluster: roq.Cluster
) -> None:
    with traffic(cluster, "doomed", 6, policy="spread") as running:
        running.rate = LIMIT * 0.5
        cluster.add_exchange("doomed")
        eventually(lambda: "started" in moves(running))
        killed(roq_cluster, "doomed", 2)
        eventually(lambda: accepted(running) >= 1, seconds=RESTED)
        killed(roq_cluster, "doomed", 2)
        eventually(lambda: even(running), seconds=RESTED)
    running.judge()


def test_an_exchange_is_killed_as_soon_as_publishers_have_left_it(
    roq_cluster: RunningCluster, cluster: roq.Cluster
) -> None:
    with traffic(cluster, "killed-when-left", 6, policy="spread") as running:
        running.rate = LIMIT * 0.5
        cluster.add_exchange("killed-when-left")
        eventually(lambda: accepted(running) > 0, seconds=RESTED)
        killed(roq_cluster, "killed-when-left", 1)
        eventually(lambda: even(running), seconds=RESTED)
    running.judge()


def test_a_monitor_is_killed_while_publishers_are_on_their_way(
    roq_cluster: RunningCluster, cluster: roq.Cluster
) -> None:
    with traffic(cluster, "headless", 6, policy="spread") as running:
        running.rate = LIMIT * 0.5
        cluster.add_exchange("headless")
        eventually(lambda: "started" in moves(running))
        killed(roq_cluster, "headless")
        # Some obey the monitor that is dead: no statistics tell of it, but the next one sees it.
        eventually(lambda: even(running), seconds=RESTED)
    running.judge()
