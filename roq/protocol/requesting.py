"""The messages of requests and responses, on the **data** socket of an exchange.

A request is a message whose topic is `service/endpoint`; a service is a consumer group, and who
answers is one of its members. What members say beside the words of `roq.protocol.consuming` stands
in their Done: what they have begun, and their answers.

    requester → exchange                         exchange → requester
    [FF q] Attend                                [FF q] Attended     (or [FF N] Refused)
    [FF w] Want (not answered by itself)         [FF v] RequestEnds  as soon as there are any
    [FF i] RequestsQuery                         [FF i] Requests

    instance → exchange                          exchange → instance
    [FF u] Figures, with each PING                [FF r] Revoked      not the instance's any more
                                                 [FF e] InstanceOrder    what an operator wants

Attend and the query are BSON, the others msgpack arrays. A request is named by where it stands in
the log: offset and index. The payload of a request begins with six bytes:

     0         1         2                   6
     +---------+---------+-------------------+
     | version |  flags  |     within, ms    |  then what the endpoint has encoded
     +---------+---------+-------------------+
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import repeat
from struct import Struct
from typing import Annotated, Final, NamedTuple, TypeVar, cast

import msgspec

from roq.errors import RemoteProtocolError
from roq.model import TOPIC_BYTES_MAX
from roq.number_ranges import NUMBER_MAX, OFFSET_MAX, UNREADABLE, ChildEpoch, Offset, Real, Whole
from roq.protocol.delayed import DELAY_SECONDS_MAX, MESSAGE_ID_BYTES

ATTEND: Final = b"\xffq"
WANT: Final = b"\xffw"
OUTCOMES: Final = b"\xffv"
REQUESTS: Final = b"\xffi"
FIGURES: Final = b"\xffu"
REVOKED: Final = b"\xffr"
INSTANCE_ORDER: Final = b"\xffe"

ENVELOPE: Final = Struct("<BBI")
ENVELOPE_VERSION: Final = 1
ONCE: Final = 1
"""Flag: the request is not idempotent. It is begun at most once."""
SILENT: Final = 2
"""Flag: nobody waits for the response."""

MORE_MAX: Final = 1_023
"""Values of one answer, beside the first one."""
WITHIN_SECONDS_MAX: Final = 86_400.0
TEXT_MAX: Final = 64 * 1024
"""Bytes of what is told of an error."""
WANT_MAX: Final = 1_000
"""Requests of each kind that one message of a requester names, or runs of them: an exchange hears
it at once."""
RUN_MAX: Final = 100
"""Requests of one `FetchedRun`."""
LISTED_MAX: Final = 1_000
"""Requests that one answer to a query names."""
TEXT_LISTED: Final = 1_000
"""Characters of each of their texts."""
ENDPOINTS_MAX: Final = 1_000
"""Endpoints of an instance of which it tells."""
DURATION_BOUNDS: Final = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0,
)  # fmt: skip
"""Seconds, of `Durations`."""
DISCARD_REASONS: Final = (
    "none registered", "all busy", "all unavailable", "not confirmed", "no such endpoint",
)  # fmt: skip
"""Why requests are discarded."""
STORE_BYTES: Final = 64 * 1024 * 1024
UNASKED: Final = NUMBER_MAX
"""Number of no question."""
SEPARATOR: Final = "/"
"""Between service and endpoint in a topic; it stands in neither of them."""

DiscardCounts = Annotated[
    dict[Annotated[str, msgspec.Meta(max_length=64)], Whole], msgspec.Meta(max_length=16)
]
"""Discarded requests by reason, of `DISCARD_REASONS`; newer exchanges may know others."""
_Seconds = Annotated[float, msgspec.Meta(ge=0.05, le=WITHIN_SECONDS_MAX)]
_Times = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
_Bytes = Annotated[int, msgspec.Meta(ge=1_024, le=1 << 34)]
_Index = Annotated[int, msgspec.Meta(ge=0, le=(1 << 20) - 1)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
_Counts = Annotated[list[Whole], msgspec.Meta(max_length=len(DURATION_BOUNDS) + 1)]
_More = Annotated[list[bytes], msgspec.Meta(max_length=MORE_MAX)]
_Text = Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]
_Settings = Annotated[
    tuple[Annotated[str, msgspec.Meta(max_length=64)], ...], msgspec.Meta(max_length=64)
]
_Name = Annotated[str, msgspec.Meta(max_length=TOPIC_BYTES_MAX)]
ServiceName = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._-]{1,128}\Z")]


quick: Final = tuple.__new__
"""Makes a named tuple in half the time that its class takes: `quick(Position, (offset, index))`."""


class RequestState(StrEnum):
    """How a request stands, or has ended."""

    ACCEPTED = "accepted"
    """In the log; no instance has it, and none has failed with it."""
    RETRYING = "retrying"
    """A handler has failed, or its instance was lost; it waits for its next attempt."""
    DELAYED = "delayed"
    """It is kept until it is due."""
    OFFERED = "offered"
    """An instance has it and has not confirmed it yet."""
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """Its handler has raised, for the last time."""
    DISCARDED = "discarded"
    """No instance has taken it."""
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    """It was begun, and its instance was lost: it may have run."""
    LATE = "late"
    """No result within its time."""
    RETRIEVED = "retrieved"
    """It has ended, and its outcome was fetched."""
    EXPIRED = "expired"
    """It has ended, and nobody has fetched its outcome in time."""
    FORGOTTEN = "forgotten"
    """It has ended, and how is not remembered any more."""
    NEVER = "never"
    """There was no such request."""


ENDS: Final = frozenset(
    {
        RequestState.DONE, RequestState.FAILED, RequestState.DISCARDED, RequestState.CANCELLED,
        RequestState.UNKNOWN, RequestState.LATE,
    }
)  # fmt: skip
"""The outcomes: each accepted request gets one of them."""


class Position(NamedTuple):
    """Where a request stands in the log of its exchange: offset, and index in that batch."""

    offset: Offset
    at: _Index


def positions_of(offset: int, first: int, count: int) -> list[Position]:
    """Where so many requests are that follow each other in one batch."""
    places = zip(repeat(offset), range(first, first + count))
    return list(map(quick, repeat(Position), places))


def keys_of(offset: int, first: int, count: int) -> list[Position]:
    """The same to look up what is kept by position: plain pairs, which cost a third."""
    return cast("list[Position]", list(zip(repeat(offset), range(first, first + count))))


DELAYED_FROM: Final = 1 << 61
"""Offsets from here on are in no log: with a delayed request they are the id of its message, as
nobody knows where it will be. Index 0."""

DELAYED_LOOKS: Final = 100
"""Delayed requests of one message of a requester that are looked for among all that waits, as each
costs much: so many are cancelled at most, and as many of those that are wanted are looked for. The
others are told when they end, and when they are asked for again."""


def delayed_position(message: bytes | str) -> Position | None:
    """As what a delayed request is known whose message has this id, or this one in hexadecimal;
    None: it is no request's."""
    if isinstance(message, str):
        try:
            message = bytes.fromhex(message)
        except ValueError:
            return None
    offset = int.from_bytes(message, "big")
    valid = len(message) == MESSAGE_ID_BYTES and DELAYED_FROM <= offset < OFFSET_MAX
    return Position(offset, 0) if valid else None


