"""Queue life over BSON with real host managers, monitors, exchanges and ZooKeeper."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from gcm_process import SESSION_SECONDS, Console, DaemonProcess
from waiting import eventually
from zookeeper_server import EmbeddedZooKeeper

import roq

pytestmark = pytest.mark.integration

HOSTS = ("127.0.0.1", "127.0.0.2")


class Cluster:
    """One configuration manager and two host managers."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self.daemons: list[DaemonProcess] = []
        zk = f'[zk]\nservers = "{zookeeper}"\nsession_seconds = {SESSION_SECONDS}\n'
        self.gcm = self._start("roq.gcm", folder, f"[ports]\nbase = 0\n{zk}")
        self.addresses = self.gcm.ready()
        manager = self.addresses["client"].removeprefix("tcp://")
        for host in HOSTS:
            own = folder / host
            own.mkdir()
            settings = (
                f'{zk}[gcm]\naddress = ["{manager}"]\n'
                f'[network]\nbind = "{host}"\nport = 0\n[data]\ndir = "{own}"\n'
            )
            self._start("roq.hcm", own, settings).ready()

    def _start(self, module: str, folder: Path, text: str) -> DaemonProcess:
        self.daemons.append(DaemonProcess(module, folder, text))
        return self.daemons[-1]

    def connect(self) -> roq.Cluster:
        return roq.connect(self.addresses["client"])

    def stop(self) -> list[int]:
        for daemon in reversed(self.daemons):
            daemon.child.send_signal(signal.SIGTERM)
        return [daemon.ends() for daemon in self.daemons]

    def close(self) -> None:
        for daemon in self.daemons:
            daemon.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        cluster = Cluster(tmp_path_factory.mktemp("cluster"), server.address)
        try:
            yield cluster
            assert cluster.stop() == [0, 0, 0]
        finally:
            cluster.close()


@pytest.fixture
def console(cluster: Cluster) -> Iterator[Console]:
    with Console(cluster.addresses["management"]) as console:
        yield console


def children(console: Console, queue: str) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for host in console.ask(2102)["Hosts"]:  # type: ignore[attr-defined]
        found |= {row["Child"]: row for row in host["Children"] if row["Queue"] == queue}
    return found


def running(console: Console, queue: str) -> int:
    """How many processes of a queue have said that they run."""
    return [row["State"] for row in children(console, queue).values()].count("running")


def test_monitor_and_exchanges_really_start_and_stop(cluster: Cluster, console: Console) -> None:
    assert console.ask(2003, QName="life", Host=HOSTS[0])["COMMENT"] == "SUCCESS"
    assert console.ask(2004, QName="life", Host=HOSTS[1], TransactionID="t")["Number"] == 2
    assert console.ask(2004, QName="life", Host=HOSTS[1], TransactionID="t")["Number"] == 2
    eventually(lambda: running(console, "life") == 3, "three processes reported")
    pids = {name: int(str(row["Pid"])) for name, row in children(console, "life").items()}
    assert all(psutil.pid_exists(pid) for pid in pids.values())
    monitors = pids.pop("life.monitor")
    with Console(cluster.addresses["client"]) as client:
        assert client.ask(2000, QName="life")["RESULT"] == 0
        assert console.ask(2002, QName="life")["RESULT"] == 0
        assert not any(psutil.pid_exists(pid) for pid in pids.values())
        # It told its end before; others could be in its process.
        eventually(lambda: not psutil.pid_exists(monitors), "the monitor's process is gone")
        assert client.ask(2000, QName="life")["RESULT"] == 1101
        assert console.ask(2005, QName="life")["RESULT"] == 0
        assert client.ask(2000, QName="life")["RESULT"] == 0
    assert console.ask(2001, QName="life")["RESULT"] == 0
    eventually(lambda: children(console, "life") == {}, "no process left")
    assert console.ask(2011, QName="life")["COMMENT"] == "NO"


def test_queues_spread_over_the_hosts(console: Console) -> None:
    hosts = [console.ask(2010, QName=f"spread{n}")["Host"] for n in range(2)]
    assert sorted(map(str, hosts)) == sorted(HOSTS)
    for number in range(2):
        assert console.ask(2001, QName=f"spread{number}")["RESULT"] == 0


def test_killed_children_are_located_at_their_new_addresses(
    cluster: Cluster, console: Console
) -> None:
    assert console.ask(2010, QName="killed")["RESULT"] == 0
    with Console(cluster.addresses["client"]) as client:
        before = client.ask(2000, QName="killed")
        exchange = console.ask(2103, QName="killed")["Exchanges"][0]  # type: ignore[index]
        eventually(lambda: running(console, "killed") == 2, "both processes reported")
        for row in children(console, "killed").values():
            os.kill(int(str(row["Pid"])), signal.SIGKILL)
        eventually(lambda: client.ask(2000, QName="killed") != before, "a new monitor")

        def again() -> bool:
            now = console.ask(2103, QName="killed")["Exchanges"][0]  # type: ignore[index]
            return bool(now["State"] == "running" and now["Epoch"] > exchange["Epoch"])

        eventually(again, "a new exchange")
    assert console.ask(2001, QName="killed")["RESULT"] == 0
