"""The monitors and exchanges of this host, one `Child` per role and number of a queue.

`STATES` says where each of them may stand; docs/states.md draws it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from roq.coordination.registry_contract import EPOCH_MAX, EPOCHS_AHEAD_MAX, LOST_EPOCHS
from roq.errors import ConfigError, InvalidRequest, RequestError
from roq.hcm.crash_history import CrashHistory
from roq.hcm.events import Asked, Peer, Reply
from roq.machine import Transitions
from roq.model import (
    ASYNC,
    FLUSH,
    HOST_EPOCH_MAX,
    VOLATILE,
    Limits,
    check_name,
    child_epoch,
    child_number,
    exchange_name,
    host_epoch,
    is_address,
)
from roq.protocol.control import Answer, Done, StartExchange, StartMonitor, failure
from roq.protocol.reports import ChildInfo

MONITOR: Final = "monitor"
EXCHANGE: Final = "exchange"
QUEUE_ID_BYTES_MAX: Final = 64
EVERYTHING: Final = -1
"""As a number: the monitor and all exchanges of a queue."""

Start = StartMonitor | StartExchange


SUPERSEDED: Final = "superseded"
"""What a child says that ends because a newer process has its place."""
ENDED: Final = "ended"
"""What is said of a child that is no more, by a process that may serve others."""


class State(StrEnum):
    """Where a child stands; the words of `ChildInfo.state`."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    FAILED = "failed"
    STOPPING = "stopping"


STATES: Final = Transitions(
    begin={State.STARTING: "asked for, or found running"},
    follow={
        State.STARTING: {
            State.RUNNING: "its first report",
            State.RESTARTING: "found running, and has ended",
            State.FAILED: "does not end, not even when killed",
            State.STOPPING: "not wanted any more",
        },
        State.RUNNING: {
            State.RESTARTING: "it has ended, or hangs",
            State.FAILED: "it has ended too often",
            State.STOPPING: "not wanted any more",
        },
        State.RESTARTING: {
            State.RUNNING: "its first report",
            State.FAILED: "it has ended too often, or does not end",
            State.STOPPING: "not wanted any more",
        },
        State.FAILED: {
            State.RESTARTING: "asked for again, or the host was to blame",
            State.STOPPING: "not wanted any more",
        },
    },
    end={
        State.STARTING: "its process has ended before it ever ran",
        State.RESTARTING: "its log is not there any more",
        State.FAILED: "it never ran, and its process has ended",
        State.STOPPING: "its process has ended",
    },
)


@dataclass(frozen=True, slots=True)
class Waiter:
    """A manager that waits for a child to run."""

    peer: Peer
    request_id: int
    deadline: float


@dataclass(slots=True)
class Child:
    """One monitor or exchange.

    Attributes:
        monitor: of an exchange: where its monitor is.
        durability: of an exchange: `none`; `async`, `flush`: its log is on the disk of this host.
        has_log: it has had a log there: no process of it is started where there is none.
        erase: its log goes with it.
        spares: but not if it has ever held something.
        cluster: identity of the cluster that has asked for it, as far as that is known.
        history: its crashes.
        alive: its process exists, or is just being made.
        restarted: of a monitor: exchanges of its queue may run already.
        ran: it has run once, so it is started again after a crash.
        waits: its next process waits for its turn to be started.
        killed: why it was sent SIGKILL; empty: it was not.
        excused: it was killed while this host got too little processor, which is no crash.
        begun: when its present process was started.
        deadline: when something is due: the first report, the next start, or SIGKILL.
        peer: where its reports come from.
        metrics: what it has told last about its work, by name; see `roq.hcm.metrics`.
        reason: why it does not run, in a sentence.
        stop_reason: what its clients are told when it stops.
        successor: what shall be started in its place once it is gone.
    """

    role: str
    queue: str
    queue_id: bytes
    number: int
    limits: Limits
    history: CrashHistory
    monitor: str = ""
    durability: str = VOLATILE
    has_log: bool = False
    erase: bool = False
    spares: bool = False
    cluster: str = ""
    restarted: bool = False
    state: State = State.STARTING
    epoch: int = 0
    alive: bool = False
    ran: bool = False
    waits: bool = False
    killed: str = ""
    excused: bool = False
    begun: float = 0.0
    pid: int = 0
    deadline: float | None = None
    peer: Peer | None = None
    info: ChildInfo | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    stop_reason: str = ""
    waiters: list[Waiter] = field(default_factory=list)
    successor: tuple[Start, Waiter] | None = None

    @property
    def name(self) -> str:
        """`<queue>.monitor` or `<queue>.x<number>`; no two children share one."""
        return child_name(self.queue, self.number)

    def describe(self) -> ChildInfo:
        """As configuration managers see it."""
        told = self.info
        return ChildInfo(
            child=self.name,
            role=self.role,
            queue=self.queue,
            queue_id=self.queue_id,
            number=self.number,
            epoch=self.epoch,
            generation=told.generation if told else 0,
            state=self.state,
            pid=self.pid,
            control=told.control if told else "",
            statistics=told.statistics if told else "",
            data=told.data if told else "",
            live=told.live if told else "",
            restarts=self.history.total,
            reason=self.reason,
            durability=self.durability,
        )

    def deadlines(self) -> Iterator[float]:
        """The times at which something is due."""
        if self.deadline is not None:
            yield self.deadline
        for waiter in self.waiters:
            yield waiter.deadline
        if self.successor is not None:
            yield self.successor[1].deadline

    def take_waiters(self) -> list[Waiter]:
        """Those who wait; they wait no more."""
        waiters, self.waiters = self.waiters, []
        return waiters


