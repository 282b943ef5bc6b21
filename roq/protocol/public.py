"""The public commands of the configuration manager: BSON, one frame in, one frame out.

Consoles and scripts of other makers speak these, so names, numbers and types are fixed. Numbers in
requests may be int32, int64 or double; answers carry int32 wherever the value fits. Every answer
has `RESULT` (0, 1101 failed, 8 not the leader); a failed one has a `COMMENT` for people and a
`CODE` (`RequestError.code`) for programs.

`COMMANDS` is the table of the management port (5003); `reference()` makes the manual page of it.

    frame -> parse_management() -> a request struct -> … -> done() | failed() -> frame
                                \\-> Bad (answer it)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeVar

import msgspec

from roq.errors import (
    InvalidName,
    InvalidRequest,
    RemoteProtocolError,
    RequestError,
)
from roq.model import ASYNC, FLUSH, VOLATILE, check_name
from roq.model import Limits as QueueLimits
from roq.protocol import documents
from roq.protocol.control import (
    ClusterInfoRequest,
    ElasticityRequest,
    GcmRequest,
    HealthRequest,
    HostReport,
    LocateRequest,
    ScaleIn,
    ScaleOut,
)
from roq.protocol.defined_services import DefinedServices, checked_services
from roq.protocol.documents import RawDocument
from roq.protocol.public_answers import refusal
from roq.protocol.scaling_rules import (
    NUMBER_MAX,
    PARTS,
    ElasticityRule,
    ExchangeRule,
    HostRule,
    QueueRule,
    check_part,
)
from roq.protocol.version import check_version

INVALID_COMMAND: Final = "INVALID CMD Value"
T = TypeVar("T", bound=msgspec.Struct)

DURABILITIES: Final = (VOLATILE, ASYNC, FLUSH)
"""Messages live in memory, or are on a disk before they are acknowledged."""
TRANSACTION_CHARACTERS_MAX: Final = 128
_HOST: Final = re.compile(r"[A-Za-z0-9._:%-]{1,253}\Z")
_ADDRESS: Final = re.compile(r"tcp://(\[[0-9A-Fa-f:.%a-z]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})\Z")

LIMIT_RANGES: Final[dict[str, tuple[int, int]]] = {
    "message_bytes": (1, 1 << 30),
    "batch_bytes": (1, 16 << 20),
    "batch_messages": (1, 1 << 20),
    "window_bytes": (1 << 10, 1 << 32),
    "window_batches": (1, 1 << 16),
    "ring_bytes": (1 << 16, 1 << 40),
    "slow_bytes": (1 << 16, 1 << 40),
    "topics": (1, 1_000_000),
    "publishers": (1, 1_000_000),
    "throughput_bytes": (1, NUMBER_MAX),
    "exchanges_max": (1, 1_024),
    "ordered": (0, 1),
    "log_bytes": (1 << 20, 1 << 44),
    "log_seconds": (1, 100 * 365 * 24 * 60 * 60),
    "log_until_done": (0, 1),
    "message_seconds": (0, 10 * 366 * 24 * 60 * 60),
    "disk_free_bytes": (0, 1 << 44),
    "disk_free_files": (0, 1 << 32),
}
"""Limit of a queue → smallest and largest value."""


# --- requests -------------------------------------------------------------------------------------


class Public(msgspec.Struct, frozen=True, kw_only=True, tag_field="CMD", omit_defaults=True):
    """Base of every public request."""


class LocateQueue(Public, frozen=True, kw_only=True, tag=2000):
    """Where is this queue?"""

    QName: str


class RemoveQueue(Public, frozen=True, kw_only=True, tag=2001):
    """Remove a queue, running or stopped, with its monitor and exchanges."""

    QName: str


class StopQueue(Public, frozen=True, kw_only=True, tag=2002):
    """Stop the monitor and the exchanges of a queue; its definition stays."""

    QName: str


class CreateQueueOn(Public, frozen=True, kw_only=True, tag=2003):
    """Create a queue on a named host: its monitor and one exchange start there."""

    QName: str
    Host: str
    Durability: str = ""
    """`flush`: messages are acknowledged when they are on the disk of an exchange, and outlive its
    process; `async`: when they are written, and synced within 100 ms; `none`: they live in the
    memory of the exchanges. Empty: what the managers are set to, `flush` as shipped."""
    Limits: dict[str, int] = {}
    Services: DefinedServices = {}
    """Settings of its services, by name or `*`: they hold whatever clients choose."""
    TransactionID: str | int = ""
    """The same one again finds the queue created instead of refusing."""


class CreateExchange(Public, frozen=True, kw_only=True, tag=2004):
    """Start one more exchange; the same transaction id again changes nothing.

    Without a host: on the least loaded one, rather on one that has none of the queue yet.
    """

    QName: str
    Host: str = ""
    TransactionID: str | int = ""


class StartQueue(Public, frozen=True, kw_only=True, tag=2005):
    """Start a stopped queue."""

    QName: str


class SetRules(Public, frozen=True, kw_only=True, tag=2006):
    """Set the scaling rules of a queue; they replace the ones before."""

    QName: str
    AUTOSCALING_NAME: str
    AUTOSCALING_HOST: HostRule | None = None
    AUTOSCALING_XCHANGE: ExchangeRule | None = None
    AUTOSCALING_Q: QueueRule | None = None
    AUTOSCALING_ROQ: ElasticityRule | None = None


class GetRules(Public, frozen=True, kw_only=True, tag=2007):
    """Read the scaling rules of a queue."""

    QName: str


class RegisterListener(Public, frozen=True, kw_only=True, tag=2008):
    """Push the rules of a queue to a PULL socket whenever they are set."""

    QName: str
    Address: str


class CloudProperties(Public, frozen=True, kw_only=True, tag=2009):
    """Read the cloud settings; secrets are never told."""


class CreateQueue(Public, frozen=True, kw_only=True, tag=2010):
    """Create a queue on the least loaded live host."""

    QName: str
    Durability: str = ""
    """As in 2003."""
    Limits: dict[str, int] = {}
    Services: DefinedServices = {}
    """As in 2003."""
    TransactionID: str | int = ""
    """As in 2003."""


class DefineServices(Public, frozen=True, kw_only=True, tag=2105):
    """Define the settings of a queue's services; they replace the ones before."""

    QName: str
    Services: DefinedServices
    """As in 2003; empty: none are defined."""


