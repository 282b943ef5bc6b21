"""A configuration manager and too many clients: nobody is forgotten, and nothing ends."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import bson
import pytest
import zmq
from gcm_process import SESSION_SECONDS, Console, DaemonProcess
from waiting import eventually
from zookeeper_server import EmbeddedZooKeeper

from roq.local.ports import choose_ports

pytestmark = [pytest.mark.integration, pytest.mark.long]

CLIENTS = 1_000
FEW_FILES = 150


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    (port,) = choose_ports("127.0.0.1", 1)
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper"), port=port) as server:
        yield server


@pytest.fixture
def manager(tmp_path: Path, zookeeper: EmbeddedZooKeeper) -> Iterator[DaemonProcess]:
    text = f'[ports]\nbase = 0\n[zk]\nservers = "{zookeeper.address}"\n'
    text += f"session_seconds = {SESSION_SECONDS}\n"
    process = DaemonProcess("roq.gcm", tmp_path, f"{text}root = '/{tmp_path.name}'\n")
    yield process
    process.close()


def crowd(
    context: zmq.Context[zmq.Socket[bytes]], endpoint: str, size: int
) -> list[zmq.Socket[bytes]]:
    """So many clients that connect and ask at the same instant."""
    context.set(zmq.MAX_SOCKETS, 2 * CLIENTS)
    clients = []
    for _ in range(size):
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(endpoint)
        socket.send_multipart([b"", bson.encode({"CMD": 2101})], zmq.NOBLOCK)
        clients.append(socket)
    return clients


def test_a_thousand_clients_that_come_at_once_are_all_answered(manager: DaemonProcess) -> None:
    endpoint = manager.ready()["management"]
    with zmq.Context() as context:
        clients = crowd(context, endpoint, CLIENTS)
        for client in clients:
            assert client.poll(60_000), "no answer"
            assert bson.decode(client.recv_multipart()[-1])["RESULT"] == 0
            client.close(0)
    with Console(endpoint) as console:
        assert console.ask(2101)["RESULT"] == 0


def test_without_descriptors_those_who_are_there_are_served_and_later_all_others(
    manager: DaemonProcess, zookeeper: EmbeddedZooKeeper
) -> None:
    endpoint = manager.ready()["management"]
    with Console(endpoint) as console, zmq.Context() as context:
        assert console.ask(2101)["RESULT"] == 0
        resource.prlimit(manager.child.pid, resource.RLIMIT_NOFILE, (FEW_FILES, FEW_FILES))
        clients = crowd(context, endpoint, 2 * FEW_FILES)
        eventually(lambda: any(client.poll(0) for client in clients), "some got in")
        assert console.ask(2101)["RESULT"] == 0
        # Not even a registry that has to be connected to anew ends it.
        zookeeper.stop()
        assert console.ask(2101)["RESULT"] == 0
        zookeeper.start()
        for client in clients:
            client.close(0)
        eventually(lambda: _changes(console), "changes are possible again")
        assert manager.child.poll() is None


def _changes(console: Console) -> bool:
    # Nobody has this queue: what counts is that it was looked for.
    return console.ask(2001, QName="none").get("CODE") == "queue_not_found"
