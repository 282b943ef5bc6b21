"""The answers to the public commands, for those who give them and those who read them.

A failed answer has a `COMMENT` for people, in the words that existing tools know, and a `CODE`
(`RequestError.code`) for programs.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from roq.errors import REQUEST_ERRORS, NotLeader, QueueExists, RequestError
from roq.model import Limits, LogId, QueueState
from roq.number_ranges import Amount, ExchangeNumber, Int32, Whole, WholeOrUnknown
from roq.protocol import documents
from roq.protocol.control import FAILED, NOT_LEADER, OK, Failure, failure
from roq.protocol.defined_services import DefinedServices
from roq.protocol.documents import RawDocument

SUCCESS: Final = "SUCCESS"
YES: Final = "YES"
NO: Final = "NO"
ALREADY_EXISTS: Final = "The queue already exists"


class FromMemory(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """In answers of a manager without its registry: why they may be behind."""

    seconds: Whole
    """For how long it has had none."""
    reason: str
    """Why, in a clause."""

    def __str__(self) -> str:
        """In a sentence."""
        return f"told from memory for {self.seconds} s, so it may be behind: {self.reason}"


class QueueSummary(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """One queue of the cluster, in the answer to 2101."""

    name: str
    host: str
    """Where its monitor runs."""
    state: str
    """See `roq.model.QueueState`; or `unreadable`, if its definition in the registry is."""
    running: bool
    exchanges: Whole
    durability: str
    reasons: list[str] = []
    """What is wrong with it and what becomes of it, in sentences; empty if all is well."""
    slow_subscriber: str = ""
    """`hold` or `drop`, by its rules; empty: not known."""
    hold_seconds: Whole = 0
    """So long publishers wait for a subscriber that does not read on."""

    @property
    def shown_state(self) -> str:
        """Its state; one that runs, but not all of it, is `degraded`."""
        return _shown_state(self.state, self.reasons)


class ProcessSummary(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A monitor or exchange process on a host, in the answer to 2102."""

    child: str
    """`<queue>.monitor` or `<queue>.x<number>`."""
    role: str
    queue: str
    number: ExchangeNumber
    state: str
    reason: str
    restarts: Whole
    epoch: Whole
    pid: Int32