class QueueExistsRequest(Public, frozen=True, kw_only=True, tag=2011):
    """Is there a queue of this name?"""

    QName: str


class RemoveExchange(Public, frozen=True, kw_only=True, tag=2100):
    """Empty an exchange and stop it; while it is not empty yet, the command may be repeated."""

    QName: str
    Exchange: str | int
    """Its name (`x2`) or its number."""
    Forget: bool = False
    """Give it up although its host is gone with its log, or it does not run; only then."""


class ListQueues(Public, frozen=True, kw_only=True, tag=2101):
    """List all queues."""


class ListHosts(Public, frozen=True, kw_only=True, tag=2102):
    """List all hosts with what runs on them."""


class ListExchanges(Public, frozen=True, kw_only=True, tag=2103):
    """List the exchanges of a queue."""

    QName: str


class DescribeQueue(Public, frozen=True, kw_only=True, tag=2104):
    """Tell everything about a queue."""

    QName: str


class CordonHost(Public, frozen=True, kw_only=True, tag=2110):
    """Place nothing new on a host; what is there stays."""

    Host: str


class UncordonHost(Public, frozen=True, kw_only=True, tag=2111):
    """Place on a host as on any other; takes `CordonHost` and `DrainHost` back."""

    Host: str


class DrainHost(Public, frozen=True, kw_only=True, tag=2112):
    """Cordon a host, and have everything on it go elsewhere; answered as soon as that is noted."""

    Host: str


