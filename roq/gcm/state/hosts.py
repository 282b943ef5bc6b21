"""The hosts of the cluster: what their managers report, and what is known without their word.

    awaited ----report----> live <--report-- any other
                             | no report for three seconds
                             v
       node in the registry: silent      no node: unmanaged, or lost

A host that is `silent` gets nothing new. One that has no node in the registry either is `unmanaged`
as long as there are signs of life of processes on it (they outlive their manager), else `lost`.
Silence is counted only while this manager itself runs and leads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Final

from roq.errors import HostNotFound, InvalidRequest, NoCapacity, StaleEpoch
from roq.gcm.state.records import Mark, Marks
from roq.model import HOST_EPOCH_MAX
from roq.policy.placement import LACKING, HostLoad
from roq.protocol.control import (
    HostReport,
)
from roq.protocol.public import check_address, check_host, is_address
from roq.protocol.reports import ChildInfo
from roq.timing import HOST_SILENT_SECONDS

PAUSE_SECONDS: Final = 2.0
"""Looks that are further apart mean that this manager itself stood still."""
DOUBT_SECONDS: Final = 10.0
"""A host is not lost within this while those who could give signs of life for it cannot speak."""
STARVED_SECONDS: Final = 15.0
"""Nor is one within this that said last that it gets too little processor: it may just be late."""
ARRIVAL_SECONDS: Final = 30.0
"""A host that this process has never seen may take so long: the whole cluster may just start."""
NUMBER_END: Final = 1 << 53
"""Nothing of a host comes to this; so differences and sums fit 64 bits."""
REPORT_SECONDS: Final = 5.0
"""So long after a manager begins to lead, hosts may not have found it yet."""
FORGET_SECONDS: Final = 3_600.0
"""A host that has been lost so long and has nothing to do is no longer listed."""
HOSTS_MAX: Final = 20_000


class HostState(StrEnum):
    """What the leader knows of a host."""

    AWAITED = "awaited"
    """It is known, but has not reported to this leader yet."""
    LIVE = "live"
    SILENT = "silent"
    UNMANAGED = "unmanaged"
    LOST = "lost"


class Schedule(StrEnum):
    """What may be placed on a host."""

    ACTIVE = "active"
    CORDONED = "cordoned"
    """Nothing new; what is there stays."""
    DRAINING = "draining"
    """Nothing new, and what is there goes elsewhere."""


AWAITED, LIVE, SILENT = HostState.AWAITED, HostState.LIVE, HostState.SILENT
UNMANAGED, LOST = HostState.UNMANAGED, HostState.LOST
AWAY: Final = frozenset({UNMANAGED, LOST})
"""Hosts whose manager is gone."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What is known of processes whose host managers say nothing.

    Attributes:
        alive: host → how many processes there have given a sign of life.
        doubt: hosts of which nobody can tell at the moment.
    """

    alive: Mapping[str, int] = field(default_factory=dict)
    doubt: frozenset[str] = frozenset()


@dataclass(slots=True)
class Host:
    """One host.

    Attributes:
        name: its advertised address.
        heard: when it reported last; before that, since when it is awaited.
        report: the last one.
        since: when its state began.
        sign: when a process on it has given the last sign of life without its manager.
        alive: while it is unmanaged: how many processes on it have given a sign of life.
    given_up: an operator has said that it is gone; holds until its manager reports.
    """

    name: str
    heard: float
    report: HostReport | None = None
    state: HostState = AWAITED
    since: float = 0.0
    sign: float = -inf
    alive: int = 0
    given_up: bool = False
    _children: dict[tuple[bytes, int], ChildInfo] = field(default_factory=dict)

    @property
    def children(self) -> Iterable[ChildInfo]:
        """The processes that it has reported last."""
        return self.report.children if self.report is not None else ()

    @property
    def control(self) -> str:
        """Where its manager takes commands; empty if it has never reported."""
        return self.report.control if self.report is not None else ""

    @property
    def epoch(self) -> int:
        """Of the manager that has reported last; 0: none has."""
        return self.report.epoch if self.report is not None else 0

    @property
    def starved(self) -> bool:
        """Whether it has said last that it gets too little processor."""
        return self.report is not None and self.report.starved

    def child(self, queue_id: bytes, number: int) -> ChildInfo | None:
        """The process of this number (0: the monitor) that it has reported last."""
        return self._children.get((queue_id, number))

    def take(self, report: HostReport, now: float) -> None:
        """It has reported."""
        if self.state is not LIVE:
            self.since = now
        self.report, self.heard, self.state, self.alive = report, now, LIVE, 0
        self.given_up = False
        self._children = {}
        for child in report.children:
            self.started(child)

    def started(self, child: ChildInfo) -> None:
        """It has started this process since its last report."""
        number = 0 if child.role == "monitor" else child.number
        self._children[child.queue_id, number] = child


class Hosts:
    """All hosts that this leader knows of.

    Attributes:
        now: the time of what is being handled.
        closed: hosts that get nothing any more, because they are being given back.
        marks: what is wanted of hosts, as it stands in the registry.
        changed: whether anything that others see may have changed; the machine that tells them sets
        it back.
    """

    def __init__(self) -> None:
        self._hosts: dict[str, Host] = {}
        self._present: frozenset[str] = frozenset()
        self._presence_known = False
        self._seen: set[str] = set()
        self._awake = 0.0
        self._looked = 0.0
        self._led = -inf
        self.now = 0.0
        self.closed: set[str] = set()
        self.marks: Marks = {}
        self.changed = False

    def __iter__(self) -> Iterator[Host]:
        return iter(sorted(self._hosts.values(), key=lambda host: host.name))

    def get(self, name: str) -> Host | None:
        """The host of this name, if anything is known of it."""
        return self._hosts.get(name)

    def live(self, name: str) -> Host | None:
        """The host of this name, if it is live."""
        host = self._hosts.get(name)
        return host if host is not None and host.state is LIVE else None

    def lost(self, name: str) -> bool:
        """Whether this host is lost, with everything on it."""
        host = self._hosts.get(name)
        return host is not None and host.state is LOST

    def schedule(self, name: str) -> Schedule:
        """What may be placed on a host."""
        mark = self.marks.get(name)
        if mark is None:
            return Schedule.ACTIVE
        if mark.drained or self.leaves(name):
            return Schedule.DRAINING
        return Schedule.CORDONED if mark.cordoned else Schedule.ACTIVE

    def leaves(self, name: str) -> bool:
        """Whether the present manager of a host wants it to hold nothing, because it stops."""
        leaving = self.marks.get(name, Mark()).leaving
        host = self._hosts.get(name)
        return leaving > 0 and (host is None or host.report is None or host.report.epoch <= leaving)

    def draining(self) -> frozenset[str]:
        """The hosts from which everything goes elsewhere."""
        return frozenset(name for name in self.marks if self.schedule(name) is Schedule.DRAINING)

    def drained(self) -> frozenset[str]:
        """Those of them that an operator wants to hold nothing, not even a log."""
        return frozenset(name for name, mark in self.marks.items() if mark.drained)

    def refuge(self, name: str) -> bool:
        """Whether there is a live host beside this one that takes what is placed."""
        return bool(self.fit() - {name})

    def fit(self) -> frozenset[str]:
        """The hosts that take what is placed."""
        return frozenset(host.name for host in self if not self._unfit(host))

    def elapsed(self, when: float) -> float:
        """Seconds since then in which this manager would have heard something."""
        return self.now - max(when, self._awake)

    def may_be_late(self, host: Host) -> bool:
        """Whether its silence may come of too little processor."""
        return host.starved and self.elapsed(max(host.heard, host.sign)) < STARVED_SECONDS

    def is_present(self, name: str) -> bool:
        """Whether this host has a node in the registry."""
        return name in self._present

    def known(self) -> list[str]:
        """All hosts that anything is known of, by name."""
        return sorted(self._hosts)

    def demand(self, name: str) -> Host:
        """The live host of this name.

        Raises:
            HostNotFound: it is not registered, or does not report.
        """
        host = self._hosts.get(name)
        if host is None:
            raise HostNotFound(f"host {name} is not registered; `roq host list` shows the hosts")
        if host.state is AWAITED:
            raise HostNotFound(f"host {name} has not reported to this leader yet; try again")
        if host.state is not LIVE:
            raise HostNotFound(f"host {name} is {host.state}: its host manager does not report")
        return host

    @property
    def arriving(self) -> bool:
        """Whether this manager leads since a moment, and some have not told it how they are."""
        fresh = self.now < self._led + REPORT_SECONDS
        return fresh and any(host.state is AWAITED for host in self._hosts.values())

    # --- what is heard of them --------------------------------------------------------------------

    def lead(self, now: float) -> None:
        """This manager leads from now on; silence of before is none."""
        self.now = self._awake = self._looked = self._led = now
        self.expect(self._present, now)

    def expect(self, names: Iterable[str], now: float) -> None:
        """There should be these hosts."""
        for name in names:
            if name not in self._hosts and len(self._hosts) < HOSTS_MAX:
                self._hosts[name] = Host(name, heard=now, since=now)

    def report(self, report: HostReport, now: float) -> Host:
        """Take a report in; gives the host.

        Raises:
            InvalidRequest: an impossible address or number.
            StaleEpoch: a later process manages this host.
            NoCapacity: far too many hosts.
        """
        check_host(report.host)
        check_address(report.control)
        if report.epoch <= 0:
            raise InvalidRequest(f"host {report.host} has no epoch; it must draw one first")
        if report.epoch > HOST_EPOCH_MAX:
            raise InvalidRequest(f"no host has the epoch {report.epoch}")
        _check_numbers(report)
        _check_children(report)
        host = self._hosts.get(report.host)
        if host is None:
            if len(self._hosts) >= HOSTS_MAX:
                raise NoCapacity(f"this cluster has {HOSTS_MAX} hosts already")
            host = self._hosts[report.host] = Host(report.host, heard=now, since=now)
        known = host.report
        if known is not None and report.epoch < known.epoch:
            raise StaleEpoch(
                f"host {report.host} is managed by a later process "
                f"(epoch {known.epoch}, this one has {report.epoch})"
            )
        if host.state is not LIVE:
            self.changed = True
        host.take(report, now)
        return host

    def present(self, names: frozenset[str], now: float) -> None:
        """The registry tells which hosts have a node there."""
        self.changed = self.changed or names != self._present
        self._present, self._presence_known = names, True
        self._seen |= names
        if len(self._seen) > 2 * HOSTS_MAX:
            self._seen = set(names)
        self.expect(names, now)

    def registry_lost(self) -> None:
        """Nobody tells which hosts have a node, until the registry does so again."""
        self._presence_known = False

    # --- what comes of silence --------------------------------------------------------------------

    def settle(self, now: float) -> None:
        """Call this before `look`: notices when this manager itself stood still."""
        if now - self._looked > PAUSE_SECONDS:
            self._awake = now
        self._looked = self.now = now

    def unheard(self) -> list[Host]:
        """The hosts that neither report nor have a node, long enough for this to mean something."""
        if not self._presence_known:
            return []
        return [
            host
            for host in self._hosts.values()
            if host.name not in self._present and self.elapsed(host.heard) >= HOST_SILENT_SECONDS
        ]

    def look(self, signs: Signs, in_use: frozenset[str]) -> list[Host]:
        """Decide what hosts are that say nothing; gives those whose state changed.

        Args:
            signs: of the hosts that are `unheard`.
            in_use: hosts on which something belongs.
        """
        changed: list[Host] = []
        unheard = {host.name for host in self.unheard()}
        for name, host in list(self._hosts.items()):
            if host.given_up:
                if name not in in_use:
                    self.forget(name)
                continue
            if name in unheard:
                state = self._without_word(host, signs)
            elif host.state is LIVE and self.elapsed(host.heard) >= HOST_SILENT_SECONDS:
                state = SILENT
            elif host.state in AWAY and name in self._present:
                state = SILENT if host.report is not None else AWAITED
            else:
                continue
            host.alive = signs.alive.get(name, 0) if state is UNMANAGED else 0
            if host.state is not state:
                host.state, host.since = state, self.now
                changed.append(host)
                self.changed = True
            elif state is LOST and name not in in_use and self.elapsed(host.heard) > FORGET_SECONDS:
                del self._hosts[name]
        return changed

    def _without_word(self, host: Host, signs: Signs) -> HostState:
        if signs.alive.get(host.name, 0):
            host.sign = self.now
            return UNMANAGED
        spoke = max(host.heard, host.sign)
        arriving = host.state is AWAITED and host.name not in self._seen
        if arriving and self.elapsed(spoke) < ARRIVAL_SECONDS:
            return AWAITED
        doubt = host.name in signs.doubt and self.elapsed(spoke) < DOUBT_SECONDS
        doubt = doubt or self.may_be_late(host)
        return UNMANAGED if doubt and host.state is not LOST else LOST

    def reason(self, host: Host) -> str:
        """Why a host is what it is, in a clause; empty if it is live."""
        match host.state:
            case HostState.LIVE:
                return ""
            case HostState.AWAITED:
                return "it has not reported to this leader yet"
            case HostState.SILENT:
                silence = self.elapsed(host.heard)
                return f"its manager has not reported for {silence:.0f} s; nothing is moved"
            case HostState.UNMANAGED if host.alive:
                return f"its manager is gone; {host.alive} processes on it live and go on"
            case HostState.UNMANAGED:
                return "its manager is gone; it is not clear yet whether its processes live"
            case HostState.LOST:
                return "there is no sign of life of its manager, nor of any process on it"

    def give_up(self, host: Host) -> None:
        """This host is gone, as its provider or an operator has said; what is on it is lost."""
        host.state, host.since, host.given_up, host.alive = LOST, self.now, True, 0
        self.changed = True

    def forget(self, name: str) -> None:
        """This host was given back: nobody is to look for it."""
        self.closed.discard(name)
        if self._hosts.pop(name, None) is not None:
            self.changed = True

    def clear(self) -> None:
        """Forget all; the next leader hears from them."""
        self._hosts.clear()
        self.marks = {}

    def loads(
        self,
        exchanges: dict[str, int],
        monitors: dict[str, int],
        without_logs: frozenset[str] = frozenset(),
    ) -> list[HostLoad]:
        """The snapshot for placement, with what has been given to each host.

        Args:
            exchanges, monitors: how many have been given, by host.
            without_logs: hosts that get no log, as the disk for these is not there.
        """
        return [
            HostLoad(
                host=host.name,
                state=self._unfit(host) or (LACKING if host.name in without_logs else LIVE.value),
                exchanges=exchanges.get(host.name, 0),
                monitors=monitors.get(host.name, 0),
                exchange_max=host.report.exchange_max if host.report is not None else 0,
                cpu_percent=host.report.cpu_percent if host.report is not None else 0.0,
                memory_free_bytes=host.report.memory_free_bytes if host.report is not None else 0,
            )
            for host in self
        ]

    def _unfit(self, host: Host) -> str:
        """Why a host gets nothing new, in a few words; empty if it may."""
        if host.name in self.closed:
            return "being given back"
        if host.state is not LIVE:
            return "not heard of yet" if host.state is AWAITED else host.state.value
        schedule = self.schedule(host.name)
        return "" if schedule is Schedule.ACTIVE else schedule.value

    def check(self) -> None:
        """Assert that the table fits itself."""
        assert len(self._hosts) <= HOSTS_MAX  # noqa: S101 - check() is for tests and simulation
        for name, host in self._hosts.items():
            assert name == host.name  # noqa: S101
            assert host.state is not LIVE or host.report is not None  # noqa: S101


def _check_children(report: HostReport) -> None:
    """What they tell is written down: nobody could read a definition with an impossible address."""
    for child in report.children:
        for address in (child.control, child.statistics, child.data, child.live):
            if address and not is_address(address):
                raise InvalidRequest(
                    f"{child.child[:150]!r} tells {address[:60]!r}, which is no address"
                )
        if (child.role == "monitor") is not (child.number == 0):
            raise InvalidRequest(f"{child.child[:150]!r} is a {child.role[:20]} {child.number}")


def _check_numbers(report: HostReport) -> None:
    for name in ("exchange_max", "cpu_percent", "memory_bytes", "memory_free_bytes"):
        value = getattr(report, name)
        # Written so that what is no number at all is out of range, too.
        if not 0 <= value < NUMBER_END:
            raise InvalidRequest(f"no host has a {name} of {value}")