class HostSummary(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """One host of the cluster, in the answer to 2102."""

    host: str
    control: str
    """Address of its host manager."""
    exchanges: Whole
    monitors: Whole
    exchange_max: Whole
    """Exchanges that may run there; 0: no limit."""
    cpu: Amount
    """Percent of the machine."""
    memory_bytes: Whole
    state: str
    """`live`, `silent`, `unmanaged` (its manager is gone, but processes on it live), `lost`, or
    `awaited` (not heard of by this leader yet)."""
    reason: str = ""
    """Why it is in this state, in a clause; empty if it is live."""
    children: list[ProcessSummary]
    provided: bool = False
    """A provider has made it, and gets it back when nothing is on it."""
    epoch: Whole = 0
    """Of its manager, a later one has a higher one; 0: it has not reported to this leader yet."""
    schedule: str = "active"
    """`active`; `cordoned`: nothing new is placed there; `draining`: and what is there goes."""
    left: list[str] = []
    """If it is draining: what is still there, by name, and what that waits for."""
    stuck: str = ""
    """If it is draining: why what is left cannot go elsewhere; empty as long as it may."""

    @property
    def shown_state(self) -> str:
        """Its state; of one that is live, whether anything is placed there."""
        if self.state != "live" or self.schedule == "active":
            return self.state
        return "drained" if self.schedule == "draining" and not self.left else self.schedule


class ExchangeSummary(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """One exchange of a queue, in the answers to 2103 and 2104."""

    name: str
    number: ExchangeNumber
    host: str
    data: str
    """Where publishers send; empty until it runs."""
    live: str
    """Where subscribers listen; empty until it runs."""
    state: str
    """Of its process; or `lost`, `missing`, `host silent`, …"""
    reason: str = ""
    """What is wrong with it and what becomes of it, in a clause; empty if it runs."""
    epoch: Whole
    """Of its process."""
    generation: Whole = 0
    """Of its log: the epoch of the process that has made it; 0: none has been told."""
    pid: Int32
    origin: str = "manual"
    """`creation`: it came with its queue; `manual`: it was added by hand; `scaling`: it was added
    because of the load, or for one that is away, and goes by itself, too."""

    @property
    def log(self) -> LogId:
        """The log that it serves."""
        return LogId(self.number, self.generation)


class DepartedExchange(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """An exchange that went, or is going, for good."""

    number: ExchangeNumber
    epoch: Whole
    """Of its last process; 0: it never had one, or it is not known."""
    generation: Whole = 0
    """Of its log; 0: not known."""
    end: WholeOrUnknown
    """The offset where the log of that process ends; -1: not known."""


class QueueDescription(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """Everything about a queue: the answer to 2104."""

    name: str
    host: str
    state: str
    running: bool
    durability: str
    monitor: str
    """Where clients ask; empty unless it runs."""
    statistics: str
    """Address of the KPI stream; empty unless it runs."""
    created: Amount
    """Seconds since 1970."""
    queue_id: str
    """Hexadecimal."""
    limits: Limits
    exchanges: list[ExchangeSummary]
    departed: list[DepartedExchange] = []
    """The exchanges that went last, at most 128, the latest at the end."""
    life: Whole = 0
    """So many exchanges have gone in all; a named publisher has another id in each life."""
    rules: dict[str, object]
    """The scaling rules as documents; empty if there are none. See `Cluster.get_rules`."""
    services: DefinedServices = {}
    """Settings of its services, by name or `*` for all: they hold whatever clients choose."""
    reasons: list[str] = []
    """What is wrong with it and what becomes of it, in sentences; empty if all is well."""
    from_memory: FromMemory | None = None
    """Why this may be behind; None, and not there on the wire: it is not."""

    @property
    def created_at(self) -> datetime:
        """When it was created."""
        return datetime.fromtimestamp(self.created, UTC)

    @property
    def shown_state(self) -> str:
        """As of a `QueueSummary`."""
        return _shown_state(self.state, self.reasons)


def _shown_state(state: str, reasons: list[str]) -> str:
    return "degraded" if reasons and state == QueueState.RUNNING else state


def done(comment: str = SUCCESS, **fields: object) -> RawDocument:
    """The answer to a request that worked."""
    return {"RESULT": OK, "COMMENT": comment, **fields}


def warning(answer: RawDocument) -> str:
    """What a command that was carried out has left to be done, in a sentence; empty: nothing."""
    told = answer.get("WARNING", "")
    return told if isinstance(told, str) else ""


def from_memory(seconds: float, reason: str) -> RawDocument:
    """What such an answer has beside everything else."""
    return {"FromMemory": msgspec.to_builtins(FromMemory(seconds=int(seconds), reason=reason))}


def failed(error: RequestError) -> RawDocument:
    """The answer to a request that did not."""
    if isinstance(error, NotLeader) and error.endpoint:
        return {"RESULT": NOT_LEADER, "COMMENT": error.endpoint, "CODE": error.code}
    comment = ALREADY_EXISTS if isinstance(error, QueueExists) else str(error)
    return {"RESULT": FAILED, "COMMENT": comment, "CODE": error.code}


def failure_of(error: RequestError, request_id: int = 0) -> Failure:
    """The answer that refuses one of RoQ's own requests.

    A manager that does not lead says so in the same way whether it knows the leader or not.
    """
    if isinstance(error, NotLeader):
        return Failure(
            id=request_id, RESULT=NOT_LEADER, COMMENT=str(error), CODE=error.code,
            ENDPOINT=error.endpoint,
        )  # fmt: skip
    return failure(request_id, str(error), error.code)


def refusal(error: RequestError, request_id: int = 0) -> bytes:
    """The frame that refuses a request; one of RoQ's own (it has an id) gets a `Failure`."""
    if request_id == 0:
        return documents.encode_raw(failed(error))
    return documents.encode(failure_of(error, request_id))


def error_of(document: RawDocument) -> RequestError | None:
    """The error that an answer carries, for clients; None if the request worked."""
    result = document.get("RESULT")
    if result == OK:
        return None
    comment = str(document.get("COMMENT", ""))
    if result == NOT_LEADER:
        return NotLeader("this configuration manager does not lead", comment)
    return REQUEST_ERRORS.get(str(document.get("CODE", "")), RequestError)(comment)
