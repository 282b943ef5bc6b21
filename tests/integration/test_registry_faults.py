"""What becomes of a registry when its ZooKeeper is emptied, hangs, is not there or lets it go."""

import os
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from founding import end_session
from posting import Loop
from tcp_relay import TcpRelay
from zookeeper_server import EmbeddedZooKeeper

from roq.coordination.registry_contract import Committed, Conflict, Create, SessionState
from roq.coordination.zookeeper import ZooKeeperRegistry
from roq.errors import RegistryAway
from roq.local.ports import choose_ports

pytestmark = pytest.mark.integration

SESSION_SECONDS = 10.0
"""A machine that does other work must not end it."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


def test_a_registry_comes_back_when_the_ensemble_came_back_empty(tmp_path: Path) -> None:
    (port,) = choose_ports("127.0.0.1", 1)  # nobody gets it by chance while it is not there
    server = EmbeddedZooKeeper(tmp_path / "data", port=port)
    server.start()
    loop = Loop()
    states: list[SessionState] = []
    registered: list[Committed | Conflict] = []
    registry = ZooKeeperRegistry(
        server.address, loop.post, session_seconds=SESSION_SECONDS, rebuild_seconds=1.0
    )
    try:
        registry.start(states.append)
        registry.register_host("h1", b"1", registered.append)
        loop.until(lambda: len(registered) == 1, "the registration")
        for number in range(50):  # the ensemble must have counted further than it will again
            loop.ask(partial(registry.commit, [Create(f"/queues/q{number}")], None))
        server.stop()
        loop.until(lambda: states[-1] is not SessionState.CONNECTED, "the interruption")
        shutil.rmtree(tmp_path / "data")
        server = EmbeddedZooKeeper(tmp_path / "data", port=port)
        server.start()
        loop.until(lambda: len(registered) == 2, "the registration anew")
        assert states == [
            SessionState.CONNECTED,
            SessionState.SUSPENDED,
            SessionState.LOST,
            SessionState.CONNECTED,
        ]
        assert loop.ask(partial(registry.read, "/queues/q1")) is None
    finally:
        registry.close()
        server.stop()


def test_who_loses_the_session_registers_and_leads_again(
    server: EmbeddedZooKeeper,
) -> None:
    loop = Loop()
    states: list[SessionState] = []
    registered: list[Committed | Conflict] = []
    epochs: list[int] = []
    host, port = server.address.rsplit(":", 1)
    relay = TcpRelay((host, int(port)))
    registry = ZooKeeperRegistry(relay.address, loop.post, root="/expiry")
    registry.start(states.append)
    registry.register_host("h1", b"1", registered.append)
    registry.campaign(b"me", lambda led: epochs.append(led.epoch), lambda _: None)
    for _ in range(3):
        before = (len(registered), len(epochs))
        loop.until(lambda b=before: len(registered) > b[0] and len(epochs) > b[1], "all")
        loop.until(lambda: registry.state is SessionState.CONNECTED, "a connection")
        end_session(registry, relay, server.address)
        relay.mend()
    assert epochs == sorted(set(epochs))
    loop.until(lambda: states.count(SessionState.LOST) >= 3, "three sessions that have ended")
    registry.close()
    relay.close()


def test_a_registry_is_closed_in_bounded_time_while_the_ensemble_hangs(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        loop = Loop()
        registry = ZooKeeperRegistry(server.address, loop.post, session_seconds=SESSION_SECONDS)
        registry.start(lambda _: None)
        loop.until(lambda: registry.state is SessionState.CONNECTED, "a connection")
        os.kill(server.pid, signal.SIGSTOP)
        try:
            registry.close()
        finally:
            os.kill(server.pid, signal.SIGCONT)


def test_an_ensemble_that_is_not_there_is_tried_until_it_is(tmp_path: Path) -> None:
    (port,) = choose_ports("127.0.0.1", 1)
    loop = Loop()
    states: list[SessionState] = []
    registry = ZooKeeperRegistry(
        f"127.0.0.1:{port}", loop.post, session_seconds=SESSION_SECONDS, rebuild_seconds=0.3
    )
    registry.start(states.append)
    assert isinstance(loop.ask(registry.next_host_epoch), RegistryAway)
    with EmbeddedZooKeeper(tmp_path, port=port):
        loop.until(lambda: states == [SessionState.CONNECTED], "a connection")
        registry.close()
