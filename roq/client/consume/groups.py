"""What an operator asks of consumer groups: how they stand, and to pause, seek or be deleted.

A group is at each exchange of its queue by itself, so each is asked, all at once; an answer is what
those say that have answered in time, and names the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec

from roq.client.io.engine import Engine
from roq.client.io.exchange_questions import Answers, ask_all, told
from roq.errors import (
    GroupNotFound,
    InvalidRequest,
    RemoteProtocolError,
    Unavailable,
)
from roq.protocol import documents
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.consuming import (
    GROUP_ORDER,
    GROUPS,
    OLDEST_TOPICS_MAX,
    GroupOrder,
    Groups,
    GroupsRequest,
    GroupState,
    MemberState,
    Ordered,
)
from roq.protocol.public_answers import QueueDescription
from roq.protocol.requesting import Figures
from roq.read.message import MICROSECONDS

_REQUEST: Final = 1
"""Each question has a connection's tag of its own, so its number tells nothing."""

T = TypeVar("T", bound=msgspec.Struct)


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer of a group, over all exchanges that have answered."""

    id: str
    """Hexadecimal."""
    name: str
    """As it was given; else its program, host and process id."""
    exchanges: list[str]
    """Where it is a member."""
    held: int
    """Messages that it holds."""
    credit: int
    """Messages that it would take."""
    acknowledged: int
    """Messages, since it came to each exchange."""
    silent_seconds: float
    """Since it was heard of last, by the exchange that has heard of it last."""
    figures: Figures | None = None
    """What an instance of a service has said of itself last."""


class GroupPart(msgspec.Struct, frozen=True, kw_only=True):
    """A group at one exchange."""

    exchange: str
    base: int
    """Everything of the group's below this offset of the log is done."""
    end: int
    """The end of the log."""
    out: int
    """Messages that members hold."""
    waiting: int
    """Messages that were given back and wait for their next attempt, or for a member."""
    oldest_seconds: float | None
    """Age of the oldest batch that is not done; None: everything is done."""
    members: int
    paused: bool
    acknowledged: int
    failed: int
    lapsed: int
    expired: int
    malformed: int = 0
    stale: int = 0
    stalled: str


class OldestMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest message of a topic and priority that is not done, over all exchanges that have
    answered."""

    topic: str | None
    """None: of all topics that are not named; at most a hundred are, those that wait longest."""
    priority: int
    """0 to 9."""
    seconds: float
    """Its age, since its exchange has taken it in."""
    exchange: str
    """Where it is."""


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer group over all exchanges of its queue that have answered.

    The counters count since each exchange's process has started.
    """

    name: str
    mode: str
    """`shared`, `exclusive`, `keyed` or `priority`, as its first consumer has said."""
    service: bool = False
    """Its messages are requests, and its members answer them."""
    topics: list[str]
    """Topics that begin so are the group's; an empty one means all."""
    tags: list[str] = []
    """Only messages that have one of these are the group's; none: all."""
    lease_seconds: float
    attempts: int
    """So often is a message tried before it is a dead letter; 0: without an end."""
    bury_expired: bool = False
    """Messages whose time to live is over go to the dead letters; else they are done unseen."""
    created: float
    """Seconds since 1970."""
    members: int
    """Consumers; of groups that were not asked for by name the most that are at one exchange."""
    behind: int
    """Batches from the first that is not done to the end, of the logs together."""
    out: int
    """Messages that members hold."""
    waiting: int
    """Messages that were given back and wait for their next attempt, or for a member."""
    oldest_seconds: float | None
    """Age of the oldest batch that is not done; None: everything is done. As much as the clocks of
    hosts differ it may be wrong."""
    paused: bool
    """At one exchange at least."""
    acknowledged: int
    """Messages that are done."""
    failed: int
    """Messages that a member has given back as failed."""
    lapsed: int
    """Messages whose member was silent for too long, or has gone with them."""
    expired: int
    """Batches that left the log before they were done."""
    malformed: int = 0
    """Batches that were passed over, as they cannot have as many messages as they say."""
    stale: int = 0
    """Messages that no handler was given, as their time to live was over."""
    stalled: list[str]
    """Where nothing is handed out although there is something to do, and why, each reason once;
    empty: nowhere."""
    parts: list[GroupPart]
    """Exchange by exchange."""
    who: list[GroupMember] = []
    """Its members; only of a group that was asked for by name."""
    oldest: list[OldestMessage] = []
    """By topic and priority, the oldest first; only of a group that was asked for by name."""
    unseen_seconds: float | None = None
    """Likewise: messages that are as old as this, or younger, were not all looked at for `oldest`.
    None: all were."""

    @property
    def state(self) -> str:
        """`paused`; `stalled`: it gets nothing somewhere although there is something; `running`."""
        if self.paused:
            return "paused"
        return "stalled" if self.stalled else "running"


