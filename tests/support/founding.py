"""What tests do to a registry in a real ZooKeeper behind the back of its users."""

from __future__ import annotations

from functools import partial

from kazoo.client import KazooClient
from posting import Loop

from roq.coordination.port import Committed, Create, SessionState
from roq.coordination.zookeeper import ZooKeeperRegistry


def found_cluster(zookeeper: str, cluster: str = "c1", root: str = "/RoQ") -> None:
    """Give the cluster at this address its identity, as its first leader does."""
    loop = Loop()
    registry = ZooKeeperRegistry(zookeeper, loop.post, root=root)
    try:
        registry.start(lambda _: None)
        loop.until(lambda: registry.state is SessionState.CONNECTED, "a connection")
        identity = Create("/cluster", cluster.encode())
        assert isinstance(loop.ask(partial(registry.commit, [identity], None)), Committed)
    finally:
        registry.close()


def end_session(registry: ZooKeeperRegistry) -> None:
    """Have the ensemble end the session: another client opens it and says goodbye."""
    victim = registry._store._client
    thief = KazooClient(
        hosts=",".join(map("%s:%d".__mod__, victim.hosts)), client_id=victim.client_id
    )
    thief.start(timeout=20)
    thief.stop()
    thief.close()
