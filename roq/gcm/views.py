"""What the leader tells about queues, hosts and exchanges (2101-2104) and broadcasts to all."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from roq.gcm.hosts import AWAY, LIVE, Host, Hosts
from roq.gcm.queues import MONITOR, Queue, Queues
from roq.gcm.records import ExchangeRecord
from roq.model import exchange_name
from roq.protocol.broadcast import QueueStatus
from roq.protocol.documents import RawDocument
from roq.protocol.facts import ChildInfo
from roq.protocol.public_answers import (
    ChildRow,
    ExchangeRow,
    HostRow,
    QueueDescription,
    QueueRow,
    done,
)


def list_queues(queues: Queues) -> RawDocument:
    """The answer to 2101."""
    return done(Queues=_plain(_queue_row(queue) for queue in queues))


def list_hosts(hosts: Hosts, queues: Queues, provided: frozenset[str]) -> RawDocument:
    """The answer to 2102; `provided` are the hosts that a provider has made."""
    exchanges, monitors = queues.placed()
    return done(
        Hosts=_plain(
            _host_row(
                host,
                exchanges.get(host.name, 0),
                monitors.get(host.name, 0),
                provided=host.name in provided,
            )
            for host in hosts
        )
    )


def list_exchanges(queue: Queue, hosts: Hosts) -> RawDocument:
    """The answer to 2103."""
    return done(Exchanges=_plain(exchange_rows(queue, hosts)))


def describe_queue(queue: Queue, hosts: Hosts, rules: RawDocument) -> RawDocument:
    """The answer to 2104."""
    record = queue.record
    description = QueueDescription(
        Name=queue.name,
        Host=record.host,
        State=record.state.value,
        Running=queue.running,
        Durability=record.durability,
        Monitor=queue.monitor if queue.running else "",
        Statistics=queue.statistics if queue.running else "",
        Created=record.created,
        QueueId=record.queue_id.hex(),
        Limits=record.limits,
        Exchanges=exchange_rows(queue, hosts),
        Rules=rules,
    )
    fields: RawDocument = msgspec.to_builtins(description)
    return {**done(), **fields}


def exchange_rows(queue: Queue, hosts: Hosts) -> list[ExchangeRow]:
    """The exchanges of a queue, as defined and as they run."""
    return [_exchange_row(queue, exchange, hosts) for exchange in queue.record.exchanges]


def broadcast_queues(queues: Queues) -> tuple[QueueStatus, ...]:
    """What everybody is told about the queues."""
    return tuple(QueueStatus(queue.name, queue.record.host, queue.running) for queue in queues)


def broadcast_hosts(hosts: Hosts) -> tuple[str, ...]:
    """The hosts that everybody is told of."""
    heard = (host.name for host in hosts if host.state is not AWAY)
    return tuple(sorted((*heard, *hosts.awaited())))


def _queue_row(queue: Queue) -> QueueRow:
    return QueueRow(
        Name=queue.name,
        Host=queue.record.host,
        State=queue.record.state.value,
        Running=queue.running,
        Exchanges=len(queue.record.exchanges),
        Durability=queue.record.durability,
    )


def _host_row(host: Host, exchanges: int, monitors: int, *, provided: bool) -> HostRow:
    report = host.report
    return HostRow(
        Host=host.name,
        Control=report.control,
        Exchanges=exchanges,
        Monitors=monitors,
        ExchangeMax=report.exchange_max,
        Cpu=round(report.cpu_percent, 1),
        MemoryBytes=report.memory_bytes,
        State=host.state.value,
        Children=[_child_row(child) for child in host.children],
        Provided=provided,
    )


def _child_row(child: ChildInfo) -> ChildRow:
    return ChildRow(
        Child=child.child,
        Role=child.role,
        Queue=child.queue,
        Number=MONITOR if child.role == "monitor" else child.number,
        State=child.state,
        Reason=child.reason,
        Restarts=child.restarts,
        Epoch=child.epoch,
        Pid=child.pid,
    )


def _exchange_row(queue: Queue, exchange: ExchangeRecord, hosts: Hosts) -> ExchangeRow:
    child = queue.children.get(exchange.number)
    if child is not None:
        state, epoch, pid = child.state, child.epoch, child.pid
        host = hosts.get(exchange.host)
        if host is not None and host.state is not LIVE:
            state = f"host {host.state}"
        elif state != "failed" and hosts.lost(exchange.host, child):
            state = "missing"
    else:
        # Nobody has reported it (yet): this leader has just begun, or the queue does not run.
        state = "unknown" if queue.running else queue.record.state.value
        epoch, pid = exchange.epoch, 0
    up = queue.running
    return ExchangeRow(
        Name=exchange_name(exchange.number),
        Number=exchange.number,
        Host=exchange.host,
        Data=(child.data if child is not None else exchange.data) if up else "",
        Live=(child.live if child is not None else exchange.live) if up else "",
        State=state,
        Epoch=epoch,
        Pid=pid,
        Origin=exchange.origin,
    )


def _plain(rows: Iterable[msgspec.Struct]) -> list[object]:
    return [msgspec.to_builtins(row) for row in rows]
