"""What a receipt says of a place is so: publishers and exchanges whose logs, disks and ways fail.

The machines and the logs are the real ones. Messages come late, or not at all; disks are slow;
exchanges are killed, lose their power, come back with what their logs have kept, or never; the
publisher is moved, striped, assigned anew, and forgotten. What it publishes under some topics is
bound to the log for which it has left.

The numbers of `SEEDS` are a choice of histories that are played each time; any range can be played
by `python tests/property/test_places.py FIRST BEHIND`.
"""

from __future__ import annotations

import random
import sys
import traceback
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import pytest
from publisher_script import NoWaiter

from roq.client.publish.events import (
    AskAttach,
    Assignment,
    ConnectionLost,
    Effect,
    Event,
    Received,
    Relocate,
    Serving,
    TellRelocated,
)
from roq.client.publish.link import Drop, Open, Say, Transmit
from roq.client.publish.links import Links
from roq.client.publish.receipt import Outcome, Receipt
from roq.exchange.events import Effect as ExchangeEffect
from roq.exchange.events import Passed, Send, Unreachable
from roq.exchange.events import Received as Arrived
from roq.exchange.machine import ExchangeCore
from roq.log.disk_groups import Group, Sync, perform_sync, settle, write
from roq.log.log import Log
from roq.log.recovery import LogSettings, open_log
from roq.log.segments import SegmentLog
from roq.machine import Tick
from roq.model import ExchangeInfo, Limits, PublisherId
from roq.protocol import batch as wire
from roq.protocol import channel
from roq.protocol.delayed import DELAYED_TOPIC, Delayed, encode_delayed
from roq.simulation.virtual.lossy_files import LossyFiles

QUEUE = b"q" * 16
PUBLISHER = PublisherId(b"p" * 16)
LIMITS = Limits(window_batches=6, ring_bytes=1 << 20)
DELIVERY_SECONDS: Final = 30.0
BOUND: Final = "r"
LATER: Final = DELAYED_TOPIC.decode()
NEVER_US: Final = 1 << 48
"""When delayed messages are due: beyond the end of each history."""
UNREADABLE_US: Final = 1 << 62
"""A batch that says to be made then is refused."""
KINDS: Final = ("ring", "flush", "async")
SEEDS: Final = 300