class RemoveHost(Public, frozen=True, kw_only=True, tag=2113):
    """Forget a host that is gone."""

    Host: str
    Force: bool = False
    """Its machine is gone for good: what belongs there is lost, and set up again elsewhere."""


HostCommand = CordonHost | UncordonHost | DrainHost | RemoveHost

ManagementRequest = (
    RemoveQueue | StopQueue | CreateQueueOn | CreateExchange | StartQueue | SetRules | GetRules
    | RegisterListener | CloudProperties | CreateQueue | QueueExistsRequest | RemoveExchange
    | ListQueues | ListHosts | ListExchanges | DescribeQueue | DefineServices
    | HostCommand
)  # fmt: skip
"""What the management port understands."""


# --- the table ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Command:
    """One row of the manual."""

    number: int
    name: str
    request: type[Public]
    answer: str
    """What comes back when it works, beside RESULT 0."""
    changes: bool = False
    """Whether it needs the registry."""


COMMANDS: Final[tuple[Command, ...]] = (
    Command(
        2001, "remove queue", RemoveQueue,
        "`COMMENT` SUCCESS, `WARNING` (only if hosts have still something to do)", changes=True,
    ),
    Command(2002, "stop queue", StopQueue, "`COMMENT` SUCCESS", changes=True),
    Command(2003, "create queue on a host", CreateQueueOn, "`COMMENT` SUCCESS, `Host`", True),
    Command(2004, "create exchange", CreateExchange,
            "`COMMENT` SUCCESS, `Exchange` (name), `Number`", True),
    Command(
        2005, "start queue", StartQueue,
        "`COMMENT` SUCCESS, `WARNING` (only if exchanges do not run)", changes=True,
    ),
    Command(2006, "set scaling rules", SetRules, "`COMMENT` SUCCESS", True),
    Command(2007, "get scaling rules", GetRules,
            "`COMMENT`, `AUTOSCALING_NAME` and the sub-documents that are set"),
    Command(2008, "register for rule updates", RegisterListener,
            "`COMMENT` SUCCESS; the answer of 2007 is pushed to the address after each 2006", True),
    Command(2009, "cloud properties", CloudProperties,
            "`cloud.use` (bool), `cloud.user`, `cloud.endpoint`, `cloud.gateway`"),
    Command(2010, "create queue, host chosen", CreateQueue, "`COMMENT` SUCCESS, `Host`", True),
    Command(2011, "queue exists", QueueExistsRequest, "`COMMENT` YES; 1101 NO if there is none"),
    Command(2100, "remove exchange", RemoveExchange,
            "`COMMENT` SUCCESS, `Exchange` (name), `Number`, `WARNING` (as 2001); 1101 with `CODE` "
            "not_empty while it is being emptied. One with a log that is away, or does not run, is "
            "given up with `Forget` only",
            True),
    Command(2101, "list queues", ListQueues, "`Queues`: a list of `QueueSummary`"),
    Command(2102, "list hosts", ListHosts, "`Hosts`: a list of `HostSummary`"),
    Command(2103, "list exchanges", ListExchanges, "`Exchanges`: a list of `ExchangeSummary`"),
    Command(2104, "describe queue", DescribeQueue, "the fields of `QueueDescription`"),
    Command(2105, "define services", DefineServices, "`COMMENT` SUCCESS", True),
    Command(2110, "cordon host", CordonHost, "`COMMENT` SUCCESS", True),
    Command(2111, "uncordon host", UncordonHost, "`COMMENT` SUCCESS", True),
    Command(2112, "drain host", DrainHost,
            "`COMMENT` SUCCESS; 2102 tells in `Left` and `Stuck` how far it is", True),
    Command(2113, "remove host", RemoveHost, "`COMMENT` SUCCESS", True),
)  # fmt: skip

_BY_NUMBER: Final = {command.number: command for command in COMMANDS}
_CLIENT_REQUESTS: Final[dict[int, type[GcmRequest]]] = {
    3000: ClusterInfoRequest,
    3001: LocateRequest,
    3004: HealthRequest,
    3010: HostReport,
    3020: ScaleOut,
    3021: ScaleIn,
    3022: ElasticityRequest,
}


