"""The hosts of a cell: what runs there, how busy they are, and where the next process goes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from roq.errors import NoCapacity
from roq.policy.growth import BYTES_PER_MB
from roq.policy.placement import HostLoad, choose
from roq.policy.snapshot import HostView
from roq.simulation.forecast.parameters import Parameters

MEMORY_BYTES: Final = 16 * 1024 * BYTES_PER_MB


@dataclass(slots=True, eq=False)
class Host:
    """A host.

    Attributes:
        name: of the host.
        lives: it has not died, or is back.
        exchanges, monitors: how many run there.
        busy: cores that exchanges use.
        clients: cores that the clients of these exchanges use.
        used_since: when the first of its present exchanges came; None if it has none.
    """

    name: str
    lives: bool = True
    exchanges: int = 0
    monitors: int = 0
    busy: float = 0.0
    clients: float = 0.0
    used_since: float | None = None


class Hosts:
    """All hosts of a cell.

    Args:
        names: of the hosts.
        parameters: how large they are.
    """

    def __init__(self, names: Iterable[str], parameters: Parameters) -> None:
        self._hosts = {name: Host(name) for name in sorted(names)}
        self._parameters = parameters
        self._loads: dict[str, HostLoad] = {name: self._load(name) for name in self._hosts}
        self.used_seconds = 0.0
        """Of all hosts, with at least one exchange there."""

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __len__(self) -> int:
        return len(self._hosts)

    @property
    def names(self) -> list[str]:
        """In order."""
        return list(self._hosts)

    def place_exchange(self, beside: Iterable[str], avoid: Collection[str], now: float) -> str:
        """Take a slot for an exchange, by the rule of the configuration manager.

        Raises:
            NoCapacity: no host has a free one.
        """
        name = choose(self._loads.values(), beside, avoid=avoid)
        host = self._hosts[name]
        host.exchanges += 1
        if host.used_since is None:
            host.used_since = now
        self._changed(name)
        return name

    def free_exchange(self, name: str, now: float) -> None:
        """Give a slot back."""
        host = self._hosts[name]
        host.exchanges -= 1
        if not host.exchanges:
            self._no_more_used(host, now)
        self._changed(name)

    def place_monitor(self) -> str:
        """The host for a monitor; empty if there is none."""
        try:
            name = choose(self._loads.values(), slot=False)
        except NoCapacity:
            return ""
        self._hosts[name].monitors += 1
        self._changed(name)
        return name

    def free_monitor(self, name: str) -> None:
        """A monitor has gone."""
        self._hosts[name].monitors -= 1
        self._changed(name)

    def change(self, name: str, busy: float, clients: float) -> None:
        """Exchanges use so many cores more, and their clients so many."""
        host = self._hosts[name]
        host.busy = max(0.0, host.busy + busy)
        host.clients = max(0.0, host.clients + clients)

    def kill(self, name: str) -> None:
        """It takes nothing any more."""
        self._hosts[name].lives = False
        self._changed(name)

    def repair(self, name: str) -> None:
        """It is back, and empty."""
        self._hosts[name].lives = True
        self._changed(name)

    def view(self, name: str) -> HostView:
        """As a policy is shown it."""
        host = self._hosts[name]
        percent = min(100.0, 100.0 * host.busy / self._parameters.host_cores)
        memory = int(host.exchanges * self._parameters.exchange_mb * BYTES_PER_MB)
        return HostView(name, percent, memory)

    def close(self, now: float) -> None:
        """Count what is in use at the end."""
        for host in self._hosts.values():
            self._no_more_used(host, now)

    def _no_more_used(self, host: Host, now: float) -> None:
        if host.used_since is not None:
            self.used_seconds += now - host.used_since
            host.used_since = None

    def _changed(self, name: str) -> None:
        self._loads[name] = self._load(name)

    def _load(self, name: str) -> HostLoad:
        host, parameters = self._hosts[name], self._parameters
        return HostLoad(
            host=name,
            state="live" if host.lives else "lost",
            exchanges=host.exchanges,
            monitors=host.monitors,
            exchange_max=parameters.host_slots,
            cpu_percent=min(100.0, 100.0 * host.busy / parameters.host_cores),
            memory_free_bytes=MEMORY_BYTES
            - int(host.exchanges * parameters.exchange_mb * BYTES_PER_MB),
        )
