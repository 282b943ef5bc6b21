"""What is lost, and what only seems so: pure functions of what is known at the moment.

A process is lost if its host is live and does not run it, or has given it up; or if its host is
lost. On an unmanaged host it is lost only if nothing is heard of that very process, though the one
who could tell does speak: a monitor for itself, and for the exchanges of its queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from roq.gcm.state.heartbeats import Heartbeats
from roq.gcm.state.hosts import LIVE, LOST, STARVED_SECONDS, UNMANAGED, Host, Hosts, Signs
from roq.gcm.state.queues import MONITOR, Queue
from roq.gcm.state.records import ExchangeRecord
from roq.model import QueueState, exchange_name, host_epoch
from roq.timing import PROOF_SECONDS


class LossKind(StrEnum):
    """How a process is lost."""

    MISSING = "missing"
    """Its host is live and does not run it."""
    FAILED = "failed"
    """Its host has given it up."""
    LOST = "lost"
    """Its host is gone."""


MISSING, FAILED, GONE = LossKind.MISSING, LossKind.FAILED, LossKind.LOST


@dataclass(frozen=True, slots=True)
class Loss:
    """A process that does not run and will not by itself.

    Attributes:
        number: of the exchange; 0: the monitor.
        host: where it should run.
        kind: in which way it is lost.
        why: what is wrong, in a clause that follows the name.
        certain: it cannot be that a report is just under way that tells otherwise.
    """

    number: int
    host: str
    kind: LossKind
    why: str
    certain: bool = True

    @property
    def name(self) -> str:
        """What it is."""
        return part_name(self.number)

    @property
    def text(self) -> str:
        """What is wrong, in a sentence."""
        return f"{self.name} {self.why}"


def part_name(number: int) -> str:
    """The name of a queue's process as people read it."""
    return "the monitor" if number == MONITOR else exchange_name(number)


def away_text(queue: Queue, exchange: ExchangeRecord, hosts: Hosts) -> str:
    """What is wrong with an exchange that is away, in a clause that follows its name."""
    host = exchange.host
    missing = queue.missing.get(exchange.number, "")
    if not hosts.lost(host):
        if missing:
            stopped = queue.record.state is QueueState.STOPPED
            again = f"; `roq queue start {queue.name}` looks for it again" * stopped
            return f"is away: {missing}{again}"
        refused = queue.not_started.get(exchange.number, "")
        if refused:
            return f"is away: {refused}"
        return f"is away: its log is on host {host}, which is to start it"
    return f"is away: its log is on host {host}, which is lost; it is back when that host is"


def losses(queue: Queue, hosts: Hosts, heartbeats: Heartbeats) -> list[Loss]:
    """What a running queue has lost; the monitor first."""
    found = (loss(queue, number, hosts, heartbeats) for number in parts(queue))
    return [each for each in found if each is not None]


def parts(queue: Queue) -> list[int]:
    """The numbers of the processes that a running queue has; the monitor first."""
    exchanges = queue.record.exchanges
    return [MONITOR, *(each.number for each in exchanges if each.state == "created")]


def unready(queue: Queue, number: int, hosts: Hosts) -> str:
    """What a process waits for that is not lost, in a clause; empty if it runs."""
    host = hosts.live(queue.place(number))
    child = host.child(queue.record.queue_id, number) if host is not None else None
    if host is None or child is None or child.state == "running":
        return ""
    return f"is {child.state} on host {host.name}" + f": {child.reason}" * bool(child.reason)


def loss(queue: Queue, number: int, hosts: Hosts, heartbeats: Heartbeats) -> Loss | None:
    """In which way this process of a queue is lost; None if it is not, or nobody can tell."""
    host = hosts.get(queue.place(number))
    if host is None:
        return None
    if host.state is LIVE:
        return _on_live(queue, number, host)
    if host.state is LOST:
        return Loss(number, host.name, GONE, f"was on host {host.name}, which is lost")
    if host.state is UNMANAGED and _is_unheard(queue, number, host, hosts, heartbeats):
        why = f"is not heard of on host {host.name}, whose manager is gone"
        return Loss(number, host.name, GONE, why)
    return None


def _on_live(queue: Queue, number: int, host: Host) -> Loss | None:
    child = host.child(queue.record.queue_id, number)
    if child is None:
        # A later manager tells at once which processes of the one before it has taken over.
        later = host.report is not None and host.report.epoch > host_epoch(queue.epoch(number))
        return Loss(number, host.name, MISSING, f"does not run on host {host.name}", later)
    if child.state == "failed":
        why = f"has failed on host {host.name}: {child.reason or 'the reason is not known'}"
        return Loss(number, host.name, FAILED, why)
    if child.epoch < queue.floor(number):
        why = f"is a superseded process on host {host.name}"
        return Loss(number, host.name, MISSING, why, certain=False)
    return None


def _is_unheard(
    queue: Queue, number: int, host: Host, hosts: Hosts, heartbeats: Heartbeats
) -> bool:
    # What else lives there says nothing about this process, so it gets no more time by that.
    patience = STARVED_SECONDS if host.starved else PROOF_SECONDS
    if hosts.elapsed(host.heard) < patience or heartbeats.lives(queue, number):
        return False
    return number == MONITOR or heartbeats.settled(queue)


def signs_of_life(queues: Iterable[Queue], hosts: Hosts, heartbeats: Heartbeats) -> Signs:
    """What the proofs say of the hosts that neither report nor have a node.

    Of a host with exchanges whose monitors are elsewhere and being restarted just now, nobody can
    tell for the moment.
    """
    unheard = {host.name for host in hosts.unheard()}
    if not unheard:
        return Signs()
    alive: Counter[str] = Counter()
    doubt: set[str] = set()
    for queue in queues:
        record = queue.record
        if not queue.running or unheard.isdisjoint(record.hosts):
            continue
        if record.host in unheard and heartbeats.lives(queue, MONITOR):
            alive[record.host] += 1
        speechless = record.host not in unheard and not heartbeats.settled(queue)
        for exchange in record.exchanges:
            if exchange.host in unheard and heartbeats.lives(queue, exchange.number):
                alive[exchange.host] += 1
            elif exchange.host in unheard and speechless:
                doubt.add(exchange.host)
    return Signs(alive, frozenset(doubt))
