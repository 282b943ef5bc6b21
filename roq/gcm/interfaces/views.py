"""What the leader tells about queues, hosts and exchanges (2101-2104) and broadcasts to all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from roq.gcm.change.scaling_rules import Rules
from roq.gcm.repair.draining import Draining
from roq.gcm.repair.schedule import RepairSchedule
from roq.gcm.state.hosts import AWAY, LIVE, Host, Hosts, Schedule
from roq.gcm.state.losses import away_text
from roq.gcm.state.queues import MONITOR, Queue, Queues
from roq.gcm.state.records import ExchangeRecord
from roq.model import exchange_name
from roq.protocol.broadcast import QueueStatus
from roq.protocol.documents import RawDocument
from roq.protocol.public_answers import (
    DepartedExchange,
    ExchangeSummary,
    HostSummary,
    ProcessSummary,
    QueueDescription,
    QueueSummary,
    done,
)
from roq.protocol.reports import ChildInfo

UNREADABLE: Final = "unreadable"
"""State of a queue whose definition nobody can read."""


def list_queues(queues: Queues, repairs: RepairSchedule, rules: Rules) -> RawDocument:
    """The answer to 2101."""
    rows = {queue.name: _queue_row(queue, repairs, rules) for queue in queues}
    rows |= {name: _unreadable_row(name, why) for name, why in queues.unreadable.items()}
    return done(Queues=_plain(rows[name] for name in sorted(rows)))


def list_hosts(
    hosts: Hosts, queues: Queues, provided: frozenset[str], draining: Draining
) -> RawDocument:
    """The answer to 2102; `provided` are the hosts that a provider has made."""
    exchanges, monitors = queues.placed()
    return done(
        Hosts=_plain(
            _host_row(
                host,
                exchanges.get(host.name, 0),
                monitors.get(host.name, 0),
                reason=hosts.reason(host),
                provided=host.name in provided,
                schedule=hosts.schedule(host.name),
                draining=draining,
            )
            for host in hosts
        )
    )


def list_exchanges(queue: Queue, hosts: Hosts, repairs: RepairSchedule) -> RawDocument:
    """The answer to 2103."""
    return done(Exchanges=_plain(exchange_rows(queue, hosts, repairs)))


def describe_queue(
    queue: Queue, hosts: Hosts, repairs: RepairSchedule, rules: RawDocument
) -> RawDocument:
    """The answer to 2104."""
    record = queue.record
    description = QueueDescription(
        name=queue.name,
        host=record.host,
        state=record.state.value,
        running=queue.running,
        durability=record.durability,
        life=record.life,
        monitor=queue.monitor if queue.running else "",
        statistics=queue.statistics if queue.running else "",
        created=record.created,
        queue_id=record.queue_id.hex(),
        limits=record.limits,
        exchanges=exchange_rows(queue, hosts, repairs),
        departed=[
            DepartedExchange(
                number=each.number, epoch=each.epoch, generation=each.generation, end=each.end
            )
            for each in record.departed
        ],
        rules=rules,
        services=record.services,
        reasons=repairs.reasons(queue),
    )
    fields: RawDocument = msgspec.to_builtins(description)
    del fields["FromMemory"]  # as to the other commands, if that is so
    return {**done(), **fields}


def exchange_rows(queue: Queue, hosts: Hosts, repairs: RepairSchedule) -> list[ExchangeSummary]:
    """The exchanges of a queue, as defined and as they run."""
    return [_exchange_row(queue, each, hosts, repairs) for each in queue.record.exchanges]


def broadcast_queues(queues: Queues) -> tuple[QueueStatus, ...]:
    """What everybody is told about the queues."""
    told = {queue.name: (queue.record.host, queue.running) for queue in queues}
    told |= dict.fromkeys(queues.unreadable, ("", False))
    return tuple(QueueStatus(name, *told[name]) for name in sorted(told))


def broadcast_hosts(hosts: Hosts) -> tuple[str, ...]:
    """The hosts that everybody is told of."""
    return tuple(
        host.name
        for host in hosts
        if hosts.is_present(host.name) or (host.report is not None and host.state not in AWAY)
    )


def _queue_row(queue: Queue, repairs: RepairSchedule, rules: Rules) -> QueueSummary:
    slow = rules.elastic(queue.name)
    return QueueSummary(
        name=queue.name,
        host=queue.record.host,
        state=queue.record.state.value,
        running=queue.running,
        exchanges=len(queue.record.exchanges),
        durability=queue.record.durability,
        reasons=repairs.reasons(queue),
        slow_subscriber=slow.slow_subscriber,
        hold_seconds=slow.hold_seconds,
    )


def _unreadable_row(name: str, why: str) -> QueueSummary:
    reason = (
        f"its definition in the registry is unreadable ({why}); its processes are left alone; "
        f"repair it and start the manager again, or `roq queue remove {name}`"
    )
    return QueueSummary(
        name=name, host="", state=UNREADABLE, running=False, exchanges=0, durability="",
        reasons=[reason],
    )  # fmt: skip


def _host_row(
    host: Host,
    exchanges: int,
    monitors: int,
    *,
    reason: str,
    provided: bool,
    schedule: Schedule,
    draining: Draining,
) -> HostSummary:
    report = host.report
    return HostSummary(
        host=host.name,
        control=host.control,
        exchanges=exchanges,
        monitors=monitors,
        exchange_max=report.exchange_max if report is not None else 0,
        cpu=round(report.cpu_percent, 1) if report is not None else 0.0,
        memory_bytes=report.memory_bytes if report is not None else 0,
        state=host.state.value,
        reason=reason,
        children=[_child_row(child) for child in host.children],
        provided=provided,
        epoch=report.epoch if report is not None else 0,
        schedule=schedule.value,
        left=draining.left(host.name) if schedule is Schedule.DRAINING else [],
        stuck=draining.stuck(host.name),
    )


def _child_row(child: ChildInfo) -> ProcessSummary:
    return ProcessSummary(
        child=child.child,
        role=child.role,
        queue=child.queue,
        number=MONITOR if child.role == "monitor" else child.number,
        state=child.state,
        reason=child.reason,
        restarts=child.restarts,
        epoch=child.epoch,
        pid=child.pid,
    )


def _exchange_row(
    queue: Queue, exchange: ExchangeRecord, hosts: Hosts, repairs: RepairSchedule
) -> ExchangeSummary:
    child = queue.children.get(exchange.number)
    loss = repairs.loss(queue, exchange.number)
    host = hosts.get(exchange.host)
    listed = host.child(queue.record.queue_id, exchange.number) if host is not None else None
    reason = repairs.reason(queue, exchange.number)
    if exchange.away:
        state, reason = exchange.state, away_text(queue, exchange, hosts)
    elif loss is not None:
        state = loss.kind.value
    elif host is not None and host.state is not LIVE and queue.running:
        state, reason = f"host {host.state}", f"is on host {host.name}: {hosts.reason(host)}"
    elif listed is not None:
        state = listed.state
    elif child is not None:
        state = child.state
    else:
        # Nobody has reported it (yet): this leader has just begun, or the queue does not run.
        state = "unknown" if queue.running else queue.record.state.value
    epoch, pid = (child.epoch, child.pid) if child is not None else (exchange.epoch, 0)
    up = queue.running
    return ExchangeSummary(
        name=exchange_name(exchange.number),
        number=exchange.number,
        host=exchange.host,
        data=(child.data if child is not None else exchange.data) if up else "",
        live=(child.live if child is not None else exchange.live) if up else "",
        state=state,
        reason=reason,
        epoch=epoch,
        generation=queue.generation(exchange),
        pid=pid,
        origin=exchange.origin,
    )


def _plain(rows: Iterable[msgspec.Struct]) -> list[object]:
    return [msgspec.to_builtins(row) for row in rows]
