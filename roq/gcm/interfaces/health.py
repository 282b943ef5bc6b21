"""How a configuration manager is, as it says itself.

It is ready if it can do its own work. What is wrong with hosts and queues is told by the leader as
a warning: no other manager would do better.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from roq.gcm.repair.draining import Draining
from roq.gcm.repair.schedule import RepairSchedule
from roq.gcm.state.hosts import LIVE, Hosts, Schedule
from roq.gcm.state.queues import Queues
from roq.gcm.state.records import HOSTS, LOGS
from roq.gcm.state.removed_logs import RemovedLogs, described
from roq.gcm.state.role import Role
from roq.protocol.control import Health
from roq.protocol.reports import Check

SHOWN_MAX: Final = 5
"""Hosts and queues that are named one by one."""


def of_manager(
    role: Role,
    queues: Queues,
    removed: RemovedLogs,
    hosts: Hosts,
    repairs: RepairSchedule,
    draining: Draining,
    request_id: int = 0,
) -> Health:
    """The answer of this manager.

    Args:
        role: where it stands; it is ready if it knows who leads, and the registry is there.
        queues, removed, hosts, repairs, draining: what it knows as the leader.
        request_id: of the request that is answered.
    """
    checks = [_registry(role), _epochs(role), _leader(role), *role.measured]
    if role.leads:
        checks += [
            _hosts(queues, hosts),
            _cordons(hosts, draining),
            _queues(queues, repairs),
            _definitions(queues),
            _removed(removed),
        ]
    return Health(
        id=request_id,
        role="gcm",
        name=role.me.client,
        ready=all(check.ok for check in checks if check.essential),
        state=_state(role),
        checks=checks,
    )


def _state(role: Role) -> str:
    if role.leads:
        return "caretaker" if role.caretaker else "leading"
    return "following" if role.known_leader is not None else "electing"


def _registry(role: Role) -> Check:
    if role.problem:
        detail = role.problem
    elif role.registry_away:
        detail = f"{role.registry} cannot be reached: changes are refused, reads and data go on"
    elif not role.cluster:
        detail = "the identity of the cluster has not been read yet"
    else:
        return Check(name="registry", ok=True, detail="connected")
    return Check(name="registry", ok=False, detail=detail)


def _epochs(role: Role) -> Check:
    detail = role.epochs_problem
    return Check(name="epochs", ok=not detail, detail=detail or "can be drawn")


def _leader(role: Role) -> Check:
    if role.leads:
        detail = f"it led; who leads is open until {role.registry} is back" if role.caretaker else (
            "this one"
        )  # fmt: skip
        return Check(name="leader", ok=not role.caretaker, detail=detail)
    leader = role.known_leader
    detail = leader.client if leader else "no manager leads at the moment"
    return Check(name="leader", ok=leader is not None, detail=detail)


def _hosts(queues: Queues, hosts: Hosts) -> Check:
    used = queues.hosts_in_use()
    unwell = [
        f"{host.name} is {host.state}" + ("" if host.name in used else ", nothing is missing of it")
        for host in hosts
        if host.state is not LIVE
    ]
    unwell += [
        f"{host.name} gets too little processor"
        for host in hosts
        if host.state is LIVE and host.starved
    ]
    live = sum(host.state is LIVE for host in hosts)
    if not unwell and not live:
        unwell = ["no host manager has reported: `roq host` starts one"]
    detail = _shown(unwell) or f"{live} live"
    return Check(name="hosts", ok=not unwell, detail=detail, essential=False)


def _cordons(hosts: Hosts, draining: Draining) -> Check:
    """A warning, lest an operator forgets them."""
    marked = [
        f"{host.name} is {schedule}" + f", but cannot: {why}" * bool(why)
        for host in hosts
        if (schedule := hosts.schedule(host.name)) is not Schedule.ACTIVE
        for why in [draining.stuck(host.name)]
    ]
    detail = _shown(marked) or "no host is cordoned"
    return Check(name="cordons", ok=not marked, detail=detail, essential=False)


def _queues(queues: Queues, repairs: RepairSchedule) -> Check:
    lacking = repairs.degraded()
    running = sum(queue.running for queue in queues)
    detail = _shown(f"{name}: {'; '.join(lacks)}" for name, lacks in lacking.items())
    return Check(
        name="queues", ok=not lacking, detail=detail or f"{running} running", essential=False
    )


def _definitions(queues: Queues) -> Check:
    texts = [f"queue {name}: {why}" for name, why in queues.unreadable.items()]
    texts += [
        why if name in {HOSTS, LOGS} else f"queue {name}: {why}"
        for name, whys in queues.defects.items()
        for why in whys
    ]
    detail = f"unreadable: {_shown(texts)}" if texts else "all can be read"
    return Check(name="definitions", ok=not texts, detail=detail, essential=False)


def _removed(removed: RemovedLogs) -> Check:
    """A warning, lest a host that is gone for good is waited for."""
    waiting = [
        f"{described(each)} on host {each.host}" + f" ({trouble})" * bool(trouble)
        for each in removed
        for trouble in (removed.trouble(each),)
    ]
    detail = (
        f"logs that go when their hosts are back: {_shown(waiting)}; `roq host remove HOST` if one "
        "is gone for good"
    )
    return Check(
        name="removed", ok=not waiting, detail=detail if waiting else "all are", essential=False
    )


def _shown(texts: Iterable[str]) -> str:
    listed = list(texts)
    more = len(listed) - SHOWN_MAX
    return "; ".join(listed[:SHOWN_MAX]) + (f"; and {more} more" if more > 0 else "")
