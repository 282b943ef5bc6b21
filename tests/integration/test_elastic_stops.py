"""Processes that stand still while publishers move: nobody loses a message by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from elastic_part import Part
from elastic_traffic import LIMIT, Traffic, traffic
from waiting import eventually

import roq
import roq.testing
from roq.client.admin.views import ScalingRules
from roq.protocol.kpi import MoveKpi
from roq.testing import RunningCluster

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture
def hasty() -> Iterator[RunningCluster]:
    """A cluster in which a publisher is given up long before it counts as gone."""
    with roq.testing.cluster(hcm={"monitor": {"stat_period": 250}}) as running:
        yield running


def moves(running: Traffic) -> list[str]:
    return running.states(MoveKpi)


def accepted(running: Traffic) -> int:
    return moves(running).count("accepted")


def test_a_publisher_that_stands_still_is_given_up_and_nothing_of_it_is_lost(
    hasty: RunningCluster, tmp_path: Path
) -> None:
    with hasty.connect() as cluster, traffic(cluster, "deaf", 0, policy="static") as running:
        publishers = [
            Part("publish", hasty.address, "deaf", tmp_path / f"p{number}") for number in range(2)
        ]
        cluster.add_exchange("deaf")
        for publisher in publishers:
            publisher.freeze()
        cluster.set_rules("deaf", ScalingRules(name="test", policy="spread"))
        eventually(lambda: "given_up" in moves(running))
        for publisher in publishers:
            publisher.thaw()
        for publisher in publishers:
            running.written.merge(publisher.end())
    running.judge()


def test_a_subscriber_that_stands_still_while_exchanges_come_and_publishers_move(
    roq_cluster: RunningCluster, cluster: roq.Cluster, tmp_path: Path
) -> None:
    with traffic(cluster, "blind", 4, policy="spread") as running:
        frozen = Part("listen", roq_cluster.address, "blind", tmp_path / "s")
        running.rate = LIMIT * 0.2
        frozen.freeze()
        cluster.add_exchange("blind")
        eventually(lambda: accepted(running) >= 2)
        frozen.thaw()
        running.end()
        read = frozen.end(running.written.messages())
    running.judge()
    verdict = running.written.merge(read).check()
    assert verdict.total("lost") == verdict.total("counted_lost") == 0, verdict
