"""The answers to the public commands, for those who give them and those who read them.

A failed answer has a `COMMENT` for people, in the words that existing tools know, and a `CODE`
(`RequestError.code`) for programs.
"""

from __future__ import annotations

from typing import Final

import msgspec

from roq.errors import REQUEST_ERRORS, NotLeader, QueueExists, RequestError
from roq.model import Limits as QueueLimits
from roq.protocol import documents
from roq.protocol.control import FAILED, NOT_LEADER, OK, Failure, failure
from roq.protocol.documents import RawDocument
from roq.ranges import Amount, ExchangeNumber, Int32, Whole, WholeOrUnknown

SUCCESS: Final = "SUCCESS"
YES: Final = "YES"
NO: Final = "NO"
ALREADY_EXISTS: Final = "The queue already exists"


class MemoryNote(msgspec.Struct, frozen=True, kw_only=True):
    """In answers to 2101-2104 of a manager without its registry: what they tell may be behind."""

    Seconds: Whole
    """For how long it has had no registry."""
    Reason: str
    """Why, in a clause."""


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue in the answer to 2101."""

    Name: str
    Host: str
    """Where its monitor runs."""
    State: str
    """`roq.model.QueueState`, or `unreadable`."""
    Running: bool
    Exchanges: Whole
    Durability: str
    Reasons: list[str] = []
    """What is wrong with it and what becomes of it, in sentences; empty if all is well."""
    SlowSubscriber: str = ""
    """`hold` or `drop`, by its rules; empty: not known."""
    HoldSeconds: Whole = 0
    """So long publishers wait for a subscriber that does not read on."""


class ChildRow(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a host in the answer to 2102."""

    Child: str
    Role: str
    Queue: str
    Number: ExchangeNumber
    State: str
    Reason: str
    Restarts: Whole
    Epoch: Whole
    Pid: Int32


class HostRow(msgspec.Struct, frozen=True, kw_only=True):
    """A host in the answer to 2102."""

    Host: str
    Control: str
    """Address of its host manager."""
    Exchanges: Whole
    Monitors: Whole
    ExchangeMax: Whole
    """0: no limit."""
    Cpu: Amount
    """Percent of the machine."""
    MemoryBytes: Whole
    State: str
    """`live`; `silent`: no report for some seconds; `unmanaged`: its manager is gone, but processes
    on it live; `lost`; `awaited`: it has not reported to this leader yet."""
    Reason: str = ""
    """Why it is in this state, in a clause; empty if it is live."""
    Children: list[ChildRow]
    Provided: bool = False
    """A provider has made it, and gets it back when nothing is on it."""
    Epoch: Whole = 0
    """Of its manager, a later one has a higher one; 0: it has not reported to this leader yet."""
    Schedule: str = "active"
    """`active`; `cordoned`: nothing new is placed there; `draining`: and what is there goes."""
    Left: list[str] = []
    """If it is draining: what is still there, by name, and what that waits for."""
    Stuck: str = ""
    """If it is draining: why what is left cannot go elsewhere; empty as long as it may."""


class ExchangeRow(msgspec.Struct, frozen=True, kw_only=True):
    """An exchange in the answers to 2103 and 2104."""

    Name: str
    Number: ExchangeNumber
    Host: str
    Data: str
    """Where publishers send; empty until it runs."""
    Live: str
    """Where subscribers listen; empty until it runs."""
    State: str
    """Of its process; or `lost`, `missing`, `host silent`, …"""
    Reason: str = ""
    """What is wrong with it and what becomes of it, in a clause; empty if it runs."""
    Epoch: Whole
    Pid: Int32
    Origin: str = "manual"
    """`creation`: it came with its queue; `manual`: it was added by hand; `scaling`: it was added
    because of the load, and goes by itself, too."""


class DepartedRow(msgspec.Struct, frozen=True, kw_only=True):
    """An exchange in the answer to 2104 that went, or is going, for good."""

    Number: ExchangeNumber
    Epoch: Whole
    """Of its last process; 0: it never had one, or nobody knows."""
    End: WholeOrUnknown
    """The offset where the log of that process ends; -1: nobody knows."""


class QueueDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to 2104, beside RESULT and COMMENT."""

    Name: str
    Host: str
    State: str
    Running: bool
    Durability: str
    Monitor: str
    """Where clients ask; empty unless it runs."""
    Statistics: str
    """Address of the KPI stream; empty unless it runs."""
    Created: Amount
    """Seconds since 1970."""
    QueueId: str
    """Hexadecimal."""
    Limits: QueueLimits
    Exchanges: list[ExchangeRow]
    Departed: list[DepartedRow] = []
    """The exchanges that went last, at most 128, the latest at the end."""
    Life: Whole = 0
    """So many exchanges have gone in all; a named publisher has another id in each life."""
    Rules: dict[str, object]
    """The 2007 document, without RESULT and COMMENT; empty if there are none."""
    Reasons: list[str] = []
    """What is wrong with it and what becomes of it, in sentences; empty if all is well."""
    FromMemory: MemoryNote | msgspec.UnsetType = msgspec.UNSET
    """As in the answers to 2101-2103: only if the manager has no registry."""


def done(comment: str = SUCCESS, **fields: object) -> RawDocument:
    """The answer to a request that worked."""
    return {"RESULT": OK, "COMMENT": comment, **fields}


def from_memory(seconds: float, reason: str) -> RawDocument:
    """What such an answer has beside everything else."""
    return {"FromMemory": msgspec.to_builtins(MemoryNote(Seconds=int(seconds), Reason=reason))}


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
