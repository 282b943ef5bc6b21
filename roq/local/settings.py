"""What is wanted of a local cluster, and the configuration files that follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from roq.errors import ConfigError
from roq.runtime import config

MANAGER_HOST: Final = "127.0.0.1"
HOSTS_MAX: Final = 250
MANAGERS_MAX: Final = 9
FILE: Final = "file"
ZOOKEEPER: Final = "zookeeper"
REGISTRIES: Final = ("", FILE, ZOOKEEPER)
ENSEMBLES: Final = (1, 3, 5)
"""How many embedded ZooKeeper servers there may be."""
ORPHAN_SECONDS: Final = 10.0
ENSEMBLE_SECONDS: Final = 15.0

Section: TypeAlias = config.Section


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """What is wanted.

    Attributes:
        hosts: host managers, on 127.0.0.1, 127.0.0.2, …
        data_dir: where everything is kept; None: a temporary folder, removed at the end.
        port_base: client port of the configuration manager; management is 3 and broadcast 5 above,
            each further manager 10 above the one before. 0: any free ports.
        managers: configuration managers; one of them leads.
        registry: `file` in the data directory, or `zookeeper`; empty: a file unless something is
            said of ZooKeeper.
        zookeeper: `host:port[,host:port…]` of an ensemble; empty: embedded servers.
        zookeepers: how many embedded servers there are; with 3 one may fail, with 5 two.
        restart: a process that ends unasked is started again, until it does so too often.
        log_level, log_format: of all daemons; see `roq.runtime.structured_logs`.
        start_seconds: all must serve within this.
        slots: exchanges that each host may have; 0: no limit.
        provider: who makes further hosts when all are full, such as `local`; empty: none.
        hosts_max: hosts that the provider may make.
        metrics: managers and hosts serve /metrics, /healthz and /readyz.
        gcm, hcm: further settings of the daemons by section, over the ones made here.
    """

    hosts: int = 1
    data_dir: Path | None = None
    port_base: int = 0
    managers: int = 1
    registry: str = ""
    zookeeper: str = ""
    zookeepers: int = 1
    restart: bool = True
    log_level: str = "info"
    log_format: str = "text"
    start_seconds: float = 60.0
    slots: int = 0
    provider: str = ""
    hosts_max: int = 4
    metrics: bool = False
    gcm: Mapping[str, Section] = field(default_factory=dict)
    hcm: Mapping[str, Section] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 1 <= self.hosts <= HOSTS_MAX:
            raise ConfigError(f"a local cluster has 1 to {HOSTS_MAX} hosts, not {self.hosts}")
        if not 1 <= self.managers <= MANAGERS_MAX:
            raise ConfigError(
                f"a local cluster has 1 to {MANAGERS_MAX} configuration managers, "
                f"not {self.managers}"
            )
        if self.zookeepers not in ENSEMBLES:
            raise ConfigError(
                f"there are 1, 3 or 5 ZooKeeper servers, not {self.zookeepers}: more than half of "
                "them must run, so an even number stands no more failures than one less"
            )
        if self.zookeeper and self.zookeepers > 1:
            raise ConfigError(
                "either a running ZooKeeper is named, or several are started: not both"
            )
        if self.registry not in REGISTRIES:
            raise ConfigError(
                f"the registry of a local cluster is {FILE} or {ZOOKEEPER}, not {self.registry!r}"
            )
        if self.registry == FILE and (self.zookeeper or self.zookeepers > 1):
            raise ConfigError("the registry is either a file or ZooKeeper: not both")

    @property
    def in_file(self) -> bool:
        """Whether the registry is a file."""
        said = self.zookeeper or self.zookeepers > 1
        return (self.registry or (ZOOKEEPER if said else FILE)) == FILE

    @property
    def connect_seconds(self) -> float:
        """How long the daemons try to reach the registry; an ensemble should run already."""
        if self.zookeeper:
            return min(ENSEMBLE_SECONDS, self.start_seconds)
        return self.start_seconds

    @property
    def host_names(self) -> list[str]:
        """The loopback addresses of the hosts."""
        return [f"127.0.0.{number}" for number in range(1, self.hosts + 1)]


def gcm_configuration(
    settings: LocalSettings, base: int, metrics: int, registry: str, hosts: Path
) -> str:
    """The text of `gcm.toml`; `hosts` is where the provider `local` keeps those that it makes.

    `metrics` is the port of its HTTP server, 0 for none; also below.
    """
    log: Section = {"level": settings.log_level, "format": settings.log_format}
    return config.to_toml(
        {
            "network": {"bind": MANAGER_HOST},
            "ports": {"base": base},
            **_registry(settings, registry),
            "metrics": {"bind": MANAGER_HOST, "port": metrics},
            "log": log,
            "provider": {
                "use": settings.provider,
                "slots": settings.slots,
                "hosts_max": settings.hosts_max,
            },
            "provider.local": {
                "data_dir": str(hosts),
                "first_address": f"127.0.0.{settings.hosts + 1}",
            },
            "provider.local.hcm.children": {"orphan_seconds": ORPHAN_SECONDS},
            "provider.local.hcm.log": log,
        },
        settings.gcm,
    )


def hcm_configuration(
    settings: LocalSettings,
    host: str,
    port: int,
    metrics: int,
    folder: Path,
    managers: Sequence[str],
    registry: str,
) -> str:
    """The text of one host's `hcm.toml`; `port` is where it takes commands, also later on."""
    return config.to_toml(
        {
            "network": {"bind": host, "port": port},
            # Any free ports: another cluster of this machine may use the same loopback addresses.
            "monitor": {"base_port": 0},
            "statmonitor": {"base_port": 0},
            "exchange": {"base_port": 0, "max_perhost": settings.slots},
            "gcm": {"address": list(managers)},
            **_registry(settings, registry),
            "data": {"dir": str(folder)},
            "metrics": {"bind": host, "port": metrics},
            "children": {"orphan_seconds": ORPHAN_SECONDS},
            "log": {"level": settings.log_level, "format": settings.log_format},
        },
        settings.hcm,
    )


def _registry(settings: LocalSettings, address: str) -> dict[str, Section]:
    """Where it is, of which ZooKeeper's servers may be set otherwise."""
    patience: Section = {"connect_seconds": settings.connect_seconds}
    if settings.in_file:
        return {"registry": {"address": address}, "zk": patience}
    return {"zk": {"servers": address, **patience}}
