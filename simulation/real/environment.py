"""Where the cluster of a scenario runs.

    local       on loopback addresses of this machine, as under `roq up`
    network     on hosts of a real network, with limited links (see roq.testing.namespaces)

Either way this process and whatever it starts inside the block reach the cluster at `address`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from roq.local.settings import Section
from roq.simulation.real.machines import machines
from roq.simulation.real.parts import Parts
from roq.simulation.real.workers import ScenarioError
from roq.testing import cluster
from roq.testing.namespaces import missing


@dataclass(frozen=True, slots=True)
class Environment:
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
) -> Iterator[Environment]:
    """A cluster on loopback addresses.

    Args:
        hosts: how many.
        hcm, gcm: settings of the daemons by section, where they differ from the defaults.
    """
    with (
        tempfile.TemporaryDirectory(prefix="roq-scenario-") as folder,
        cluster(hosts, hcm=hcm, gcm=gcm) as running,
    ):
        yield Environment(running.address, running.hosts, Path(folder))


@contextmanager
def networked(hosts: int, links: Links, *, exchanges_per_host: int = 0) -> Iterator[Environment]:
    """A cluster on hosts of a real network; manager and clients are on machines without limits.

    Raises:
        ScenarioError: namespaces cannot be used here; says why.
    """
    reason = missing()
    if reason:
        raise ScenarioError(f"skipped: {reason}")
    settings = {"EXCHANGE_MAX_PERHOST": str(exchanges_per_host)}
    with machines(hosts + 1, networked=True, bad=False) as found:
        parts = Parts(found, managers=1, apart=1, hcm=settings)
        own = found.nodes[1:]
        for node in own:
            if node.link is not None:
                node.link.limit(links.inward, links.outward)
        with parts.running():
            yield Environment(parts.addresses[0], tuple(node.address for node in own), found.folder)
