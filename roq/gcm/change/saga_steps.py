"""What a saga is, and its steps: place, save, start, stop, and what may come back from each.

A saga is a change in several steps, each of which needs something of another party: a generator
that yields what it needs (`Save` to the registry, `Draw` from its counter, `Calls` to host
managers, `Admit` to a host on which something is to be started, `Emit` for effects without an
answer), is sent the outcome, and returns the answer to its request; a `RequestError` that leaves it
is the answer as well.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

import msgspec

from roq.errors import (
    REQUEST_ERRORS,
    HostNotFound,
    LocalProtocolError,
    LogMissing,
    NoCapacity,
    NotLeader,
    RegistryAway,
    RequestError,
)
from roq.gcm.events import Change, Drop, Effect, LogLine, Put
from roq.gcm.state.heartbeats import Heartbeats
from roq.gcm.state.hosts import LOST, UNMANAGED, Host, Hosts
from roq.gcm.state.losses import Loss, loss, losses
from roq.gcm.state.queues import MONITOR, Queue, Queues
from roq.gcm.state.records import (
    EVERYTHING,
    LOGS,
    LOGS_PATH,
    ExchangeRecord,
    QueueRecord,
    RemovedLog,
    encode,
    queue_path,
)
from roq.gcm.state.removed_logs import RemovedLogs, described, folder
from roq.model import child_epoch, host_epoch
from roq.policy import placement
from roq.protocol.control import (
    UNAVAILABLE,
    Control,
    Done,
    Failure,
    Started,
    StartExchange,
    StartMonitor,
    StopQueue,
)
from roq.protocol.documents import RawDocument
from roq.timing import START_ASKS_SECONDS, START_STARVED_ASKS_SECONDS, STOP_ASKS_SECONDS


@dataclass(frozen=True, slots=True)
class Save:
    """Change the registry; the saga goes on once it stands there, or gets the error raised."""

    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Draw:
    """Draw a number of the counter of host epochs; the saga goes on with it, or gets the error."""


@dataclass(frozen=True, slots=True)
class Call:
    """Ask the manager of one host, or a monitor."""

    host: str
    endpoint: str
    message: Control
    timeout: float = 10.0
    again: bool = False
    """Whether it is asked again and again until the time is over: a connection may be dead."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Ask several hosts at once; the saga goes on with a `Control` or a reason (str) for each."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Emit:
    """Perform these and go on."""

    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class Admit:
    """Start something on this host, once there; the saga goes on when it is its turn.

    Raises `Busy` in the saga if that takes too long. What it begins counts until it ends.
    """

    host: str


Step: TypeAlias = Save | Draw | Calls | Admit | Emit
Result: TypeAlias = Control | str | int
"""An answer, the reason why there is none, or a number that was drawn."""
Outcome: TypeAlias = list[Result]
Saga: TypeAlias = Generator[Step, Outcome, RawDocument | Control | None]
"""Gives the answer to its request; None if another part gives it."""


OPEN_ERRORS: Final = (RegistryAway, NotLeader)
"""After these it is open what was done and who leads: nothing is undone on their account."""


class Unanswered(RequestError):
    """A host has not said whether it has started something: it may run."""


class NotInTime(RequestError):
    """A host has begun to start something that did not run in time: it may have run since."""


T = TypeVar("T")
Part: TypeAlias = Generator[Step, Outcome, T]
"""A piece of a saga, which gives a T to the rest of it."""


class NoRoom(NoCapacity):
    """No host has a free slot; another host would help."""


