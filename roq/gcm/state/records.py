"""What the leader writes into the registry, as readable JSON, so that a later leader can go on.

    /queues/<name>                definition, state and last known addresses: `QueueRecord`
    /queues/<name>/rules          scaling rules: the fields of command 2006
    /queues/<name>/transactions   the last TransactionIDs with the exchange each one made
    /queues/<name>/listeners      addresses that are told when the rules are set
    /queues/:hosts                what is wanted of hosts that get nothing new: `Mark` by host
    /queues/:logs                 logs that are to go when their hosts are back: `RemovedLog`

A definition stands there before anything of it is started (state `creating`, `starting`, …), so
nothing runs of which the registry does not know. What is read back is hostile: a definition that
makes no sense is `unreadable`, and nothing else suffers from it; further nodes are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isfinite
from typing import Final, TypeVar

import msgspec

from roq.errors import InvalidName, RequestError
from roq.model import VOLATILE, Limits, QueueState, check_name
from roq.number_ranges import (
    CHILD_EPOCH_MAX,
    UNREADABLE,
    Amount,
    ChildEpoch,
    ExchangeNumber,
    ExchangeOrAll,
    HostEpoch,
    Whole,
    WholeOrUnknown,
)
from roq.protocol.defined_services import DefinedServices, checked_services
from roq.protocol.public import (
    DURABILITIES,
    LIMIT_RANGES,
    SetRules,
    check_address,
    check_host,
)

QUEUES: Final = "/queues"
HOSTS: Final = ":hosts"
LOGS: Final = ":logs"
"""These stand among the queues, and no queue can have such a name."""
EVERYTHING: Final = -1
"""Number that means all exchanges of a queue, and its monitor."""
REMOVED_MAX: Final = 1_000
"""Logs that wait for their hosts; all fit one document of ZooKeeper."""
MARKS_MAX: Final = 2_000
"""Hosts of which anything is wanted; all fit one document of ZooKeeper."""
CREATION: Final = "creation"
MANUAL: Final = "manual"
SCALING: Final = "scaling"
TRANSACTIONS_MAX: Final = 1_000
"""TransactionIDs that are remembered per queue."""
EXCHANGES_MAX: Final = 2_048
"""Exchanges that a definition may name."""
DEPARTED_MAX: Final = 128
"""Exchanges that have gone and are remembered."""
NUMBER_END: Final = 1 << 31
OFFSET_END: Final = 1 << 63
EPOCH_END: Final = CHILD_EPOCH_MAX + 1
QUEUE_ID_BYTES_MAX: Final = 64
TOPICS_EARLIER_MAX: Final = 10_000_000
"""So many topics an earlier version let a queue have; it gets as many as are allowed now."""
WORDS_MAX: Final = 200
"""Characters of what is said about an unreadable document."""


AWAY: Final = "away"
EXCHANGE_STATES: Final = frozenset({"creating", "created", "removing", AWAY})


class Manager(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration manager, as it presents itself to the others."""

    id: str
    """Unique for each process."""
    client: str
    management: str
    broadcast: str


class ExchangeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange of a queue."""

    number: ExchangeNumber
    host: str
    state: str = "creating"
    """`creating` until it has run for the first time, then `created`; `removing` at the end.
    `away`: its host is lost with its log, or does not have that at the moment: it runs again when
    that is back, nowhere else."""
    transaction: str = ""
    """TransactionID of the request that is making it."""
    origin: str = MANUAL
    """`creation`: it came with its queue; `manual`: it was added by hand; `scaling`: it was added
    because of the load, or for one that is away, and goes by itself, too."""
    data: str = ""
    live: str = ""
    epoch: ChildEpoch = 0
    """Of the latest process that is known; one of a lower epoch is superseded."""
    generation: ChildEpoch = 0
    """Of its log, see `LogId`; 0: none has been told."""
    replaces: ExchangeNumber = 0
    """Number of the exchange that is to go from its host, and for which this one was made."""

    @property
    def wanted(self) -> bool:
        """Whether it is to run when its queue does."""
        return self.state != "removing"

    @property
    def away(self) -> bool:
        """Whether its host is gone with its log, or does not have that at the moment."""
        return self.state == AWAY

    @property
    def here(self) -> bool:
        """Whether it is to run, and its host is not gone with its log."""
        return self.state in {"creating", "created"}


class Mark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is wanted of a host."""

    cordoned: bool = False
    """An operator wants nothing new to be placed there."""
    drained: bool = False
    """An operator wants it to hold nothing."""
    leaving: HostEpoch = 0
    """Epoch of its manager that was told to stop, and wants it to hold nothing; 0: none was."""


