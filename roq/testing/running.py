"""A real cluster for the length of a block: what a test needs to know of it, and no more.

    with roq.testing.cluster(hosts=2) as running:
        with running.connect() as cluster:
            cluster.create_queue("orders")

It is the cluster of `roq up`: the same processes, started by the same launcher, on free ports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import roq
from roq.errors import InvalidRequest
from roq.local.background import BackgroundCluster
from roq.local.settings import LocalSettings, Section


class RunningCluster:
    """A cluster that runs.

    Attributes:
        address: client address for `roq.connect` and `roq --cluster`, `host:port`.
        management, broadcast: the other two interfaces of the configuration manager.
        registry: `file:/path`, or the servers of ZooKeeper.
        hosts: names of the hosts: 127.0.0.1, 127.0.0.2, …
        managers: client addresses of all configuration managers; `address` is the first one.
    """

    def __init__(self, background: BackgroundCluster) -> None:
        addresses = background.addresses
        self.address = addresses.client
        self.management = addresses.management
        self.broadcast = addresses.broadcast
        self.registry = addresses.registry
        self.hosts = tuple(addresses.hosts)
        self.managers = tuple(addresses.managers)
        self._background = background

    @property
    def folder(self) -> Path:
        """Where its configuration, data and logs (`log/`) are."""
        return self._background.folder

    def connect(self) -> roq.Cluster:
        """A connection of your own; close it, or use it in a `with`.

        Raises:
            Unavailable: no configuration manager answers.
        """
        return roq.connect(self.address)

    def pid(self, part: str) -> int:
        """The process of a part: `gcm`, `host 127.0.0.1`, or `zookeeper` if there is one.

        Of several they are `gcm 1`, `gcm 2`, … and `zookeeper 1`, `zookeeper 2`, …

        Raises:
            InvalidRequest: there is no such part.
        """
        parts = self._background.parts
        if part not in parts:
            raise InvalidRequest(f"no part {part!r}; there are {', '.join(parts)}")
        return parts[part].pid

    def ended(self) -> list[str]:
        """Parts that have ended although they were not stopped."""
        return [part.name for part in self._background.ended]

    def stop(self) -> None:
        """Stop it before the block ends; idempotent."""
        self._background.stop()


@contextmanager
def cluster(
    hosts: int = 1,
    *,
    data_dir: Path | None = None,
    port_base: int = 0,
    managers: int = 1,
    registry: str = "",
    zookeeper: str = "",
    zookeepers: int = 1,
    restart: bool = False,
    log_level: str = "info",
    start_seconds: float = 60.0,
    slots: int = 0,
    provider: str = "",
    hosts_max: int = 4,
    gcm: Mapping[str, Section] | None = None,
    hcm: Mapping[str, Section] | None = None,
) -> Iterator[RunningCluster]:
    """A whole cluster with so many hosts until the block ends; nothing of it is left then.

    Args:
        hosts: host managers, each on a loopback address of its own.
        data_dir: keep everything here; a temporary folder if None.
        port_base: client port; 0: any free ports, so several clusters fit on one machine.
        managers: configuration managers; one of them leads.
        registry: `file`, or `zookeeper`, which needs Java; empty: a file unless something is said
            of ZooKeeper.
        zookeeper: `host:port` of a running ensemble; empty: embedded servers.
        zookeepers: how many embedded servers: 1, 3 or 5.
        restart: start a part again that ends unasked, as `roq up` does.
        log_level: of all daemons.
        start_seconds: everything must serve within this.
        slots: exchanges that each host may have; 0: no limit.
        provider: who makes further hosts when all are full, such as `local`; empty: none.
        hosts_max: hosts that the provider may make.
        gcm, hcm: further settings of the daemons, by section of their configuration files;
            `gcm={"queues": {"durability": "none"}}` keeps queues in memory, where tests that make
            many of them are faster.

    Raises:
        StartFailed: a part did not start; says which, and what it said last.
        ConfigError: a port is in use, or the data directory cannot be used.
        Unavailable: no Java for the embedded ZooKeeper.
    """
    background = BackgroundCluster(
        LocalSettings(
            hosts=hosts,
            data_dir=data_dir,
            port_base=port_base,
            managers=managers,
            registry=registry,
            zookeeper=zookeeper,
            zookeepers=zookeepers,
            restart=restart,
            log_level=log_level,
            start_seconds=start_seconds,
            slots=slots,
            provider=provider,
            hosts_max=hosts_max,
            gcm=gcm or {},
            hcm=hcm or {},
        )
    )
    background.start()
    try:
        yield RunningCluster(background)
    finally:
        background.stop()