class Steps:
    """What all sagas of one leader work on, and the steps that they share.

    Attributes:
        queues, removed, hosts, heartbeats: what there is.
        leader_epoch: host managers obey no lower one.
        cluster: host managers of another one do not obey.
    """

    def __init__(
        self, queues: Queues, removed: RemovedLogs, hosts: Hosts, heartbeats: Heartbeats
    ) -> None:
        self.queues = queues
        self.removed = removed
        self.hosts = hosts
        self.heartbeats = heartbeats
        self.leader_epoch = 0
        self.cluster = ""

    # --- what is lost -----------------------------------------------------------------------------

    def losses(self, queue: Queue) -> list[Loss]:
        """What a running queue has lost; the monitor first."""
        return losses(queue, self.hosts, self.heartbeats)

    def lost(self, queue: Queue, number: int) -> bool:
        """Whether this process of a queue (0: the monitor) does not run and will not by itself."""
        return self.loss(queue, number) is not None

    def loss(self, queue: Queue, number: int) -> Loss | None:
        """In which way this process does not run and will not by itself; None: it is not lost."""
        found = loss(queue, number, self.hosts, self.heartbeats)
        if found is None or found.certain:
            return found
        known = queue.children.get(number)  # a report that tells of it may be under way
        return found if known is None or known.state != "running" else None

    def runs(self, queue: Queue, number: int) -> bool:
        """Whether this process of a queue runs, as far as hosts and monitors have told.

        Where the manager of its host is gone, its monitor's word counts.
        """
        host = self.hosts.live(queue.place(number))
        listed = host.child(queue.record.queue_id, number) if host is not None else None
        child = listed or queue.children.get(number)
        if child is not None:
            return child.state == "running"
        return host is None and self.heartbeats.lives(queue, number)

    # --- placement --------------------------------------------------------------------------------

    def place(
        self,
        host: str,
        beside: Collection[str] = (),
        avoid: Collection[str] = (),
        *,
        durable: bool,
    ) -> str:
        """The named host if it can take an exchange, or the least loaded one if none is named.

        Args:
            host: its name; empty: none is named.
            beside: hosts that are rather not taken then.
            avoid: those that are taken only if there is no other.
            durable: it keeps a log there.

        Raises:
            HostNotFound, NoCapacity: it cannot.
            NoRoom: none is named, and no host has a free slot.
            NotLeader: a leader that is this new does not know yet; a client asks again.
        """
        loads = self._loads(durable=durable)
        try:
            if host:
                return placement.demand(loads, host)
            return placement.choose(loads, beside, avoid=avoid)
        except (HostNotFound, NoCapacity) as error:
            if self.hosts.arriving:
                raise NotLeader(f"{error}; leadership has just begun, try again") from None
            if not host:
                raise NoRoom(str(error)) from None
            raise

    def place_beside(self, queue: Queue) -> str:
        """The host for one more exchange of this queue: rather one that has none of it yet.

        Raises:
            NoRoom: no host has a free slot.
        """
        loads = self._loads(durable=queue.record.durable)
        try:
            return placement.choose(loads, exchange_hosts(queue), avoid=queue.refusing)
        except NoCapacity as error:
            raise NoRoom(str(error)) from None

    def _loads(self, *, durable: bool) -> list[placement.HostLoad]:
        lacking = self.queues.without_logs() if durable else frozenset()
        return self.hosts.loads(*self.queues.placed(), lacking)

    def place_anew(
        self, queue: Queue, numbers: Iterable[int], avoid: frozenset[str] = frozenset()
    ) -> tuple[dict[int, str], str]:
        """Hosts for these processes of a queue, beside what stays where it is.

        Args:
            queue: the queue.
            numbers: of its exchanges; 0: the monitor.
            avoid: hosts that are taken only if there is no other.

        Returns:
            Number → host, and why some have none; empty if all have one.
        """
        wanted = list(numbers)
        beside = [
            exchange.host for exchange in queue.record.exchanges if exchange.number not in wanted
        ]
        exchanges, monitors = self.queues.placed()
        places: dict[int, str] = {}
        problem = ""
        for number in wanted:
            slot = number != MONITOR
            loads = self.hosts.loads(exchanges, monitors)
            try:
                host = placement.choose(loads, beside * slot, avoid=avoid, slot=slot)
            except NoCapacity as error:
                problem = str(error)
                continue
            places[number] = host
            count = exchanges if slot else monitors
            count[host] = count.get(host, 0) + 1
            beside += [host] * slot
        return places, problem

    # --- registry ---------------------------------------------------------------------------------

    def save(self, record: QueueRecord, *more: Change) -> Part[Queue]:
        """Write a definition down."""
        yield Save((Put(queue_path(record.name), encode(record)), *more))
        return self.queues.put(record)

    def erase(self, queue: Queue) -> Part[None]:
        """Forget a queue."""
        yield from self.erase_name(queue.name)

    def erase_name(self, name: str) -> Part[None]:
        """Forget whatever stands under the name of a queue."""
        yield Save((Drop(queue_path(name)),))
        self.queues.drop(name)

    def save_removed(self, forgotten: Iterable[RemovedLog] = ()) -> Part[None]:
        """Write down which logs wait for their hosts, and tell of those that do no more."""
        self.removed.unsaved = False
        try:
            yield Save((Put(LOGS_PATH, encode(tuple(self.removed))),))
        except RequestError:
            self.removed.unsaved = True
            raise
        self.queues.defects.pop(LOGS, None)  # what could not be read is replaced
        yield Emit(tuple(map(not_told, forgotten)))

    def draw(self) -> Part[int]:
        """A number under which processes count that take the place of others on other hosts."""
        match (yield Draw()):
            case [int(number)]:
                _lowest(number)
                return number
            case _:
                raise RequestError("the registry has given no number")

    def save_moved(self, record: QueueRecord, places: Mapping[int, str]) -> Part[Queue]:
        """Write down that processes of a queue shall run elsewhere (0: the monitor).

        From then on no process of a lower epoch is the queue's.
        """
        reserved = {(record.name, number): host for number, host in places.items()}
        self.queues.reserved |= reserved
        try:
            moved = moved_to(record, places, (yield from self.draw())) if places else record
            return (yield from self.save(moved))
        finally:
            for key in reserved:
                self.queues.reserved.pop(key, None)

    # --- processes --------------------------------------------------------------------------------

    def start_monitor(self, queue: Queue, *, restarted: bool = False) -> Part[None]:
        """Start the monitor of a queue."""
        record = queue.record
        host = self.hosts.demand(record.host)
        message = StartMonitor(
            queue=queue.name,
            queue_id=record.queue_id,
            leader_epoch=self.leader_epoch,
            cluster=self.cluster,
            limits=record.limits,
            restarted=restarted,
            base=host_epoch(record.epoch),
        )
        answers = yield Calls((_start_call(host, message),))
        self._started(queue, host.name, answers[0])

    def start_exchanges(self, queue: Queue, exchanges: tuple[ExchangeRecord, ...]) -> Part[None]:
        """Start these exchanges of a queue, side by side.

        Raises:
            LogMissing: the logs of some are not there, which their queue knows; the others run.
            RequestError: not all of them run; those that do are known.
        """
        calls = []
        for exchange in exchanges:
            host = self.hosts.demand(exchange.host)
            message = StartExchange(
                queue=queue.name,
                queue_id=queue.record.queue_id,
                number=exchange.number,
                leader_epoch=self.leader_epoch,
                cluster=self.cluster,
                monitor=queue.monitor,
                limits=queue.record.limits,
                base=host_epoch(exchange.epoch),
                durability=queue.record.durability,
                has_log=queue.record.durable and queue.generation(exchange) > 0,
            )
            calls.append(_start_call(host, message))
        answers = yield Calls(tuple(calls))
        failed: RequestError | None = None
        for exchange, call, answer in zip(exchanges, calls, answers, strict=True):
            try:
                self._started(queue, call.host, answer)
            except LogMissing as error:
                queue.missing[exchange.number] = str(error)
                queue.not_started.pop(exchange.number, None)
                failed = failed or error
            except Unanswered as error:
                failed = error if failed is None or isinstance(failed, LogMissing) else failed
            except RequestError as error:
                queue.missing.pop(exchange.number, None)  # it was looked for, and is there
                queue.not_started[exchange.number] = str(error)
                failed = error if failed is None or isinstance(failed, LogMissing) else failed
        if failed is not None:
            raise failed

    def _started(self, queue: Queue, name: str, answer: Result) -> None:
        match answer:
            case Started(child=child):
                if child.epoch < queue.floor(MONITOR if child.role == "monitor" else child.number):
                    raise RequestError(f"host {name} still runs an earlier {child.child}")
                if child.role != "monitor" and child.durability != queue.record.durability:
                    raise RequestError(
                        f"host {name} runs an earlier RoQ, which keeps no log on its disk: bring "
                        "it up to date, or place durable queues elsewhere"
                    )
                queue.observe(child, name)
                host = self.hosts.get(name)
                if host is not None:
                    host.started(child)
            case Failure():
                kind = REQUEST_ERRORS.get(answer.CODE, RequestError)
                if issubclass(kind, OPEN_ERRORS):
                    kind = RequestError  # its own registry, or leader: nothing is open here
                if answer.CODE == UNAVAILABLE:
                    kind = NotInTime
                if kind is LogMissing:
                    raise LogMissing(answer.COMMENT)
                raise kind(f"host {name} refused: {answer.COMMENT}")
            case str():
                raise Unanswered(f"host {name} did not start it: {answer}")
            case _:
                raise RequestError(f"host {name} gave an unexpected answer")

    def stop_children(
        self,
        queue: Queue,
        reason: str,
        number: int = EVERYTHING,
        hosts: tuple[str, ...] = (),
        *,
        erase: bool = False,
        empty: bool = False,
    ) -> Part[list[str]]:
        """Stop processes on every host that is not lost; gives what went wrong where.

        Args:
            reason: what their clients are told.
            number: of one exchange; 0: the monitor; -1: all.
            hosts: where; empty: everywhere.
            erase: of a durable queue: their logs go with them, of hosts that do not confirm that
                when they are back.
            empty: but no log that has ever held something.
        """
        calls = []
        problems = []
        message = StopQueue(
            queue=queue.name,
            queue_id=queue.record.queue_id,
            number=number,
            leader_epoch=self.leader_epoch,
            cluster=self.cluster,
            reason=reason,
            erase=erase and queue.record.durable,
            empty=empty,
        )
        for name in hosts or queue.record.hosts:
            host = self.hosts.get(name)
            if host is not None and host.state is UNMANAGED:
                problems.append(f"host {name} has no manager that could stop them")
            elif host is not None and host.control and host.state is not LOST:
                calls.append(Call(name, host.control, message, STOP_ASKS_SECONDS, again=True))
        answers = yield Calls(tuple(calls))
        problems += [
            _stop_problem(call.host, answer) for call, answer in zip(calls, answers, strict=True)
        ]
        if erase:
            answered = zip(calls, answers, strict=True)
            told = {
                call.host: answer for call, answer in answered if isinstance(answer, Done | Failure)
            }
            problems += yield from self.note_removed(queue, number, told)
        return [problem for problem in problems if problem]

    def note_removed(
        self, queue: Queue, number: int, told: Mapping[str, Done | Failure] = MappingProxyType({})
    ) -> Part[list[str]]:
        """Write down which logs are to go when their hosts are back, before their definition goes.

        Args:
            queue: the queue.
            number: of the exchange that goes; -1: all do.
            told: what hosts that were told so have answered.

        Returns:
            What becomes of them, in sentences.
        """
        record = queue.record
        hosts = {each.host for each in record.exchanges if number in {EVERYTHING, each.number}}
        if number == EVERYTHING:
            hosts |= self.removed.hosts_of(record.queue_id)
        spared = number != EVERYTHING and not record.was_read(number)
        made = [
            RemovedLog(
                queue=queue.name, queue_id=record.queue_id, host=host, number=number, spared=spared,
                epoch=self._log_epoch(queue, number, host),
            )
            for host in sorted(hosts if record.durable else ())
        ]  # fmt: skip
        left = [each for each in made if not has_erased(told.get(each.host), each.epoch)]
        if not left:
            return []
        yield from self.save_removed(self.removed.add(left))
        does = "keeps what is in its log" if spared else "removes its logs"
        when: dict[type, str] = {
            Done: "when its data.dir is back",
            Failure: "as soon as it can",
            type(None): "when it is back",
        }
        return [
            f"host {each.host} {does} of {described(each)} {when[type(told.get(each.host))]}"
            for each in left
        ]

    def _log_epoch(self, queue: Queue, number: int, host: str) -> int:
        """Host epoch of the last process that is known to have had these logs; 0: none is."""
        known = [
            host_epoch(queue.epoch(each.number))
            for each in queue.record.exchanges
            if each.host == host and number in {EVERYTHING, each.number}
        ]
        known += [
            each.epoch
            for each in self.removed
            if (each.host, each.queue_id) == (host, queue.record.queue_id)
            and number in {EVERYTHING, each.number}
        ]
        return max(known, default=0)


