"""A publisher, and an exchange that acknowledges ahead of its disk: whatever the power takes.

The machines and the log are the real ones. Power cuts take any part of what was not synced. As long
as the publisher lives, nothing is lost: it sends again what the log does not know any more.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from roq.client.publish.events import Assignment, ConnectionLost, Received
from roq.client.publish.link import Open, Say, Transmit
from roq.client.publish.links import Links
from roq.client.publish.receipt import Receipt
from roq.exchange.events import Received as Arrived
from roq.exchange.events import Send, Unreachable
from roq.exchange.machine import ExchangeCore
from roq.log.disk_groups import Sync, perform, perform_sync
from roq.log.recovery import LogSettings, open_log
from roq.log.segments import SegmentLog
from roq.machine import Tick
from roq.model import ExchangeInfo, Limits, PublisherId
from roq.protocol import batch as wire
from roq.protocol import channel
from roq.simulation.virtual.lossy_files import LossyFiles

QUEUE = b"q" * 16
PUBLISHER = PublisherId(b"p" * 16)
LIMITS = Limits(window_batches=6)
SEEDS = 500


class NoWaiter:
    def wait_for(self, condition: object, timeout: float | None) -> bool:
        raise AssertionError("nothing here waits")

    def call_back(self, callback: object, left_out: object) -> None:
        raise AssertionError("nobody asked for it")


@dataclass
class World:
    """One publisher, one exchange on one host, and what is on its way between them."""

    chance: random.Random
    files: LossyFiles = field(default_factory=LossyFiles)
    now: float = 100.0
    epoch: int = 4
    serial: int = 0
    link: int = 0
    up: deque[tuple[bytes, ...]] = field(default_factory=deque)
    down: deque[list[bytes]] = field(default_factory=deque)
    receipts: list[tuple[bytes, int, Receipt]] = field(default_factory=list)
    """Stream and sequence of each batch."""
    shown: dict[int, bytes] = field(default_factory=dict)
    """What subscribers were shown, by offset."""
    syncing: Sync | None = None
    again: int = 0
    """Batches that were sent again after they had been acknowledged."""

    def __post_init__(self) -> None:
        self.machine = Links(PUBLISHER, LIMITS, delivery_seconds=1e6, offsets=True)
        self.start()
        self.feed(Assignment(QUEUE, self.info, 1, LIMITS))

    @property
    def info(self) -> ExchangeInfo:
        return ExchangeInfo(
            number=1, epoch=self.epoch, generation=5, host="h", data=f"tcp://h:{self.epoch}",
            live="",
        )  # fmt: skip

    @property
    def route(self) -> bytes:
        return b"%d" % self.serial

    # --- the exchange -----------------------------------------------------------------------------

    def start(self) -> None:
        self.epoch += 1
        self.syncing = None
        self.log: SegmentLog[bytes] = open_log(
            self.files,
            LogSettings(
                queue=QUEUE, exchange=1, epoch=self.epoch, cluster="c", host="h",
                ring_bytes=1 << 20, topics_max=100, topics_spare=0, capacity_bytes=1 << 40,
                keep_us=1 << 50, now_us=1, segment_bytes=3_000, segment_entries=20, ahead=True,
            ),
        )  # fmt: skip
        self.core: ExchangeCore[bytes] = ExchangeCore(
            QUEUE, 1, self.epoch, LIMITS, late=self.log, ahead=True
        )
        self.core.begin(self.now, 1)
        self.core.recover(self.now, self.log.recovered.snapshot, self.log.recovered.since)
        for offset in range(self.log.end - 1, self.log.end - 3_000, -1):
            record = self.log.record(offset) if offset >= self.log.floor else None
            assert record is None or self.shown.setdefault(offset, record[2]) == record[2]

    def end(self) -> None:
        """The exchange dies, perhaps with the power; another process goes on."""
        if self.chance.random() < 0.7:
            self.files = self.files.power_cut(self.chance)
        self.up.clear()
        self.down.clear()
        self.start()
        self.serial += 1
        self.reached(ConnectionLost(self.link, "killed"))

    def write(self) -> None:
        group = self.log.gather(self.core.snapshot)
        if group is not None:
            perform(self.files, group)
            self.log.commit(group.end)
        self.settle()

    def sync(self) -> None:
        """A sync begins, or the one that has begun is heard of."""
        if self.syncing is None:
            self.syncing = self.log.gather_sync()
            if self.syncing is not None:
                perform_sync(self.files, self.syncing)
            return
        self.log.commit_sync(self.syncing.end)
        self.syncing = None
        self.settle()

    def settle(self) -> None:
        for link in self.core.take_acks():
            if link.route == self.route:
                self.down.append([channel.ACK, link.acknowledgement(link.committed)])
                assert link.places is not None
                link.places.told = link.committed
        for link, number in self.core.take_synced().items():
            if link.route == self.route and self.chance.random() < 0.8:
                self.down.append([channel.SYNCED, channel.NUMBER.pack(number)])
        self.perform(self.core.take_answers())
        first = self.core._uncommitted.shown if self.core._uncommitted else 0
        for offset, (_, _, data, _) in enumerate(self.core.take_committed(1_000), first):
            assert self.shown.setdefault(offset, data) == data, "an offset is shown for two"
        self.core.check()

    def perform(self, effects: object) -> None:
        assert isinstance(effects, list)
        for effect in effects:
            if isinstance(effect, Send) and effect.route == self.route:
                self.down.append(list(effect.parts))

    # --- the way ----------------------------------------------------------------------------------

    def to_exchange(self) -> None:
        for _ in range(self.chance.randrange(1, 5)):
            if self.up:
                frames = self.up.popleft()
                if frames[0][:1] == b"\xff":
                    self.perform(self.core.handle(Arrived(self.route, frames), self.now))
                else:
                    self.core.append(self.route, frames[0], frames[1], len(frames[1]))

    def to_publisher(self) -> None:
        for _ in range(self.chance.randrange(1, 4)):
            if self.down:
                self.feed(Received(self.link, self.down.popleft()))

    def cut(self) -> None:
        self.core.handle(Unreachable(self.route), self.now)
        self.up.clear()
        self.down.clear()
        self.reached(ConnectionLost(self.link, "cut"))

    def reached(self, event: ConnectionLost) -> None:
        """The publisher notices, and the monitor tells it where the exchange is now."""
        self.feed(event)
        for _ in range(20):
            if not self.machine.detached:
                return
            self.now += 1.0
            self.feed(Assignment(QUEUE, self.info, self.machine._highest + 1, LIMITS))
        raise AssertionError("it does not go on")

    # --- the publisher ----------------------------------------------------------------------------

    def publish(self) -> None:
        if not self.machine.chooser.has_room:
            return
        topic = self.chance.choice("ab")
        stream = self.machine.topics.stream(topic)
        receipt = Receipt(NoWaiter())  # type: ignore[arg-type]
        self.receipts.append((topic.encode(), stream.next_sequence, receipt))
        payload = self.chance.randbytes(self.chance.choice([3, 300]))
        self.machine.chooser.seal(stream, [payload], receipt, self.now, 1)
        for link in self.machine.all:
            self.transmit(link.number, link.transmit(self.now))

    def transmit(self, link: int, batches: object) -> None:
        if link == self.link:
            for sealed in batches:  # type: ignore[attr-defined]
                self.again += not sealed.owed
                self.up.append((sealed.stream.data, sealed.data))

    def feed(self, event: object) -> None:
        for effect in self.machine.handle(event, self.now):  # type: ignore[arg-type]
            match effect:
                case Open(link, endpoint, hello):
                    self.serial += 1
                    self.link = link
                    self.up.clear()
                    self.down.clear()
                    if endpoint == self.info.data:
                        self.up.append(hello)
                case Transmit(link, batches):
                    self.transmit(link, batches)
                case Say(link, frames) if link == self.link:
                    self.up.append(frames)
                case _:
                    pass
        self.machine.check()

    def step(self) -> None:
        self.now += 0.01
        self.core.begin(self.now, 1)
        steps = [self.publish] * 12 + [self.to_exchange] * 12 + [self.write] * 12
        steps += [self.to_publisher] * 12 + [self.sync] * 3 + [self.cut]
        self.chance.choice(steps)()

    def calm(self) -> None:
        """Everything comes to its end, and nothing fails any more."""
        for _ in range(400):
            self.now += 0.05
            self.core.begin(self.now, 1)
            self.perform(self.core.handle(Tick(), self.now))
            self.to_exchange()
            self.write()
            self.sync()
            self.to_publisher()
            self.feed(Tick())
            if self.machine.detached:
                self.reached(ConnectionLost(self.link, "gone"))
            if self.machine.ready and not (self.up or self.down or self.machine.unsettled):
                return
        raise AssertionError("it does not come to an end")

    def judge(self) -> None:
        """Every batch is in the log, each stream in order but for what stands there twice."""
        first: dict[tuple[bytes, int], int] = {}
        told: dict[bytes, int] = {}
        for offset in sorted(self.shown):
            record = self.log.record(offset) if offset >= self.log.floor else None
            if record is not None:
                header = wire.read_header(record[2])
                name, sequence = record[0].name, header.first_sequence
                if header.kind == wire.Kind.DATA:
                    new = first.setdefault((name, sequence), offset) == offset
                    assert not new or sequence >= told.get(name, 0), "it was told to be passed"
                else:
                    told[name] = max(sequence, told.get(name, 0))
        for topic in (b"a", b"b"):
            mine = [place for place in self.receipts if place[0] == topic]
            offsets = [first[topic, sequence] for _, sequence, _ in mine]
            assert offsets == sorted(offsets), "in order, and all of them"
        for _, _, receipt in self.receipts:
            status = receipt.status
            assert status is not None
            assert (status.ok, status.stored, status.flushed) == (True, True, False)


def play(seed: int) -> World:
    chance = random.Random(seed)
    world = World(chance)
    for _ in range(chance.randrange(1, 6)):
        for _ in range(chance.randrange(10, 60)):
            world.step()
        world.end()
    world.calm()
    world.judge()
    return world


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_the_publisher_makes_good_what_the_power_has_taken(first: int) -> None:
    worlds = [play(seed) for seed in range(first, first + 50)]
    assert sum(world.again for world in worlds) > 5, "acknowledged batches were sent again"
