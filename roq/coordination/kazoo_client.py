"""kazoo's client, made for servers that come and go and clocks that are set; its addresses."""

from __future__ import annotations

import logging
import re
import threading
from typing import Final

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.retry import KazooRetry

from roq.coordination.registry_contract import check_path
from roq.errors import ConfigError, LocalProtocolError

log = logging.getLogger(__name__)
log.setLevel(logging.CRITICAL)  # a line per attempt; session changes are logged by RoQ once

RETRY_SECONDS_MAX: Final = 0.5
ATTEMPTS: Final = 4
"""Connections that are tried at least within the time that a session lasts."""
_SERVER: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?\Z")


def new_client(servers: str, session_seconds: float) -> KazooClient:
    """A client that is not started yet.

    Args:
        servers: addresses, separated by commas.
        session_seconds: how long a session lasts without a connection.
    """
    return KazooClient(
        hosts=repeated(servers),
        timeout=session_seconds,
        handler=patient_handler(),
        connection_retry=endless_retry(),
        logger=log,
    )


def pause(seconds: float) -> None:
    """Let time pass.

    `time.sleep` fails where the system's clock is tampered with; kazoo's thread would end by it,
    and the session with that.
    """
    threading.Event().wait(seconds)


def patient_handler() -> SequentialThreadingHandler:
    """kazoo's threads, which survive a clock that is set."""
    handler = SequentialThreadingHandler()
    handler.sleep_func = pause
    return handler


def endless_retry() -> KazooRetry:
    """How a lost connection is made again: until there is one, or the client is disposed of."""
    return KazooRetry(
        max_tries=-1,
        delay=0.05,
        backoff=2,
        max_jitter=0.3,
        max_delay=RETRY_SECONDS_MAX,
        sleep_func=pause,
    )


def repeated(servers: str) -> str:
    """The addresses, each as often as makes `ATTEMPTS` altogether."""
    count = servers.count(",") + 1
    return ",".join([servers] * -(-ATTEMPTS // count))


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
