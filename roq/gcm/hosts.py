"""The hosts of the cluster as their managers report them.

A host is `live` while it reports, `silent` when it has not for three seconds (nothing new is placed
there), and `away` when its node is gone from the registry as well. Silence alone loses nothing: the
data plane of a host outlives its manager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from roq.errors import HostNotFound, InvalidRequest, NoCapacity, StaleEpoch
from roq.model import host_epoch
from roq.policy.placement import HostLoad
from roq.protocol.control import (
    HostReport,
)
from roq.protocol.facts import ChildInfo
from roq.protocol.public import check_address, check_host

SILENT_SECONDS: Final = 3.0
NUMBER_END: Final = 1 << 53
"""Nothing of a host comes to this; so differences and sums fit 64 bits."""
FORGET_SECONDS: Final = 3_600.0
"""A host that has been away so long and has nothing to do is no longer listed."""
HOSTS_MAX: Final = 20_000


class HostState(StrEnum):
    """What the leader knows of a host manager."""

    LIVE = "live"
    SILENT = "silent"
    AWAY = "away"


LIVE, SILENT, AWAY = HostState.LIVE, HostState.SILENT, HostState.AWAY


@dataclass(slots=True)
class Host:
    """One host."""

    report: HostReport
    heard: float
    state: HostState = LIVE

    @property
    def name(self) -> str:
        """Its advertised address."""
        return self.report.host

    @property
    def children(self) -> Iterable[ChildInfo]:
        """The processes that it has reported last."""
        return self.report.children


class Hosts:
    """All hosts that have reported to this leader."""

    def __init__(self) -> None:
        self._hosts: dict[str, Host] = {}
        self._present: frozenset[str] = frozenset()
        self.closed: set[str] = set()
        """Hosts that get nothing any more, because they are being given back."""
        self.changed = False
        """Whether anything that others see may have changed; whoever tells them sets it back."""

    def __iter__(self) -> Iterator[Host]:
        return iter(sorted(self._hosts.values(), key=lambda host: host.name))

    def get(self, name: str) -> Host | None:
        """The host of this name, if it has reported."""
        return self._hosts.get(name)

    def live(self, name: str) -> Host | None:
        """The host of this name, if it is live."""
        host = self._hosts.get(name)
        return host if host is not None and host.state is LIVE else None

    def lost(self, name: str, child: ChildInfo | None) -> bool:
        """Whether what should run on this host does not, and will not by itself.

        A host that is not live is given the benefit of the doubt: its children outlive its manager.

        Args:
            name: the host.
            child: what is known of the child; None if nobody has ever reported it.
        """
        host = self.live(name)
        if host is None:
            return False
        if child is None or child.state == "failed":
            return True
        # A manager forgets no child, but a later one may not know those of the one before.
        return host_epoch(child.epoch) < host.report.epoch and not any(
            each.child == child.child and each.queue_id == child.queue_id for each in host.children
        )

    def gone(self, name: str) -> bool:
        """Whether this host neither reports nor stands in the registry."""
        host = self._hosts.get(name)
        return name not in self._present and (host is None or host.state is AWAY)

    def awaited(self) -> list[str]:
        """Hosts that stand in the registry and have not reported to this leader (yet)."""
        return sorted(name for name in self._present if name not in self._hosts)

    def known(self) -> list[str]:
        """All hosts that anything is known of, by name."""
        return sorted({*self._hosts, *self._present})

    def demand(self, name: str) -> Host:
        """The live host of this name.

        Raises:
            HostNotFound: it is not registered, or does not report.
        """
        host = self._hosts.get(name)
        if host is None and name in self._present:
            raise HostNotFound(f"host {name} has not reported to this leader yet; try again")
        if host is None:
            raise HostNotFound(f"host {name} is not registered; `roq host list` shows the hosts")
        if host.state is not LIVE:
            raise HostNotFound(f"host {name} is {host.state}: its host manager does not report")
        return host

    def report(self, report: HostReport, now: float) -> None:
        """Take a report in.

        Raises:
            InvalidRequest: an impossible address or number.
            StaleEpoch: a later process manages this host.
            NoCapacity: far too many hosts.
        """
        check_host(report.host)
        check_address(report.control)
        if report.epoch <= 0:
            raise InvalidRequest(f"host {report.host} has no epoch; it must draw one first")
        _check_numbers(report)
        known = self._hosts.get(report.host)
        if known is None:
            if len(self._hosts) >= HOSTS_MAX:
                raise NoCapacity(f"this cluster has {HOSTS_MAX} hosts already")
            self._hosts[report.host] = Host(report, now)
            self.changed = True
            return
        if report.epoch < known.report.epoch:
            raise StaleEpoch(
                f"host {report.host} is managed by a later process "
                f"(epoch {known.report.epoch}, this one has {report.epoch})"
            )
        if known.state is not LIVE:
            self.changed = True
        known.report, known.heard, known.state = report, now, LIVE

    def present(self, names: frozenset[str]) -> None:
        """The registry tells which hosts have a node there."""
        self.changed = self.changed or names != self._present
        self._present = names

    def expire(self, now: float) -> list[Host]:
        """Look who has fallen silent; gives those whose state changed."""
        changed: list[Host] = []
        for name, host in list(self._hosts.items()):
            if now - host.heard < SILENT_SECONDS:
                continue
            state = SILENT if name in self._present else AWAY
            if host.state is not state:
                host.state = state
                changed.append(host)
                self.changed = True
            elif state is AWAY and now - host.heard > FORGET_SECONDS:
                del self._hosts[name]
        return changed

    def forget(self, name: str) -> None:
        """This host was given back: nobody is to look for it."""
        self.closed.discard(name)
        if self._hosts.pop(name, None) is not None:
            self.changed = True

    def clear(self) -> None:
        """Forget all; the next leader hears from them."""
        self._hosts.clear()

    def loads(self, exchanges: dict[str, int], monitors: dict[str, int]) -> list[HostLoad]:
        """The snapshot for placement, with what has been given to each host."""
        awaited = [HostLoad(host=name, state="not heard of yet") for name in self.awaited()]
        return awaited + [
            HostLoad(
                host=host.name,
                state="being given back" if host.name in self.closed else host.state,
                exchanges=exchanges.get(host.name, 0),
                monitors=monitors.get(host.name, 0),
                exchange_max=host.report.exchange_max,
                cpu_percent=host.report.cpu_percent,
                memory_free_bytes=host.report.memory_free_bytes,
            )
            for host in self
        ]

    def check(self) -> None:
        """Assert that the table fits itself."""
        assert len(self._hosts) <= HOSTS_MAX  # noqa: S101 - check() is for tests and simulation
        assert all(name == host.name for name, host in self._hosts.items())  # noqa: S101


def _check_numbers(report: HostReport) -> None:
    for name in ("exchange_max", "cpu_percent", "memory_bytes", "memory_free_bytes"):
        value = getattr(report, name)
        # Written so that what is no number at all is out of range, too.
        if not 0 <= value < NUMBER_END:
            raise InvalidRequest(f"no host has a {name} of {value}")
