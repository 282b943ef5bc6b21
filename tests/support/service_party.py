"""A requester or an instance that speaks to an exchange, and hears what it is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from exchange_driver import QUEUE, Exchange, Publisher, exchange, publisher_id

from roq.exchange.events import Received
from roq.machine import Tick
from roq.protocol import consuming, documents, requesting
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.consuming import (
    CREDIT,
    DONE,
    JOIN,
    LEASED,
    Credit,
    Done,
    DoneConfirmed,
    GroupSettings,
    Join,
    Joined,
    read_lease,
)
from roq.protocol.requesting import (
    ATTEND,
    OUTCOMES,
    REQUESTS,
    WANT,
    Attend,
    Attended,
    Position,
    RequestEnd,
    RequestEnds,
    Requests,
    RequestsQuery,
    ServiceSettings,
    Want,
    prefix_of,
)

SETTINGS = GroupSettings(
    prefixes=(prefix_of("s"),), attempts=0, lease_seconds=5.0, service=ServiceSettings()
)


@dataclass
class Party:
    """A requester or an instance, and what it was told."""

    there: Exchange
    name: str
    tag: bytes = b"tag1"
    serial: int = 0
    granted: int = 0
    leases: list[tuple[int, ...]] = field(default_factory=list)
    told: list[tuple[bytes, bytes]] = field(default_factory=list)

    @property
    def route(self) -> bytes:
        return self.name.encode()

    def say(self, letter: bytes, document: bytes) -> None:
        self.there.tell(Received(self.route, (letter + self.tag, document)))
        self.there.serve()
        self.look()

    def look(self) -> None:
        served = self.there.core.consumers
        served.begin(self.there.now)
        while served.runnable():
            delivery = served.next_delivery()
            if delivery is not None:
                self.there.sent.append((delivery.route, (*delivery.parts, bytes(delivery.batch))))
                served.sent(delivery)
        for letter, *rest in self.there.answers(self.route):
            if letter[:2] == LEASED:
                self.leases.append(read_lease(rest[0])[:4])
            elif (letter[:2], *rest) != (CREDIT, b""):
                self.told.append((letter[:2], rest[0]))

    def take(self, kind: bytes) -> bytes:
        told, self.told = self.told, []
        ((letter, document),) = told
        assert letter == kind, documents.decode(document, Refused) if letter == REFUSED else letter
        return document

    def refusal(self) -> str:
        return documents.decode(self.take(REFUSED), Refused).code

    # --- a requester ------------------------------------------------------------------------------

    def attend(self, **given: Any) -> Attended:
        fields = {"id": 1, "queue": QUEUE, "service": "s", "publisher": publisher_id("p")}
        self.say(ATTEND, documents.encode(Attend(**{**fields, **given})))
        return documents.decode(self.take(ATTEND), Attended)

    def want(self, *wanted: tuple[int, int], **given: Any) -> None:
        places = [Position(*each) for each in wanted]
        self.say(WANT, requesting.encode(Want("s", places, **given)))

    def ends(self) -> list[RequestEnd]:
        self.look()
        told, self.told = self.told, []
        assert {letter for letter, _ in told} <= {OUTCOMES}
        ends = [requesting.decode(document, RequestEnds) for _, document in told]
        return [end for each in ends for end in each.ended]

    def report(self, **given: Any) -> Requests:
        query = RequestsQuery(id=1, queue=QUEUE, service="s", **given)
        self.say(REQUESTS, documents.encode(query))
        return documents.decode(self.take(REQUESTS), Requests)

    # --- an instance ------------------------------------------------------------------------------

    def join(self, credit: int = 100, settings: GroupSettings = SETTINGS) -> Joined:
        join = Join(
            id=1, queue=QUEUE, group="s", member=self.name.encode().ljust(16, b"."),
            name=self.name, attempt=1, settings=settings,
        )  # fmt: skip
        self.say(JOIN, documents.encode(join))
        joined = documents.decode(self.take(JOIN), Joined)
        self.grant(credit)
        return joined

    def grant(self, credit: int) -> None:
        self.granted = credit
        self.say(CREDIT, consuming.encode(Credit(credit, 1 << 20, 1)))

    def done(self, **given: Any) -> DoneConfirmed:
        self.serial += 1
        self.say(DONE, consuming.encode(Done(self.serial, **given)))
        if not self.told:  # it is told with what is sent next, or as it takes nothing more
            granted = self.granted
            self.grant(0)
            self.grant(granted)
        return consuming.decode(self.take(DONE), DoneConfirmed)


def service(there: Exchange | None = None) -> tuple[Exchange, Publisher, Party, Party]:
    there = there or exchange()
    publisher = Publisher(there)
    publisher.hello()
    asker, instance = Party(there, "asker"), Party(there, "instance")
    asker.attend()
    instance.join()
    return there, publisher, asker, instance


def pass_time(there: Exchange, seconds: float) -> None:
    end = there.now + seconds
    while there.now < end:
        there.now += 0.5
        there.core.begin(there.now, 1_000 + int(there.now * 1e6))
        there.tell(Tick())
