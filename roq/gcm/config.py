"""The settings of a configuration manager: `gcm.toml`, and ROQ_GCM_<SECTION>_<KEY> over it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from roq.errors import ConfigError
from roq.protocol.documents import RawDocument
from roq.runtime import config as settings
from roq.runtime.logs import FORMATS, LEVELS

WILDCARDS: Final = ("0.0.0.0", "::", "*")
MANAGEMENT_OFFSET: Final = 3
BROADCAST_OFFSET: Final = 5


class Network(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where this manager listens, and under which address others reach it."""

    bind: str = "127.0.0.1"
    advertise: str = ""
    """Empty: the same as `bind`."""


class Ports(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TCP ports; -1: counted from `base`, 0: any free one."""

    base: int = 5000
    client: int = -1
    management: int = -1
    broadcast: int = -1


class Broadcasting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration broadcast."""

    period: int = 5000
    """Milliseconds."""


class Zk(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The registry."""

    servers: str = "localhost:2181"
    session_seconds: float = 6.0
    connect_seconds: float = 20.0
    """How long the first connection may take before the manager gives up (exit code 69)."""


class Cloud(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings for a host provider; told by command 2009, without the password."""

    use: bool = False
    user: str = ""
    password: str = ""
    endpoint: str = ""
    gateway: str = ""


class Log(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is logged to standard error."""

    level: str = "info"
    format: str = "text"


class GcmConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a configuration manager."""

    network: Network = Network()
    ports: Ports = Ports()
    broadcast: Broadcasting = Broadcasting()
    zk: Zk = Zk()
    cloud: Cloud = Cloud()
    log: Log = Log()

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

    def cloud_properties(self) -> RawDocument:
        """What command 2009 tells: everything but secrets."""
        fields: RawDocument = msgspec.to_builtins(self.cloud)
        return {f"cloud.{name}": value for name, value in fields.items() if name != "password"}


def check(config: GcmConfig) -> GcmConfig:
    """Give a configuration back if its values fit each other.

    Raises:
        ConfigError: lists every problem with its key.
    """
    network, ports, zk = config.network, config.ports, config.zk
    highest = 65_535 - BROADCAST_OFFSET
    rules = [
        (network.bind != "", "network.bind: an address of this machine is needed"),
        (
            network.bind not in WILDCARDS or network.advertise != "",
            (
                f"network.advertise: bind is {network.bind}, so say under which address others "
                "reach this machine"
            ),
        ),
        (0 <= ports.base <= highest, f"ports.base: must be from 0 to {highest}"),
        *(
            (-1 <= port <= 65_535, f"ports.{name}: must be from -1 to 65535")
            for name, port in (
                ("client", ports.client),
                ("management", ports.management),
                ("broadcast", ports.broadcast),
            )
        ),
        (
            100 <= config.broadcast.period <= 3_600_000,
            "broadcast.period: must be from 100 to 3600000 (milliseconds)",
        ),
        (zk.servers.strip() != "", "zk.servers: host:port of at least one server is needed"),
        (1.0 <= zk.session_seconds <= 600.0, "zk.session_seconds: must be from 1 to 600"),
        (0.1 <= zk.connect_seconds <= 3_600.0, "zk.connect_seconds: must be from 0.1 to 3600"),
        (config.log.level in LEVELS, f"log.level: one of {', '.join(LEVELS)}"),
        (config.log.format in FORMATS, f"log.format: one of {', '.join(FORMATS)}"),
    ]
    problems = [problem for holds, problem in rules if not holds]
    if problems:
        raise ConfigError("gcm configuration: " + "; ".join(problems))
    return config


def load(path: Path | None, environ: Mapping[str, str]) -> GcmConfig:
    """Read `gcm.toml` (from `path`, or the usual places) and the environment over it.

    Raises:
        ConfigError: names file and key of every problem.
    """
    return check(settings.load(GcmConfig, "gcm", path=path, environ=environ, prefix="ROQ_GCM"))
