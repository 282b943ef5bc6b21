"""Hosts are emptied under load: nothing is lost, doubled or out of order, nobody waits for long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import roq as command
from drain_traffic import Figures, Traffic
from waiting import eventually

from roq.client.cluster import Cluster, connect
from roq.protocol.public_answers import HostSummary
from roq.testing import RunningCluster, cluster

pytestmark = [pytest.mark.integration, pytest.mark.long]

ROOT = Path(__file__).resolve().parent.parent.parent
ROLLING_RESTART = ROOT / "scripts" / "rolling_restart.py"
END_PART = ROOT / "tests" / "support" / "end_part.py"
PATIENCE_SECONDS = 90.0
PUBLISH_SECONDS = 5.0
"""Far more than a move takes; what it takes on a quiet machine is printed."""


@pytest.fixture(scope="module")
def running() -> Iterator[RunningCluster]:
    with cluster(registry="zookeeper", hosts=3, managers=2, restart=True) as found:
        yield found


@pytest.fixture
def roq(running: RunningCluster) -> Iterator[Cluster]:
    with running.connect() as found:
        eventually(lambda: all(each.state == "live" for each in found.hosts()))
        yield found
        for each in found.queues():
            found.remove_queue(each.name)
        for host in found.hosts():
            found.uncordon_host(host.host)


def host_of(roq: Cluster, name: str) -> HostSummary:
    return next(each for each in roq.hosts() if each.host == name)


def holds_nothing(roq: Cluster, name: str) -> bool:
    host = host_of(roq, name)
    return not (host.left or host.exchanges or host.monitors or host.children)


def told(what: str, seconds: float, figures: Figures) -> None:
    """Print a row of the table, and judge."""
    verdict = figures.verdict
    print(  # noqa: T201 - with -s this is the table of operations.md
        f"{what}: {seconds:.1f} s, {figures.published} published, lost {verdict.lost}, doubled "
        f"{verdict.duplicated}, slowest publish() {figures.slowest_seconds:.3f} s"
    )
    assert verdict.ok, verdict
    assert figures.slowest_seconds < PUBLISH_SECONDS


def test_a_drained_host_holds_nothing_and_nothing_is_lost(
    running: RunningCluster, roq: Cluster
) -> None:
    """The only exchange and the monitor are there, and a slow subscriber reads."""
    host = running.hosts[1]
    roq.create_queue("drained", host=host)
    roq.create_queue("stopped", host=host)
    roq.stop_queue("stopped")
    with Traffic(running.address, "drained") as traffic:
        eventually(lambda: traffic.received[1] > 500)
        begun = time.monotonic()
        drained = command("host", "drain", host, "--wait", cluster=running.address)
        seconds = time.monotonic() - begun
        assert drained.returncode == 0, drained.stderr
        assert drained.stdout.decode() == f"host {host} holds nothing\n"
        assert b"x1 of drained" in drained.stderr
        assert holds_nothing(roq, host)
        before = traffic.received[0]
        eventually(lambda: traffic.received[0] > before + 500)
        figures = traffic.end()
    told("drain", seconds, figures)
    assert all(each.host != host for each in roq.exchanges("drained"))
    roq.start_queue("stopped")
    assert all(each.host != host for each in roq.exchanges("stopped"))
    listed = command("host", "list", cluster=running.address).stdout.decode()
    assert "drained" in listed
    health = command("health", cluster=running.address).stdout.decode()
    assert f"{host} is draining" in health


def test_a_host_with_logs_is_drained_by_who_says_so_and_by_nobody_else(
    running: RunningCluster, roq: Cluster
) -> None:
    host = running.hosts[1]
    roq.create_queue("kept", host=host, durability="flush")
    with roq.publisher("kept") as publisher:
        for number in range(5):
            publisher.send(b"%d" % number)
    refused = command("host", "drain", host, "--wait", cluster=running.address)
    assert refused.returncode == 1
    assert b"queue kept, log of x1: up to 5 batches of messages" in refused.stderr
    assert b"1 log would be removed, and nobody can be asked here" in refused.stderr
    assert host_of(roq, host).schedule == "active"
    with roq.subscriber("kept", start="earliest") as subscriber:
        assert [subscriber.receive(timeout=30).payload for _ in range(5)] == [
            b"%d" % number for number in range(5)
        ]
    drained = command("host", "drain", host, "--yes", "--wait", cluster=running.address)
    assert drained.returncode == 0, drained.stderr
    assert holds_nothing(roq, host)
    with roq.subscriber("kept", start="earliest") as subscriber:
        assert subscriber.receive(timeout=2) is None, "as was said"


def test_sigterm_of_a_host_manager_loses_nothing_and_it_is_active_when_it_is_back(
    running: RunningCluster, roq: Cluster
) -> None:
    host = running.hosts[1]
    roq.create_queue("left", host=host)
    with Traffic(running.address, "left") as traffic:
        eventually(lambda: traffic.received[1] > 500)
        former = running.pid(f"host {host}")
        begun = time.monotonic()
        os.kill(former, signal.SIGTERM)
        eventually(lambda: running.pid(f"host {host}") != former)
        seconds = time.monotonic() - begun
        eventually(lambda: (row := host_of(roq, host)).state == "live" and row.schedule == "active")
        before = traffic.received[0]
        eventually(lambda: traffic.received[0] > before + 500)
        figures = traffic.end()
    told("SIGTERM", seconds, figures)
    assert all(each.host != host for each in roq.exchanges("left"))


def test_a_rolling_restart_under_load_loses_nothing(running: RunningCluster, roq: Cluster) -> None:
    """Every manager and host manager is restarted by the script of operations.md."""
    for number, host in enumerate(running.hosts):
        roq.create_queue(f"rolled-{number}", host=host)
    roq.create_queue("rolled-log", host=running.hosts[0], durability="flush")
    with roq.publisher("rolled-log") as publisher:
        publisher.send(b"kept")
    roq.cordon_host(running.hosts[2])
    end = f"{sys.executable} {END_PART} {running.folder}"
    manager = f"$(grep -l 'base = {{port}}' {running.folder}/gcm-*.toml)"
    before = {each.host: each.epoch for each in roq.hosts()}
    managers = {running.pid(f"gcm {number}") for number in (1, 2)}
    with Traffic(running.address, "rolled-0") as traffic:
        eventually(lambda: traffic.received[1] > 500)
        begun = time.monotonic()
        rolled = subprocess.run(
            [
                str(ROLLING_RESTART), "--cluster", ",".join(running.managers),
                "--restart-host", f"{end} roq.hcm host-{{host}}.toml",
                "--restart-manager", f"{end} roq.gcm {manager}", "--within", "60",
            ],
            capture_output=True, text=True, timeout=240, check=False,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        )  # fmt: skip
        seconds = time.monotonic() - begun
        assert rolled.returncode == 0, rolled.stdout + rolled.stderr
        figures = traffic.end()
    told("rolling restart", seconds, figures)
    assert rolled.stdout.count("has logs of durable queues") == 1
    assert {each.name: each.host for each in roq.exchanges("rolled-log")}["x1"] == running.hosts[0]
    with roq.subscriber("rolled-log", start="earliest") as subscriber:
        assert subscriber.receive(timeout=PATIENCE_SECONDS).payload == b"kept"
    after = {each.host: each for each in roq.hosts()}
    assert all(after[host].epoch > epoch for host, epoch in before.items())
    assert managers.isdisjoint({running.pid(f"gcm {number}") for number in (1, 2)})
    assert [after[host].schedule for host in running.hosts] == ["active", "active", "cordoned"]


def test_a_cordon_outlives_a_restart(running: RunningCluster, roq: Cluster) -> None:
    host = running.hosts[2]
    roq.cordon_host(host)
    former = running.pid(f"host {host}")
    os.kill(former, signal.SIGTERM)
    eventually(lambda: running.pid(f"host {host}") != former)
    eventually(lambda: host_of(roq, host).state == "live")
    assert host_of(roq, host).schedule == "cordoned"
    refused = command("queue", "create", "there", "--host", host, cluster=running.address)
    assert refused.returncode == 1
    assert b"roq host uncordon" in refused.stderr
    assert command("host", "uncordon", host, cluster=running.address).returncode == 0
    assert host_of(roq, host).schedule == "active"


def test_a_drain_goes_on_when_the_leader_dies(running: RunningCluster, roq: Cluster) -> None:
    host = running.hosts[0]
    for number in range(5):
        roq.create_queue(f"many-{number}", host=host)
    with roq_of(running) as other:
        leader = next(each for each in running.managers if leads(each))
        number = running.managers.index(leader) + 1
        thread = threading.Thread(target=other.drain_host, args=(host,))
        thread.start()
        os.kill(running.pid(f"gcm {number}"), signal.SIGKILL)
        thread.join(PATIENCE_SECONDS)
        eventually(lambda: host_of(other, host).schedule == "draining")
        eventually(lambda: holds_nothing(other, host))


def roq_of(running: RunningCluster) -> Cluster:
    return connect(*running.managers)


def leads(address: str) -> bool:
    with connect(address) as found:
        return found.info.leader
