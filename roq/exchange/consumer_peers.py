"""Where the consumers of an exchange are, and what they are owed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final, Generic, TypeVar

import msgspec

from roq.errors import Busy
from roq.exchange.events import Send
from roq.exchange.readers import RefusedRequest, checked_prefixes
from roq.exchange.services import answered
from roq.log.group_changes import GroupDelta, encode_deltas
from roq.log.groups import ConsumerGroup
from roq.log.leases import Lease, Member
from roq.log.log import Log, Record
from roq.log.service_group import ServiceGroup
from roq.protocol.channel import READER_BYTES
from roq.protocol.consuming import (
    ATTEMPT_MAX,
    DONE,
    EXTEND,
    LEASED,
    LOSSES_MAX,
    LOSSES_SHIFT,
    OVERDUE,
    SETTLED_MAX,
    Done,
    DoneConfirmed,
    Extend,
    Extended,
    GroupOrder,
    GroupSettings,
    Join,
    Moved,
    decode,
    encode,
    pack_lease,
)

B = TypeVar("B")

BLOCKED_SECONDS: Final = 0.005
"""A connection that is full is tried again after so long."""
CONFIRM_SECONDS: Final = 0.025
"""What a member needs only if its connection is cut it is told together, behind what it is sent."""


@dataclass(slots=True, eq=False)
class Peer(Generic[B]):
    """Where a member is, and what it is to be told.

    Attributes:
        confirmed_at: when it was told that something is kept, behind what it was sent.
        later: up to which Done it is told, with what it is sent next, that it is kept; 0: it was.
    """

    route: bytes
    tag: bytes
    group: ConsumerGroup[B]
    member: Member
    attempt: int
    confirmed_at: float = float("-inf")
    later: int = 0

    @property
    def takes(self) -> bool:
        """Whether it takes more, so that it is sent something."""
        return self.member.granted > self.member.taken

    def confirmed(self, refused: list[int] | None = None) -> list[Send]:
        """What it has done up to `later` is kept, but for these leases; nothing if it knows."""
        if not self.later:
            return []
        told = DoneConfirmed(self.later, refused or [])
        self.later = 0
        return [self.send(DONE, encode(told))]

    def sent(self, now: float) -> list[Send]:
        """It is sent something; what it is told behind that, unless it was told so a moment ago."""
        if not self.later or now - self.confirmed_at < CONFIRM_SECONDS:
            return []
        self.confirmed_at = now
        return self.confirmed()

    def send(self, letter: bytes, *rest: bytes) -> Send:
        """A message for this member."""
        return Send(self.route, (letter + self.tag, *rest))


@dataclass(slots=True)
class Owed(Generic[B]):
    """What is told when something is kept: answers to operators, what requesters hear, who is in
    that has joined, and by peer up to which Done, and which leases in it were not the member's
    (None: that waits for what is sent)."""

    answers: list[Send] = field(default_factory=list)
    requesters: list[Send] = field(default_factory=list)
    joined: dict[Peer[B], Send] = field(default_factory=dict)
    done: dict[Peer[B], tuple[int, list[int] | None]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.answers or self.requesters or self.joined or self.done)

    def note(self, peer: Peer[B], serial: int, refused: list[int] | None) -> None:
        """A member is owed this, too."""
        _, before = self.done.get(peer, (0, None))
        if refused:  # as many as a member may have; who names others is told of some
            refused = [*dict.fromkeys([*(before or []), *refused])][:SETTLED_MAX]
        elif before:
            refused = before
        self.done[peer] = serial, before if refused is None else refused


@dataclass(slots=True, eq=False)
class Delivery(Generic[B]):
    """A lease to send to its member; `amount`: messages that it stood for when this was made."""

    peer: Peer[B]
    lease: Lease
    parts: tuple[bytes, ...]
    batch: B
    size: int
    amount: int

    @property
    def route(self) -> bytes:
        """The connection."""
        return self.peer.route


def delivery_of(peer: Peer[B], lease: Lease, record: Record[B]) -> Delivery[B]:
    """This lease, as it stands."""
    topic, frame, batch, size = record
    parts = LEASED + peer.tag, _head(lease), topic.name, frame
    return Delivery(peer, lease, parts, batch, size, lease.open.bit_count())


class BlockedDeliveries(Generic[B]):
    """What could not be sent, as its connection is full: nothing else goes there meanwhile. So it
    is one delivery for each peer at most."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Peer[B], tuple[float, Delivery[B]]] = OrderedDict()
        """In the order of their times. Thousands may go at once, from either end: the first one of
        a plain dict would have to be looked for behind those that have gone."""

    @property
    def next_at(self) -> float | None:
        """When the first one is to be tried again; None: there is none."""
        return next(iter(self._waiting.values()))[0] if self._waiting else None

    def add(self, delivery: Delivery[B], now: float) -> None:
        """The connection is full."""
        delivery.peer.member.blocked = True
        self._waiting[delivery.peer] = now + BLOCKED_SECONDS, delivery

    def take(self, now: float) -> Delivery[B] | None:
        """One whose connection may have room; it is recalled, or sent if it is `renewed`."""
        first = self.next_at
        if first is None or first > now:
            return None
        _, (_, delivery) = self._waiting.popitem(last=False)
        delivery.peer.member.blocked = False
        return delivery

    def recall(self, peer: Peer[B]) -> None:
        """Nothing of this is sent to a member that has given something back: it would come behind
        the answer, and overtake what was given back."""
        waiting = self._waiting.pop(peer, None)
        if waiting is not None:
            recall(waiting[1])

    def forget(self, peer: Peer[B]) -> None:
        """The member is not here any more, or somewhere else: its group takes back what it had."""
        peer.member.blocked = False
        self._waiting.pop(peer, None)

    def check(self, here: Container[Peer[B]]) -> None:
        """Assert the invariants.

        Args:
            here: all peers.
        """
        for peer in self._waiting:
            assert peer in here, "who is waited for is here"  # noqa: S101
            assert peer.member.blocked, "and gets nothing else meanwhile"  # noqa: S101


