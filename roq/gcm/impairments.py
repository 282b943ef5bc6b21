"""Which running queues lack something, and what."""

from __future__ import annotations

from roq.gcm.hosts import LIVE, Hosts
from roq.gcm.queues import MONITOR, Queue, Queues
from roq.model import exchange_name

_WELL = "running"


def impairments(queues: Queues, hosts: Hosts) -> dict[str, str]:
    """Queue → what of it does not run, in a few words; queues that are well are left out."""
    found = {queue.name: _lacks(queue, hosts) for queue in queues if queue.running}
    return {name: "; ".join(lacks) for name, lacks in found.items() if lacks}


def _lacks(queue: Queue, hosts: Hosts) -> list[str]:
    record = queue.record
    parts = [("its monitor", MONITOR, record.host)]
    parts += [
        (exchange_name(each.number), each.number, each.host)
        for each in record.exchanges
        if each.wanted
    ]
    return [
        f"{name} {trouble}"
        for name, number, place in parts
        if (trouble := _trouble(queue, number, place, hosts))
    ]


def _trouble(queue: Queue, number: int, place: str, hosts: Hosts) -> str:
    host = hosts.get(place)
    if host is None:
        return f"is on {place}, which has not reported"
    if host.state is not LIVE:
        return f"is on {place}, which is {host.state}"
    child = queue.children.get(number)
    if child is None:
        return f"has not been reported by {place}"
    if child.state != _WELL:
        reason = f" ({child.reason})" if child.reason else ""
        return f"is {child.state} on {place}{reason}"
    return ""