class GroupListing(list[GroupSummary]):
    """Groups of a queue.

    Attributes:
        missing: exchanges that have not answered, and why; empty: the answer is complete.
    """

    def __init__(self, rows: list[GroupSummary], missing: Mapping[str, str]) -> None:
        super().__init__(rows)
        self.missing = dict(missing)

    @property
    def partial(self) -> str:
        """In a sentence what is missing; empty: nothing is."""
        return f"without {told(self.missing)}" if self.missing else ""


def read(answers: Answers, letter: bytes, kind: type[T]) -> tuple[dict[str, T], dict[str, str]]:
    """What the exchanges say that know the group, and why others do not answer.

    One that does not have the group is in neither.

    Raises:
        InvalidRequest: what was asked cannot be done with this group.
    """
    found: dict[str, T] = {}
    missing = dict(answers.missing)
    for name, parts in answers.letters.items():
        try:
            if parts[0] == letter and len(parts) == 2:
                found[name] = documents.decode(parts[1], kind)
                continue
            refused = documents.decode(parts[-1], Refused)
        except RemoteProtocolError as error:
            missing[name] = f"its answer cannot be read: {error}"
            continue
        if refused.code == InvalidRequest.code:
            raise InvalidRequest(refused.text)
        if parts[0] != REFUSED or refused.code != GroupNotFound.code:
            missing[name] = f"{refused.text} ({refused.code})"
    return found, missing


def list_groups(
    engine: Engine, queue: QueueDescription, group: str, seconds: float, now: float
) -> GroupListing:
    """How the groups of a queue stand.

    Args:
        group: of this one, with its members; empty: of all.
        now: seconds since 1970.

    Raises:
        GroupNotFound: no exchange has it.
        Unavailable: no exchange has answered; or it is not known whether any has the group.
        QueueStopped: the queue does not run.
    """
    request = GroupsRequest(id=_REQUEST, queue=bytes.fromhex(queue.queue_id), group=group)
    answers = ask_all(engine, queue, GROUPS, request, seconds)
    found, missing = read(answers, GROUPS, Groups)
    states = {name: each.groups for name, each in found.items()}
    if missing and not any(states.values()):
        raise Unavailable(
            f"groups of queue {queue.name} are not known: {told(missing)}. Trying again may help"
        )
    if group and not found:
        raise GroupNotFound(not_found(queue.name, group))
    return GroupListing(summed(states, now), missing)


def order(
    engine: Engine,
    queue: QueueDescription,
    group: str,
    word: str,
    seconds: float,
    *,
    time_us: int = 0,
    to_end: bool = False,
) -> list[str]:
    """Have every exchange do something with a group; gives the exchanges that have it.

    Args:
        word: `pause`, `resume`, `seek` or `delete`.

    Raises:
        InvalidRequest: the group is a service, and `seek` is for none.
        GroupNotFound: no exchange has it.
        Unavailable: not all exchanges have answered; names those that have done it.
        QueueStopped: the queue does not run.
    """
    request = GroupOrder(
        id=_REQUEST, queue=bytes.fromhex(queue.queue_id), group=group, order=word,
        time_us=time_us, to_end=to_end,
    )  # fmt: skip
    found, missing = read(
        ask_all(engine, queue, GROUP_ORDER, request, seconds), GROUP_ORDER, Ordered
    )
    if missing:
        done = f"it is done at {', '.join(sorted(found))}" if found else "nothing is done"
        raise Unavailable(
            f"{word} of group {group} of queue {queue.name}: {done}, but not at {told(missing)}. "
            "Repeat it"
        )
    if not found:
        raise GroupNotFound(not_found(queue.name, group))
    return sorted(found)


def not_found(queue: str, group: str) -> str:
    """That there is no such group, and what to do."""
    return f"queue {queue} has no group {group}: its first consumer makes it"


def no_service(queue: str, service: str) -> str:
    """That there is no such service, and what to do."""
    return f"queue {queue} has no service {service}; `roq service list {queue}` shows all"


def summed(states: Mapping[str, list[GroupState]], now: float) -> list[GroupSummary]:
    """One summary for each group, by name.

    Args:
        states: by exchange.
        now: seconds since 1970.
    """
    by_group: dict[str, dict[str, GroupState]] = {}
    for exchange in sorted(states):
        for state in states[exchange]:
            by_group.setdefault(state.name, {})[exchange] = state
    return [_summary(name, by_group[name], now) for name in sorted(by_group)]


