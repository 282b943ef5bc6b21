"""The logical queues: their definitions, and where their processes are at the moment.

Definitions are what the registry holds. Addresses come from the answers of host managers and from
their reports: a child that was restarted has a higher epoch and new addresses, and takes the place
of the one before. A child on another host than the definition says, or of a lower epoch, is none of
the queue's (any more).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from roq.errors import QueueNotFound, QueueStopped
from roq.gcm.state.records import EPOCH_END, ExchangeRecord, QueueRecord, Snapshot, Transactions
from roq.model import QueueState
from roq.protocol.public import is_address
from roq.protocol.reports import ChildInfo

MONITOR: Final = 0
"""The number under which a queue's monitor stands among its children."""


@dataclass(slots=True)
class Queue:
    """One queue."""

    record: QueueRecord
    transactions: dict[str, int] = field(default_factory=dict)
    children: dict[int, ChildInfo] = field(default_factory=dict)
    """Number of the exchange (0: the monitor) → the latest process."""
    missing: dict[int, str] = field(default_factory=dict)
    """Number of an exchange whose host does not have its log → what that has said, in a sentence.
    """
    not_started: dict[int, str] = field(default_factory=dict)
    """Number of an exchange with a log that its host has refused to start → what that said last."""
    refused: set[int] = field(default_factory=set)
    """Numbers of exchanges that never ran, and whose definition is to go."""
    refusing: set[str] = field(default_factory=set)
    """Hosts that have not started one more exchange of it when they were asked last."""
    unsaved: bool = False
    """Whether a process has addresses that do not stand in the registry."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.record.name

    @property
    def running(self) -> bool:
        """Whether clients can use it."""
        return self.record.state is QueueState.RUNNING

    @property
    def monitor(self) -> str:
        """Where clients ask."""
        child = self.children.get(MONITOR)
        return child.control if child is not None else self.record.monitor

    @property
    def statistics(self) -> str:
        """Where its KPI stream is."""
        child = self.children.get(MONITOR)
        return child.statistics if child is not None else self.record.statistics

    def place(self, number: int) -> str:
        """The host of this exchange (0: the monitor); empty if there is none of this number."""
        if number == MONITOR:
            return self.record.host
        exchange = self.record.exchange(number)
        return exchange.host if exchange is not None else ""

    def floor(self, number: int) -> int:
        """The lowest epoch that a process of this number may have, by the definition."""
        if number == MONITOR:
            return self.record.epoch
        exchange = self.record.exchange(number)
        return exchange.epoch if exchange is not None else 0

    def epoch(self, number: int) -> int:
        """The epoch of the latest process of this number that is known."""
        child = self.children.get(number)
        return max(self.floor(number), child.epoch if child is not None else 0)

    def generation(self, exchange: ExchangeRecord) -> int:
        """Of its log, as last told; 0: none has been."""
        child = self.children.get(exchange.number)
        return (child.generation if child is not None else 0) or exchange.generation

    def observe(self, child: ChildInfo, host: str) -> None:
        """Take in how a child is, as its host says.

        A child of another queue id or host, of a lower epoch, or one that this queue does not have
        (yet or any more) is none of it. One that restarts keeps its old addresses until it runs
        again.
        """
        number = MONITOR if child.role == "monitor" else child.number
        if child.queue_id != self.record.queue_id or self.place(number) != host:
            return
        if child.epoch < self.epoch(number):
            return
        known = self.children.get(number)
        if child.state != "running":
            if known is not None:
                self.children[number] = msgspec.structs.replace(
                    known,
                    state=child.state,
                    reason=child.reason,
                    restarts=child.restarts,
                    pid=child.pid,
                )
            return
        self.children[number] = child
        self.missing.pop(number, None)
        self.not_started.pop(number, None)
        if known is None or _addresses(known) != _addresses(child):
            self.unsaved = self.with_addresses() != self.record

    def hear(self, epoch: int, control: str) -> None:
        """Its monitor itself has told where it answers; its host tells nothing at the moment."""
        if not self.epoch(MONITOR) < epoch < EPOCH_END or not is_address(control):
            return
        known = self.children.get(MONITOR)
        self.children[MONITOR] = ChildInfo(
            child=f"{self.name}.monitor",
            role="monitor",
            queue=self.name,
            queue_id=self.record.queue_id,
            epoch=epoch,
            state="running",
            control=control,
            statistics=known.statistics if known is not None else self.record.statistics,
        )

    def with_addresses(self) -> QueueRecord:
        """The record with the addresses of the processes that run now."""
        record = self.record
        monitor = self.children.get(MONITOR)
        if monitor is not None:
            record = msgspec.structs.replace(
                record,
                monitor=monitor.control,
                statistics=monitor.statistics,
                epoch=monitor.epoch,
            )
        for number, child in self.children.items():
            exchange = record.exchange(number)
            if number != MONITOR and exchange is not None:
                record = record.replacing(
                    msgspec.structs.replace(
                        exchange,
                        data=child.data,
                        live=child.live,
                        epoch=child.epoch,
                        generation=self.generation(exchange),
                    )
                )
        return record


class Queues:
    """All queues, and the slots that operations have reserved."""

    def __init__(self) -> None:
        self._queues: dict[str, Queue] = {}
        self.reserved: dict[tuple[str, int], str] = {}
        """(queue, number of a process that is being placed; 0: the monitor) → host."""
        self.unreadable: dict[str, str] = {}
        """Name that is taken by a definition that nobody can read → what is wrong with it."""
        self.defects: dict[str, tuple[str, ...]] = {}
        """Queue → what else of it in the registry cannot be read, in sentences."""

    def __iter__(self) -> Iterator[Queue]:
        return iter(sorted(self._queues.values(), key=lambda queue: queue.name))

    def get(self, name: str) -> Queue | None:
        """The queue of this name, if there is one."""
        return self._queues.get(name)

    def demand(self, name: str) -> Queue:
        """The queue of this name.

        Raises:
            QueueNotFound: there is none.
            QueueStopped: its definition cannot be read.
        """
        queue = self._queues.get(name)
        if queue is None:
            self.check_readable(name)
            raise QueueNotFound(f"queue {name!r} does not exist; `roq queue list` shows all")
        return queue

    def check_readable(self, name: str) -> None:
        """Refuse a name that is taken by a definition that nobody can read.

        Raises:
            QueueStopped: it is.
        """
        if name in self.unreadable:
            raise QueueStopped(
                f"queue {name!r} cannot be used: its definition in the registry is unreadable "
                f"({self.unreadable[name]}); `roq queue remove {name}` removes it"
            )

    def demand_running(self, name: str) -> Queue:
        """The queue of this name, that clients can use.

        Raises:
            QueueNotFound: there is none.
            QueueStopped: it does not run.
        """
        queue = self.demand(name)
        if not queue.running:
            hint = {
                QueueState.CREATING: "it is being created; try again",
                QueueState.STARTING: "it is being started; try again",
                QueueState.REMOVING: "it is being removed",
            }.get(queue.record.state, f"start it with `roq queue start {name}`")
            raise QueueStopped(f"queue {name!r} does not run ({queue.record.state}): {hint}")
        return queue

    def demand_same(self, name: str, queue_id: bytes) -> Queue:
        """The running queue of this name whose monitor asks.

        Raises:
            QueueNotFound: there is none, or only a later one of this name.
            QueueStopped: it does not run.
        """
        queue = self.demand_running(name)
        if queue.record.queue_id != queue_id:
            raise QueueNotFound(f"queue {name!r} is another one by now")
        return queue

    def put(self, record: QueueRecord) -> Queue:
        """A definition stands in the registry (now)."""
        queue = self._queues.get(record.name)
        if queue is None or queue.record.queue_id != record.queue_id:
            queue = self._queues[record.name] = Queue(record)
        queue.record = record
        if record.state is QueueState.STOPPED:
            queue.children.clear()
        numbers = {each.number for each in record.exchanges}
        queue.missing = {each: why for each, why in queue.missing.items() if each in numbers}
        queue.not_started = {
            each: why for each, why in queue.not_started.items() if each in numbers
        }
        queue.refused &= numbers
        for number, child in list(queue.children.items()):
            if child.epoch < queue.floor(number):
                del queue.children[number]  # another one takes its place
        queue.unsaved = queue.with_addresses() != record
        return queue

    def drop(self, name: str) -> None:
        """A definition stands in the registry no more."""
        self._queues.pop(name, None)
        self.unreadable.pop(name, None)
        self.defects.pop(name, None)

    def clear(self) -> None:
        """Forget all; this manager does not lead any more."""
        self._queues.clear()
        self.reserved.clear()
        self.unreadable.clear()
        self.defects.clear()

    def load(self, snapshot: Snapshot, keep: frozenset[str] = frozenset()) -> None:
        """Take over what the registry says, except for the queues that an operation works on."""
        told = {record.name: record for record in snapshot.queues}
        for name in [name for name in self._queues if name not in told and name not in keep]:
            del self._queues[name]
        for name, record in told.items():
            if name not in keep:
                queue = self.put(record)
                queue.transactions = dict(snapshot.transactions.get(name, ()))
        self.unreadable = {
            name: why for name, why in snapshot.unreadable.items() if name not in keep
        }
        self.defects = dict(snapshot.defects)

    def placed(self) -> tuple[dict[str, int], dict[str, int]]:
        """How many exchanges, and how many monitors, have been given to each host."""
        slots: dict[tuple[str, int], str] = {}
        for queue in self._queues.values():
            if queue.record.state is QueueState.STOPPED:
                continue
            slots[queue.name, MONITOR] = queue.record.host
            for exchange in queue.record.exchanges:
                slots[queue.name, exchange.number] = exchange.host
        exchanges: dict[str, int] = {}
        monitors: dict[str, int] = {}
        for (_, number), host in (slots | self.reserved).items():
            count = monitors if number == MONITOR else exchanges
            count[host] = count.get(host, 0) + 1
        return exchanges, monitors

    def hosts_in_use(self) -> frozenset[str]:
        """Where something of a queue belongs, also of one that is stopped."""
        placed = {host for queue in self._queues.values() for host in queue.record.hosts}
        return frozenset(placed.union(self.reserved.values()))

    def without_logs(self) -> frozenset[str]:
        """Hosts that do not have a log which they should have, or may not: the disk of it is not
        there, or nobody has looked since they are back."""
        lacking = {
            queue.place(number) for queue in self._queues.values() for number in queue.missing
        }
        for queue in self._queues.values():
            if queue.record.state is not QueueState.STOPPED:
                lacking |= {
                    each.host
                    for each in queue.record.exchanges
                    if each.away and each.number not in queue.not_started
                }
        return frozenset(lacking)

    def monitors_for(self, host: str) -> dict[str, str]:
        """Queue → address of its monitor, for the queues with an exchange on this host."""
        return {
            queue.name: queue.monitor
            for queue in self._queues.values()
            if queue.monitor
            and queue.record.state is not QueueState.STOPPED
            and any(exchange.host == host for exchange in queue.record.exchanges)
        }

    def check(self) -> None:
        """Assert that each queue fits itself."""
        for name, queue in self._queues.items():
            assert name == queue.name  # noqa: S101 - check() is for tests and simulation
            numbers = [exchange.number for exchange in queue.record.exchanges]
            assert len(numbers) == len(set(numbers))  # noqa: S101
            assert all(0 < number < queue.record.next_number for number in numbers)  # noqa: S101
            assert name not in self.unreadable  # noqa: S101


def transactions_of(queue: Queue) -> Transactions:
    """The remembered TransactionIDs as the registry holds them."""
    return tuple(queue.transactions.items())


def _addresses(child: ChildInfo) -> tuple[int, str, str, str, str]:
    return child.epoch, child.control, child.statistics, child.data, child.live
