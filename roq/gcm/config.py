"""The settings of a configuration manager: `gcm.toml`, and ROQ_GCM_<SECTION>_<KEY> over it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from roq.coordination.addresses import RegistryPlace, Zk
from roq.gcm.provision.hosts import ProvisionSettings
from roq.protocol.documents import RawDocument
from roq.provider.choice import Choice
from roq.runtime import config as settings
from roq.runtime.metrics import MetricsSettings

WILDCARDS: Final = ("0.0.0.0", "::", "*")
MANAGEMENT_OFFSET: Final = 3
BROADCAST_OFFSET: Final = 5


class Network(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where this manager listens, and under which address others reach it."""

    bind: Annotated[str, msgspec.Meta(min_length=1)] = "127.0.0.1"
    advertise: str = ""
    """Empty: the same as `bind`."""

    def __post_init__(self) -> None:
        if self.bind in WILDCARDS and not self.advertise:
            raise ValueError(
                f"advertise is needed when bind is {self.bind}: say under which address others "
                "reach this machine"
            )


OwnPort: TypeAlias = Annotated[int, msgspec.Meta(ge=-1, le=65_535)]


class Ports(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TCP ports; -1: counted from `base`, 0: any free one."""

    base: Annotated[int, msgspec.Meta(ge=0, le=65_535 - BROADCAST_OFFSET)] = 5000
    client: OwnPort = -1
    management: OwnPort = -1
    broadcast: OwnPort = -1


class Broadcasting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration broadcast."""

    period: Annotated[int, msgspec.Meta(ge=100, le=3_600_000)] = 5000
    """Milliseconds."""


class Queues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What queues are like whose creator says nothing else."""

    durability: Literal["flush", "async", "none"] = "flush"
    """Of a queue that is created without one; it keeps it for its whole life."""


class Cloud(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings for a host provider; told by command 2009, without the password."""

    use: bool = False
    user: str = ""
    password: str = ""
    endpoint: str = ""
    gateway: str = ""


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is logged to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class Provision(Choice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which provider makes hosts when all are full, and how long it is waited for."""

    slots: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Exchanges that a new host may have; 0: no limit."""
    hosts_max: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 4
    """Provided hosts at once."""
    register_seconds: Annotated[float, msgspec.Meta(ge=1, le=3_600)] = 30.0
    """A new host that has not reported by then is removed again."""
    release_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 60.0
    """A host on which nothing runs for so long is given back."""
    call_seconds: Annotated[float, msgspec.Meta(ge=1, le=3_600)] = 60.0
    """What the provider may take for one call."""


class GcmConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a configuration manager."""

    network: Network = Network()
    ports: Ports = Ports()
    broadcast: Broadcasting = Broadcasting()
    queues: Queues = Queues()
    registry: RegistryPlace = RegistryPlace()
    zk: Zk = Zk()
    cloud: Cloud = Cloud()
    provider: Provision = Provision()
    metrics: MetricsSettings = MetricsSettings()
    log: LogConfig = LogConfig()

    @property
    def registry_address(self) -> str:
        """Where the registry is; see `roq.coordination.addresses`."""
        return self.registry.address or self.zk.servers

    @property
    def advertise(self) -> str:
        """The address under which others reach this manager."""
        return self.network.advertise or self.network.bind

    def port(self, name: str) -> int:
        """The port to bind for `client`, `management` or `broadcast`; 0: any free one."""
        ports = self.ports
        own, offset = {
            "client": (ports.client, 0),
            "management": (ports.management, MANAGEMENT_OFFSET),
            "broadcast": (ports.broadcast, BROADCAST_OFFSET),
        }[name]
        if own >= 0:
            return own
        return ports.base + offset if ports.base else 0

    def provision_settings(self) -> ProvisionSettings:
        """What the machine has to know of `[provider]`."""
        return ProvisionSettings(
            hosts_max=self.provider.hosts_max,
            register_seconds=self.provider.register_seconds,
            release_seconds=self.provider.release_seconds,
        )

    def cloud_properties(self) -> RawDocument:
        """What command 2009 tells: everything but secrets."""
        fields: RawDocument = msgspec.to_builtins(self.cloud)
        return {f"cloud.{name}": value for name, value in fields.items() if name != "password"}


def load(path: Path | None, environ: Mapping[str, str]) -> GcmConfig:
    """Read `gcm.toml` (from `path`, or the usual places) and the environment over it.

    Raises:
        ConfigError: names file and key of every problem.
    """
    return settings.load(GcmConfig, "gcm", path=path, environ=environ, prefix="ROQ_GCM")
