"""The messages between consumers and an exchange, on its **data** socket beside those of readers.

    consumer → exchange                          exchange → consumer
    [FF j] Join                                  [FF j] Joined       (or [FF N] Refused)
    [FF k] Credit   also: "I am here"
    [FF a] Done                                  [FF a] DoneConfirmed  when the log has committed it
    [FF e] Extend                                [FF e] Extended
    [FF l] LeaveGroup (not answered)             [FF l]              your leases are over: join
                                                 [FF N] Refused      the group was deleted
    [FF g] GroupsRequest                         [FF g] Groups
    [FF o] GroupOrder                            [FF o] Ordered      when the log has committed it
                                                 [FF L] lease, topic, entry, batch
                                                 [FF M] lease, topic, entry; then [batch]

As with readers, four bytes behind the letter say which of those that share a connection is meant.
Join, Groups and the orders are BSON, as they come seldom; Credit, Done, DoneConfirmed, Extend and
Extended are msgpack arrays. A lease is 24 bytes, and `size` of a mask:

     0           8           12          16          20          24
     +-----------+-----------+-----------+-----------+-----------+------ …
     |  number   |   first   |  length   |  attempt  |   size    | mask
     +-----------+-----------+-----------+-----------+-----------+------ …

It stands for the messages `first` to `first + length - 1` of the batch that follows, counted from
0; the others of that batch are somebody else's. With a mask it stands for some of these only: bit
n, the lowest one first, is for message `first + n`. Numbers of leases rise, and belong to one
process. With the highest bit of `attempt` the time to live of these messages is over: the member
writes them to the dead letters.
"""

from __future__ import annotations

from struct import Struct
from typing import Annotated, Final, NamedTuple

import msgspec

from roq.errors import RemoteProtocolError
from roq.model import LogId
from roq.number_ranges import ChildEpoch, Offset, Real, Whole
from roq.protocol import requesting
from roq.protocol.attributes import TAG_BYTES_MAX, TAGS_MAX
from roq.protocol.batch import COUNT_MAX
from roq.protocol.columns import PRIORITY_MAX
from roq.protocol.reports import ClientName
from roq.protocol.requesting import Answer, Begun, Figures, ServiceSettings

JOIN: Final = b"\xffj"
CREDIT: Final = b"\xffk"
DONE: Final = b"\xffa"
LEAVE: Final = b"\xffl"
GROUPS: Final = b"\xffg"
GROUP_ORDER: Final = b"\xffo"
EXTEND: Final = b"\xffe"
LEASED: Final = b"\xffL"
LEASED_LARGE: Final = b"\xffM"
"""As LEASED, but the batch is the next message: it is sent as it lies in the log."""

OVERDUE: Final = 1 << 31
"""In the attempt of a lease: the time to live of its messages is over."""
LOSSES_SHIFT: Final = 24
LOSSES_MAX: Final = 127
ATTEMPT_MAX: Final = (1 << LOSSES_SHIFT) - 1
"""In seven bits of the attempt of a request: how many before it have ended as the instance was
lost."""

DELETED: Final = "group_deleted"
"""Code by which members hear that an operator has deleted their group: they do not come back."""

LEASE: Final = Struct("<QIIII")
GROUP_NAME_MAX: Final = 128
GROUPS_PER_ANSWER_MAX: Final = 1_000
MEMBERS_PER_ANSWER_MAX: Final = 1_000
OLDEST_TOPICS_MAX: Final = 100
"""Whose oldest message is named."""
SETTLED_MAX: Final = 50_000
"""Leases, runs and what is returned in one Done, of each kind: it is heard at once."""
ANSWERS_MAX: Final = 1_000
BEGUN_MAX: Final = 1_000
"""Of an instance likewise: answers, and runs of requests that begin. All together these name
`SETTLED_MAX` requests at most."""
SETTLED_BYTES_MAX: Final = 1024 * 1024
"""What is done takes so much in a Done at most; more goes in the next one."""
DONE_BYTES: Final = 1_024
"""For what a Done has beside what is done."""
SETTLED_BYTES: Final = 25
"""What a run or a lease takes in a Done, at most,"""
RETURNED_BYTES: Final = 48
"""and what is returned takes, beside its reason."""
JOIN_BYTES: Final = 48 * 1024
"""For what a Join has beside what is held."""
HELD_BYTES: Final = 20
"""What a run that is held takes in a Join, at most."""
RUNS_MAX: Final = 32_768
"""Runs that a member may say to hold: as many messages as it holds if it was not told to hold more.
What it has beyond comes again."""
REASON_MAX: Final = 200
"""Characters of why a message was given back."""
LEASE_SECONDS_MIN: Final = 2.0
LEASE_SECONDS_MAX: Final = 86_400.0
EXTEND_SECONDS_MAX: Final = 86_400.0
ATTEMPTS_MAX: Final = 10_000
MOVES_MAX: Final = 10_000
"""Logs in one order."""
EXTENDED_MAX: Final = 1_000
"""Runs of messages that are extended at once."""
DELAY_SECONDS_MAX: Final = 86_400.0
"""A message that is given back comes again within so long."""