class Children:
    """All children, by name."""

    def __init__(self) -> None:
        self._children: dict[str, Child] = {}

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[Child]:
        return iter(list(self._children.values()))

    def get(self, name: str) -> Child | None:
        """The child of this name."""
        return self._children.get(name)

    def add(self, child: Child) -> None:
        """A new one."""
        self._children[child.name] = child

    def drop(self, child: Child) -> None:
        """It is gone for good."""
        del self._children[child.name]

    def select(self, queue: str, queue_id: bytes, number: int) -> list[Child]:
        """The children that a `StopQueue` means."""
        return [
            child
            for child in self
            if child.queue == queue
            and queue_id in {b"", child.queue_id}
            and number in {EVERYTHING, child.number}
        ]

    def of_process(self, pid: int) -> list[Child]:
        """Those whose process this is: an exchange, or some monitors."""
        return [each for each in self._children.values() if each.alive and each.pid == pid]

    def exchanges(self) -> int:
        """How many exchanges take room here."""
        return sum(
            child.role == EXCHANGE and child.state is not State.STOPPING
            for child in self._children.values()
        )

    def follow_monitors(self, told: Mapping[str, str]) -> list[Child]:
        """Take in where monitors are now; gives the exchanges whose monitor has moved.

        Args:
            told: addresses by queue, as the leader knows them. What happens on this host is known
                here sooner than there.
        """
        moved = []
        for child in self:
            if child.role != EXCHANGE:
                continue
            local = self._children.get(child_name(child.queue, 0))
            if local is not None and local.queue_id == child.queue_id:
                address = local.info.control if local.info is not None else ""
            else:
                address = told.get(child.queue, "")
            if address not in {"", child.monitor}:
                child.monitor = address
                moved.append(child)
        return moved

    def check(self) -> None:
        """Assert the invariants."""
        for name, child in self._children.items():
            assert name == child.name  # noqa: S101
            assert (child.role == MONITOR) == (child.number == 0)  # noqa: S101
            assert child.alive or child.pid == 0  # noqa: S101
            still = child.waits or child.state in {State.RESTARTING, State.FAILED}
            assert child.alive or still  # noqa: S101
            assert not (child.alive and child.waits)  # noqa: S101
            assert child.state is not State.RUNNING or (child.info and child.ran)  # noqa: S101
            assert not (child.waiters and child.state in {State.RUNNING, State.STOPPING})  # noqa: S101
            assert child.successor is None or child.state is State.STOPPING  # noqa: S101


def child_name(queue: str, number: int) -> str:
    """The name of a queue's monitor (number 0) or exchange; also that of its files."""
    return f"{queue}.{exchange_name(number) if number else MONITOR}"