def reference() -> str:
    """The table of commands in Markdown."""
    lines = ["| CMD | name | fields | answer |", "|---|---|---|---|"]
    for command in COMMANDS:
        fields = ", ".join(
            f"`{field.name}`" if field.required else f"`{field.name}` (optional)"
            for field in msgspec.structs.fields(command.request)
        )
        lines.append(f"| {command.number} | {command.name} | {fields or '-'} | {command.answer} |")
    return "\n".join(lines) + "\n"


# --- parsing --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bad:
    """A frame that is no request; `answer()` is what its sender gets."""

    error: RequestError
    id: int = 0
    """Number of the request, if it was one of RoQ's own."""

    def answer(self) -> bytes:
        """The frame to send back."""
        return refusal(self.error, self.id)


def parse_management(data: bytes) -> ManagementRequest | Bad:
    """What a frame on the management port (5003) asks for."""
    try:
        document, number = _open(data)
        if number not in _BY_NUMBER:
            return Bad(InvalidRequest(INVALID_COMMAND))
        request = _convert(document, _BY_NUMBER[number].request)
        return _checked(request)
    except RequestError as error:
        return Bad(error)


def parse_client(data: bytes) -> LocateQueue | GcmRequest | Bad:
    """What a frame on the client port (5000) asks for."""
    request_id = 0
    try:
        document, number = _open(data)
        if number == 2000:
            located: LocateQueue = _convert(document, LocateQueue)
            return located
        kind = _CLIENT_REQUESTS.get(number)
        if kind is None:
            return Bad(InvalidRequest(INVALID_COMMAND))
        given = document.get("id", 0)
        request_id = given if isinstance(given, int) and 0 < given <= NUMBER_MAX else 0
        check_version(document)
        request: GcmRequest = _convert(document, kind)
    except RequestError as error:
        return Bad(error, request_id)
    return request


def check_host(host: str) -> str:
    """Give a host id (an address or a name) back if it can be one.

    Raises:
        InvalidRequest: it cannot be the address of a host.
    """
    if _HOST.match(host) is None:
        raise InvalidRequest(
            f"{_short(host)} is no host: use the address under which its host manager registered"
        )
    return host


def check_address(address: str) -> str:
    """Give a ZeroMQ TCP address back if others can connect to it.

    Raises:
        InvalidRequest: it is not tcp://host:port.
    """
    if not is_address(address):
        raise InvalidRequest(f"{_short(address)} is no address: use tcp://host:port")
    return address


def is_address(address: str) -> bool:
    """Whether this is a ZeroMQ TCP address to which others can connect."""
    match = _ADDRESS.match(address)
    return match is not None and 0 < int(match.group(2)) < 65_536


def check_limit(name: str, value: int) -> None:
    """Say what is wrong with one limit.

    Raises:
        InvalidRequest: there is no such limit, or this is no whole number of its range.
    """
    if name not in LIMIT_RANGES:
        raise InvalidRequest(f"unknown limit {name!r:.42}; there are {', '.join(LIMIT_RANGES)}")
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidRequest(f"limit {name} is a whole number, not {value!r:.40}")
    low, high = LIMIT_RANGES[name]
    if not low <= value <= high:
        raise InvalidRequest(f"limit {name} must be from {low} to {high}, not {value}")


def limits_of(given: dict[str, int]) -> QueueLimits:
    """The limits of a new queue: the given ones, and the defaults for the rest.

    A ring smaller than the default largest message makes the largest message smaller as well,
    unless that is given too.

    Raises:
        InvalidRequest: an unknown limit, or a number out of its range.
    """
    for name, value in given.items():
        check_limit(name, value)
    limits = msgspec.structs.replace(QueueLimits(), **given)
    if limits.message_bytes <= limits.ring_bytes:
        return limits
    if "message_bytes" in given:
        raise InvalidRequest(
            f"message_bytes {limits.message_bytes} does not fit ring_bytes {limits.ring_bytes}: "
            "a message must fit the ring of an exchange"
        )
    return msgspec.structs.replace(limits, message_bytes=limits.ring_bytes)


