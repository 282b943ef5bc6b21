"""Which processes a local cluster consists of, and how each of them is started, also again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from roq.coordination.addresses import FILE
from roq.coordination.embedded import Ensemble, Member, prepare
from roq.errors import ConfigError
from roq.local.folder import PROVIDED_HOSTS, Folder
from roq.local.ports import (
    HOST_METRICS,
    MANAGER_METRICS,
    OFFSETS,
    bases,
    check_base,
    check_port,
    choose_base,
    choose_ports,
)
from roq.local.settings import (
    MANAGER_HOST,
    ZOOKEEPER,
    LocalSettings,
    gcm_configuration,
    hcm_configuration,
)

REGISTRY_FILE: Final = "cluster.db"
GCM: Final = "gcm"
HOST: Final = "host"

Command: TypeAlias = Callable[[Folder], list[str]]
"""Writes the files of a process into the folder and gives program and arguments."""


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """Where a running cluster answers; what `roq up` prints behind `ready`."""

    client: str
    """Of the first configuration manager, as the next two."""
    management: str
    broadcast: str
    registry: str
    """`file:/path`, or all servers of ZooKeeper, separated by commas."""
    hosts: list[str]
    managers: list[str]
    """Client addresses of all configuration managers."""
    metrics: list[str] = []
    """Where managers and hosts serve HTTP, if they do."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One process.

    Attributes:
        name: as people know it, such as `gcm` or `host 127.0.0.2`.
        kind: `zookeeper`, `gcm` or `host`.
        command: how it is started; the same addresses and data each time.
    """

    name: str
    kind: str
    command: Command

    @property
    def tells(self) -> bool:
        """Whether it says when it serves; that daemons reach it shows it of ZooKeeper."""
        return self.kind != ZOOKEEPER


class Plan:
    """All processes of one local cluster, with their addresses.

    Raises:
        ConfigError: a port is in use.
        Unavailable: there are no free ports.
    """

    def __init__(self, settings: LocalSettings) -> None:
        self._settings = settings
        base, count = settings.port_base, settings.managers
        self._base = (
            check_base(MANAGER_HOST, base, count) if base else choose_base(MANAGER_HOST, count)
        )
        taken = [
            first + offset for first in bases(self._base, count) for offset in OFFSETS.values()
        ]
        servers = 0 if settings.in_file or settings.zookeeper else settings.zookeepers
        ports = choose_ports(MANAGER_HOST, 3 * servers, taken)
        self._members = tuple(
            Member(*ports[first : first + 3]) for first in range(0, len(ports), 3)
        )
        self._taken = [*taken, *ports]
        self._metrics: list[str] = []
        self.parts = [*self._zookeepers(), *self._managers(), *self._hosts()]
        self.addresses = self._addresses()

    def check_folder(self, folder: Folder) -> None:
        """See that the registry in this folder, if there is one, is of the kind that is wanted.

        Raises:
            ConfigError: it is another one; started like this it might seem to be empty.
        """
        settings = self._settings
        if settings.zookeeper:
            return
        found = len(list(folder.path.glob(f"{ZOOKEEPER}*")))
        wanted = 0 if settings.in_file else settings.zookeepers
        if found not in {0, wanted}:
            instead = f"not {wanted}" if wanted else "not a file"
            raise ConfigError(
                f"{folder.path} holds a registry of {found} ZooKeeper servers, {instead}: use "
                f"--registry zookeeper --zookeepers {found} or another folder"
            )
        if wanted and not found and (folder.path / REGISTRY_FILE).exists():
            raise ConfigError(
                f"{folder.path} holds a registry in a file, not in ZooKeeper: use --registry file "
                "or another folder"
            )

    def addresses_in(self, folder: Folder) -> Addresses:
        """Where the cluster answers whose data is in this folder."""
        return msgspec.structs.replace(self.addresses, registry=self._registry(folder))

    def _registry(self, folder: Folder) -> str:
        if self._settings.in_file:
            return f"{FILE}{folder.path / REGISTRY_FILE}"
        return self.addresses.registry

    def _addresses(self) -> Addresses:
        client, management, broadcast = (
            f"{MANAGER_HOST}:{self._base + OFFSETS[name]}"
            for name in ("client", "management", "broadcast")
        )
        embedded = ",".join(f"{MANAGER_HOST}:{member.client}" for member in self._members)
        return Addresses(
            client=client,
            management=management,
            broadcast=broadcast,
            registry=self._settings.zookeeper or embedded,
            hosts=self._settings.host_names,
            managers=[
                f"{MANAGER_HOST}:{base}" for base in bases(self._base, self._settings.managers)
            ],
            metrics=self._metrics,
        )

    def _zookeepers(self) -> list[Planned]:
        return [
            Planned(name, ZOOKEEPER, partial(self._start_zookeeper, name, number))
            for number, name in enumerate(_names(ZOOKEEPER, len(self._members)), 1)
        ]

    def _managers(self) -> list[Planned]:
        names = _names(GCM, self._settings.managers)
        planned = []
        for name, base in zip(names, bases(self._base, self._settings.managers), strict=True):
            metrics = self._metrics_port(MANAGER_HOST, base + MANAGER_METRICS)
            planned.append(Planned(name, GCM, partial(self._start_manager, name, base, metrics)))
        return planned

    def _hosts(self) -> list[Planned]:
        planned = []
        for host in self._settings.host_names:
            (port,) = choose_ports(host, 1, self._taken)
            metrics = self._metrics_port(host, self._base + HOST_METRICS)
            command = partial(self._start_host, host, port, metrics)
            planned.append(Planned(f"{HOST} {host}", HOST, command))
        return planned

    def _metrics_port(self, host: str, fixed: int) -> int:
        """Where a daemon serves HTTP: there if the ports are fixed; 0 if nobody wants it."""
        if not self._settings.metrics:
            return 0
        if self._settings.port_base:
            port = check_port(host, self._base, fixed, "metrics")
        else:
            (port,) = choose_ports(host, 1, self._taken)
        self._metrics.append(f"{host}:{port}")
        return port

    # --- commands ---------------------------------------------------------------------------------

    def _start_zookeeper(self, name: str, number: int, folder: Folder) -> list[str]:
        ensemble = Ensemble(self._members, number) if len(self._members) > 1 else None
        port = self._members[number - 1].client
        return prepare(folder.make(_file(name)), MANAGER_HOST, port, os.environ, ensemble)

    def _start_manager(self, name: str, base: int, metrics: int, folder: Folder) -> list[str]:
        provided = folder.path / PROVIDED_HOSTS
        text = gcm_configuration(self._settings, base, metrics, self._registry(folder), provided)
        return _daemon("roq.gcm", folder.write(f"{_file(name)}.toml", text))

    def _start_host(self, host: str, port: int, metrics: int, folder: Folder) -> list[str]:
        text = hcm_configuration(
            self._settings,
            host,
            port,
            metrics,
            folder.make(host_folder(host)),
            self.addresses.managers,
            self._registry(folder),
        )
        return _daemon("roq.hcm", folder.write(f"{_file(f'{HOST} {host}')}.toml", text))


def host_folder(host: str) -> str:
    """Where a host manager keeps what it has, as a name in the cluster's folder."""
    return f"{HOST}-{host}"


def _names(kind: str, count: int) -> list[str]:
    return [kind] if count == 1 else [f"{kind} {number}" for number in range(1, count + 1)]


def _file(name: str) -> str:
    return name.replace(" ", "-")


def _daemon(module: str, path: Path) -> list[str]:
    arguments = ["-m", module, "--config", str(path), "--ready-fd", "{ready_fd}"]
    return [sys.executable, "-P", *arguments]