def renewed(delivery: Delivery[B]) -> Delivery[B] | None:
    """The same as far as its messages are still the member's; None: none of them is."""
    lease = delivery.lease
    left = lease.open.bit_count()
    if left == delivery.amount:
        return delivery
    if not left:
        recall(delivery)
        return None
    lease.member.taken -= delivery.amount - left
    letter, _, *rest = delivery.parts
    return replace(delivery, parts=(letter, _head(lease), *rest), amount=left)


def recall(delivery: Delivery[B]) -> None:
    """The member does not get it, and may have others in its place."""
    delivery.peer.member.blocked = False
    delivery.peer.group.recall(delivery.lease, delivery.amount, delivery.size)


def _head(lease: Lease) -> bytes:
    attempt = min(lease.attempts + 1, ATTEMPT_MAX) | (OVERDUE if lease.overdue else 0)
    attempt |= min(lease.losses, LOSSES_MAX) << LOSSES_SHIFT
    return pack_lease(lease.number, lease.first, lease.length, attempt, lease.open)


def settled(group: ConsumerGroup[B], member: Member, done: Done) -> list[int] | None:
    """Take in what a member has done; gives the leases in it that were not its own; None: there are
    none, and it suffices that it hears of that with what it is sent next."""
    if isinstance(group, ServiceGroup):
        refused = answered(group, member, done)
    else:
        refused = [lease for lease in done.whole if not group.acknowledge(member, lease)]
        refused += [
            lease
            for lease, first, length in done.parts
            if not group.acknowledge(member, lease, first, length)
        ]
    for each in done.returned:
        if not group.give_back(
            member, each.lease, each.first, each.length, each.delay,
            counted=each.counted, reason=each.reason,
        ):  # fmt: skip
            refused.append(each.lease)
    waits = done.answers and not (done.begun or done.returned or refused)
    return None if waits else refused


def extended(peer: Peer[B], document: bytes) -> Send:
    """A member wants to hold messages for longer; what it is answered.

    Raises:
        RemoteProtocolError: that cannot be read.
    """
    asked = decode(document, Extend)
    group = peer.group
    # Each of them, whatever becomes of the others; requests have deadlines of their own.
    taken = [
        not isinstance(group, ServiceGroup)
        and group.extend(peer.member, lease, first, length, asked.seconds)
        for lease, first, length in asked.parts
    ]
    seconds = asked.seconds if all(taken) else 0.0
    return peer.send(EXTEND, encode(Extended(asked.request, seconds)))