@dataclass
class Place:
    """One exchange, its disk, and what its dead processes have left."""

    number: int
    kind: str
    generation: int
    epoch: int
    files: LossyFiles = field(default_factory=LossyFiles)
    up: bool = False
    gone: bool = False
    """For good."""
    down_at: float = 0.0
    groups: list[Group[bytes]] = field(default_factory=list)
    """Written, and not settled;"""
    settled: list[Group[bytes]] = field(default_factory=list)
    """settled, and the log was not told."""
    syncing: Sync | None = None
    stuck: bool = False
    """Its disk does nothing."""
    graves: dict[int, dict[int, bytes]] = field(default_factory=dict)
    """What logs that are not there any more had committed: by generation, the batch by offset."""
    looked: int = 0
    """So far `look` has come in this life."""
    seen: dict[int, bytes] = field(default_factory=dict)
    """By offset of the present log, what was committed there in any life."""

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def info(self) -> ExchangeInfo:
        return ExchangeInfo(
            number=self.number, epoch=self.epoch, generation=self.generation, host="h",
            data=f"{self.number}/{self.epoch}", live="",
        )  # fmt: skip

    def start(self, now: float) -> None:
        self.epoch += 1
        self.up, self.stuck = True, False
        self.groups, self.settled, self.syncing, self.looked = [], [], None, 0
        late: SegmentLog[bytes] | None = None
        if self.kind == "ring":
            self.generation = self.epoch
            self.core: ExchangeCore[bytes] = ExchangeCore(QUEUE, self.number, self.epoch, LIMITS)
        else:
            late = open_log(
                self.files,
                LogSettings(
                    queue=QUEUE, exchange=self.number, epoch=self.epoch, cluster="c", host="h",
                    ring_bytes=1 << 20, topics_max=100, topics_spare=0, capacity_bytes=1 << 40,
                    keep_us=1 << 50, now_us=1, segment_bytes=3_000, segment_entries=20,
                    ahead=self.kind == "async",
                ),
            )  # fmt: skip
            self.core = ExchangeCore(
                QUEUE, self.number, self.epoch, LIMITS, late=late, ahead=self.kind == "async"
            )
            self.generation = late.generation
        self.late = late
        self.core.begin(now, int(now * 1e6))
        if late is not None:
            self.core.recover(now, late.recovered.snapshot, late.recovered.since)
            self.look()

    @property
    def log(self) -> Log[bytes]:
        return self.core.log

    def end(self, now: float, chance: random.Random | None) -> None:
        """The process ends; with a chance its power does, too."""
        self.look()
        self.up, self.down_at = False, now
        if chance is not None:
            self.files = self.files.power_cut(chance)
        if self.kind == "ring":
            self.graves[self.generation] = self.seen
            self.seen = {}

    def look(self) -> None:
        """No offset is ever given to two; what was synced stays."""
        for offset, batch in self.entries(self.looked).items():
            assert self.seen.setdefault(offset, batch) == batch, "an offset is given twice"
        self.looked = self.log.committed

    def stick(self) -> None:
        """Its disk hangs from now on, or does no more."""
        self.stuck = not self.stuck

    def disk(self, steps: int) -> None:
        """The disk comes so many steps further."""
        log = self.late
        if log is None or not self.up or self.stuck:
            return
        for _ in range(steps):
            if self.settled:
                for group in self.settled:
                    log.commit(group.end)
                self.settled = []
            elif self.groups:
                settle(self.files, self.groups)
                self.settled, self.groups = self.groups, []
            else:
                group = log.gather(self.core.snapshot)
                if group is not None:
                    write(self.files, group)
                    self.groups.append(group)
                elif log.sync_wanted:
                    self.sync()
        self.look()

    def sync(self) -> None:
        """A sync begins, or the one that has begun is heard of."""
        log = self.late
        if log is None or not self.up or self.stuck:
            return
        if self.syncing is None:
            self.syncing = log.gather_sync()
            if self.syncing is not None:
                perform_sync(self.files, self.syncing)
            return
        log.commit_sync(self.syncing.end)
        self.syncing = None

    def entries(self, since: int = 0) -> dict[int, bytes]:
        """What is in its log now, from an offset on."""
        found = {}
        at = since
        while (offset := self.log.following(max(at, self.log.floor))) < self.log.committed:
            at = offset + 1
            record = self.log.record(offset)
            if record is not None:
                found[offset] = bytes(record[2])
        return found


@dataclass
class Way:
    """One connection, and what is on its way in both directions."""

    link: int
    route: bytes
    place: Place
    epoch: int
    """Of the process that it leads to."""
    up: deque[tuple[bytes, ...]] = field(default_factory=deque)
    down: deque[list[bytes]] = field(default_factory=deque)


@dataclass
class Sent:
    """One batch that was published."""

    topic: str
    payload: bytes
    first: int
    receipt: Receipt
    home: tuple[int, int]
    """The exchange and the epoch for which it was sealed."""


