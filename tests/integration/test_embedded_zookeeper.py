"""A real ZooKeeper server as a child process: serves, keeps its data, ends with its parent."""

import os
import select
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from posting import Loop

from roq.coordination.contract import Committed, Create, Node, SessionState
from roq.coordination.embedded import EmbeddedZooKeeper, serves
from roq.coordination.zookeeper import ZooKeeperRegistry
from roq.errors import ConfigError
from roq.local.ports import choose_ports

pytestmark = pytest.mark.integration

PARENT = """\
import sys
from roq.coordination.embedded import EmbeddedZooKeeper
server = EmbeddedZooKeeper(sys.argv[1])
server.start()
print(server.pid, flush=True)
sys.stdin.read()
"""


def place(server: EmbeddedZooKeeper) -> tuple[str, int]:
    host, port = server.address.rsplit(":", 1)
    return host.strip("[]"), int(port)


def ended(pidfd: int) -> bool:
    return bool(select.select([pidfd], [], [], 60)[0])


def test_serves_once_started_and_not_once_stopped(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path)
    server.start()
    server.start()
    assert serves(*place(server))
    server.stop()
    server.stop()
    assert not serves(*place(server))
    assert server.pid == 0


def test_serves_on_ipv6(tmp_path: Path) -> None:
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    with EmbeddedZooKeeper(tmp_path, host="::1") as server:
        assert server.address.startswith("[::1]:")
        loop = Loop()
        registry = ZooKeeperRegistry(server.address, loop.post)
        registry.start(lambda _: None)
        loop.until(lambda: registry.state is SessionState.CONNECTED, "a connection")
        registry.close()


def test_keeps_its_data_over_a_restart_and_over_a_kill(tmp_path: Path) -> None:
    loop = Loop()
    (port,) = choose_ports("127.0.0.1", 1)
    with EmbeddedZooKeeper(tmp_path, port=port) as server:
        registry = ZooKeeperRegistry(server.address, loop.post)
        registry.start(lambda _: None)
        loop.until(lambda: registry.state is SessionState.CONNECTED, "a connection")
        made = loop.ask(partial(registry.commit, [Create("/queues/a", b"1")], None))
        assert made == Committed((0,))
        os.kill(server.pid, signal.SIGKILL)
        loop.until(lambda: registry.state is SessionState.SUSPENDED, "the interruption")
    with EmbeddedZooKeeper(tmp_path, port=port):
        loop.until(lambda: registry.state is SessionState.CONNECTED, "the connection again")
        found = loop.ask(partial(registry.read, "/queues/a"))
        registry.close()
    assert isinstance(found, Node)
    assert found.data == b"1"


def test_two_servers_do_not_share_a_data_directory(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        config = (tmp_path / "zoo.cfg").read_text()
        with pytest.raises(ConfigError, match="in use by another ZooKeeper"):
            EmbeddedZooKeeper(tmp_path).start()
        assert (tmp_path / "zoo.cfg").read_text() == config
        assert serves(*place(server))


def test_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path)
    starter = threading.Thread(target=server.start)
    starter.start()
    starter.join(30)
    assert serves(*place(server))
    server.stop()


def test_a_hung_server_is_killed(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path)
    server.start()
    pidfd = os.pidfd_open(server.pid)
    try:
        os.kill(server.pid, signal.SIGSTOP)
        server.stop(grace=0.2)
        assert ended(pidfd)
    finally:
        os.close(pidfd)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_dies_with_its_parent(how: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pidfd = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.send_signal(how)
            assert ended(pidfd)
        finally:
            os.close(pidfd)
