"""Where a registry is: the servers of an ensemble and the cluster's place in it, or a file.

The two sections that say so are those of every process that has a session with it.

`open_registry` is the one place that knows which adapters there are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec

from roq.coordination.registry_contract import Post, Registry
from roq.errors import ConfigError
from roq.timing import SESSION_SECONDS

FILE: Final = "file:"
"""How the address of a registry in a file begins."""


class RegistryPlace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the registry is."""

    address: str = ""
    """`file:/path`, or servers of ZooKeeper; empty: those of `zk`."""


class Zk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """ZooKeeper, and how long the registry may be silent."""

    servers: Annotated[str, msgspec.Meta(min_length=1)] = "localhost:2181"
    root: str = "/RoQ"
    """Where this cluster is kept in the ensemble."""
    session_seconds: Annotated[float, msgspec.Meta(ge=1, le=600)] = SESSION_SECONDS
    connect_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=3_600)] = 20.0
    """How long the first connection may take before the process gives up (exit code 69)."""


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


def file_of(address: str) -> Path | None:
    """The file that this address names; None if it is one of ZooKeeper.

    Raises:
        ConfigError: it names no file by its whole path.
    """
    if not address.startswith(FILE):
        return None
    text = address.removeprefix(FILE)
    if text.startswith("//"):
        text = text.removeprefix("//")  # as in file:///path; what would stand between is a machine
    path = Path(text)
    if not path.is_absolute() or not path.name or not text.isprintable():
        raise ConfigError(
            f"{address!r} names no file of this machine: write its whole path, such as "
            "file:/var/lib/roq/cluster.db"
        )
    return path


def name_of(address: str) -> str:
    """What the registry at this address is called in a sentence."""
    return "ZooKeeper" if not address.startswith(FILE) else (
        f"the registry {address.removeprefix(FILE)}"
    )  # fmt: skip


def unreachable(address: str) -> str:
    """That it cannot be reached, in words for the log of a process."""
    name = name_of(address)
    return f"{name} cannot be reached" if address.startswith(FILE) else (
        f"cannot reach {name} at {address}"
    )  # fmt: skip


def remedy(address: str) -> str:
    """What to do then."""
    if address.startswith(FILE):
        return "the lines before say why; correct that, or set registry.address"
    return "start it, or set zk.servers"