def check_report(info: ChildInfo) -> tuple[int, ...]:
    """The ports at which a child tells to listen.

    Raises:
        InvalidRequest: one is missing or cannot be an address.
    """
    told = [info.control, info.statistics] if info.role == MONITOR else [info.data, info.live]
    ports = []
    for address in told:
        port = port_of(address)
        if not is_address(address) or port is None:
            raise InvalidRequest(f"{info.child[:150]!r} tells an address that cannot be one")
        ports.append(port)
    return tuple(ports)


def check_start(message: Start) -> None:
    """Refuse what no queue can ask for; names become those of files.

    Raises:
        InvalidName, InvalidRequest: says what is wrong.
    """
    check_name(message.queue)
    if not 0 < len(message.queue_id) <= QUEUE_ID_BYTES_MAX:
        raise InvalidRequest(f"a queue id has 1 to {QUEUE_ID_BYTES_MAX} bytes")
    if isinstance(message, StartExchange) and not 0 < message.number < 1 << 31:
        raise InvalidRequest(f"no exchange has number {message.number}")
    if isinstance(message, StartExchange) and message.durability not in {VOLATILE, ASYNC, FLUSH}:
        raise InvalidRequest(f"this host knows no durability {message.durability[:40]!r}")
    if not 0 <= message.base <= HOST_EPOCH_MAX:
        raise InvalidRequest(f"{message.base} is no base of epochs")


def number_of(message: Start) -> int:
    """The number of the child that shall start; 0: the monitor."""
    return message.number if isinstance(message, StartExchange) else 0


# The epochs of children: of two processes of one child, the later has the higher one.

NUMBER_MAX: Final = (1 << 16) - 1
"""Processes that one host epoch can number."""


class ChildEpochs:
    """Gives each process an epoch: the epoch of the host, and a count that rises.

    For a child that was on another host before, the configuration manager draws a base from the
    counter of host epochs. If it is higher than the epoch of the host, everything here counts under
    it from then on: epochs never fall, for any child.
    """

    def __init__(self) -> None:
        self._host = 0
        self._upper = 0
        self._number = 0

    @property
    def host(self) -> int:
        """The epoch of this host; 0 until it is registered."""
        return self._host

    @property
    def upper(self) -> int:
        """The host epoch under which children count now; 0: there was none to count."""
        return self._upper

    def registered(self, epoch: int) -> None:
        """This host has an epoch. A lower one than before says that the counter was lost."""
        self._host = max(self._host, epoch)
        self.rise(epoch)

    def adopted(self, epoch: int) -> None:
        """An earlier life of this host manager has given this epoch."""
        self.rise(host_epoch(epoch))
        if host_epoch(epoch) == self._upper:
            self._number = max(self._number, child_number(epoch))

    def rise(self, base: int) -> None:
        """Everything from now on counts under this, or what was higher already."""
        if base > self._upper:
            self._upper, self._number = base, 0

    def next(self) -> int:
        """The epoch of the next process.

        Raises:
            RequestError: all are used up.
        """
        if self._number >= NUMBER_MAX:
            raise RequestError(f"this host manager has started {NUMBER_MAX} processes: restart it")
        self._number += 1
        return child_epoch(self._upper, self._number)

    def unused(self, epoch: int) -> None:
        """No process has had this one: the next one has it, if none was given since. What is asked
        for again and again where a disk is missing would use all up in hours."""
        if self._number and epoch == child_epoch(self._upper, self._number):
            self._number -= 1


def draw_above(drawn: int, given: int) -> int:
    """Above which number a host is to draw its epoch again; 0: it may have the one that it drew.

    A registry that was restored from an older copy gives numbers again. Processes would have the
    epochs of earlier ones then, and be taken for these by who has known them.

    Args:
        drawn: what the registry has given.
        given: the highest under which this host has started anything.

    Raises:
        ConfigError: there is none above it. To draw would use up what the cluster has left.
    """
    if drawn > given or given - drawn >= EPOCHS_AHEAD_MAX:
        return 0
    if given >= EPOCH_MAX:
        raise ConfigError(
            f"data.dir: host.epoch holds {given}, above which no epoch is left: nothing can be "
            "started here. Remove that file, start this host manager again, and then all programs "
            "that publish to exchanges of this host"
        )
    return min(given + LOST_EPOCHS, EPOCH_MAX - 1)


