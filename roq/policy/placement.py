"""Where a new monitor or exchange goes: the least loaded live host with a free slot.

One more exchange of a queue rather goes to a host that has none of it, since it is wanted because
one host is not enough. A monitor needs no slot. Pure functions of a snapshot. Load is what runs
already, then the processor, then free memory; equal hosts are taken by name, so the choice is the
same everywhere. A refusal says why, host by host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from roq.errors import HostNotFound, NoCapacity

_CPU_STEP_PERCENT: Final = 10.0
"""Smaller differences of the processor load are noise."""
_HOSTS_SHOWN: Final = 10
LACKING: Final = "without a log that it should have"
"""State of a host whose disk is not there: what is written there now is hidden when it is back."""


@dataclass(frozen=True, slots=True)
class HostLoad:
    """A host at the moment of the decision."""

    host: str
    state: str
    """`live`, or why it can take nothing: `silent`, `lost`, `not heard of yet`, `cordoned`, …"""
    exchanges: int = 0
    monitors: int = 0
    exchange_max: int = 0
    """0: no limit."""
    cpu_percent: float = 0.0
    memory_free_bytes: int = 0


def refusal(load: HostLoad, *, slot: bool = True) -> str:
    """Why this host cannot take another exchange, in a few words; empty if it can.

    Args:
        load: the host.
        slot: whether one of the slots for exchanges is needed.
    """
    if load.state != "live":
        return f"is {load.state}"
    if slot and load.exchange_max and load.exchanges >= load.exchange_max:
        return f"is full ({load.exchanges} of {load.exchange_max} exchanges)"
    return ""


def choose(
    hosts: Iterable[HostLoad],
    beside: Iterable[str] = (),
    *,
    avoid: Collection[str] = (),
    slot: bool = True,
) -> str:
    """The host for a new queue, exchange or monitor.

    Args:
        hosts: all hosts.
        beside: the hosts of the queue's other exchanges, one entry each.
        avoid: taken only if there is no other: an attempt has failed there.
        slot: whether one of the slots for exchanges is needed.

    Raises:
        NoCapacity: no host can take it; the text says why for each.
    """
    candidates = sorted(hosts, key=lambda load: load.host)
    free = [load for load in candidates if not refusal(load, slot=slot)]
    if free:
        taken = Counter(beside)
        return min(
            free, key=lambda load: (load.host in avoid, taken[load.host], _burden(load))
        ).host
    if not candidates:
        raise NoCapacity("no host is registered: start a host manager with `roq host`")
    reasons = [f"{load.host} {refusal(load, slot=slot)}" for load in candidates[:_HOSTS_SHOWN]]
    if len(candidates) > _HOSTS_SHOWN:
        reasons.append(f"and {len(candidates) - _HOSTS_SHOWN} more")
    wanted = "another exchange" if slot else "a monitor"
    raise NoCapacity(f"no host can take {wanted}: {', '.join(reasons)}")


def demand(hosts: Iterable[HostLoad], host: str) -> str:
    """Give `host` back if it can take another exchange.

    Raises:
        HostNotFound: nobody of this name is registered, or its host manager is not heard of.
        NoCapacity: it is full.
    """
    for load in hosts:
        if load.host == host:
            reason = refusal(load)
            if load.state in {"cordoned", "draining"}:
                raise NoCapacity(
                    f"host {host} {reason}, so it gets nothing new: use another host, or "
                    f"`roq host uncordon {host}`"
                )
            if load.state == LACKING:
                raise NoCapacity(
                    f"host {host} {reason}, so it gets no other one: mount its disk, or give up "
                    "what was there (`roq exchange forget`); `roq health` names it"
                )
            if load.state != "live":
                raise HostNotFound(f"host {host} {reason}: its host manager does not report")
            if reason:
                raise NoCapacity(f"host {host} {reason}: use another host or raise its limit")
            return host
    raise HostNotFound(f"host {host} is not registered; `roq host list` shows the hosts")


def _burden(load: HostLoad) -> tuple[int, float, int, str]:
    processor = load.cpu_percent // _CPU_STEP_PERCENT
    return load.exchanges + load.monitors, processor, -load.memory_free_bytes, load.host
