"""Speaks to an exchange core in the words of publishers and readers; no test in here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from roq.exchange.commit import LateLog
from roq.exchange.events import Effect, Event, Publish, Received, Send, Tell, Woken
from roq.exchange.links import Link
from roq.exchange.machine import ExchangeCore
from roq.log.log import Log
from roq.model import Limits, LogId, PublisherId
from roq.protocol import batch, channel, documents
from roq.protocol.batch import Header, Kind
from roq.protocol.channel import Hello, Ready, Refused, Reset, StreamState
from roq.protocol.control import OrderAsk, OrderTold
from roq.protocol.entry import Entry, read_entry
from roq.protocol.version import WIRE_VERSION

QUEUE = b"q" * 16
NUMBER = 1
EPOCH = 5


def publisher_id(name: str) -> PublisherId:
    return PublisherId(name.encode().ljust(16, b"."))


@dataclass
class Exchange:
    """A core, and what its shell would have sent."""

    core: ExchangeCore[bytes]
    limits: Limits
    now: float = 0.0
    live: list[tuple[bytes, ...]] = field(default_factory=list)
    sent: list[tuple[bytes, tuple[bytes, ...]]] = field(default_factory=list)
    woken: int = 0
    told: list[OrderAsk | OrderTold] = field(default_factory=list)
    """What it has said to its monitor."""
    snapshots: list[tuple[int, bytes]] = field(default_factory=list)
    """Where the log ended when each was taken, and what it says."""

    def tell(self, event: Event) -> list[Effect]:
        effects = self.core.handle(event, self.now)
        self.perform(effects)
        return effects

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Publish(frames):
                    self.live.append(frames)
                case Send(route, frames):
                    self.sent.append((route, frames))
                case Tell(message):
                    self.told.append(message)
                case Woken():
                    self.woken += 1
        self.core.check()

    def append(self, route: bytes, topic: bytes, data: bytes) -> bool:
        entry = self.core.append(route, topic, data, len(data))
        if entry is not None:
            self.live.append((topic, entry, data))
        self.core.check()
        return entry is not None

    def publish(self) -> None:
        """Show everybody what the log has committed."""
        while not self.core.all_shown:
            for topic, entry, data, _ in self.core.take_committed(3):
                self.live.append((topic.name, entry, data))

    def settle(self) -> None:
        """Send acks and answers."""
        for link in self.core.take_acks():
            assert not self.uncommitted(link)
            if link.route is not None:
                body = link.acknowledgement(link.committed)
                if link.places is not None:
                    link.places.told = link.committed
                self.sent.append((link.route, (channel.ACK, body)))
        self.perform(list(self.core.take_answers()))

    def uncommitted(self, link: Link) -> list[Header]:
        """Batches for which this link is acknowledged although the log has not committed them."""
        log = self.core.log
        records = [log.record(offset) for offset in range(log.committed, log.end)]
        headers = [batch.read_header(data) for _, _, data, _ in records]
        return [
            header
            for header in headers
            if (header.publisher, header.epoch) == (link.publisher, link.epoch)
            and 0 < header.link_number <= link.committed
        ]

    def serve(self) -> None:
        """Answer all readers."""
        while self.core.requests:
            self.perform(self.core.answer_next(self.now))

    def answers(self, route: bytes) -> list[tuple[bytes, ...]]:
        """What this connection was sent since the last call."""
        self.settle()
        mine = [frames for to, frames in self.sent if to == route]
        self.sent = [(to, frames) for to, frames in self.sent if to != route]
        return mine

    def ask(self, letter: bytes, request: msgspec.Struct, route: bytes = b"reader") -> bytes:
        """The document that answers a reader's request; the letter must be the same."""
        self.tell(Received(route, (letter, documents.encode(request))))
        self.serve()
        ((answer, document),) = self.answers(route)
        assert answer == letter, documents.decode(document, Refused)
        return document

    def log(self) -> list[tuple[Entry, bytes, Header]]:
        """All that is in the log: entry, topic, header of the batch."""
        log = self.core.log
        records = [log.record(offset) for offset in range(log.floor, log.end)]
        return [
            (read_entry(frame), topic.name, batch.read_header(data))
            for topic, frame, data, _ in records
        ]


