"""Real host managers, monitors and exchanges are killed; their queues run elsewhere, or go on."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import bson
import psutil
import pytest
import zmq
from commands import gone
from gcm_process import Console, DaemonProcess
from waiting import eventually as within
from zookeeper_server import EmbeddedZooKeeper

from roq.protocol.documents import RawDocument

pytestmark = [pytest.mark.integration, pytest.mark.long]

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
SESSION_SECONDS = {"roq.gcm": 5.0, "roq.hcm": 2.0}
"""Who leads must go on leading on a machine that does other work."""
eventually = partial(within, seconds=60.0)


class Cluster:
    """Two configuration managers and three host managers."""

    def __init__(self, folder: Path, registry: str) -> None:
        self._folder = folder
        self._registry = registry
        self._started: list[DaemonProcess] = []
        self._seen: dict[int, psutil.Process] = {}
        """Children; whatever happens, none of them is left. They are known from others to which the
        system gives their numbers later."""
        self._ports: dict[str, str] = {}
        """Host → the port of its manager, which a later one must have as well."""
        self.managers = [self._manager(f"gcm{number}") for number in range(2)]
        self.hosts = {name: self.start_host(name) for name in HOSTS}

    def _daemon(self, module: str, name: str, text: str) -> tuple[DaemonProcess, dict[str, str]]:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        where = f'[registry]\naddress = "{self._registry}"\n'
        zk = f"[zk]\nsession_seconds = {SESSION_SECONDS[module]}\n"
        self._started.append(DaemonProcess(module, folder, where + zk + text))
        return self._started[-1], self._started[-1].ready()

    def _manager(self, name: str) -> tuple[DaemonProcess, dict[str, str]]:
        return self._daemon("roq.gcm", name, "[ports]\nbase = 0\n")

    def start_host(self, name: str) -> DaemonProcess:
        managers = ", ".join(f'"{told["client"][6:]}"' for _, told in self.managers)
        text = (
            f'[gcm]\naddress = [{managers}]\n[network]\nbind = "{name}"\n'
            f"port = {self._ports.get(name, 0)}\n"
            f'[data]\ndir = "{self._folder / name}"\n'
        )
        daemon, told = self._daemon("roq.hcm", name, text)
        self._ports[name] = told["control"].rpartition(":")[2]
        return daemon

    @contextlib.contextmanager
    def console(self, manager: int = 0, port: str = "management") -> Iterator[Console]:
        endpoint = self.managers[manager][1][port]
        with Console(endpoint, kind=zmq.DEALER, delimiter=True) as console:
            yield console

    def ask(self, command: int, *, manager: int = 0, **fields: object) -> RawDocument:
        port = "client" if command == 2000 else "management"
        with self.console(manager, port) as console:
            return console.ask(command, **fields)

    def host(self, name: str) -> RawDocument:
        rows: list[RawDocument] = self.ask(2102)["Hosts"]  # type: ignore[assignment]
        (row,) = (row for row in rows if row["Host"] == name)
        for child in row["Children"]:  # type: ignore[attr-defined]
            with contextlib.suppress(psutil.NoSuchProcess):
                if child["Pid"] not in self._seen:
                    self._seen[child["Pid"]] = psutil.Process(child["Pid"])
        return row

    def children(self, name: str) -> list[int]:
        rows = self.host(name)["Children"]
        return [row["Pid"] for row in rows if row["State"] == "running"]  # type: ignore[attr-defined]

    def where(self, queue: str) -> set[str]:
        """The hosts of all parts of a queue that runs and lacks nothing; empty if it does."""
        told = self.ask(2104, QName=queue)
        rows: list[RawDocument] = told["Exchanges"]  # type: ignore[assignment]
        if told["Reasons"] or not all(row["State"] == "running" for row in rows):
            return set()
        return {str(told["Host"]), *(str(row["Host"]) for row in rows)}

    def lose(self, name: str) -> None:
        """The host manager and everything on its host is gone at once."""
        pids = self.children(name)
        self.kill_manager(name)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def kill_manager(self, name: str) -> None:
        self.hosts[name].child.kill()
        self.hosts[name].child.wait()

    def close(self) -> None:
        for name in HOSTS:
            with contextlib.suppress(OSError, AssertionError, zmq.ZMQError, ValueError):
                self.host(name)
        for daemon in reversed(self._started):
            if daemon.child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    daemon.child.send_signal(signal.SIGCONT)
                    daemon.child.terminate()
        for daemon in reversed(self._started):
            with contextlib.suppress(Exception):
                daemon.ends()
            daemon.close()
        for child in self._seen.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("registry")) as server:
        cluster = Cluster(tmp_path_factory.mktemp("cluster"), server.address)
        try:
            eventually(lambda: len(cluster.ask(2102)["Hosts"]) == len(HOSTS), "all hosts")  # type: ignore[arg-type]
            yield cluster
        finally:
            cluster.close()


def test_what_was_on_a_lost_host_runs_elsewhere_and_it_may_come_back(cluster: Cluster) -> None:
    assert cluster.ask(2003, QName="whole", Host=HOSTS[2])["RESULT"] == 0
    assert cluster.ask(2003, QName="part", Host=HOSTS[0])["RESULT"] == 0
    assert cluster.ask(2004, QName="part", Host=HOSTS[2])["RESULT"] == 0
    eventually(lambda: len(cluster.children(HOSTS[2])) == 3, "all three run")
    before = cluster.ask(2000, QName="whole")
    cluster.lose(HOSTS[2])
    for queue in ("whole", "part"):
        eventually(
            lambda queue=queue: cluster.where(queue) and HOSTS[2] not in cluster.where(queue),
            f"{queue} runs elsewhere",
        )
    eventually(lambda: cluster.host(HOSTS[2])["State"] == "lost", "the host counts as lost")
    assert cluster.ask(2000, QName="whole") != before
    cluster.hosts[HOSTS[2]] = cluster.start_host(HOSTS[2])
    eventually(lambda: cluster.host(HOSTS[2])["State"] == "live", "it is back")
    assert cluster.ask(2003, QName="new", Host=HOSTS[2])["RESULT"] == 0


def test_a_host_manager_that_is_killed_and_comes_back_changes_nothing(cluster: Cluster) -> None:
    assert cluster.ask(2003, QName="goes-on", Host=HOSTS[1])["RESULT"] == 0
    eventually(lambda: cluster.where("goes-on") == {HOSTS[1]}, "it runs")
    before, pids = cluster.ask(2000, QName="goes-on"), cluster.children(HOSTS[1])
    cluster.kill_manager(HOSTS[1])
    eventually(lambda: cluster.host(HOSTS[1])["State"] == "unmanaged", "its node is gone")
    cluster.hosts[HOSTS[1]] = cluster.start_host(HOSTS[1])
    eventually(lambda: cluster.host(HOSTS[1])["State"] == "live", "it is back")
    eventually(lambda: sorted(cluster.children(HOSTS[1])) == sorted(pids), "with its children")
    assert cluster.ask(2000, QName="goes-on") == before
    assert cluster.where("goes-on") == {HOSTS[1]}


def test_what_is_removed_from_a_host_without_a_manager_ends_by_itself(cluster: Cluster) -> None:
    assert cluster.ask(2003, QName="stays", Host=HOSTS[0])["RESULT"] == 0
    assert cluster.ask(2004, QName="stays", Host=HOSTS[1])["Exchange"] == "x2"
    assert cluster.ask(2003, QName="goes", Host=HOSTS[1])["RESULT"] == 0
    eventually(lambda: cluster.where("stays") == set(HOSTS[:2]), "both run")
    eventually(lambda: cluster.where("goes") == {HOSTS[1]}, "this one, too")
    rows: list[RawDocument] = cluster.host(HOSTS[1])["Children"]  # type: ignore[assignment]
    leftover = [psutil.Process(row["Pid"]) for row in rows if row["Queue"] in {"stays", "goes"}]  # type: ignore[arg-type]
    assert len(leftover) == 3
    cluster.kill_manager(HOSTS[1])
    eventually(lambda: cluster.host(HOSTS[1])["State"] == "unmanaged", "its node is gone")
    assert cluster.ask(2100, QName="stays", Exchange="x2")["RESULT"] == 0
    assert cluster.ask(2001, QName="goes")["RESULT"] == 0
    assert gone(leftover, 90.0)
    assert cluster.where("stays") == {HOSTS[0]}
    cluster.hosts[HOSTS[1]] = cluster.start_host(HOSTS[1])
    eventually(lambda: cluster.host(HOSTS[1])["State"] == "live", "it is back")


def test_a_creation_whose_leader_is_killed_is_completed_by_the_next_one(cluster: Cluster) -> None:
    cluster.hosts[HOSTS[0]].child.send_signal(signal.SIGSTOP)
    with cluster.console() as console:
        request = {"CMD": 2003, "QName": "resumed", "Host": HOSTS[0]}
        console.socket.send_multipart([b"", bson.encode(request)])
        eventually(
            lambda: cluster.ask(2011, QName="resumed")["COMMENT"] == "YES", "it is written down"
        )
        cluster.managers[0][0].child.kill()
    cluster.hosts[HOSTS[0]].child.send_signal(signal.SIGCONT)
    cluster.managers.reverse()
    eventually(lambda: cluster.ask(2101)["RESULT"] == 0, "the other one leads")
    eventually(lambda: cluster.where("resumed") == {HOSTS[0]}, "the queue runs")
    assert cluster.ask(2003, QName="resumed", Host=HOSTS[0])["RESULT"] == 0
    assert cluster.ask(2003, QName="resumed", Host=HOSTS[0])["CODE"] == "queue_exists"
