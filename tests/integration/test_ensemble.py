"""An ensemble of three ZooKeeper servers: one may fail; when two do, the registry is away."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from commands import until

import roq
from roq.errors import RequestError, Unavailable
from roq.testing import RunningCluster, cluster

pytestmark = [pytest.mark.integration, pytest.mark.long]

SERVERS = ("zookeeper 1", "zookeeper 2", "zookeeper 3")
SESSION_SECONDS = 4.0


@pytest.fixture(scope="module")
def running() -> Iterator[RunningCluster]:
    zk = {"zk": {"session_seconds": SESSION_SECONDS}}
    with cluster(zookeepers=3, managers=2, restart=True, gcm=zk, hcm=zk) as found:
        yield found


@pytest.fixture(scope="module")
def client(running: RunningCluster) -> Iterator[roq.Cluster]:
    with roq.connect(*running.managers) as found:
        found.create_queue("orders")
        yield found


def outcome(client: roq.Cluster) -> str:
    """What becomes of a change: empty if it was made, else why not."""
    try:
        client.set_rules("orders", roq.ScalingRules(name="r"))
    except RequestError as error:
        return error.code
    except Unavailable:
        return "unavailable"
    return ""


def changes(client: roq.Cluster) -> bool:
    return outcome(client) == ""


def test_all_addresses_are_told(running: RunningCluster) -> None:
    assert running.registry.count(",") == 2
    assert len(running.managers) == 2


@pytest.mark.parametrize("server", SERVERS[::2])
def test_one_server_may_die(server: str, running: RunningCluster, client: roq.Cluster) -> None:
    before = running.pid(server)
    os.kill(before, signal.SIGKILL)
    assert until(lambda: changes(client))
    assert until(lambda: running.pid(server) != before)
    assert until(lambda: changes(client))


def test_without_two_servers_the_registry_is_away_until_they_are_back(
    running: RunningCluster, client: roq.Cluster
) -> None:
    pids = [running.pid(server) for server in SERVERS[:2]]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert until(lambda: outcome(client) == "registry_away")
        assert [host.host for host in client.hosts()] == list(running.hosts), "reads go on"
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert until(lambda: changes(client))


def test_two_servers_that_die_come_back_by_themselves(
    running: RunningCluster, client: roq.Cluster
) -> None:
    for server in SERVERS[1:]:
        os.kill(running.pid(server), signal.SIGKILL)
    assert until(lambda: changes(client))