def without_exchange(record: QueueRecord, number: int) -> QueueRecord:
    """The record without this exchange."""
    return msgspec.structs.replace(
        record, exchanges=tuple(each for each in record.exchanges if each.number != number)
    )


def moved_to(record: QueueRecord, places: Mapping[int, str], base: int) -> QueueRecord:
    """The record with these processes (0: the monitor) on other hosts, counted from `base`."""
    if MONITOR in places:
        record = msgspec.structs.replace(record, host=places[MONITOR], epoch=_lowest(base))
    for exchange in record.exchanges:
        if exchange.number in places:
            assert not record.durable, "an exchange stays where its log is"  # noqa: S101
            record = record.replacing(
                msgspec.structs.replace(exchange, host=places[exchange.number], epoch=_lowest(base))
            )
    return record


def _lowest(base: int) -> int:
    try:
        return child_epoch(base, 0)
    except LocalProtocolError as error:
        raise RequestError(f"the counter of epochs in the registry is unusable: {error}") from None


def with_problem(error: RequestError, problem: str) -> RequestError:
    """The error that the caller gets, with what undoing could not undo."""
    if not problem:
        return error
    return type(error)(f"{error} ({problem})")


def has_erased(answer: Result | None, epoch: int) -> bool:
    """Whether a host has no such log any more, of the one disk that may have it.

    Args:
        answer: to a `StopQueue` with `erase`.
        epoch: host epoch of the last process that is known to have had it; 0: none is.
    """
    return isinstance(answer, Done) and not 0 < epoch < answer.no_log_since


def not_told(record: RemovedLog) -> LogLine:
    """The line in the log for what its operator has to remove."""
    text = f"host {record.host} is not told any more to remove {folder(record)} in its data.dir"
    return LogLine("log_forgotten", text)


def _stop_problem(host: str, answer: Result) -> str:
    match answer:
        case Done():
            return ""
        case Failure():
            return f"host {host} refused: {answer.COMMENT}"
        case str():
            return f"host {host} did not confirm: {answer}"
        case _:
            return f"host {host} gave an unexpected answer"


def exchange_hosts(queue: Queue) -> list[str]:
    """Where the exchanges of a queue are, one entry each."""
    return [exchange.host for exchange in queue.record.exchanges if not exchange.away]


def _start_call(host: Host, message: StartMonitor | StartExchange) -> Call:
    seconds = START_STARVED_ASKS_SECONDS if host.starved else START_ASKS_SECONDS
    return Call(host.name, host.control, message, seconds, again=True)
