"""Too many clients at once, no descriptor left, a full disk: told, survived, and forgotten."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import bson
import pytest
import zmq
from commands import roq, until

import roq as client
from roq.protocol import documents
from roq.protocol.control import Answer, HealthRequest, Located, LocateRequest
from roq.runtime import descriptors, procfs
from roq.testing import RunningCluster, cluster

pytestmark = [pytest.mark.integration, pytest.mark.long]

CROWD = 1_000


@pytest.fixture(scope="module")
def running() -> Iterator[RunningCluster]:
    with cluster(registry="zookeeper", hosts=1, restart=True) as made:
        with made.connect() as connection:
            connection.create_queue("steady")
        yield made


def health(running: RunningCluster) -> list[dict[str, object]]:
    """What `roq health` says of each daemon."""
    document = json.loads(roq("health", "--json", cluster=running.address).stdout)
    daemons: list[dict[str, object]] = document["daemons"]
    return daemons


# --- clients --------------------------------------------------------------------------------------


def test_a_thousand_clients_at_the_same_instant_are_all_answered(running: RunningCluster) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 2 * CROWD)
    poller = zmq.Poller()
    asked = {
        running.address: [documents.encode(LocateRequest(id=1, QName="steady"))],
        running.management: [b"", bson.encode({"CMD": 2101})],
    }
    try:
        for number in range(CROWD):
            one = context.socket(zmq.DEALER)
            one.setsockopt(zmq.LINGER, 0)
            address = list(asked)[number % 2]
            one.connect(f"tcp://{address}")
            one.send_multipart(asked[address])
            poller.register(one, zmq.POLLIN)
        answers: list[list[bytes]] = []
        deadline = time.monotonic() + 60
        while len(answers) < CROWD and time.monotonic() < deadline:
            answers += [one.recv_multipart() for one, _ in poller.poll(1_000)]
        assert len(answers) == CROWD
        consoles = [answer for answer in answers if not answer[0]]
        assert len(consoles) == CROWD / 2
        assert all(bson.decode(answer[-1])["RESULT"] == 0 for answer in consoles)
        for answer in answers:
            if answer[0]:
                assert isinstance(documents.decode(answer[0], Answer), Located)  # type: ignore[arg-type]
        assert until(lambda: all(each["ready"] for each in health(running)))
    finally:
        context.destroy(0)


def test_a_manager_without_descriptors_serves_whom_it_knows_says_so_and_recovers(
    running: RunningCluster,
) -> None:
    pid = running.pid("gcm")
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    assert until(lambda: (procfs.open_files(pid) or 0) < CROWD / 10), "the crowd has gone"
    used = procfs.open_files(pid) or 0
    log = running.folder / "log" / "gcm.log"
    host, _, port = running.address.rpartition(":")
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    known = context.socket(zmq.DEALER)
    known.setsockopt(zmq.LINGER, 0)
    known.connect(f"tcp://{running.address}")

    def answers() -> bool:
        known.send(documents.encode(HealthRequest(id=1)))
        return bool(known.poll(30_000)) and bool(known.recv())

    try:
        assert answers()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 20, hard))
        with ExitStack() as crowd:
            for _ in range(150):
                crowd.enter_context(socket.create_connection((host, int(port)), timeout=30))
            assert until(lambda: "descriptors are open; raise LimitNOFILE" in log.read_text())
            assert answers()
            # Not even a registry that has to be connected to anew ends it.
            os.kill(running.pid("zookeeper"), signal.SIGKILL)
            assert answers()
        assert until(
            lambda: roq("health", "--timeout", "5", cluster=running.address).returncode == 0
        )
        assert until(lambda: changes(running))
        assert running.pid("gcm") == pid
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        context.destroy(0)


def changes(running: RunningCluster) -> bool:
    changed = roq("queue", "create", "later", "--exists-ok", cluster=running.address)
    return changed.returncode == 0


def test_an_exchange_without_descriptors_survives_its_monitor_and_keeps_what_it_has(
    running: RunningCluster,
) -> None:
    with running.connect() as connection:
        connection.create_queue("full")
        with connection.publisher("full") as publisher:
            publisher.publish(b"kept")
        (before,) = connection.exchanges("full")
        exchange, monitor = before.pid, monitor_of(connection, "full")
        soft, hard = resource.prlimit(exchange, resource.RLIMIT_NOFILE)
        log = next(running.folder.glob("**/full.x1.log"))
        try:
            used = max(int(each.name) for each in Path(f"/proc/{exchange}/fd").iterdir()) + 1
            resource.prlimit(exchange, resource.RLIMIT_NOFILE, (used, hard))
            host, _, port = before.data.removeprefix("tcp://").rpartition(":")
            with ExitStack() as crowd:  # takes what is free below the limit
                for _ in range(30):
                    crowd.enter_context(socket.create_connection((host, int(port)), timeout=30))
                os.kill(monitor, signal.SIGKILL)
                assert until(lambda: descriptors.EXHAUSTED in log.read_text()), log.read_text()
        finally:
            resource.prlimit(exchange, resource.RLIMIT_NOFILE, (soft, hard))
        assert until(lambda: connection.exchanges("full")[0].state == "running")
        assert connection.exchanges("full")[0].pid == exchange
        with connection.subscriber("full", start="earliest") as subscriber:
            message = subscriber.receive(30)
        assert message is not None
        assert message.payload == b"kept"


def monitor_of(connection: client.Cluster, queue: str) -> int:
    """The process id of the queue's monitor."""
    (pid,) = (
        each.pid
        for host in connection.hosts()
        for each in host.children
        if (each.role, each.queue) == ("monitor", queue)
    )
    return pid


# --- the disk -------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_costs_logs_and_new_processes_and_no_message(tmp_path: Path) -> None:
    disk = tmp_path / "host-127.0.0.1"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], check=True)
    try:
        with (
            cluster(registry="zookeeper", hosts=1, data_dir=tmp_path) as small,
            small.connect() as connection,
        ):
            connection.create_queue("orders")
            with (
                connection.subscriber("orders") as subscriber,
                connection.publisher("orders") as publisher,
            ):
                _fill(disk / "ballast")
                publisher.publish(b"on a full disk")
                assert subscriber.receive(timeout=30).payload == b"on a full disk"
                with pytest.raises(client.RequestError, match="make room on the disk"):
                    connection.create_queue("another")
                assert until(lambda: "disk: 0 MB are free" in str(health(small)))
                (disk / "ballast").unlink()
                connection.create_queue("another")
                publisher.publish(b"there is room again")
                assert subscriber.receive(timeout=30).payload == b"there is room again"
    finally:
        subprocess.run(["umount", disk], check=True)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        os.posix_fallocate(file.fileno(), 0, 1 << 30)
    with path.open("ab", buffering=0) as file, pytest.raises(OSError, match="No space"):
        file.writelines(b"x" * 512 for _ in range(1 << 20))