class World:
    """A publisher, its exchanges, a monitor that is never away, and what is between them."""

    def __init__(self, seed: int, kind: str) -> None:
        self.chance = chance = random.Random(f"{seed} {kind}")
        self.kind, self.now, self.epoch, self.serial = kind, 100.0, 0, 0
        self.links = Links(PUBLISHER, LIMITS, delivery_seconds=DELIVERY_SECONDS, offsets=True)
        self.links.bound.topics.add(BOUND)
        self.places = [
            Place(number, kind, generation=0, epoch=10 * number)
            for number in range(1, chance.choice([2, 3, 3]) + 1)
        ]
        for place in self.places:
            place.start(self.now)
        self.ways: dict[int, Way] = {}
        self.leaving: list[Way] = []
        """Given up by the publisher; what it had sent may arrive."""
        self.lost: list[tuple[Way, str]] = []
        """Connections of whose end the publisher has not heard."""
        self.sent: list[Sent] = []
        self.wants, self.untold, self.trouble = True, False, True
        self.forgets = self.cuts = 0
        self.late = False
        """Much time has passed at once."""
        self.topology()
        self.assign()

    # --- the publisher ----------------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        self.perform(self.links.handle(event, self.now))
        self.links.check()

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Open(link, endpoint, hello):
                    self.open(link, endpoint, hello)
                case Drop(link, bye):
                    way = self.ways.pop(link, None)
                    if way is not None:
                        way.up.extend([bye] if bye else [])
                        self.leaving.append(way)
                case Say(link, frames) if link in self.ways:
                    self.ways[link].up.append(frames)
                case Transmit(link, batches) if link in self.ways:
                    self.ways[link].up.extend((s.stream.data, s.data) for s in batches)
                case AskAttach():
                    self.wants = True
                case TellRelocated(epoch, accepted=True) if self.chance.random() < 0.5:
                    at = {each.log for each in self.links.exchanges}
                    for place in self.places:
                        if place.up and place.info.log not in at:
                            place.core.handle(Passed(PUBLISHER, epoch, ()), self.now)
                case _:
                    pass

    def open(self, link: int, endpoint: str, hello: tuple[bytes, bytes]) -> None:
        before = self.ways.pop(link, None)
        if before is not None:
            self.leaving.append(before)
        self.serial += 1
        place = next(each for each in self.places if endpoint.startswith(f"{each.number}/"))
        way = Way(link, b"%d" % self.serial, place, int(endpoint.split("/")[1]), deque([hello]))
        self.ways[link] = way
        if not (place.up and place.epoch == way.epoch):
            self.lost.append((way, "refused"))

    def publish(self, topic: str) -> None:
        if not self.links.chooser.has_room:
            return
        stream = self.links.topics.stream(topic)
        payload = b"%d" % len(self.sent) + b"." * self.chance.choice([0, 300])
        if topic == LATER:
            payload = encode_delayed(Delayed(NEVER_US, b"t", payload, b"%8d" % len(self.sent)))
        receipt = Receipt(NoWaiter())  # type: ignore[arg-type]
        first = stream.next_sequence
        made_us = UNREADABLE_US if self.trouble and self.chance.random() < 0.04 else 1
        sealed = self.links.chooser.seal(stream, [payload], receipt, self.now, made_us)
        link = next(each for each in self.links.all if sealed in each.window)
        home = link.log.number, link.window.epoch
        self.sent.append(Sent(topic, payload, first, receipt, home))
        for each in self.links.all:
            batches = each.transmit(self.now)
            if batches:
                self.perform([Transmit(each.number, batches)])
        self.links.check()

    # --- the ways ---------------------------------------------------------------------------------

    def arrive(self, way: Way, count: int) -> None:
        place = way.place
        for _ in range(min(count, len(way.up))):
            frames = way.up.popleft()
            if not (place.up and place.epoch == way.epoch):
                continue
            if frames[0][:1] == b"\xff":
                self.answer(place, place.core.handle(Arrived(way.route, frames), self.now))
                while place.core.requests:
                    self.answer(place, place.core.answer_next(self.now))
            else:
                place.core.append(way.route, frames[0], frames[1], len(frames[1]))

    def settle(self, place: Place) -> None:
        """As the shell of an exchange does at the end of a turn."""
        if not place.up:
            return
        by_route = {way.route: way for way in [*self.ways.values(), *self.leaving]}
        for link in place.core.take_acks():
            way = by_route.get(link.route or b"")
            if way is not None:
                way.down.append([channel.ACK, link.acknowledgement(link.committed)])
                if link.places is not None:
                    link.places.told = link.committed
        for link, number in place.core.take_synced().items():
            way = by_route.get(link.route or b"")
            if way is not None and self.chance.random() < 0.8:
                way.down.append([channel.SYNCED, channel.NUMBER.pack(number)])
        self.answer(place, place.core.take_answers())
        place.core.pass_committed()
        place.core.check()

    def answer(self, place: Place, effects: list[ExchangeEffect]) -> None:
        by_route = {way.route: way for way in [*self.ways.values(), *self.leaving]}
        for effect in effects:
            if isinstance(effect, Send) and effect.route in by_route:
                by_route[effect.route].down.append(list(effect.parts))

    def hear(self, count: int) -> None:
        """Answers reach the publisher, and the news of connections that are lost."""
        lost, self.lost = self.lost, []
        for way, reason in lost:
            if self.ways.get(way.link) is way:
                self.cut(way, reason)
        for way in list(self.ways.values()):
            for _ in range(min(count, len(way.down))):
                if self.ways.get(way.link) is way:
                    self.feed(Received(way.link, way.down.popleft()))

    def cut(self, way: Way, reason: str = "cut") -> None:
        del self.ways[way.link]
        keep = self.chance.randrange(len(way.up) + 1)
        while len(way.up) > keep:
            way.up.pop()
        self.leaving.append(way)
        self.feed(ConnectionLost(way.link, reason))

    def lose(self, way: Way) -> None:
        """Something that was on its way does not arrive, and what comes behind it does."""
        for queue in (way.up, way.down):
            if queue and self.chance.random() < 0.5:
                del queue[self.chance.randrange(len(queue))]

    def let_go(self) -> None:
        """Connections that were given up: the rest arrives, and the exchange notices."""
        leaving, self.leaving = self.leaving, []
        for way in leaving:
            if self.chance.random() < 0.5 and self.trouble:
                self.leaving.append(way)
                continue
            self.arrive(way, 100)
            if way.place.up and way.place.epoch == way.epoch:
                way.place.core.handle(Unreachable(way.route), self.now)

    # --- exchanges and monitor --------------------------------------------------------------------

    def kill(self, place: Place, *, power: bool) -> None:
        if not place.up:
            return
        self.cuts += power
        place.end(self.now, self.chance if power else None)
        self.untold = True
        self.leaving = [way for way in self.leaving if way.place is not place]
        for way in self.ways.values():
            if way.place is place:
                way.up.clear()
                if self.chance.random() < 0.5:
                    way.down.clear()
                self.lost.append((way, "killed"))

    def bring_back(self, place: Place) -> None:
        if not place.up and not place.gone:
            place.start(self.now)
            self.untold = True

    def give_up(self, place: Place) -> None:
        """An exchange is gone for good, with its log."""
        if sum(not each.gone for each in self.places) < 2:
            return
        self.kill(place, power=False)
        place.gone = True
        self.untold = True

    def topology(self) -> None:
        self.untold = False
        logs = frozenset(each.number for each in self.places if not each.gone)
        serving = tuple(each.info for each in self.places if each.up)
        self.feed(Serving(serving, logs=logs if self.kind != "ring" else frozenset()))

    def serving(self) -> list[ExchangeInfo]:
        return [each.info for each in self.places if each.up]

    def assign(self) -> None:
        if self.wants and self.serving():
            self.wants = False
            self.epoch += 1
            exchange = self.chance.choice(self.serving())
            self.feed(Assignment(QUEUE, exchange, self.epoch, LIMITS))

    def relocate(self) -> None:
        serving = self.serving()
        if serving:
            self.epoch += 1
            targets = self.chance.sample(serving, self.chance.randint(1, len(serving)))
            self.feed(Relocate(self.epoch, tuple(targets)))

    def forget(self, place: Place) -> None:
        """An exchange has no room for who is away."""
        if place.up:
            link = place.core.links.get(PUBLISHER)
            if link is not None and link.route is None:
                place.core._publishers._forget(link)
                self.forgets += 1

    def wait(self, seconds: float) -> None:
        self.late |= seconds > 5.0
        if self.untold and seconds > 1.0:
            self.topology()
        end = self.now + seconds
        while (deadline := self.links.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline) + 0.001
            self.feed(Tick())
        self.now = max(self.now, end)
        self.turn()
        self.feed(Tick())

    def turn(self) -> None:
        for place in self.places:
            if place.up:
                place.core.begin(self.now, int(self.now * 1e6))
                self.answer(place, place.core.handle(Tick(), self.now))

    # --- a history --------------------------------------------------------------------------------

    def step(self) -> None:
        self.now += 0.01
        (what,) = self.chance.choices([each for _, each in STEPS], [often for often, _ in STEPS])
        what(self, self.chance.choice(self.places))

    def one(self) -> list[Way]:
        """One of the connections, if there is any."""
        ways = list(self.ways.values())
        return [self.chance.choice(ways)] if ways else []

    def reassign(self) -> None:
        """The monitor moves the publisher without being asked."""
        self.wants = True
        self.assign()

    def calm(self) -> None:
        """Everything comes to its end, and nothing fails any more."""
        self.trouble = False
        for _ in range(300):
            for place in self.places:
                place.stuck = False
                self.bring_back(place)
            if self.untold:
                self.topology()
            self.assign()
            self.let_go()
            for way in list(self.ways.values()):
                self.arrive(way, 100)
            for place in self.places:
                self.settle(place)
                place.disk(3)
                place.sync()
                self.settle(place)
            self.hear(100)
            if self.links.ready and not self.links.unsettled:
                break
            self.wait(0.25)
        else:
            raise AssertionError(f"stuck: {self.links.reason}")
        for place in self.places:
            if place.up:
                place.disk(6)
                place.sync()
                place.sync()

    # --- what must hold ---------------------------------------------------------------------------

    def judge(self) -> None:
        self.logs: dict[tuple[int, int], dict[int, bytes]] = {}
        for place in self.places:
            for generation, entries in place.graves.items():
                self.logs[place.number, generation] = entries
            if not place.up and self.kind != "ring":
                place.start(self.now)  # for what its disk has kept
            if place.up:
                self.logs[place.number, place.generation] = place.entries()
        self.found: dict[bytes, list[tuple[int, int]]] = {}
        for log, entries in self.logs.items():
            for data in entries.values():
                header = wire.read_header(data)
                if header.publisher == PUBLISHER and header.kind == wire.Kind.DATA:
                    (payload,) = wire.read_payloads(data, header)
                    self.found.setdefault(payload, []).append(log)
        for log, entries in self.logs.items():
            self.judge_log(log, entries)
        for sent in self.sent:
            self.judge_receipt(sent)

    def judge_log(self, log: tuple[int, int], entries: dict[int, bytes]) -> None:
        """Link numbers rise under each epoch, and what was sealed for a link is in order there."""
        numbers: dict[int, int] = {}
        last: Counter[tuple[int, str]] = Counter()
        once: set[bytes] = set()
        sealed = {sent.payload: sent for sent in self.sent}
        for _, data in sorted(entries.items()):
            header = wire.read_header(data)
            if header.publisher != PUBLISHER or header.kind > wire.Kind.VOID:
                continue
            assert header.link_number > numbers.get(header.epoch, 0), "a link number is used twice"
            numbers[header.epoch] = header.link_number
            if header.kind != wire.Kind.DATA:
                continue
            (payload,) = wire.read_payloads(data, header)
            sent = sealed[payload]
            key = header.epoch, sent.topic
            here = set(self.found[payload]) == {log}  # what was elsewhere comes back behind others
            if payload not in once and here and sent.home == (log[0], header.epoch):
                assert sent.first >= last[key], "out of order"
            last[key] = max(last[key], sent.first)
            once.add(payload)

    def judge_receipt(self, sent: Sent) -> None:
        status, found = sent.receipt.status, self.found.get(sent.payload, [])
        assert status is not None
        if sent.topic == BOUND and self.kind != "ring":
            assert len(found) <= 1, f"it is bound, and in {found}"
        if status.outcome in {Outcome.REFUSED, Outcome.FAILED}:
            assert not found, f"{status}, and it is in {found}"
        assert self.forgets or "differently" not in status.reason, status
        if not status.ok:
            return
        log = (status.log.number, status.log.generation)
        if self.kind == "flush":
            assert log in found, f"{status}: not there, but in {found}"
        elif self.kind == "async":
            # What of a log that was left is lost with the power is kept for a while, and what is
            # bound to it is not sent elsewhere.
            excused = self.cuts and (self.late or sent.topic == BOUND)
            assert found or excused, f"{status}: it is in no log"
        if status.offset is not None:
            there = self.logs[log].get(status.offset)
            assert there is not None or self.kind == "async", f"{status}: nothing is there"
            if there is not None:
                header = wire.read_header(there)
                assert header.kind == wire.Kind.DATA, f"{status}: no message is there"
                assert wire.read_payloads(there, header) == [sent.payload], f"{status}: another"


