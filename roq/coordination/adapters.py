"""The registry at an address: the one place that knows which adapters there are."""

from __future__ import annotations

from roq.coordination.addresses import file_of
from roq.coordination.contract import Post, Registry


def open_registry(address: str, post: Post, *, root: str, session_seconds: float) -> Registry:
    """Make the registry of a cluster.

    Args:
        address: `file:/path` for a cluster on one machine, else `host:port[,host:port…]` of
            ZooKeeper.
        post: runs a function in the owner's loop (`Reactor.call_soon`).
        root: where the cluster stands in ZooKeeper; a file holds one cluster.
        session_seconds: after so long a silent process is taken for gone.

    Raises:
        ConfigError: the address is malformed, or what is there can be no registry.
    """
    # Each is loaded where it is used: a cluster with a file needs no kazoo, and starts sooner.
    path = file_of(address)
    if path is not None:
        from roq.coordination.file import FileRegistry  # noqa: PLC0415

        return FileRegistry(path, post, session_seconds=session_seconds)
    from roq.coordination.zookeeper import ZooKeeperRegistry  # noqa: PLC0415

    return ZooKeeperRegistry(address, post, root=root, session_seconds=session_seconds)