def delayed_message(position: Position) -> bytes | None:
    """The id of the message of a request that is known so; None: it was not delayed."""
    if position.offset < DELAYED_FROM or position.at:
        return None
    return position.offset.to_bytes(MESSAGE_ID_BYTES, "big")


AGAIN: Final = "roq.request.again"
"""Property: as what a request is known that its exchange has published again: offset and index,"""
AGAIN_PUBLISHER: Final = "roq.request.publisher"
"""and who has made it, in hexadecimal."""


def named_by(properties: Mapping[str, str]) -> Position | None:
    """As what a request is known that an exchange itself has published, by the properties of its
    message; None: by where it is."""
    delayed, again = properties.get("roq.delayed.id"), properties.get(AGAIN, "")
    # What it was given beside these is not an exchange's.
    if "roq.transaction.id" in properties:
        return None
    if delayed is not None:
        return delayed_position(delayed)
    offset, _, index = again.partition("-")
    valid = offset.isdecimal() and index.isdecimal() and len(again) <= len(f"{OFFSET_MAX}-") + 7
    return Position(int(offset), int(index)) if valid else None


FetchedRun = tuple[Offset, _Index, Annotated[int, msgspec.Meta(ge=1, le=RUN_MAX)]]
"""Requests of one batch that follow each other: offset, index of the first, and how many."""
_Positions = Annotated[list[Position], msgspec.Meta(max_length=WANT_MAX)]


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for all requests of a service at one exchange."""

    send_attempts: _Times = 4
    """So often an instance is looked for, and an offer repeated that nobody confirms."""
    send_wait: _Seconds = 1.0
    """Seconds between two attempts in which nobody takes it; an instance that comes ends them."""
    run_attempts: _Times = 2
    """So often is an idempotent request begun whose instance is lost."""
    confirm_within: Annotated[float, msgspec.Meta(ge=0.5, le=WITHIN_SECONDS_MAX)] = 1.0
    """An instance confirms what it is offered within so long, or it is taken back. They look at
    what has come a few times a second."""
    reply_attempts: Annotated[int, msgspec.Meta(ge=0, le=100)] = 4
    """So often an instance offers an answer elsewhere whose exchange is gone; 0: never."""
    reply_wait: _Seconds = 1.0
    """Seconds between; instances look a few times a second."""
    result_within: _Seconds = 60.0
    """A request without a result ends after so long."""
    keep_result: _Seconds = 30.0
    """An outcome that nobody fetches is kept for so long."""
    delay: Annotated[float, msgspec.Meta(ge=0, le=DELAY_SECONDS_MAX)] = 0.0
    """Requests that say nothing else are due after so many seconds; nobody gets them before."""
    store_bytes: _Bytes = STORE_BYTES
    """What stored outcomes may take at one exchange; from half of it on nothing is handed out."""
    chosen: bool = False
    """Somebody has chosen these: they replace those that the service has."""
    defined: _Settings = ()
    """Names of those that the definition of the queue says, whatever anybody chooses."""


SETTINGS: Final = ServiceSettings.__struct_fields__[:-2]
"""Names of what may be chosen and defined."""


class Begun(msgspec.Struct, frozen=True, array_like=True):
    """The instance has begun with these, or is about to."""

    lease: Whole
    first: _Index
    length: _Count
    once: bool = False
    """They must not be begun again."""


class Answer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What has become of a request, or of some that follow each other; acknowledges them."""

    lease: Whole
    index: _Index
    """Within the batch, of the first one."""
    state: RequestState = RequestState.DONE
    """`done`, `failed`, `discarded`, `late` or `cancelled`."""
    value: bytes = b""
    text: _Text = ""
    silent: bool = False
    """Nobody waits for it."""
    more: _More = []
    """The values of those that follow it: all else is alike."""


