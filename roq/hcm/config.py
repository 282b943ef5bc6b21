"""The settings of a host manager; `config/hcm.toml` explains each of them.

Names of the first implementation are kept where the meaning is the same: its `monitor.base.port` is
`base_port` in the section `[monitor]`, and so on.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
import psutil

from roq.coordination.addresses import RegistryPlace, Zk
from roq.errors import ConfigError
from roq.hcm.crash_history import CrashLimits
from roq.hcm.log_folders import LOGS
from roq.hcm.specs import Settings
from roq.model import endpoint_of
from roq.runtime import config as files
from roq.runtime.metrics import MetricsSettings
from roq.timing import (
    CHILD_START_SECONDS,
    CHILD_STOP_SECONDS,
    CHILD_STOP_SECONDS_MIN,
    HUNG_SECONDS_MIN,
)

PORT_TOO_HIGH = 65_536
STARTS_MIN = 4
STARTS_PER_CORE = 2
"""Processes that are started at the same time."""
Above0: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
AtLeast1: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1", "*": "127.0.0.1"}


class Gcm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the configuration managers are."""

    address: list[str] = msgspec.field(default_factory=lambda: ["127.0.0.1:5000"])


class Network(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where this host listens, and under which address others reach it."""

    interface: str = ""
    bind: str = ""
    advertise: str = ""
    port: Annotated[int, msgspec.Meta(ge=0, lt=PORT_TOO_HIGH)] = 5_100


class Monitor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the monitors on this host."""

    base_port: int = 5_500
    ports: int = 300
    # Exchanges are taken for lost after 3 s without a report.
    stat_period: Annotated[int, msgspec.Meta(ge=1, le=2_000)] = 1_000
    queues_per_process: AtLeast1 = 20


class Statmonitor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the statistics sockets of the monitors."""

    base_port: int = 5_800
    ports: int = 200


class Exchange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of the exchanges on this host."""

    base_port: int = 6_000
    ports: int = 2_000
    max_perhost: Annotated[int, msgspec.Meta(ge=0)] = 0


class Children(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds in the life of a child process."""

    start_seconds: Above0 = CHILD_START_SECONDS
    stop_seconds: float = CHILD_STOP_SECONDS
    drain_seconds: Annotated[float, msgspec.Meta(ge=0)] = 60.0
    hung_seconds: float = 1.0
    orphan_seconds: Above0 = 60.0
    crashes_most: AtLeast1 = 5
    crash_window_seconds: Above0 = 60.0

    def __post_init__(self) -> None:
        if not self.stop_seconds >= CHILD_STOP_SECONDS_MIN:
            raise ValueError(
                f"stop_seconds: at least {CHILD_STOP_SECONDS_MIN}, or exchanges are killed before "
                "they have written their logs"
            )
        if self.hung_seconds != 0 and not self.hung_seconds >= HUNG_SECONDS_MIN:
            raise ValueError(f"hung_seconds: 0 (never), or at least {HUNG_SECONDS_MIN}")


class Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where specs and logs of children are kept."""

    dir: str = "roq-data"


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How this process and its children log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class HcmConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of one host manager."""

    gcm: Gcm = Gcm()
    registry: RegistryPlace = RegistryPlace()
    zk: Zk = Zk()
    network: Network = Network()
    monitor: Monitor = Monitor()
    statmonitor: Statmonitor = Statmonitor()
    exchange: Exchange = Exchange()
    children: Children = Children()
    data: Data = Data()
    metrics: MetricsSettings = MetricsSettings()
    log: LogConfig = LogConfig()

    @property
    def registry_address(self) -> str:
        """Where the registry is; see `roq.coordination.addresses`."""
        return self.registry.address or self.zk.servers


def load(path: Path | None, environ: Mapping[str, str]) -> HcmConfig:
    """The settings out of a file, overridden by `ROQ_HCM_<SECTION>_<KEY>`.

    Raises:
        ConfigError: lists every problem with its file and key.
    """
    config = files.load(HcmConfig, "hcm", path=path, environ=environ, prefix="ROQ_HCM")
    try:
        return check(config)
    except ConfigError as error:
        source = files.find("hcm", path, environ) or "the defaults and the environment"
        raise ConfigError(f"{source}: {error}") from None


def check(config: HcmConfig) -> HcmConfig:
    """Give a configuration back if its values can work.

    Raises:
        ConfigError: names all keys that are wrong.
    """
    problems = _range_problems(config)
    if not config.gcm.address:
        problems.append("gcm.address: name at least one configuration manager")
    problems += [
        f"gcm.address: {address!r} is not host:port"
        for address in config.gcm.address
        if not _is_address(address)
    ]
    if problems:
        raise ConfigError("; ".join(problems))
    return config


def bind_address(network: Network) -> str:
    """The numeric address to bind to.

    Raises:
        ConfigError: the interface or the name is not known.
    """
    if network.bind in WILDCARDS:
        return "0.0.0.0" if network.bind == "*" else network.bind
    if network.bind:
        return _resolve(network.bind)
    return _interface_address(network.interface) if network.interface else "127.0.0.1"


def advertised_address(network: Network) -> str:
    """The address, or name, under which other hosts reach this one.

    Raises:
        ConfigError: it is not set, and cannot be taken from where this host binds.
    """
    if network.advertise:
        return network.advertise.strip("[]")
    if network.interface:
        return _interface_address(network.interface)
    address = bind_address(network)
    if address in WILDCARDS:
        raise ConfigError(
            f"network.bind is {address}, so others cannot know how to reach this host: "
            "set network.advertise to an address or name of it"
        )
    return address


def settings_of(config: HcmConfig, port: int) -> Settings:
    """What the machine goes by, once the control socket is bound to `port`."""
    host, bind = advertised_address(config.network), bind_address(config.network)
    children = config.children
    return Settings(
        host=host,
        bind=bind,
        control=endpoint_of(host, port),
        control_local=endpoint_of(WILDCARDS.get(bind, bind), port),
        managers=tuple(_endpoint(address) for address in config.gcm.address),
        monitor_ports=_ports(config.monitor.base_port, config.monitor.ports),
        statistics_ports=_ports(config.statmonitor.base_port, config.statmonitor.ports),
        exchange_ports=_ports(config.exchange.base_port, config.exchange.ports),
        exchange_max=config.exchange.max_perhost,
        starts_max=max(STARTS_MIN, STARTS_PER_CORE * (os.cpu_count() or 1)),
        start_seconds=children.start_seconds,
        stop_seconds=children.stop_seconds,
        drain_seconds=children.drain_seconds,
        hung_seconds=children.hung_seconds,
        orphan_seconds=children.orphan_seconds,
        kpi_seconds=config.monitor.stat_period / 1_000,
        log_level=config.log.level,
        log_format=config.log.format,
        logs=str(Path(config.data.dir).absolute() / LOGS),
        crashes=CrashLimits(
            most=children.crashes_most, window_seconds=children.crash_window_seconds
        ),
    )


def _ports(base: int, count: int) -> tuple[int, int]:
    return (base, base + count) if base else (0, 0)


def _range_problems(config: HcmConfig) -> list[str]:
    ranges = (
        ("monitor", config.monitor.base_port, config.monitor.ports),
        ("statmonitor", config.statmonitor.base_port, config.statmonitor.ports),
        ("exchange", config.exchange.base_port, config.exchange.ports),
    )
    problems = [
        f"{section}: base_port {base} with {count} ports is no range within 1 to 65535"
        for section, base, count in ranges
        if base and (base < 0 or count < 1 or base + count > PORT_TOO_HIGH)
    ]
    problems += [
        f"{one[0]} and {two[0]}: their port ranges overlap"
        for index, one in enumerate(ranges)
        for two in ranges[index + 1 :]
        if one[1] and two[1] and one[1] < two[1] + two[2] and two[1] < one[1] + one[2]
    ]
    return problems


def _is_address(address: str) -> bool:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) < PORT_TOO_HIGH


def _endpoint(address: str) -> str:
    return address if address.startswith("tcp://") else f"tcp://{address}"


def _resolve(name: str) -> str:
    try:
        found = socket.getaddrinfo(name.strip("[]"), None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"network.bind: {name!r} is no address of this host: {error}") from None
    return str(found[0][4][0])


def _interface_address(interface: str) -> str:
    known = psutil.net_if_addrs()
    if interface not in known:
        raise ConfigError(
            f"network.interface: there is no {interface!r}, only {', '.join(sorted(known))}"
        )
    for family in (socket.AF_INET, socket.AF_INET6):
        for address in known[interface]:
            if address.family == family and not address.address.startswith("fe80:"):
                return address.address
    raise ConfigError(f"network.interface: {interface!r} has no address")