_Seconds = Annotated[float, msgspec.Meta(ge=LEASE_SECONDS_MIN, le=LEASE_SECONDS_MAX)]
_Delay = Annotated[float, msgspec.Meta(ge=0, le=DELAY_SECONDS_MAX)]
_Attempts = Annotated[int, msgspec.Meta(ge=0, le=ATTEMPTS_MAX)]
_Reason = Annotated[str, msgspec.Meta(max_length=REASON_MAX)]
_Index = Annotated[int, msgspec.Meta(ge=0, le=(1 << 20) - 1)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
_More = Annotated[float, msgspec.Meta(gt=0, le=EXTEND_SECONDS_MAX)]
_Parts = Annotated[
    list[tuple[Whole, _Index, _Count]], msgspec.Meta(min_length=1, max_length=EXTENDED_MAX)
]
GroupName = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._-]{1,128}\Z")]

MODES: Final = ("shared", "exclusive", "keyed", "priority")
Mode = Annotated[str, msgspec.Meta(pattern=r"\A(shared|exclusive|keyed|priority)\Z")]
_Tag = Annotated[str, msgspec.Meta(max_length=TAG_BYTES_MAX)]
_Tags = Annotated[tuple[_Tag, ...], msgspec.Meta(max_length=TAGS_MAX)]


class Run(NamedTuple):
    """Consecutive messages of one batch."""

    offset: Offset
    first: _Index
    length: _Count


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What its first member has made a group; the same for all."""

    mode: Mode = MODES[0]
    """`shared`: any member gets the next batch. `exclusive`: one member at each exchange gets all
    of them in order, and the others wait to take its place. `keyed`: those of one key go to one
    member, in order, as long as nothing of the key is out elsewhere. `priority`: as `shared`, the
    higher priorities first."""
    prefixes: tuple[bytes, ...] = (b"",)
    """Topics that begin so are the group's."""
    tags: _Tags = ()
    """Messages that have one of these are the group's; none: all are."""
    lease_seconds: _Seconds = 30.0
    """A member that says nothing for so long loses what it holds."""
    attempts: _Attempts = 16
    """So often is a message tried before it is a dead letter; 0: without an end."""
    retry_seconds: _Delay = 1.0
    """Between the first failure and the next attempt; twice as long after each further one."""
    retry_seconds_max: _Delay = 60.0
    bury_expired: bool = False
    """Messages whose time to live is over are handed out as such, for the dead letters; else they
    are done unseen."""
    service: ServiceSettings | None = None
    """The group is a service: its messages are requests, and its members answer them."""


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """A member comes, or comes back over another connection."""

    id: Whole
    queue: bytes
    group: GroupName
    member: bytes
    """16 bytes that name it."""
    name: ClientName = ""
    """By which people find it."""
    attempt: Whole
    """Rises with each connection of this member: the newest one counts."""
    settings: GroupSettings
    make: bool = True
    """Whether to make the group if there is none here: else that is refused with `no_group`."""
    start_us: Real = 0
    """A group that is made begins with what was appended at this time, µs UTC."""
    start_end: bool = False
    """It begins at the end instead."""
    holds: bytes = b""
    """What it holds by leases that it had here before, or has acknowledged without hearing:
    `HeldRuns`, packed as short messages are; empty: nothing."""
    generation: ChildEpoch = 0
    """Of the log in which that lies."""


