"""A registry on the real ZooKeeper server that RoQ brings along."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest
from posting import Loop
from zookeeper_server import EmbeddedZooKeeper

from roq.coordination.registry_contract import Committed, Create, Node, SessionState
from roq.coordination.zookeeper import ZooKeeperRegistry
from roq.local.ports import choose_ports

pytestmark = pytest.mark.integration


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
