"""The ZooKeeper registry without a server; with one it keeps the contract (see integration)."""

import pytest
from posting import Loop

from roq.coordination.registry_contract import Create, SessionState
from roq.coordination.zookeeper import ZooKeeperRegistry
from roq.errors import ConfigError, RegistryAway


@pytest.mark.parametrize(("servers", "root"), [("a:b", "/RoQ"), ("localhost:2181", "RoQ")])
def test_what_cannot_be_an_address_is_refused_at_once(servers: str, root: str) -> None:
    with pytest.raises(ConfigError):
        ZooKeeperRegistry(servers, lambda _: None, root=root)


def test_a_registry_that_was_never_started_is_away_and_can_be_closed() -> None:
    loop = Loop()
    registry = ZooKeeperRegistry("127.0.0.1:1", loop.post)
    assert registry.state is SessionState.LOST
    answer = loop.ask(lambda done: registry.commit([Create("/queues/a")], None, done))
    assert isinstance(answer, RegistryAway)
    registry.close()
    registry.close()