class HeldRuns(msgspec.Struct, frozen=True, array_like=True):
    """What a member holds: there may be thousands, and BSON takes fifteen times as long to read."""

    runs: Annotated[list[Run], msgspec.Meta(max_length=RUNS_MAX)] = []


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """The member is in; Credit is what it sends next."""

    id: Whole
    generation: ChildEpoch
    epoch: ChildEpoch
    """Of the process: the numbers of leases are its own."""
    settings: GroupSettings
    """Those of the group; the member's own do not count if they differ in anything but the mode or
    the topics, for which it is refused."""
    created_us: Whole
    """When the group was made."""
    again: list[tuple[Whole, Offset, _Index, _Count]] = []
    """What of that it holds on: number of the new lease, and the run."""
    done: list[Run] = []
    """What of it is done already; the rest is not the member's any more."""
    frame_bytes: Whole = 64 * 1024
    """The largest frame that this exchange takes: for a larger one it cuts the connection."""


class Credit(msgspec.Struct, frozen=True, array_like=True):
    """What the member is ready to take, all in all since it joined; renews its leases."""

    messages: Whole
    bytes: Whole
    window: Whole
    """So many messages it is ready to hold at once."""


class Returned(msgspec.Struct, frozen=True, array_like=True):
    """Messages that a member gives back."""

    lease: Whole
    first: _Index
    length: _Count
    delay: _Delay = 0.0
    """Seconds; 0: as the group's settings say."""
    counted: bool = True
    """Whether that was an attempt: what was never looked at is none."""
    reason: _Reason = ""


class Done(msgspec.Struct, frozen=True, array_like=True):
    """What a member has done since the last one; answered by the same serial, and renews leases."""

    serial: Whole
    whole: Annotated[list[Whole], msgspec.Meta(max_length=SETTLED_MAX)] = []
    """Leases of which everything is acknowledged."""
    parts: Annotated[list[tuple[Whole, _Index, _Count]], msgspec.Meta(max_length=SETTLED_MAX)] = []
    """Lease and run of messages: these are acknowledged."""
    returned: Annotated[list[Returned], msgspec.Meta(max_length=SETTLED_MAX)] = []
    credit: Credit | None = None
    answers: Annotated[list[Answer], msgspec.Meta(max_length=ANSWERS_MAX)] = []
    """Of an instance of a service, and so is what it has begun; in their place are no leases."""
    begun: Annotated[list[Begun], msgspec.Meta(max_length=BEGUN_MAX)] = []


class DoneConfirmed(msgspec.Struct, frozen=True, array_like=True):
    """Everything up to this serial is kept."""

    serial: Whole
    refused: list[Whole] = []
    """Leases that were not the member's any more when their acknowledgement came."""


def requests_in(done: Done) -> int:
    """Requests that an instance has begun or answered, as often as they are named."""
    begun = sum(each.length for each in done.begun)
    return begun + sum(1 + len(each.more) for each in done.answers)


def parts_of(done: Done, frame_bytes: int) -> list[Done]:
    """This in as many as its exchange takes, in order, with no serial and no credit yet."""
    if done.answers or done.begun:
        return [done]
    room = min(max(0, frame_bytes - DONE_BYTES), SETTLED_BYTES_MAX)
    if not done.returned and (len(done.whole) + len(done.parts)) * SETTLED_BYTES <= room:
        return [done]  # as nearly always
    parts, left = [Done(0)], room
    every: list[int | tuple[int, int, int] | Returned] = [
        *done.whole, *done.parts, *done.returned,
    ]  # fmt: skip
    for each in every:
        size = SETTLED_BYTES
        if isinstance(each, Returned):
            size = RETURNED_BYTES + len(each.reason.encode())
        if size > left < room:
            parts.append(Done(0))
            left = room
        left -= size
        match each:
            case int():
                parts[-1].whole.append(each)
            case Returned():
                parts[-1].returned.append(each)
            case _:
                parts[-1].parts.append(each)
    return parts


def pack_runs(runs: list[Run]) -> bytes:
    """As `Join.holds` has them."""
    return encode(HeldRuns(runs)) if runs else b""


