"""The ZooKeeper registry without a server; with one it keeps the contract (see integration)."""

import pytest
from posting import Loop

from roq.coordination.port import Create, SessionState
from roq.coordination.zookeeper import ZooKeeperRegistry, check_root, check_servers
from roq.errors import ConfigError, RegistryAway


@pytest.mark.parametrize(
    "servers", ["localhost", "localhost:2181", "a.b-c:1, d:2", "[::1]:2181", "10.0.0.1:2181,b"]
)
def test_addresses_of_an_ensemble_are_taken(servers: str) -> None:
    assert check_servers(servers) == servers


@pytest.mark.parametrize(
    "servers", ["", "a:1,,b:2", "host:port", "host:2181/chroot", "a b:1", "::1:2181", "host:123456"]
)
def test_malformed_addresses_are_refused_at_once(servers: str) -> None:
    with pytest.raises(ConfigError):
        ZooKeeperRegistry(servers, lambda _: None)


@pytest.mark.parametrize("root", ["", "/", "RoQ", "/RoQ/", "/a//b", "/../b"])
def test_a_root_that_is_no_path_is_refused_at_once(root: str) -> None:
    with pytest.raises(ConfigError, match="write it like /RoQ"):
        check_root(root)


def test_a_registry_that_was_never_started_is_away_and_can_be_closed() -> None:
    loop = Loop()
    registry = ZooKeeperRegistry("127.0.0.1:1", loop.post)
    assert registry.state is SessionState.LOST
    answer = loop.ask(lambda done: registry.commit([Create("/queues/a")], None, done))
    assert isinstance(answer, RegistryAway)
    registry.close()
    registry.close()