class RequestEnd(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a request has ended, or some that follow each other in one batch."""

    offset: Offset
    index: _Index
    state: RequestState
    value: bytes = b""
    text: str = ""
    attempts: Whole = 0
    """So often was it begun, as far as that is known."""
    ended_us: Whole = 0
    instance: str = ""
    more: list[bytes] = []
    """The values of those that follow it: all else is alike."""

    @property
    def count(self) -> int:
        """How many have ended so."""
        return 1 + len(self.more)

    @property
    def values(self) -> list[bytes]:
        """Of each."""
        return [self.value, *self.more]

    @property
    def positions(self) -> list[Position]:
        """Where each stands."""
        return positions_of(self.offset, self.index, 1 + len(self.more))

    @property
    def keys(self) -> list[Position]:
        """The same, as of `keys_of`."""
        return keys_of(self.offset, self.index, 1 + len(self.more))

    @property
    def position(self) -> Position:
        """Where the first one stands."""
        return quick(Position, (self.offset, self.index))

    def some(self, index: int, count: int = 1) -> RequestEnd:
        """So many of them, from the one that has this index in the batch."""
        if count == 1 + len(self.more):
            return self
        at = index - self.index
        value, more = self.more[at - 1] if at else self.value, self.more[at : at + count - 1]
        return RequestEnd(
            self.offset, index, self.state, value, self.text, self.attempts, self.ended_us,
            self.instance, more,
        )  # fmt: skip

    def each(self) -> Iterator[RequestEnd]:
        """Each of them alone."""
        alike = (self.state, self.text, self.attempts, self.ended_us, self.instance)
        state, text, attempts, ended_us, instance = map(repeat, alike)
        return map(
            RequestEnd, repeat(self.offset), range(self.index, self.index + self.count), state,
            self.values, text, attempts, ended_us, instance,
        )  # fmt: skip


class Attend(msgspec.Struct, frozen=True, kw_only=True):
    """A requester comes, or comes back; the service is made if it is not here yet."""

    id: Whole
    queue: bytes
    service: ServiceName
    settings: ServiceSettings = ServiceSettings()
    publisher: bytes = b""
    """What this publisher has requested and ends is told without being asked for; empty: none."""
    by_link: bool = False
    """And over the connection by which it publishes here, as long as it has one: whoever waits for
    its acknowledgements reads that himself."""


class Attended(msgspec.Struct, frozen=True, kw_only=True):
    """It is known here."""

    id: Whole
    """`UNASKED`: the settings have changed since it was answered."""
    generation: ChildEpoch
    settings: ServiceSettings
    service: str = ""


class Want(msgspec.Struct, frozen=True, array_like=True):
    """What a requester wants to know, has got, and does not want any more."""

    service: ServiceName
    wanted: _Positions = []
    """Tell how these have ended, as soon as they have."""
    fetched: Annotated[list[FetchedRun], msgspec.Meta(max_length=WANT_MAX)] = []
    """Their outcomes have arrived and need not be kept."""
    cancelled: _Positions = []
    """They are not to be done; one that runs is told so."""
    late: _Positions = []
    """Likewise, as their time is over."""


class RequestEnds(msgspec.Struct, frozen=True, array_like=True):
    """How requests of a service have ended."""

    service: str
    ended: list[RequestEnd] = []


class Figures(msgspec.Struct, frozen=True, array_like=True):
    """How an instance is; it says so when a PING of the exchange has come: each second or two."""

    available: bool = True
    rule: Annotated[str, msgspec.Meta(max_length=200)] = ""
    """Why it is not, or what its rule has raised."""
    busy: Whole = 0
    threads: Whole = 0
    response_ms: Real = 0.0
    """The mean of late."""
    memory_bytes: Whole = 0
    cpu_percent: Real = 0.0
    flag: bool = True
    version: Annotated[str, msgspec.Meta(max_length=64)] = ""
    endpoints: Annotated[list[_Name], msgspec.Meta(max_length=ENDPOINTS_MAX)] = []


class Revoked(msgspec.Struct, frozen=True, array_like=True):
    """These are not the instance's any more: (lease, index within the batch)."""

    requests: list[tuple[Whole, _Index]]


class InstanceOrder(msgspec.Struct, frozen=True, array_like=True):
    """An operator wants this of the instance: its flag is set, or not any more, or it ends."""

    order: Annotated[str, msgspec.Meta(pattern=r"\A(flag|unflag|drain)\Z")]


class RequestsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How do the requests of a service stand here?"""

    id: Whole
    queue: bytes
    service: ServiceName
    offset: int = -1
    """Of one request; -1: all that are open or stored, as far as one answer reaches, those that are
    open first, and of long texts the beginning and
    the end."""
    index: _Index = 0


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    """One request, without its value."""

    offset: Offset
    index: Whole
    state: RequestState
    text: str = ""
    instance: str = ""
    attempts: Whole = 0
    age_seconds: Real = 0.0
    """Since it was accepted, or since it has ended."""
    bytes: Whole = 0
    """Of the stored value."""


def shortened(view: RequestView) -> RequestView:
    """The same with a text that a list has room for."""
    if len(view.text) <= TEXT_LISTED:
        return view
    half = TEXT_LISTED // 2
    text = f"{view.text[: half - 1]}…{view.text[-half:]}"  # the last line of a traceback says why
    return msgspec.structs.replace(view, text=text)


class Durations(msgspec.Struct, frozen=True, array_like=True):
    """How long something has taken, and how often."""

    counts: _Counts = []
    """Of each of `DURATION_BOUNDS` those up to it and above the one before, and those above all;
    empty: there were none."""
    seconds: Real = 0.0
    """All together."""

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.counts)

    def at(self, part: float) -> float:
        """So long at most has this part of them taken, as far as the bounds tell; 0: there are
        none, infinity: longer than the last bound."""
        wanted, seen = part * self.count, 0
        for bound, count in zip((*DURATION_BOUNDS, math.inf), self.counts, strict=False):
            seen += count
            if count and seen >= wanted:
                return bound
        return 0.0

    def told(self, name: str) -> dict[str, float]:
        """As numbers that each have a name of their own; `among` puts them together again."""
        told = {f"{name}.{at}": float(count) for at, count in enumerate(self.counts)}
        return told | {f"{name}.seconds": self.seconds} if told else {}

    @classmethod
    def among(cls, name: str, told: Mapping[str, float]) -> Durations:
        """What `told` has made, out of numbers that others may have sent."""
        names = [f"{name}.{at}" for at in range(len(DURATION_BOUNDS) + 1)]
        counts = [max(0, int(told.get(each, 0))) for each in names]
        return cls(counts, max(0.0, told.get(f"{name}.seconds", 0.0)))


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of a service at one exchange."""

    id: Whole
    generation: ChildEpoch
    settings: ServiceSettings
    requests: list[RequestView] = []
    counts: dict[str, Whole] = {}
    """By how they have ended, since the exchange has begun; `discarded` by reason as well."""
    open: Whole = 0
    stored: Whole = 0
    stored_bytes: Whole = 0
    more: bool = False
    """There are more requests than are named."""
    accepted: Whole = 0
    retried: Whole = 0
    """Given back by their instances, to be run again; of these and those above since the exchange
    has begun."""
    waiting: Durations = Durations()
    """Until a request was handed out, of each attempt since it was accepted."""
    running: Durations = Durations()
    """Until it was answered."""
    unfetched: Durations = Durations()
    """Until its outcome was fetched."""


T = TypeVar("T", bound=msgspec.Struct)


def encode(message: msgspec.Struct) -> bytes:
    """The msgpack of a short message, here or of `roq.protocol.consuming`."""
    return _encode(message)


def decode(data: bytes, kind: type[T]) -> T:
    """What `encode` was given.

    Raises:
        RemoteProtocolError: it is none, or out of range.
    """
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except UNREADABLE as error:
        raise RemoteProtocolError(f"{kind.__name__}: {error}") from None


def topic_of(service: str, endpoint: str) -> str:
    """The topic of requests to an endpoint."""
    return f"{service}{SEPARATOR}{endpoint}"


def prefix_of(service: str) -> bytes:
    """With which the topics of all requests to a service begin."""
    return f"{service}{SEPARATOR}".encode()


_encode = msgspec.msgpack.Encoder().encode