def read_runs(packed: bytes) -> list[Run]:
    """Likewise.

    Raises:
        RemoteProtocolError: they are none, or more than a member may hold.
    """
    return decode(packed, HeldRuns).runs if packed else []


def held_most(frame_bytes: int) -> int:
    """So many runs that are held may stand in a Join for an exchange that takes such frames."""
    return min(RUNS_MAX, max(0, frame_bytes - JOIN_BYTES) // HELD_BYTES)


class Extend(msgspec.Struct, frozen=True, array_like=True):
    """The member holds these for so long at least, also while nothing is heard of it."""

    request: Whole
    seconds: _More
    parts: _Parts
    """Lease and run of messages."""


class Extended(msgspec.Struct, frozen=True, array_like=True):
    """What became of it."""

    request: Whole
    seconds: Real
    """It holds them for so long; 0: one of the leases is not the member's, or not any more, or
    everything of it is settled. The others it holds for as long as it has asked."""


class LeaveGroup(msgspec.Struct, frozen=True, array_like=True):
    """The member goes, and gives back what it holds; not answered."""

    member: bytes


class GroupsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How do the groups of this exchange stand?"""

    id: Whole
    queue: bytes
    group: str = ""
    """Of one of them, with its members; empty: all of them, without."""


class MemberState(msgspec.Struct, frozen=True, kw_only=True):
    """One member at one exchange."""

    member: bytes
    name: str
    held: Whole
    """Messages that it holds."""
    credit: Whole
    """Messages that it would take."""
    acknowledged: Whole
    silent_seconds: Real
    figures: Figures | None = None
    """What an instance of a service has said of itself."""


class OldestMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest message of a topic and priority that is not done."""

    topic: bytes
    priority: Annotated[int, msgspec.Meta(ge=0, le=PRIORITY_MAX)]
    appended_us: Whole
    """µs UTC."""
    others: bool = False
    """It is the oldest of all topics that are not named; `topic` is empty then."""


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """One group at one exchange."""

    name: str
    settings: GroupSettings
    created_us: Whole
    base: Offset
    """Everything of the group's below this offset is done."""
    end: Offset
    """The end of the log."""
    out: Whole
    """Messages that members hold."""
    waiting: Whole
    """Messages that were given back and wait for their time, or for a member."""
    oldest_us: Whole = 0
    """When the oldest batch that is not done was appended, µs UTC; 0: everything is done."""
    members: Whole = 0
    paused: bool = False
    acknowledged: Whole = 0
    failed: Whole = 0
    """Messages that a member has given back as failed."""
    lapsed: Whole = 0
    """Messages whose member was silent for too long, or has gone with them."""
    expired: Whole = 0
    """Batches that left the log before they were done."""
    malformed: Whole = 0
    """Batches that were passed over, as they cannot have as many messages as they say."""
    stale: Whole = 0
    """Messages that no handler was given, as their time to live was over."""
    stalled: str = ""
    """Why nothing is handed out although there is something to do; empty: all is well."""
    who: list[MemberState] = []
    oldest: list[OldestMessage] = []
    """Of a group that was asked for by name: by topic and priority, the oldest first."""
    unseen_us: Whole = 0
    """Likewise: what was appended from then on, µs UTC, was not looked at for `oldest`: what is not
    in it is as new, or done; 0: everything was."""


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of one exchange."""

    id: Whole
    generation: ChildEpoch
    groups: list[GroupState]


class Moved(NamedTuple):
    """What a batch job has done of one log for a group."""

    generation: ChildEpoch
    """Of the log."""
    first: Offset
    """Below it everything of the group's was done before, or the job was to leave it out;"""
    until: Offset
    """and from there up to here the job has done what was left."""
    created_us: Whole
    """When the group was made; 0: it was not there, and is made if there still is none."""
    sought_us: Whole = 0
    """When an operator has moved it last (`seek`), before the job began; 0: never."""


class GroupOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator wants of a group."""

    id: Whole
    queue: bytes
    group: GroupName
    order: Annotated[
        str,
        msgspec.Meta(pattern=r"\A(pause|resume|seek|delete|flag|unflag|drain|retry|take|move)\Z"),
    ]
    """Flag, unflag, drain: what instances of a service are to do. Retry: a request runs again.
    Take, move: a batch job works for the group, which has no member: how far is it, and what the
    job has done."""
    time_us: Whole = 0
    """Seek: to what was appended at this time or after, µs UTC."""
    to_end: bool = False
    """Seek: to the end instead."""
    instance: Annotated[str, msgspec.Meta(max_length=1_000)] = ""
    """Flag, unflag, drain: name or id in hexadecimal of the one that is meant; empty: all."""
    generation: Whole = 0
    """Retry: of the log where the request is,"""
    offset: Whole = 0
    index: Whole = 0
    """and where it is there."""
    moves: Annotated[list[Moved], msgspec.Meta(max_length=MOVES_MAX)] = []
    """Move: at which logs, and up to where; an exchange with another log does nothing."""
    settings: GroupSettings | None = None
    """Move: of the group, where it is made by that."""


class Ordered(msgspec.Struct, frozen=True, kw_only=True):
    """It is done."""

    id: Whole
    generation: ChildEpoch
    base: Offset = 0
    told: list[str] = []
    """Flag, unflag, drain: names of the instances that are told."""
    position: bytes = b""
    """Take: what of the group is done, as it would stand in the log (`roq.log.group_changes`)."""


# What exchanges ask each other about groups that keep order, by way of the monitor (`OrderAsk`).

ORDER_QUESTIONS_MAX: Final = 256
"""In one message."""
SETTLED: Final = "done"
GONE: Final = "gone"
"""The log is no more, and what was there is nobody's."""
WAITS: Final = "waits"
AWAY: Final = "away"
"""Its exchange does not serve at the moment, and comes back with its log."""
NO_GROUP: Final = "no_group"
"""There is none of that name there; its members may be on their way."""


class OrderQuestion(NamedTuple):
    """Has this group done all that a publisher has sent into this log under lower epochs?"""

    group: Annotated[str, msgspec.Meta(max_length=128)]
    publisher: Annotated[bytes, msgspec.Meta(max_length=16)]
    epoch: Whole
    log: LogId


class OrderAnswer(NamedTuple):
    """What is answered: one of the words above."""

    question: OrderQuestion
    outcome: Annotated[str, msgspec.Meta(max_length=16)]


OrderQuestions = Annotated[list[OrderQuestion], msgspec.Meta(max_length=ORDER_QUESTIONS_MAX)]
OrderAnswers = Annotated[list[OrderAnswer], msgspec.Meta(max_length=ORDER_QUESTIONS_MAX)]


def pack_lease(number: int, first: int, length: int, attempt: int, bits: int) -> bytes:
    """A lease of these messages."""
    if bits == (1 << length) - 1:
        return LEASE.pack(number, first, length, attempt, 0)
    mask = bits.to_bytes((length + 7) // 8, "little")
    return LEASE.pack(number, first, length, attempt, len(mask)) + mask


def lease_bytes(frame: bytes, at: int) -> int:
    """Bytes of the lease that begins here in a frame, as it says."""
    return LEASE.size + int.from_bytes(frame[at + LEASE.size - 4 : at + LEASE.size], "little")


def read_lease(data: bytes) -> tuple[int, int, int, int, int]:
    """Number, first, length, attempt, and a bit for each message that it stands for.

    Raises:
        RemoteProtocolError: it is none.
    """
    if len(data) < LEASE.size:
        raise RemoteProtocolError(f"a lease has at least {LEASE.size} bytes, not {len(data)}")
    number, first, length, attempt, _ = LEASE.unpack_from(data)
    every = (1 << length) - 1 if 0 < length <= COUNT_MAX else 0
    bits = int.from_bytes(data[LEASE.size :], "little") if len(data) > LEASE.size else every
    if not bits or bits & ~every:
        raise RemoteProtocolError(f"a lease of {length} messages with the mask {bits:#x}")
    return number, first, length, attempt, bits


def clean(text: str, most: int) -> str:
    """What a program says, as it can travel: without halves of surrogate pairs, so long at most."""
    return text.encode("utf-8", "replace").decode()[:most]


encode = requesting.encode
decode = requesting.decode
"""All short messages are msgpack arrays, and are refused alike."""
