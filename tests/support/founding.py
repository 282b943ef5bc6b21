"""A cluster in a real ZooKeeper that has no configuration manager: somebody must name it."""

from __future__ import annotations

from functools import partial

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