PLACE = "/logs of host h"


def exchange(
    log: Log[bytes] | None = None,
    late: LateLog[bytes] | None = None,
    *,
    ahead: bool = False,
    **limits: int,
) -> Exchange:
    allowed = Limits(**limits)
    core: ExchangeCore[bytes] = ExchangeCore(
        QUEUE, NUMBER, EPOCH, allowed, log, late, PLACE, ahead=ahead
    )
    core.begin(0.0, 1_000)
    return Exchange(core, allowed)


@dataclass
class Publisher:
    """One publisher on one connection at a time."""

    exchange: Exchange
    name: str = "p"
    epoch: int = 1
    attempt: int = 0
    number: int = 0
    sequences: dict[bytes, int] = field(default_factory=dict)
    incarnation: int = 0
    places: int = 0
    logs: list[LogId] = field(default_factory=list)
    """What its Hello says."""

    @property
    def id(self) -> PublisherId:
        return publisher_id(self.name)

    @property
    def route(self) -> bytes:
        return f"{self.name}/{self.attempt}".encode()

    def hello(
        self,
        streams: list[StreamState] | None = None,
        queue: bytes = QUEUE,
        version: int = WIRE_VERSION,
    ) -> Ready | Refused:
        """Connect anew and say Hello; the answer."""
        self.exchange.settle()
        self.attempt += 1
        hello = Hello(
            version=version, queue=queue, publisher=self.id, epoch=self.epoch,
            attempt=self.attempt, streams=streams or [], places=self.places,
            incarnation=self.incarnation, logs=self.logs,
        )  # fmt: skip
        self.exchange.tell(Received(self.route, (channel.HELLO, documents.encode(hello))))
        self.exchange.serve()
        ((letter, document),) = self.exchange.answers(self.route)
        if letter == channel.READY:
            return documents.decode(document, Ready)
        return documents.decode(document, Refused)

    def batch(
        self,
        topic: bytes,
        count: int = 1,
        number: int | None = None,
        *,
        area: bytes = b"",
        payloads: list[bytes] | None = None,
        attributes: bytes | None = None,
    ) -> bytes:
        """The next batch of a topic; with `number` one that is out of turn."""
        first = self.sequences.get(topic, 0)
        if number is None:
            self.number += 1
            number = self.number
            self.sequences[topic] = first + count
        return batch.pack(
            payloads or [b"x"] * count, publisher=self.id, epoch=self.epoch, link_number=number,
            first_sequence=first, created_us=7, extensions=area, attributes=attributes,
        )  # fmt: skip

    def void(self, topic: bytes, count: int, number: int, kind: Kind = Kind.VOID) -> bytes:
        return batch.pack_empty(
            kind, publisher=self.id, epoch=self.epoch, link_number=number,
            first_sequence=self.sequences.get(topic, 0), count=count,
        )  # fmt: skip

    def send(self, topic: bytes = b"t", count: int = 1, **given: Any) -> bool:
        """Send the next batch; whether it went into the log."""
        return self.exchange.append(self.route, topic, self.batch(topic, count, **given))

    def acked(self) -> int:
        """The link number of the one ack that is due."""
        ((letter, number),) = self.exchange.answers(self.route)
        assert letter == channel.ACK, letter
        return channel.read_number(number)

    def reset(self) -> int:
        """Where the one Reset that is due wants the replay to begin."""
        ((letter, document),) = self.exchange.answers(self.route)
        assert letter == channel.RESET, letter
        return documents.decode(document, Reset).expected

    def refused(self) -> Refused:
        """The one Refused that is due."""
        ((letter, document),) = self.exchange.answers(self.route)
        assert letter == channel.REFUSED, letter
        return documents.decode(document, Refused)