# Which ports of this host must not be given out, because old peers may still go there.

QUARANTINE_SECONDS: Final = 600.0
"""A port is not used again for so long: old peers reconnect to the process that has it."""
QUARANTINE_MAX: Final = 8_192
"""Ports remembered; far more than the ranges hold."""


class PortBook:
    """Ports in use by children, and ports that were in use a short while ago.

    Children choose for themselves, by binding; this book only says what to keep away from.
    """

    def __init__(self) -> None:
        self._used: dict[str, frozenset[int]] = {}
        self._left: deque[tuple[float, int]] = deque(maxlen=QUARANTINE_MAX)

    def took(self, child: str, ports: Iterable[int]) -> bool:
        """A child tells where it listens; whether that is new."""
        before = self._used.get(child, frozenset())
        self._used[child] = before | frozenset(ports)
        return self._used[child] != before

    def left(self, child: str, now: float) -> None:
        """The process of a child has ended."""
        for port in sorted(self._used.pop(child, ())):
            self._left.append((now + QUARANTINE_SECONDS, port))

    def rest(self, ports: Iterable[int], now: float) -> None:
        """These must not be used for a while, by any process."""
        self._left.extend((now + QUARANTINE_SECONDS, port) for port in ports)

    def avoid(self, now: float) -> list[int]:
        """Ports that a child that starts now must not take."""
        while self._left and self._left[0][0] <= now:
            self._left.popleft()
        used = {port for ports in self._used.values() for port in ports}
        return sorted(used.union(port for _, port in self._left))


def port_of(endpoint: str) -> int | None:
    """The port of `tcp://host:port`, None if there is none."""
    _, _, digits = endpoint.rpartition(":")
    if digits.isascii() and digits.isdigit() and len(digits) <= 5 and 0 < int(digits) < 65_536:
        return int(digits)
    return None


# Those who wait until children are gone.


LOGS: Final = ""
"""Among the children that are left: logs of those that do not run here."""


@dataclass(slots=True)
class Stop:
    """One request to stop something: answered when nothing of it is left, as in `Done`."""

    peer: Peer
    request_id: int
    left: set[str]
    deadline: float
    no_log_since: int = 0
    problem: str = ""
    """Why a log that was to go stays, in a sentence."""

    def reply(self) -> Reply:
        """The answer, when nothing is left."""
        if self.problem:
            message: Answer = failure(self.request_id, self.problem, RequestError.code)
            return Reply(self.peer, message)
        return Reply(self.peer, Done(id=self.request_id, no_log_since=self.no_log_since))


class Stops:
    """All such requests that are not answered yet."""

    def __init__(self) -> None:
        self._stops: list[Stop] = []

    def __len__(self) -> int:
        return len(self._stops)

    def add(self, stop: Stop) -> None:
        """Wait for these children."""
        self._stops.append(stop)

    def erased(self, asked: Asked, no_log_since: int, problem: str) -> list[Stop]:
        """The logs were removed of which this request has asked; gives what is complete now."""
        mine = (each for each in self._stops if (each.peer, each.request_id) == asked)
        stop = next((each for each in mine if LOGS in each.left), None)
        if stop is not None:
            stop.no_log_since, stop.problem = no_log_since, stop.problem or problem
            stop.left.discard(LOGS)
        return self._take_complete()

    def gone(self, child: str, problem: str = "") -> list[Stop]:
        """A child is gone; gives the requests that are complete now.

        Args:
            child: its name.
            problem: why its log stays, though it was to go; empty: it does not.
        """
        for stop in self._stops:
            if child in stop.left:
                stop.problem = stop.problem or problem
            stop.left.discard(child)
        return self._take_complete()

    def _take_complete(self) -> list[Stop]:
        complete = [stop for stop in self._stops if not stop.left]
        self._stops = [stop for stop in self._stops if stop.left]
        return complete

    def expire(self, now: float) -> list[Stop]:
        """Requests that took too long."""
        late = [stop for stop in self._stops if now >= stop.deadline]
        self._stops = [stop for stop in self._stops if now < stop.deadline]
        return late

    def next_deadline(self) -> float | None:
        """When the next one has taken too long."""
        return min((stop.deadline for stop in self._stops), default=None)
