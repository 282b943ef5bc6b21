"""A service with its log, and a clock."""

from __future__ import annotations

from typing import Any

from roq.log.leases import Lease, Member, NumberedLeases
from roq.log.ring import Ring
from roq.log.service_group import ServiceGroup
from roq.model import LogId, PublisherId
from roq.protocol.attributes import Attributes, pack_attributes
from roq.protocol.batch import pack
from roq.protocol.columns import PRIORITIES, pack_column, pack_sent_again
from roq.protocol.consuming import GroupSettings
from roq.protocol.orphaned_answers import sent_again, token_of
from roq.protocol.requesting import (
    Position,
    ServiceSettings,
    prefix_of,
)

PUBLISHER = PublisherId(b"p" * 16)
GONE = LogId(9, 1)


class Desk:
    """A service, its log, and a clock."""

    def __init__(self, **settings: Any) -> None:
        self.log: Ring[bytes] = Ring(b"q" * 16, 1, 1, capacity_bytes=1 << 20, topics_max=8)
        self.numbers = NumberedLeases()
        self.now = 0.0
        given = GroupSettings(
            prefixes=(prefix_of("s"),), attempts=0, lease_seconds=10.0,
            service=ServiceSettings(**settings),
        )  # fmt: skip
        self.group: ServiceGroup[bytes] = ServiceGroup("s", self.log, given, 1, 0, 0.0)

    def request(self, count: int = 1, topic: bytes = b"s/do", ranks: bytes = b"") -> None:
        """Requests in one batch; `ranks`: the priority of each."""
        data = pack(
            [b"x"] * count, publisher=PUBLISHER, epoch=0, link_number=1, first_sequence=0,
            created_us=0, extensions=pack_column(PRIORITIES, ranks),
        )  # fmt: skip
        assert self.log.append(topic, data, len(data)) is not None

    def send_again(self, before: Position, link_number: int = 2) -> bytes:
        """A request that was known so at an exchange that is gone; gives its token."""
        properties = sent_again({}, GONE, before)
        data = pack(
            [b"x"], publisher=PUBLISHER, epoch=0, link_number=link_number, first_sequence=0,
            created_us=0, extensions=pack_sent_again(),
            attributes=pack_attributes({0: Attributes(None, (), properties, 0)}),
        )  # fmt: skip
        assert self.log.append(b"s/do", data, len(data)) is not None
        return token_of(GONE, before, PUBLISHER, b"x")

    def join(self, name: str = "m", credit: int = 100) -> Member:
        member = self.group.join(name.encode().ljust(16, b"."), name)
        assert member is not None
        member.granted, member.granted_bytes, member.window = credit, 1 << 20, 1
        return member

    def leases(self) -> list[Lease]:
        found = []
        while (given := self.group.next_lease(self.numbers)) is not None:
            found.append(given[0])
        self.group.check()
        return found

    def pass_time(self, seconds: float, *heard: Member) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            self.log.advance_clock(int(self.now * 1e6))
            for member in heard:
                self.group.heard(member)
            self.group.tick(self.now)
            self.group.check()

    def ends(self) -> list[tuple[str, str]]:
        ended, self.group.ended = self.group.ended, []
        return [(each.outcome.state, each.outcome.text) for each in ended]
