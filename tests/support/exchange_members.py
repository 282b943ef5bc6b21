"""Members of consumer groups around an exchange's machine, without sockets. No test in here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from exchange_driver import EPOCH, QUEUE, Exchange, Publisher, exchange

from roq.exchange.events import Received
from roq.log.leases import NumberedLeases
from roq.machine import Tick
from roq.protocol import consuming, documents
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.consuming import (
    CREDIT,
    DONE,
    GROUP_ORDER,
    GROUPS,
    JOIN,
    LEASED,
    Credit,
    Done,
    DoneConfirmed,
    GroupOrder,
    Groups,
    GroupSettings,
    GroupsRequest,
    GroupState,
    Join,
    Joined,
    Run,
    pack_runs,
    read_lease,
)

FIRST = NumberedLeases(EPOCH).next() - 1
"""Below the numbers of the leases of this process."""
SETTINGS = GroupSettings(retry_seconds=0.5, lease_seconds=5.0)
Lease = tuple[int, int, int, int]
"""Number, first message, how many, which attempt."""


@dataclass
class Consumer:
    """One consumer, and what it was told."""

    there: Exchange
    name: str = "m"
    group: str = "g"
    tag: bytes = b"tag1"
    attempt: int = 1
    serial: int = 0
    leases: list[Lease] = field(default_factory=list)
    other: list[tuple[bytes, ...]] = field(default_factory=list)

    @property
    def id(self) -> bytes:
        return self.name.encode().ljust(16, b".")

    @property
    def route(self) -> bytes:
        return f"{self.name}/{self.attempt}".encode()

    def say(self, letter: bytes, document: bytes) -> None:
        self.there.tell(Received(self.route, (letter + self.tag, document)))
        self.there.serve()
        self.look()

    def look(self) -> None:
        """Take what has come by now."""
        deliver(self.there)
        for letter, *rest in self.there.answers(self.route):
            assert letter[2:] in {b"", self.tag}
            if letter[:2] == LEASED:
                number, *rest_of_lease, bits = read_lease(rest[0])
                assert bits == (1 << rest_of_lease[1]) - 1
                self.leases.append((number - FIRST, *rest_of_lease))
            else:
                self.other.append((letter[:2], *rest))

    def take(self, kind: bytes) -> bytes:
        """The document of the one answer that there is, apart from probes."""
        told = [parts for parts in self.other if parts != (CREDIT, b"")]
        self.other = []
        ((letter, document),) = told
        refused = documents.decode(document, Refused) if letter == REFUSED else None
        assert letter == kind, refused
        return document

    def join(self, held: Sequence[Run] = (), **given: Any) -> None:
        fields = {
            "id": 1, "queue": QUEUE, "group": self.group, "member": self.id, "name": self.name,
            "attempt": self.attempt, "settings": SETTINGS, "holds": pack_runs([*held]),
        }  # fmt: skip
        self.say(JOIN, documents.encode(Join(**{**fields, **given})))

    def enter(self, **given: Any) -> Joined:
        self.join(**given)
        return documents.decode(self.take(JOIN), Joined)

    def refusal(self) -> Refused:
        return documents.decode(self.take(REFUSED), Refused)

    def credit(self, messages: int = 100) -> list[Lease]:
        """Be ready for so many, all in all; gives what has come."""
        self.leases = []
        self.say(CREDIT, consuming.encode(Credit(messages, 1 << 20, messages)))
        return self.leases

    def done(self, *leases: int, **more: Any) -> None:
        self.serial += 1
        fields = {
            "whole": [FIRST + lease for lease in leases],
            "parts": [(FIRST + lease, *rest) for lease, *rest in more.get("parts", [])],
            "returned": [
                msgspec.structs.replace(each, lease=FIRST + each.lease)
                for each in more.get("returned", [])
            ],
        }
        self.say(DONE, consuming.encode(Done(self.serial, **fields)))

    def confirmed(self) -> DoneConfirmed:
        told = consuming.decode(self.take(DONE), DoneConfirmed)
        return DoneConfirmed(told.serial, [lease - FIRST for lease in told.refused])


def deliver(there: Exchange) -> None:
    """What the shell does with what there is to hand out."""
    served = there.core.consumers
    served.begin(there.now)
    while served.runnable():
        delivery = served.next_delivery()
        if delivery is not None:
            there.sent.append((delivery.route, (*delivery.parts, bytes(delivery.batch))))
            served.sent(delivery)
    there.core.check()


def filled(*counts: int, there: Exchange | None = None) -> Exchange:
    publisher = Publisher(there or exchange())
    publisher.hello()
    for count in counts:
        assert publisher.send(b"t", count)
    publisher.exchange.settle()
    return publisher.exchange


def pass_time(there: Exchange, seconds: float) -> None:
    end = there.now + seconds
    while there.now < end:
        there.now += 0.5
        there.core.begin(there.now, 1_000)
        there.tell(Tick())


def states(there: Exchange, group: str = "") -> list[GroupState]:
    request = GroupsRequest(id=3, queue=QUEUE, group=group)
    return documents.decode(there.ask(GROUPS, request), Groups).groups


def order(there: Exchange, word: str, **given: Any) -> None:
    there.ask(GROUP_ORDER, GroupOrder(id=4, queue=QUEUE, group="g", order=word, **given))