Marks = dict[str, Mark]
"""Host → what is wanted of it; the others are not mentioned."""


class RemovedLog(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was removed while its host was away, and is to go from the disk of that."""

    queue: str
    queue_id: bytes
    host: str
    number: ExchangeOrAll = EVERYTHING
    spared: bool = False
    """It was not read to its end: what holds something is left on the disk, and told of."""
    epoch: HostEpoch = 0
    """Host epoch of the last process that is known to have had it; 0: none is."""


class DepartedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An exchange that went, or is going, for good."""

    number: ExchangeNumber
    epoch: ChildEpoch = 0
    """Of its last process; 0: it never had one, or it is not known."""
    generation: ChildEpoch = 0
    """Of its log; 0: not known."""
    end: WholeOrUnknown = -1
    """Where the log of that process ends; -1: nobody knows."""


class QueueRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One logical queue."""

    name: str
    queue_id: bytes
    state: QueueState
    host: str
    """Where the monitor runs."""
    created: Amount
    """Seconds since 1970."""
    durability: str = VOLATILE
    limits: Limits = Limits()
    services: DefinedServices = {}
    """Settings of its services."""
    transaction: str = ""
    """TransactionID of the request that has created it."""
    monitor: str = ""
    statistics: str = ""
    epoch: ChildEpoch = 0
    """Of the latest monitor that is known; one of a lower epoch is superseded."""
    next_number: ExchangeNumber = 1
    exchanges: tuple[ExchangeRecord, ...] = ()
    departed: tuple[DepartedRecord, ...] = ()
    """Those that went last, the latest at the end."""
    life: Whole = 0
    """Rises with each exchange that goes: what it alone knew of named publishers goes with it."""

    @property
    def durable(self) -> bool:
        """Whether its exchanges have logs on their disks, so that each belongs where its log is."""
        return self.durability != VOLATILE

    def departing(self, gone: DepartedRecord) -> QueueRecord:
        """The record that says where the log of this exchange ends."""
        others = (each for each in self.departed if each.number != gone.number)
        return msgspec.structs.replace(
            self, departed=(*others, gone)[-DEPARTED_MAX:], life=self.life + 1
        )

    def was_read(self, number: int) -> bool:
        """Whether an exchange that has gone was emptied before."""
        return any(each.number == number and each.end >= 0 for each in self.departed)

    def exchange(self, number: int) -> ExchangeRecord | None:
        """The exchange of this number, if there is one."""
        return next((record for record in self.exchanges if record.number == number), None)

    @property
    def here(self) -> list[ExchangeRecord]:
        """The exchanges that are neither to go nor away."""
        return [each for each in self.exchanges if each.here]

    @property
    def surplus(self) -> int:
        """How many exchanges more it has here than it was given, by its creation and by hand; below
        0: how many less, as some are away."""
        replaced = {each.replaces for each in self.exchanges if each.here}
        # What goes from its host as another one is there for it counts no more.
        staying = [each for each in self.exchanges if each.wanted and each.number not in replaced]
        given = sum(each.origin != SCALING for each in staying)
        return sum(each.here for each in staying) - given

    @property
    def removable(self) -> list[int]:
        """Exchanges that may go by themselves: no more than it has beyond what it was given."""
        made = [each.number for each in self.exchanges if each.here and each.origin == SCALING]
        return made[max(0, len(made) - max(0, self.surplus)) :]

    def replacing(self, changed: ExchangeRecord) -> QueueRecord:
        """The record with this exchange in the place of the one with its number."""
        return msgspec.structs.replace(
            self,
            exchanges=tuple(
                changed if record.number == changed.number else record for record in self.exchanges
            ),
        )

    @property
    def hosts(self) -> list[str]:
        """Everywhere something of this queue belongs, the monitor's host first."""
        return list(dict.fromkeys([self.host, *(record.host for record in self.exchanges)]))

    @property
    def epochs(self) -> list[int]:
        """Of the latest processes that are known."""
        return [self.epoch, *(record.epoch for record in self.exchanges)]


Transactions = tuple[tuple[str, ExchangeNumber], ...]
"""(TransactionID, number of the exchange), the oldest first."""


class Snapshot(msgspec.Struct, frozen=True):
    """The definitions that stand in the registry."""

    queues: tuple[QueueRecord, ...] = ()
    rules: dict[str, SetRules] = {}
    transactions: dict[str, Transactions] = {}
    listeners: dict[str, tuple[str, ...]] = {}
    unreadable: dict[str, str] = {}
    """Name → why the definition under it cannot be used."""
    defects: dict[str, tuple[str, ...]] = {}
    """Queue → what else of it cannot be read, in sentences."""
    marks: Marks = {}
    removed: tuple[RemovedLog, ...] = ()


HOSTS_PATH: Final = f"{QUEUES}/{HOSTS}"
"""Where stands what is wanted of hosts."""
LOGS_PATH: Final = f"{QUEUES}/{LOGS}"
"""Where stands which logs are to go when their hosts are back."""
BESIDE_QUEUES: Final = {
    HOSTS_PATH: "which hosts are cordoned",
    LOGS_PATH: "which logs were removed while their hosts were away",
}
"""What is no queue's, by path: what stands there."""


def queue_path(name: str) -> str:
    """Where the definition of a queue stands."""
    return f"{QUEUES}/{name}"


def rules_path(name: str) -> str:
    """Where the rules of a queue stand."""
    return f"{QUEUES}/{name}/rules"


def transactions_path(name: str) -> str:
    """Where the TransactionIDs of a queue stand."""
    return f"{QUEUES}/{name}/transactions"


def listeners_path(name: str) -> str:
    """Where the addresses of those stand who are told when the rules of a queue are set."""
    return f"{QUEUES}/{name}/listeners"


def encode(
    document: msgspec.Struct | Transactions | tuple[str | RemovedLog, ...] | Marks,
) -> bytes:
    """The JSON of a document."""
    return msgspec.json.encode(document)


def decode_manager(data: bytes) -> Manager | None:
    """Who a manager is, None if it cannot be read (another version wrote it)."""
    try:
        manager = _decode(data, Manager)
        for address in (manager.client, manager.management, manager.broadcast):
            check_address(address)
    except (_Unreadable, RequestError):
        return None
    return manager


def is_host(name: str) -> bool:
    """Whether a node of this name may be one of a host."""
    try:
        check_host(name)
    except RequestError:
        return False
    return True


def decode_snapshot(documents: dict[str, bytes]) -> Snapshot:
    """The definitions out of the documents below `/queues`, by path."""
    queues: list[QueueRecord] = []
    rules: dict[str, SetRules] = {}
    transactions: dict[str, Transactions] = {}
    listeners: dict[str, tuple[str, ...]] = {}
    unreadable: dict[str, str] = {}
    defects: dict[str, tuple[str, ...]] = {}
    marks: Marks = {}
    removed: tuple[RemovedLog, ...] = ()
    for path, data in sorted(documents.items()):
        _, _, name, *rest = path.split("/")
        if not _is_name(name) and path not in BESIDE_QUEUES:
            continue  # no queue can have this one
        try:
            match rest:
                case [] if path == HOSTS_PATH:
                    marks = _marks(_decode(data, Marks))
                case [] if path == LOGS_PATH:
                    removed = _removed(_decode(data, tuple[RemovedLog, ...]))
                case []:
                    queues.append(_checked(name, _decode(data, QueueRecord)))
                case ["rules"]:
                    rules[name] = _decode(data, SetRules)
                case ["transactions"]:
                    transactions[name] = _decode(data, Transactions)[-TRANSACTIONS_MAX:]
                case ["listeners"]:
                    listeners[name] = _addresses(_decode(data, tuple[str, ...]))
                case _:
                    continue  # written by a later version
        except _Unreadable as error:
            if rest or path in BESIDE_QUEUES:
                what = f"its {rest[0]} in the registry are" if rest else f"{BESIDE_QUEUES[path]} is"
                text = f"{what} unreadable and not in force: {error}"
                defects[name] = (*defects.get(name, ()), text)
            else:
                unreadable[name] = str(error)
    return Snapshot(
        tuple(queues), rules, transactions, listeners, unreadable, defects, marks, removed
    )


def readable(documents: dict[str, bytes]) -> dict[str, bytes]:
    """Those of the documents below `/queues` that are in force: of queues that can be read."""
    snapshot = decode_snapshot(documents)
    names = {queue.name for queue in snapshot.queues}
    kinds: tuple[tuple[Callable[[str], str], Iterable[str]], ...] = (
        (queue_path, names),
        (rules_path, names & snapshot.rules.keys()),
        (transactions_path, names & snapshot.transactions.keys()),
        (listeners_path, names & snapshot.listeners.keys()),
    )
    paths = [path(name) for path, found in kinds for name in found]
    unread = {queue_path(name) for name in snapshot.defects}
    paths += [path for path in BESIDE_QUEUES if path in documents and path not in unread]
    return {path: documents[path] for path in paths}


def _is_name(name: str) -> bool:
    try:
        check_name(name)
    except InvalidName:
        return False
    return True


class _Unreadable(Exception):
    """A document is not what it should be; says why."""


T = TypeVar("T")


def _decode(data: bytes, kind: type[T]) -> T:
    if not data:
        raise _Unreadable("it is empty, or the registry does not permit to read it")
    try:
        return msgspec.json.decode(data, type=kind)
    except UNREADABLE as error:
        raise _Unreadable(str(error)[:WORDS_MAX]) from None


def _marks(given: Marks) -> Marks:
    if len(given) > MARKS_MAX:
        raise _Unreadable(f"it names {len(given)} hosts")
    for host, mark in given.items():
        if not is_host(host) or mark.leaving < 0:
            raise _Unreadable(f"it says something impossible of host {host[:40]!r}")
    return given


def _removed(given: tuple[RemovedLog, ...]) -> tuple[RemovedLog, ...]:
    for each in given:
        fits = 0 < len(each.queue_id) <= QUEUE_ID_BYTES_MAX and each.number != 0
        if not (fits and _is_name(each.queue) and is_host(each.host)):
            raise _Unreadable(f"it says something impossible of queue {each.queue[:40]!r}")
    return given[-REMOVED_MAX:]


def _addresses(given: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return tuple(check_address(address) for address in given)
    except RequestError as error:
        raise _Unreadable(str(error)[:WORDS_MAX]) from None


def _checked(name: str, record: QueueRecord) -> QueueRecord:
    """The record, if it makes sense as the definition of the queue of this name."""
    topics = LIMIT_RANGES["topics"][1]
    if topics < record.limits.topics <= TOPICS_EARLIER_MAX:
        limits = msgspec.structs.replace(record.limits, topics=topics)
        record = msgspec.structs.replace(record, limits=limits)
    try:
        problem = _problem_of(name, record)
    except (InvalidName, RequestError) as error:
        problem = str(error)
    if problem:
        raise _Unreadable(problem[:WORDS_MAX])
    return record


def _problem_of(name: str, record: QueueRecord) -> str:
    if check_name(record.name) != name:
        return f"it defines queue {record.name}"
    if not 0 < len(record.queue_id) <= QUEUE_ID_BYTES_MAX:
        return f"its queue id has {len(record.queue_id)} bytes"
    if not (isfinite(record.created) and 0 <= record.epoch < EPOCH_END):
        return "its creation time or epoch is impossible"
    if record.durability not in DURABILITIES:
        return f"this version knows no durability {record.durability!r}"
    for limit, (least, most) in LIMIT_RANGES.items():
        if not least <= getattr(record.limits, limit) <= most:
            return f"its {limit} is {getattr(record.limits, limit)}"
    for address in filter(None, (record.monitor, record.statistics)):
        check_address(address)
    checked_services(record.services)
    check_host(record.host)
    return _problem_of_exchanges(record)


def _problem_of_exchanges(record: QueueRecord) -> str:
    numbers = {exchange.number for exchange in record.exchanges}
    if len(numbers) != len(record.exchanges) or len(numbers) > EXCHANGES_MAX:
        return "it names an exchange twice, or far too many"
    if not all(0 < number < record.next_number <= NUMBER_END for number in numbers):
        return "the numbers of its exchanges are impossible"
    for gone in record.departed:
        fits = 0 < gone.number < record.next_number and 0 <= gone.epoch < EPOCH_END
        if not (fits and -1 <= gone.end < OFFSET_END):
            return f"what it says about exchange {gone.number}, which has gone, is impossible"
    for exchange in record.exchanges:
        check_host(exchange.host)
        for address in filter(None, (exchange.data, exchange.live)):
            check_address(address)
        if exchange.state not in EXCHANGE_STATES or not 0 <= exchange.epoch < EPOCH_END:
            return f"exchange {exchange.number} has an impossible state or epoch"
    return ""