def check_same(join: Join, settings: GroupSettings) -> None:
    """A group is what its first member has made it.

    Raises:
        RefusedRequest: this member wants it to be something else.
    """
    if (join.settings.service is None) is not (settings.service is None):
        is_one = "a consumer group" if settings.service is None else "a service"
        raise RefusedRequest(
            "group_differs", f"{join.group} is {is_one} of this queue: use another name"
        )
    if join.settings.mode != settings.mode:
        raise RefusedRequest(
            "group_differs",
            f"group {join.group} is {settings.mode}, not {join.settings.mode}: use another name, "
            "or delete the group",
        )
    if set(join.settings.tags) != set(settings.tags):
        tags = ", ".join(map(repr, settings.tags)) or "no filter"
        raise RefusedRequest(
            "group_differs",
            f"group {join.group} has the tags {tags:.400}: use the same ones, or another name",
        )
    if set(join.settings.prefixes) != set(settings.prefixes):
        topics = ", ".join(repr(each.decode(errors="replace")) for each in settings.prefixes)
        raise RefusedRequest(
            "group_differs",
            f"group {join.group} has the topics {topics:.400}: use the same ones, or another name",
        )


def check_seek(group: ConsumerGroup[B]) -> None:
    """Only where each message may be done again, or not at all.

    Raises:
        RefusedRequest: the group is a service.
    """
    if isinstance(group, ServiceGroup):
        raise RefusedRequest(
            "invalid_request",
            f"{group.name} is a service: each of its requests ends once, so it goes neither back "
            "nor ahead in the log. Cancel single requests, or delete the service to cancel all",
        )


def taken_over(group: ConsumerGroup[B], order: GroupOrder, log: Log[B]) -> bytes:
    """A batch job works for a group that has no member: how far the group is (`take`), or that the
    job has done a part of the log (`move`).

    Returns:
        what of the group is done, as `GroupDelta`; of a `move` nothing.

    Raises:
        RefusedRequest: it may not, or the group is not where it was; nothing has changed then.
    """
    _check_taken(group.name, group.settings)
    if len(group):
        raise _refused(
            f"group {group.name} has {len(group)} members: a batch job takes over only from a "
            "group without. Stop its consumers first (`roq group show` names them)"
        )
    if group.returning:
        raise RefusedRequest(
            Busy.code, "it was started anew, and members of the group may come back in a moment"
        )
    if order.order == "take":
        return encode_deltas([msgspec.structs.replace(group.snapshot(), tried=[])])
    move = _own(order, log)
    if move is None:
        return b""
    if move.created_us not in {0, group.created_us}:
        raise _refused(f"group {group.name} was deleted meanwhile, and this is another one")
    if move.sought_us != group.sought_us or group.base < move.first:
        raise _refused(
            f"group {group.name} was moved to another offset meanwhile: what is to be done again "
            f"was perhaps not done by the batch job, which began at {move.first}"
        )
    group.finish_below(move.until)
    return b""


def made_by(order: GroupOrder, log: Log[B]) -> tuple[GroupSettings, int] | None:
    """The settings of a group that is made by a `move`, as it is at other exchanges only, and where
    it begins; None: it is none.

    Raises:
        RefusedRequest: it cannot be made, or has an end that the log has not.
    """
    move = _own(order, log) if order.order == "move" else None
    if move is None or move.created_us or order.settings is None:
        return None
    _check_taken(order.group, order.settings)
    if not checked_prefixes(order.settings.prefixes):
        raise _refused("a group has at least one topic, if only an empty one")
    return order.settings, min(move.first, log.committed)


def _own(order: GroupOrder, log: Log[B]) -> Moved | None:
    """What the order says of this log: once, as each look at all that is open takes its time."""
    move = next((each for each in order.moves if each.generation == log.generation), None)
    if move is not None and move.until > log.committed:
        raise _refused(
            f"offset {move.until} lies beyond the end of the log, which is {log.committed}"
        )
    return move


def _check_taken(group: str, settings: GroupSettings) -> None:
    mode = "service" if settings.service is not None else settings.mode
    if mode not in {"shared", "exclusive"}:
        raise _refused(
            f"{group} is a {mode} group: a batch job takes over only from a shared or an exclusive "
            "one, as it knows no other order than that of the logs"
        )


def _refused(text: str) -> RefusedRequest:
    return RefusedRequest("invalid_request", text)


def ends_of(deleted: dict[str, int]) -> list[GroupDelta]:
    """The changes that say that these groups were deleted; of a service, where that was."""
    return [GroupDelta(name, base, deleted=True) for name, base in deleted.items()]


def reader_of(group: str) -> bytes:
    """Under what publishers wait for a group."""
    return blake2b(group.encode(), digest_size=READER_BYTES).digest()
