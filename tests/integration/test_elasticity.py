"""A real cluster whose queue grows, moves its publishers and shrinks, while messages flow."""

from __future__ import annotations

import pytest
from commands import alive
from elastic_traffic import LIMIT, child, traffic
from waiting import eventually

import roq
from roq.protocol.kpi import MoveKpi, QueueKpi, ScaleKpi
from roq.testing import RunningCluster

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_a_queue_grows_and_a_new_monitor_shrinks_it_and_nobody_misses_a_message(
    roq_cluster: RunningCluster, cluster: roq.Cluster
) -> None:
    with traffic(cluster, "elastic", 4, exchanges_max=2) as running:
        running.rate = LIMIT * 0.4
        eventually(lambda: running.exchanges() == 2)
        eventually(lambda: running.states(ScaleKpi) == ["started", "done"])
        eventually(lambda: "accepted" in running.states(MoveKpi))
        monitor = child(roq_cluster, "elastic")
        monitor.kill()
        eventually(lambda: not alive(monitor))
        told = len(running.told(QueueKpi))
        # The first ones may be the last words of the dead one.
        eventually(lambda: len(running.told(QueueKpi)) > told + 2)
        running.rate = LIMIT * 0.05
        eventually(lambda: running.exchanges() == 1)
        eventually(lambda: running.states(ScaleKpi) == ["started", "done"] * 2)
    running.judge()
    assert set(running.states(MoveKpi)) == {"started", "accepted"}
    assert not any(each.policy_errors for each in running.told(QueueKpi))  # type: ignore[union-attr]


def test_an_exchange_is_removed_by_hand_while_publishers_use_it(cluster: roq.Cluster) -> None:
    with traffic(cluster, "reduced", 3, policy="static") as running:
        cluster.add_exchange("reduced")
        running.rate = LIMIT * 0.1
        eventually(lambda: running.exchanges() == 2)
        cluster.remove_exchange("reduced", "x1")
        eventually(lambda: running.exchanges() == 1)
    running.judge()
    assert set(running.states(MoveKpi)) == {"started", "accepted"}
