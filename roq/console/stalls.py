"""Everything in a cluster that does not go on as it should, each with its reason. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from roq.client.consume.groups import GroupListing
from roq.client.operate.followers import QueueReport
from roq.client.operate.survey import Survey
from roq.protocol.public_answers import HostSummary, QueueSummary

STALLS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Stall:
    """Something stands still, or is about to.

    Attributes:
        what: `queue`, `exchange`, `publisher`, `subscriber`, `group`, `jobs`, `host`, `process`
            or the role of a daemon.
        name: of it.
        path: of the page that tells more.
        reason: why, in a clause.
        stands: it does stand still; else it goes on, and somebody should look at it.
    """

    what: str
    name: str
    path: str
    reason: str
    stands: bool = True


def stalls(
    queues: Iterable[QueueSummary],
    hosts: Iterable[HostSummary],
    health: Survey | None,
    reports: Mapping[str, QueueReport],
    groups: Mapping[str, GroupListing],
) -> list[Stall]:
    """All of them, what stands still first; each reason once.

    Args:
        health: None: not known yet.
        reports: of monitors, by queue.
        groups: by queue, as far as they are known.
    """
    found = [
        *_of_queues(queues, reports),
        *_of_reports(reports),
        *_of_groups(groups),
        *_of_hosts(hosts),
        *(_of_health(health) if health is not None else ()),
    ]
    once = {(each.what, each.name, each.reason): each for each in found}
    return sorted(once.values(), key=lambda each: not each.stands)[:STALLS_MAX]


def _of_queues(
    queues: Iterable[QueueSummary], reports: Mapping[str, QueueReport]
) -> Iterator[Stall]:
    for queue in queues:
        path = f"/queues/{queue.name}"
        for reason in queue.reasons:
            yield Stall("queue", queue.name, path, reason)
        if not queue.running:
            yield Stall("queue", queue.name, path, f"it is {queue.state}: publishers wait")
            continue
        report = reports.get(queue.name)
        if report is not None and report.reason and not queue.reasons:
            yield Stall("queue", queue.name, path, report.reason)


def _of_reports(reports: Mapping[str, QueueReport]) -> Iterator[Stall]:
    for name, report in reports.items():
        view, path = report.view, f"/queues/{name}"
        if view.waiting:
            who = "1 publisher waits" if view.waiting == 1 else f"{view.waiting:,} publishers wait"
            yield Stall("publisher", name, path, f"{who} for an exchange")
        for row in view.exchanges:
            where = f"{name} {row.exchange}"
            if row.holding:
                reason = "its publishers wait for a subscriber that reads slowly"
                yield Stall("exchange", where, path, reason)
            if row.behind:
                many = "1 subscriber" if row.behind == 1 else f"{row.behind:,} subscribers"
                reason = f"{many} read too slowly to be waited for, and may lose messages"
                yield Stall("subscriber", where, path, reason)
        if view.lost:
            reason = f"subscribers have lost {view.lost:,} messages"
            yield Stall("subscriber", name, path, reason, stands=False)


def _of_groups(groups: Mapping[str, GroupListing]) -> Iterator[Stall]:
    for queue, listing in groups.items():
        for group in listing:
            path = f"/queues/{queue}/groups/{group.name}"
            name = f"{queue} {group.name}"
            if group.paused:
                yield Stall("group", name, path, "it is paused", stands=bool(group.behind))
            for reason in group.stalled:
                yield Stall("group", name, path, reason)


def _of_hosts(hosts: Iterable[HostSummary]) -> Iterator[Stall]:
    for host in hosts:
        if host.reason:
            yield Stall("host", host.host, "/hosts", f"it is {host.state}: {host.reason}")
        if host.stuck:
            yield Stall("host", host.host, "/hosts", f"it cannot be drained: {host.stuck}")
        for child in host.children if host.state == "live" else ():
            if child.reason:
                yield Stall(
                    "process", f"{child.child} on {host.host}", "/hosts",
                    f"it is {child.state}: {child.reason}",
                )  # fmt: skip


def _of_health(health: Survey) -> Iterator[Stall]:
    for trouble in health.troubles:
        yield Stall("cluster", "", "/health", trouble)
    for finding in health.findings:
        for reason in finding.wrong:
            yield Stall(finding.role, finding.name, "/health", reason, stands=not finding.ready)
