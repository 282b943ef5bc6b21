"""Where the consumers of an exchange are, and what they are owed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from roq.exchange.events import Send
from roq.exchange.readers import RefusedRequest
from roq.log.groups import ConsumerGroup
from roq.log.leases import Lease, Member
from roq.protocol.consuming import GroupSettings, Join

B = TypeVar("B")


@dataclass(slots=True, eq=False)
class Peer(Generic[B]):
    """Where a member is, and what it is to be told.

    Attributes:
        told_at: when it was sent something last.
    """

    route: bytes
    tag: bytes
    group: ConsumerGroup[B]
    member: Member
    attempt: int
    told_at: float = 0.0

    def send(self, letter: bytes, *rest: bytes) -> Send:
        """A message for this member."""
        return Send(self.route, (letter + self.tag, *rest))


@dataclass(slots=True)
class Owed(Generic[B]):
    """What is told when something is kept: answers, who is in that has joined, and by peer up to
    which Done, and which leases in it were not the member's."""

    answers: list[Send] = field(default_factory=list)
    joined: dict[Peer[B], Send] = field(default_factory=dict)
    done: dict[Peer[B], tuple[int, list[int]]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.answers or self.joined or self.done)

    def add(self, other: Owed[B]) -> None:
        """And this."""
        self.answers += other.answers
        self.joined |= other.joined
        for peer, (serial, refused) in other.done.items():
            self.done[peer] = serial, [*self.done.get(peer, (0, []))[1], *refused]


@dataclass(frozen=True, slots=True)
class Delivery(Generic[B]):
    """A lease to send to its member."""

    peer: Peer[B]
    lease: Lease
    parts: tuple[bytes, ...]
    batch: B
    size: int

    @property
    def route(self) -> bytes:
        """The connection."""
        return self.peer.route


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
