"""Whatever fails in the control plane, publishers publish and subscribers receive all the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flow import again, child, flow, kill, paused
from waiting import eventually

import roq
import roq.testing
from roq.client.session.events import Cause, ClientState
from roq.testing import RunningCluster

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.long]
QUEUES = ("steady", "headless", "two", "both")
PATIENT = {"window_batches": 1_024}
"""Publishers need not wait because an exchange gets no processor for a moment."""
BUSY = {(ClientState.WAITING, Cause.STARVED), (ClientState.CONNECTED, Cause.NONE)}
"""What is told when this process gets none for two seconds, and again afterwards."""


@pytest.fixture(scope="module")
def running(restarting: RunningCluster) -> Iterator[RunningCluster]:
    with roq.connect(*restarting.managers) as cluster:
        for queue in QUEUES:
            cluster.create_queue(queue, host="127.0.0.1", limits=PATIENT)
        cluster.add_exchange("two", "127.0.0.2")
    yield restarting
    with roq.connect(*restarting.managers) as cluster:
        for queue in QUEUES:
            cluster.remove_queue(queue)


@pytest.fixture
def cluster(running: RunningCluster) -> Iterator[roq.Cluster]:
    with roq.connect(*running.managers) as cluster:
        yield cluster


@pytest.mark.parametrize("part", ["gcm 1", "gcm 2", "zookeeper"])
def test_configuration_managers_and_the_registry_stop_and_end(
    running: RunningCluster, cluster: roq.Cluster, part: str
) -> None:
    with flow(cluster, "steady") as messages:
        with paused(running.pid(part)):
            messages.goes_on()
        before = running.pid(part)
        kill(before)
        messages.goes_on()
        again(lambda: running.pid(part), before)
        messages.goes_on()
        assert not messages.waited
        assert set(messages.told.states) <= BUSY, messages


def test_a_monitor_stops_and_ends(running: RunningCluster, cluster: roq.Cluster) -> None:
    with flow(cluster, "headless") as messages:
        kill(child(running, "headless"))
        messages.told.wait(ClientState.CONNECTED, Cause.NO_MONITOR)
        messages.goes_on()
        messages.told.wait(ClientState.CONNECTED)
        with paused(child(running, "headless")):
            messages.goes_on()
        messages.goes_on()
        assert not messages.waited
        waiting = {each for each in messages.told.states if each[0] is ClientState.WAITING}
        assert waiting <= BUSY, messages


def test_two_exchanges_die_one_after_the_other(
    running: RunningCluster, cluster: roq.Cluster
) -> None:
    with flow(cluster, "two") as messages:
        for number in (1, 2):
            kill(child(running, "two", number))
            messages.told.wait(ClientState.RECONNECTING, Cause.NO_EXCHANGE)
            messages.goes_on()


def test_an_exchange_and_the_monitor_die_at_once(
    running: RunningCluster, cluster: roq.Cluster
) -> None:
    with flow(cluster, "both") as messages:
        monitor, exchange = child(running, "both"), child(running, "both", 1)
        kill(exchange)
        kill(monitor)
        messages.goes_on()
        for publisher in messages.publishers:
            eventually(lambda publisher=publisher: publisher.state is ClientState.CONNECTED)


def test_host_managers_stop_and_end(running: RunningCluster, cluster: roq.Cluster) -> None:
    with flow(cluster, "steady") as messages:
        part = "host 127.0.0.1"
        with paused(running.pid(part)):
            messages.goes_on()
        before = running.pid(part)
        kill(before)
        messages.goes_on()
        again(lambda: running.pid(part), before)
        messages.goes_on()
        assert not messages.waited
