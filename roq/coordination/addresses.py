"""Where a registry stands: the servers of an ensemble, and the cluster's place in it."""

from __future__ import annotations

import re
from typing import Final

from roq.coordination.port import check_path
from roq.errors import ConfigError, LocalProtocolError

_SERVER: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?\Z")


def check_servers(servers: str) -> str:
    """Give the addresses of an ensemble back if they are well formed.

    Raises:
        ConfigError: not `host:port[,host:port…]`.
    """
    if "/" in servers:
        raise ConfigError(
            f"{servers!r}: give only host:port addresses of ZooKeeper here, the path in `root`"
        )
    for server in servers.split(","):
        if _SERVER.match(server.strip()) is None:
            raise ConfigError(
                f"{server.strip()!r} is no address of a ZooKeeper server: use host:port, "
                "several separated by commas"
            )
    return servers


def check_root(root: str) -> str:
    """Give the place of a cluster in its ensemble back if it is a path.

    Raises:
        ConfigError: not `/name` or `/name/name…`.
    """
    try:
        return check_path(root)
    except LocalProtocolError:
        raise ConfigError(f"{root!r} is no path in ZooKeeper: write it like /RoQ") from None