STEPS: list[tuple[float, Callable[[World, Place], object]]] = [
    (24, lambda world, _: world.publish(world.chance.choice(["a", "a", "b", BOUND, BOUND, LATER]))),
    (24, lambda world, _: [world.arrive(way, world.chance.randrange(1, 6)) for way in world.one()]),
    (16, lambda world, place: world.settle(place)),
    (20, lambda world, _: world.hear(world.chance.randrange(1, 4))),
    (14, lambda world, place: place.disk(world.chance.randrange(1, 4))),
    (3, lambda _, place: place.sync()),
    (2, lambda _, place: place.stick()),
    (2, lambda world, _: [world.cut(way) for way in world.one()]),
    (1, lambda world, _: [world.lose(way) for way in world.one()]),
    (4, lambda world, _: world.let_go()),
    (1, lambda world, place: world.kill(place, power=False)),
    (1, lambda world, place: world.kill(place, power=True)),
    (3, lambda world, place: world.bring_back(place)),
    (0.2, lambda world, place: world.give_up(place)),
    (3, lambda world, _: world.topology()),
    (6, lambda world, _: world.assign()),
    (2, lambda world, _: world.reassign()),
    (2, lambda world, _: world.relocate()),
    (1, lambda world, place: world.forget(place)),
    (3, lambda world, _: world.wait(world.chance.choice([0.05, 0.3, 0.7, 1.7, 4.0]))),
    (0.4, lambda world, _: world.wait(world.chance.choice([8.0, 35.0]))),
]
"""What may happen at an exchange, and how often."""