def _stalled(parts: list[GroupPart]) -> list[str]:
    """Why nothing is handed out: exchanges at which it is the same are named together."""
    places: dict[str, list[str]] = {}
    for part in parts:
        if part.stalled:
            places.setdefault(part.stalled, []).append(part.exchange)
    return [
        f"exchange{'s' * (len(names) > 1)} {', '.join(names)}: {why}"
        for why, names in places.items()
    ]


def _summary(name: str, states: dict[str, GroupState], now: float) -> GroupSummary:
    parts = [_part(exchange, state, now) for exchange, state in states.items()]
    first = min(states.values(), key=lambda state: state.created_us)
    who = _members(states)
    ages = [part.oldest_seconds for part in parts if part.oldest_seconds is not None]

    def total(of: Callable[[GroupPart], int]) -> int:
        return sum(map(of, parts))

    return GroupSummary(
        name=name,
        mode=first.settings.mode,
        service=first.settings.service is not None,
        topics=[prefix.decode(errors="replace") for prefix in first.settings.prefixes],
        tags=list(first.settings.tags),
        lease_seconds=first.settings.lease_seconds,
        attempts=first.settings.attempts,
        bury_expired=first.settings.bury_expired,
        created=first.created_us / MICROSECONDS,
        members=max(len(who), *(part.members for part in parts)),
        behind=total(lambda part: part.end - part.base),
        out=total(lambda part: part.out),
        waiting=total(lambda part: part.waiting),
        oldest_seconds=max(ages, default=None),
        paused=any(part.paused for part in parts),
        acknowledged=total(lambda part: part.acknowledged),
        failed=total(lambda part: part.failed),
        lapsed=total(lambda part: part.lapsed),
        expired=total(lambda part: part.expired),
        malformed=total(lambda part: part.malformed),
        stale=total(lambda part: part.stale),
        stalled=_stalled(parts),
        parts=parts,
        who=who,
        oldest=_oldest(states, now),
        unseen_seconds=max(
            (_age(each.unseen_us, now) for each in states.values() if each.unseen_us), default=None
        ),
    )


def _oldest(states: Mapping[str, GroupState], now: float) -> list[OldestMessage]:
    """The oldest of each topic and priority, the oldest first."""
    every = [(each, exchange) for exchange, state in states.items() for each in state.oldest]
    every.sort(key=lambda pair: pair[0].appended_us)
    found: dict[tuple[str | None, int], OldestMessage] = {}
    topics: set[str | None] = {None}
    for each, exchange in every:
        topic = None if each.others else each.topic.decode(errors="replace")
        if topic not in topics and len(topics) <= OLDEST_TOPICS_MAX:
            topics.add(topic)
        topic = topic if topic in topics else None
        found.setdefault(
            (topic, each.priority),
            OldestMessage(
                topic=topic,
                priority=each.priority,
                seconds=_age(each.appended_us, now),
                exchange=exchange,
            ),
        )
    return list(found.values())


def _age(time_us: int, now: float) -> float:
    return max(0.0, now - time_us / MICROSECONDS)


def _part(exchange: str, state: GroupState, now: float) -> GroupPart:
    oldest = _age(state.oldest_us, now) if state.oldest_us else None
    return GroupPart(
        exchange=exchange, base=state.base, end=state.end, out=state.out, waiting=state.waiting,
        oldest_seconds=oldest, members=state.members, paused=state.paused,
        acknowledged=state.acknowledged, failed=state.failed, lapsed=state.lapsed,
        expired=state.expired, malformed=state.malformed, stale=state.stale, stalled=state.stalled,
    )  # fmt: skip


def _members(states: dict[str, GroupState]) -> list[GroupMember]:
    places: dict[bytes, dict[str, MemberState]] = {}
    for exchange, state in states.items():
        for member in state.who:
            places.setdefault(member.member, {})[exchange] = member
    return [
        GroupMember(
            id=member.hex(),
            name=next(iter(where.values())).name,
            exchanges=list(where),
            held=sum(each.held for each in where.values()),
            credit=sum(each.credit for each in where.values()),
            acknowledged=sum(each.acknowledged for each in where.values()),
            silent_seconds=min(each.silent_seconds for each in where.values()),
            figures=min(where.values(), key=lambda each: each.silent_seconds).figures,
        )
        for member, where in sorted(places.items(), key=lambda each: _sort_key(each[1]))
    ]


def _sort_key(where: dict[str, MemberState]) -> tuple[str, bytes]:
    first = next(iter(where.values()))
    return first.name, first.member
