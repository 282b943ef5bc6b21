"""The ZooKeeper registry without a server; with one it keeps the contract (see integration)."""

import errno
import time

import pytest
from kazoo.retry import ForceRetryError
from posting import Loop

from roq.coordination import zookeeper
from roq.coordination.contract import Create, SessionState
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


@pytest.mark.parametrize(
    ("servers", "given"),
    [("a:1", "a:1,a:1,a:1,a:1"), ("a:1,b:1,c:1", "a:1,b:1,c:1,a:1,b:1,c:1")],
)
def test_every_server_is_tried_several_times_within_a_session(servers: str, given: str) -> None:
    assert zookeeper.repeated(servers) == given


def test_a_connection_is_made_again_where_time_sleep_fails(monkeypatch) -> None:
    def fails(_seconds: float) -> None:
        raise OSError(errno.EINVAL, "the clock was set")

    monkeypatch.setattr(time, "sleep", fails)
    attempts = []

    def connect() -> str:
        attempts.append(None)
        if len(attempts) < 3:
            raise ForceRetryError
        return "connected"

    assert zookeeper.endless_retry()(connect) == "connected"
    assert zookeeper.patient_handler().sleep_func is zookeeper.endless_retry().sleep_func
