"""Where the cluster of a scenario runs.

    local       on loopback addresses of this machine, as under `roq up`
    network     on hosts of a real network, with limited links (see roq.testing.namespaces)

Either way this process and whatever it starts inside the block reach the cluster at `address`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from roq.coordination.embedded import prepare
from roq.local.settings import Section
from roq.runtime.process import Child, spawn
from roq.simulation.real.workers import ScenarioError
from roq.testing import cluster
from roq.testing.namespaces import NetworkHost, missing, network

ZOOKEEPER_PORT: Final = 2181
CLIENT_PORT: Final = 5000


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster that runs.

    Attributes:
        address: its client address.
        hosts: names of its hosts.
        folder: for files of the scenario; removed with the cluster.
    """

    address: str
    hosts: tuple[str, ...]
    folder: Path


@dataclass(frozen=True, slots=True)
class Links:
    """What the link of each host lets through, megabits per second; 0: everything."""

    inward: float = 0.0
    outward: float = 0.0


@contextmanager
def local(
    hosts: int,
    *,
    hcm: Mapping[str, Section] | None = None,
    gcm: Mapping[str, Section] | None = None,
) -> Iterator[Place]:
    """A cluster on loopback addresses.

    Args:
        hosts: how many.
        hcm, gcm: settings of the daemons by section, where they differ from the defaults.
    """
    with (
        tempfile.TemporaryDirectory(prefix="roq-scenario-") as folder,
        cluster(hosts, hcm=hcm, gcm=gcm) as running,
    ):
        yield Place(running.address, running.hosts, Path(folder))


@contextmanager
def networked(hosts: int, links: Links, *, exchanges_per_host: int = 0) -> Iterator[Place]:
    """A cluster on hosts of a real network; the clients are on one of their own without limits.

    Raises:
        ScenarioError: namespaces cannot be used here; says why.
    """
    reason = missing()
    if reason:
        raise ScenarioError(f"skipped: {reason}")
    with (
        tempfile.TemporaryDirectory(prefix="roq-scenario-") as name,
        network(hosts + 1) as (front, *others),
        ExitStack() as stack,
    ):
        folder = Path(name)
        zookeeper = f"{front.address}:{ZOOKEEPER_PORT}"
        command = prepare(folder / "zookeeper", front.address, ZOOKEEPER_PORT, os.environ)
        server = spawn([*front.prefix, *command], log_path=folder / "zookeeper.log")
        _ends(stack, server)
        address = f"{front.address}:{CLIENT_PORT}"
        common = {"NETWORK_BIND": "0.0.0.0", "ZK_SERVERS": zookeeper}
        _daemon(stack, front, folder, "gcm", {**common, "NETWORK_ADVERTISE": front.address})
        for host in others:
            host.limit(links.inward, links.outward)
            own = {
                "NETWORK_ADVERTISE": host.address,
                "DATA_DIR": str(folder / host.address),
                "GCM_ADDRESS": address,
                "EXCHANGE_MAX_PERHOST": str(exchanges_per_host),
            }
            _daemon(stack, host, folder, "hcm", {**common, **own})
        with front.entered():
            yield Place(address, tuple(host.address for host in others), folder)


def _daemon(
    stack: ExitStack, host: NetworkHost, folder: Path, name: str, settings: Mapping[str, str]
) -> None:
    """Start a daemon on a host and wait until it serves."""
    read, write = os.pipe()
    log = folder / f"{name}-{host.address}.log"
    environ = {f"ROQ_{name.upper()}_{key}": value for key, value in settings.items()}
    config = folder / f"{name}-{host.address}.toml"
    config.touch()  # else one would be looked for where the user happens to be
    argv = [
        *(sys.executable, "-P", "-m", f"roq.{name}"),
        *("--config", str(config), "--ready-fd", str(write)),
    ]
    try:
        child = spawn(
            [*host.prefix, *argv], log_path=log, env={**os.environ, **environ}, pass_fds=[write]
        )
    finally:
        os.close(write)
    _ends(stack, child)
    with os.fdopen(read, "rb") as ready:
        if not ready.readline():
            raise ScenarioError(
                f"{name} on {host.address} has ended:\n{log.read_text(errors='replace')[-2_000:]}"
            )


def _ends(stack: ExitStack, child: Child) -> None:
    stack.callback(child.close)
    stack.callback(child.stop)
