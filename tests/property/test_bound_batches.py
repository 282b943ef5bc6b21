"""Delayed messages of a publisher whose durable exchanges die, come back, and are left: each is in
one log, if its exchange comes back in time, and in at least one, whatever happens."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from msgspec import structs
from publisher_script import LIMITS, NoWaiter

from roq.client.publish.bound_batches import PATIENCE_SECONDS
from roq.client.publish.events import (
    AskAttach,
    Assignment,
    ConnectionLost,
    Effect,
    Event,
    Received,
    Relocate,
    Serving,
)
from roq.client.publish.link import Drop, Open, Transmit
from roq.client.publish.links import Links
from roq.client.publish.receipt import Outcome, Receipt
from roq.machine import Tick
from roq.model import ExchangeInfo, PublisherId
from roq.protocol import channel, documents
from roq.protocol.delayed import DELAYED_TOPIC

LATER = DELAYED_TOPIC.decode()


@dataclass
class Exchange:
    """One with a log that outlives it."""

    info: ExchangeInfo
    up: bool = True
    down_at: float = 0.0
    epoch: int = -1
    expected: int = 1
    log: list[tuple[str, int]] = field(default_factory=list)
    connected: set[int] = field(default_factory=set)


class World:
    """A publisher, its exchanges, and a monitor that is never away."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.links = Links(PublisherId(b"p" * 16), LIMITS, delivery_seconds=60.0)
        self.now, self.epoch = 100.0, 0
        self.exchanges = [
            Exchange(
                ExchangeInfo(number=n, epoch=10, generation=n, host="h", data=f"{n}/10", live="")
            )
            for n in (1, 2, 3)
        ]
        self.receipts: list[tuple[str, int, Receipt]] = []
        self.left_at: dict[tuple[str, int], float] = {}
        self.settled_at: dict[tuple[str, int], float] = {}
        self.wants, self.told = True, False
        self.queue: list[Event] = []
        """On its way to the publisher."""
        self.serving()

    def feed(self, event: Event) -> None:
        self.perform(self.links.handle(event, self.now))
        self.links.check()

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Open(link, address, hello):
                    for each in self.exchanges:
                        each.connected.discard(link)
                    self.hello(link, address, documents.decode(hello[1], channel.Hello))
                case Drop(link):
                    for each in self.exchanges:
                        each.connected.discard(link)
                case Transmit(link, batches):
                    places = [(s.link_number, s.stream.topic, s.first_sequence) for s in batches]
                    self.transmit(link, places)
                case AskAttach():
                    self.wants = True

    def hello(self, link: int, address: str, hello: channel.Hello) -> None:
        there = next((e for e in self.exchanges if e.up and e.info.data == address), None)
        if there is None:
            self.queue.append(ConnectionLost(link, "refused"))
            return
        if hello.epoch < there.epoch:
            refused = channel.Refused(code="stale_epoch", text="no")
            self.queue.append(Received(link, [channel.REFUSED, documents.encode(refused)]))
            return
        if hello.epoch > there.epoch:
            there.epoch, there.expected = hello.epoch, 1
        there.connected.add(link)
        ready = channel.Ready(
            exchange=there.info.number, exchange_epoch=there.info.epoch,
            generation=there.info.generation, expected=there.expected, message_bytes=1,
            batch_bytes=1, batch_messages=1, window_bytes=1 << 20, window_batches=4, durable=True,
        )  # fmt: skip
        self.queue.append(Received(link, [channel.READY, documents.encode(ready)]))

    def transmit(self, link: int, batches: list[tuple[int, str, int]]) -> None:
        there = next((e for e in self.exchanges if link in e.connected), None)
        if there is None:
            return
        for number, topic, first in batches:
            self.left_at.setdefault((topic, first), self.now)
            if self.random.random() < 0.1:
                self.die(there)  # with what it has got by then
                return
            if number == there.expected:
                there.expected += 1
                there.log.append((topic, first))
        body = channel.NUMBER.pack(there.expected - 1)
        self.queue.append(Received(link, [channel.ACK, body]))

    def die(self, there: Exchange) -> None:
        there.up, there.down_at = False, self.now
        self.queue = [
            each
            for each in self.queue
            if not isinstance(each, Received) or each.link not in there.connected
        ]
        for link in there.connected:
            self.queue.append(ConnectionLost(link, "killed"))
        there.connected = set()
        self.told = False

    def serving(self) -> None:
        self.told = True
        self.feed(Serving(tuple(e.info for e in self.exchanges if e.up)))

    def step(self, *, publish: bool = True, worst: float = 2.0) -> None:
        self.manage(worst, moves=publish)
        if publish and self.links.chooser.has_room:
            self.publish()
        for _ in range(20):
            queue, self.queue = self.queue, []
            for event in queue:
                self.feed(event)
        for topic, first, receipt in self.receipts:
            if receipt.done():
                self.settled_at.setdefault((topic, first), self.now)
        self.now += self.random.choice([0.0, 0.05, 0.4])
        self.feed(Tick())

    def manage(self, worst: float, *, moves: bool) -> None:
        chance = self.random
        for each in self.exchanges:
            if not each.up and (self.now - each.down_at > worst or chance.random() < 0.2):
                number, epoch = each.info.number, each.info.epoch + 1
                each.info = structs.replace(each.info, epoch=epoch, data=f"{number}/{epoch}")
                each.up, self.told = True, False
        if not self.told:
            self.serving()
        up = [each.info for each in self.exchanges if each.up]
        if self.wants and up:
            self.wants = False
            self.epoch += 1
            self.feed(Assignment(b"q" * 16, chance.choice(up), self.epoch, LIMITS))
        elif moves and up and chance.random() < 0.05:
            self.epoch += 1
            targets = chance.sample(up, chance.randint(1, len(up)))
            self.feed(Relocate(self.epoch, tuple(targets)))

    def publish(self) -> None:
        topic = self.random.choice([LATER, "t"])
        stream = self.links.topics.stream(topic)
        receipt = Receipt(NoWaiter())
        self.receipts.append((topic, stream.next_sequence, receipt))
        self.links.chooser.seal(stream, [b"x"], receipt, self.now, 1)
        for link in self.links.all:
            batches = link.transmit(self.now)
            if batches:
                self.perform([Transmit(link.number, batches)])


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("worst", [2.0, 3 * PATIENCE_SECONDS])
def test_each_is_in_a_log_and_what_is_settled_soon_in_one(seed: int, worst: float) -> None:
    world = World(seed)
    for _ in range(150):
        world.step(worst=worst)
    for _ in range(400):
        world.step(publish=False, worst=worst)
        if not world.links.unsettled:
            break
    logs = [place for each in world.exchanges for place in each.log]
    for topic, first, receipt in world.receipts:
        assert receipt.status is not None
        assert receipt.status.outcome is Outcome.OK, receipt.status
        assert (topic, first) in logs
        place = topic, first
        took = world.settled_at[place] - world.left_at[place]
        if topic == LATER and took < PATIENCE_SECONDS:
            assert logs.count(place) == 1
