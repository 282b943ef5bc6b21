"""What tests do to a registry in a real ZooKeeper behind the back of its users."""

from __future__ import annotations

import socket
import struct
from functools import partial

from posting import Loop
from tcp_relay import TcpRelay

from roq.coordination.registry_contract import Committed, Create, SessionState
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


def end_session(registry: ZooKeeperRegistry, relay: TcpRelay, zookeeper: str) -> None:
    """Have the ensemble end the session: somebody else opens it and says goodbye.

    Its owner is cut off, because it would take its session back at once; mend the relay when it may
    find out.
    """
    session, password = registry._store._client.client_id
    opening = struct.pack(">iqiqi", 0, 0, 6_000, session, len(password)) + password + b"\0"
    goodbye = struct.pack(">ii", 1, -11)
    relay.cut()
    host, port = zookeeper.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(b"".join(struct.pack(">i", len(x)) + x for x in (opening, goodbye)))
        while connection.recv(4096):
            continue  # until the server has closed it