def check_limits(limits: QueueLimits, durability: str) -> QueueLimits:
    """Give the limits of a new queue back if they go with its durability.

    Raises:
        InvalidRequest: says which one does not.
    """
    if limits.log_until_done and durability == VOLATILE:
        raise InvalidRequest(
            "log_until_done says when a log on a disk lets files go, and a queue with durability "
            "none has no such log: what its groups have done makes room in memory by itself. Leave "
            "the limit out, or create the queue with durability flush or async"
        )
    return limits


def _open(data: bytes) -> tuple[RawDocument, int]:
    if not data:
        raise InvalidRequest("expected exactly one frame with a BSON document, INVALID REQUEST")
    try:
        document = documents.decode_raw(data)
    except RemoteProtocolError as error:
        raise InvalidRequest(f"{error}, INVALID REQUEST") from None
    if "CMD" not in document:
        raise _missing("CMD")
    number = document["CMD"]
    if not isinstance(number, int) or isinstance(number, bool):
        raise InvalidRequest(INVALID_COMMAND)
    return document, number


def _convert(document: RawDocument, kind: type[T]) -> T:
    _demand(document, kind)
    if kind is SetRules:
        for name, part in PARTS.items():
            inner = document.get(name)
            if isinstance(inner, dict):
                _demand(inner, part)
    try:
        # A JavaScript client says null for what it leaves out.
        return documents.convert({k: v for k, v in document.items() if v is not None}, kind)
    except RemoteProtocolError as error:
        raise InvalidRequest(f"{error}, INVALID REQUEST") from None


def _demand(document: RawDocument, kind: type[msgspec.Struct]) -> None:
    for name in _needed(kind):
        if document.get(name) is None:
            raise _missing(name)


@cache
def _needed(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields that every request of a kind has; msgspec reads annotations anew to tell them."""
    return tuple(field.name for field in msgspec.structs.fields(kind) if field.required)


def _missing(field: str) -> InvalidRequest:
    return InvalidRequest(f"The {field} field is not present, INVALID REQUEST")


def _checked(request: Public) -> ManagementRequest:
    """Values that types alone do not rule out."""
    name = getattr(request, "QName", None)
    if name is not None:
        try:
            check_name(name)
        except InvalidName as error:
            raise InvalidRequest(str(error)) from None
    match request:
        case CreateQueueOn():
            check_host(request.Host)
            _check_definition(request)
        case CreateQueue():
            _check_definition(request)
        case DefineServices():
            checked_services(request.Services)
        case CordonHost() | UncordonHost() | DrainHost() | RemoveHost():
            check_host(request.Host)
        case CreateExchange():
            if request.Host:
                check_host(request.Host)
            _check_transaction(request.TransactionID)
        case RegisterListener():
            check_address(request.Address)
        case SetRules():
            _check_rules(request)
        case _:
            pass
    return request  # type: ignore[return-value]  # one of the table


def _check_transaction(transaction: str | int) -> None:
    if len(str(transaction)) > TRANSACTION_CHARACTERS_MAX:
        raise InvalidRequest(f"a TransactionID has at most {TRANSACTION_CHARACTERS_MAX} characters")


def _check_definition(request: CreateQueueOn | CreateQueue) -> None:
    durability = request.Durability
    if durability and durability not in DURABILITIES:
        raise InvalidRequest(
            f"Durability {_short(durability)} is not available, only {', '.join(DURABILITIES)}"
        )
    limits_of(request.Limits)
    checked_services(request.Services)
    _check_transaction(request.TransactionID)


def _check_rules(request: SetRules) -> None:
    if not 0 < len(request.AUTOSCALING_NAME) <= 256:
        raise InvalidRequest("AUTOSCALING_NAME must have 1 to 256 characters")
    for name in PARTS:
        part = getattr(request, name)
        if part is not None:
            check_part(part)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")