def play(seed: int, kind: str) -> World:
    world = World(seed, kind)
    for _ in range(world.chance.choice([30, 80, 200])):
        world.step()
    world.calm()
    world.judge()
    return world


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_receipt_says_of_a_place_is_so(kind: str) -> None:
    worlds = [play(seed, kind) for seed in range(SEEDS)]
    outcomes = Counter(
        sent.receipt.status.outcome for world in worlds for sent in world.sent
        if sent.receipt.status is not None
    )  # fmt: skip
    assert outcomes[Outcome.OK] > 500
    assert outcomes[Outcome.REFUSED] > 5


def explore(first: int, behind: int, kinds: tuple[str, ...]) -> None:
    """Play these, and tell what went wrong in how many."""
    wrong: dict[str, list[str]] = {}
    outcomes: Counter[str] = Counter()
    for seed in range(first, behind):
        for kind in kinds:
            try:
                world = play(seed, kind)
                for sent in world.sent:
                    assert sent.receipt.status is not None
                    outcomes[f"{kind} {sent.receipt.status.outcome}"] += 1
            except Exception as error:  # noqa: BLE001 - all are told
                where = traceback.extract_tb(error.__traceback__)[-1]
                text = f"{type(error).__name__} {where.name}:{where.lineno} {str(error)[:60]}"
                wrong.setdefault(f"{kind} {text}", []).append(str(seed))
    for text, seeds in sorted(wrong.items(), key=lambda each: -len(each[1])):
        sys.stdout.write(f"{len(seeds):5} {text}  seeds {' '.join(seeds[:6])}\n")
    sys.stdout.write(f"{dict(outcomes)}\n")
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    explore(int(sys.argv[1]), int(sys.argv[2]), tuple(sys.argv[3:]) or KINDS)
