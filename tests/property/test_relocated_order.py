"""Groups that keep order, at several exchanges, while publishers are moved between these.

The model is one line: what a publisher has sent to another exchange before is done, or gone with
its log, before anything that it has sent later is handed out for the first time. Histories are
random: publishers move, also back; their last word to the exchange that they leave gets lost;
members come, die and give back; exchanges go away and come back with what is kept, or are lost;
questions and answers get lost, come twice, late and in any order. In the end everything is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace

import pytest

from roq.exchange.events import Tell
from roq.exchange.order_questions import OrderAsker
from roq.log.group_changes import decode_deltas, encode_deltas
from roq.log.groups import ConsumerGroup
from roq.log.leases import Lease, NumberedLeases
from roq.log.moved_publishers import MovedPublishers
from roq.log.ring import Ring
from roq.model import ExchangeInfo, LogId, PublisherId
from roq.monitor.events import Push
from roq.monitor.exchanges import Exchange as Reported
from roq.monitor.order_questions import pass_on
from roq.protocol.batch import pack
from roq.protocol.columns import KEY_GROUPS, pack_column
from roq.protocol.consuming import GroupSettings, Run
from roq.protocol.control import OrderAsk, OrderTold
from roq.protocol.reports import ExchangeLoad

QUEUE = bytes(16)
STEPS = 220
Place = tuple[LogId, int, int]
"""Log, offset, index of a message."""


@dataclass
class Site:
    """One exchange: a log, its group, and what it knows of publishers."""

    number: int
    mode: str
    now: float
    generation: int = 1
    epoch: int = 1
    away: bool = False
    written: list[bytes] = field(default_factory=list)
    stays: MovedPublishers = field(init=False)
    members: dict[bytes, dict[int, Lease]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log: Ring[bytes] = Ring(
            QUEUE, self.number, self.generation, capacity_bytes=1 << 24, topics_max=8
        )
        self.stays = MovedPublishers(self.id, 100)
        self.begin()

    @property
    def id(self) -> LogId:
        return LogId(self.number, self.generation)

    def begin(self) -> None:
        """Another process goes on with what is kept."""
        self.away = False
        self.epoch += 1
        before, self.stays = self.stays, MovedPublishers(self.id, 100)
        for publisher in list(before._known):
            present = before._known[publisher].present
            self.stays.recover(publisher, *before.told(publisher), present)
        self.numbers = NumberedLeases(self.epoch)
        self.members = {}
        self.groups: dict[str, ConsumerGroup[bytes]] = {}
        self.order_questions: OrderAsker[bytes] = OrderAsker(
            QUEUE, self.epoch, self.log, self.groups, self.stays, lambda _group: None
        )
        settings = GroupSettings(mode=self.mode, lease_seconds=5.0, retry_seconds=0.5)
        self.group = self.groups["g"] = self.order_questions.group("g", settings, 1, 0, self.now)
        for data in self.written:
            for delta in decode_deltas(data):
                self.group.apply(delta)

    @property
    def info(self) -> ExchangeInfo:
        return ExchangeInfo(
            number=self.number, epoch=self.epoch, generation=self.generation, host="h",
            data="tcp://a:1", live="tcp://a:2",
        )  # fmt: skip


@dataclass
class Sender:
    id: PublisherId
    at: int
    epoch: int = 1
    sequence: int = 0
    used: list[LogId] = field(default_factory=list)


class Cluster:
    """One random history."""

    def __init__(self, seed: int, mode: str) -> None:
        self.random = Random(seed)
        self.now = 100.0
        self.mode = mode
        self.sites = {number: Site(number, mode, self.now) for number in (1, 2, 3)}
        self.senders = [
            Sender(PublisherId(bytes([each]) * 16), self.random.choice([1, 2, 3]))
            for each in range(4)
        ]
        self.sent: dict[PublisherId, list[Place]] = {each.id: [] for each in self.senders}
        self.owner: dict[Place, PublisherId] = {}
        self.handed: set[Place] = set()
        self.done: set[Place] = set()
        self.wires: list[tuple[int, OrderAsk | OrderTold]] = []
        """On their way: to an exchange; 0: to the monitor."""
        self.weather = True
        for sender in self.senders:
            self.arrive(sender)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.random.choice(
                [self.publish] * 4 + [self.deliver] * 4 + [self.acknowledge] * 4
                + [self.ask, self.carry, self.carry, self.move, self.join, self.give_back,
                   self.die, self.come_back, self.pass_time, self.write, self.restart, self.lose]
            )()  # fmt: skip
            for site in self.sites.values():
                site.group.check()
                site.stays.check()

    # --- publishers -------------------------------------------------------------------------------

    def arrive(self, sender: Sender) -> None:
        site = self.sites[sender.at]
        site.stays.began(sender.id, sender.epoch, site.log.end)
        site.stays.came(sender.id, sender.epoch, sender.used)
        if site.id in sender.used:
            sender.used.remove(site.id)
        sender.used.append(site.id)

    def publish(self) -> None:
        sender = self.random.choice(self.senders)
        site = self.sites[sender.at]
        if site.away:
            return
        count = self.random.randint(1, 4)
        lanes = bytes(self.random.choice([0, 1, 2, 3]) for _ in range(count))
        batch = pack(
            [b"x"] * count, publisher=sender.id, epoch=sender.epoch, link_number=1,
            first_sequence=sender.sequence, created_us=0,
            extensions=pack_column(KEY_GROUPS, lanes),
        )  # fmt: skip
        offset = site.log.end
        site.log.append(b"t", batch, len(batch))
        sender.sequence += count
        for index in range(count):
            place = site.id, offset, index
            self.sent[sender.id].append(place)
            self.owner[place] = sender.id

    def move(self) -> None:
        sender = self.random.choice(self.senders)
        targets = [each for each in self.sites.values() if not each.away]
        if not targets:
            return
        before = self.sites[sender.at]
        if self.random.random() < 0.7 and not before.away:
            before.stays.ended(sender.id, sender.epoch, before.log.end)
        sender.at = self.random.choice(targets).number
        sender.epoch += self.random.randint(1, 3)
        self.arrive(sender)

    # --- members ----------------------------------------------------------------------------------

    def some(self) -> Site:
        return self.random.choice(list(self.sites.values()))

    def join(self) -> None:
        site = self.some()
        if not site.away and len(site.members) < 3:
            self.enter(site, self.random.randbytes(16))

    def enter(self, site: Site, name: bytes) -> None:
        member = site.group.join(name, "m")
        assert member is not None
        site.members[name] = {}
        member.granted = member.window = self.random.choice([2, 5, 30])
        member.granted_bytes = 1 << 20

    def deliver(self) -> None:
        site = self.some()
        for _ in range(0 if site.away else self.random.randint(1, 6)):
            found = site.group.next_lease(site.numbers)
            site.order_questions.looked(site.group)
            if found is None:
                return
            self.leased(site, found[0])

    def leased(self, site: Site, lease: Lease) -> None:
        site.members[lease.member.id][lease.number] = lease
        for place in places_of(site, lease):
            self.precede(place)
            self.handed.add(place)

    def precede(self, place: Place) -> None:
        """The model."""
        if place in self.handed:
            return
        sent = self.sent[self.owner[place]]
        here = {site.id for site in self.sites.values()}
        for before in sent[: sent.index(place)]:
            if before[0] != place[0] and before[0] in here:
                assert before in self.done, "what was sent elsewhere before is done"

    def held(self, site: Site) -> list[Lease]:
        return [lease for leases in site.members.values() for lease in leases.values()]

    def acknowledge(self) -> None:
        site = self.some()
        held = self.held(site)
        if held:
            self.settle(site, self.random.choice(held))

    def settle(self, site: Site, lease: Lease) -> None:
        member, places = lease.member, places_of(site, lease)
        assert site.group.acknowledge(member, lease.number)
        self.done |= set(places)
        member.granted += len(places)
        del site.members[member.id][lease.number]

    def give_back(self) -> None:
        site = self.some()
        held = self.held(site)
        if held:
            lease = self.random.choice(held)
            assert site.group.give_back(
                lease.member, lease.number, lease.first, lease.length, 0.0, counted=True,
                reason="no",
            )  # fmt: skip
            del site.members[lease.member.id][lease.number]

    def die(self) -> None:
        site = self.some()
        if site.members and self.random.random() < 0.3:
            name = self.random.choice(list(site.members))
            site.group.gone(name)
            del site.members[name]

    def come_back(self) -> None:
        """A member says after a restart, or anyway, what it holds, and gets it back."""
        site = self.some()
        if site.away or not site.members:
            return
        name = self.random.choice(list(site.members))
        held = [Run(each.offset, each.first, each.length) for each in site.members[name].values()]
        self.enter(site, name)
        member = site.group.member(name)
        assert member is not None
        for lease in site.group.resume(member, held, site.numbers)[0]:
            self.leased(site, lease)

    # --- what may happen --------------------------------------------------------------------------

    def pass_time(self) -> None:
        self.now += self.random.choice([0.1, 0.5, 2.0])
        for site in self.sites.values():
            site.now = self.now
            for member in map(site.group.member, list(site.members)):
                if member is not None:
                    site.group.heard(member)
            assert not site.group.tick(self.now)

    def write(self) -> None:
        site = self.some()
        delta = site.group.take_changes()
        if delta is not None and not site.away:
            site.written.append(encode_deltas([delta]))

    def restart(self) -> None:
        site = self.some()
        if self.random.random() < 0.3:
            members, held = list(site.members), self.held(site)
            if not site.away:
                site.away = True
                return
            site.begin()
            for name in members:  # who was there says what it holds
                self.enter(site, name)
                member = site.group.member(name)
                assert member is not None
                mine = [
                    Run(each.offset, each.first, each.length)
                    for each in held if each.member.id == name
                ]  # fmt: skip
                for lease in site.group.resume(member, mine, site.numbers)[0]:
                    self.leased(site, lease)

    def lose(self) -> None:
        """An exchange is lost with its log; another log takes its number."""
        if self.random.random() > 0.1:
            return
        site = self.some()
        self.sites[site.number] = made = Site(
            site.number, self.mode, self.now, generation=site.generation + 1, epoch=site.epoch
        )
        for sender in self.senders:
            if sender.at == site.number:
                sender.epoch += 1
                self.arrive(sender)
        assert made.id != site.id

    # --- questions --------------------------------------------------------------------------------

    def ask(self) -> None:
        for site in self.sites.values():
            if not site.away:
                for effect in site.order_questions.run(self.now):
                    assert isinstance(effect, Tell)
                    self.wires.append((0, effect.message))

    def carry(self) -> None:
        """What is on its way arrives, or does not; in any order."""
        self.random.shuffle(self.wires)
        for _ in range(min(len(self.wires), self.random.randint(1, 4))):
            to, message = self.wires.pop()
            chance = self.random.random()
            if self.weather and chance < 0.2:
                continue
            if self.weather and chance < 0.4:
                self.wires.append((to, message))
            if to:
                self.arrived(self.sites[to], message)
            else:
                self.wires += self.monitor(message)

    def arrived(self, site: Site, message: OrderAsk | OrderTold) -> None:
        if site.away:
            return
        if isinstance(message, OrderTold):
            site.order_questions.told(message)
            return
        for effect in site.order_questions.asked(message):
            assert isinstance(effect, Tell)
            self.wires.append((0, effect.message))

    def monitor(self, message: OrderAsk | OrderTold) -> Iterator[tuple[int, OrderAsk | OrderTold]]:
        serving = {
            site.number: Reported(site.info, 0.0, 0.0, ExchangeLoad(), (b"%d" % site.number, False))
            for site in self.sites.values()
            if not site.away
        }
        exchanges = SimpleNamespace(
            numbered=serving.get,
            find=lambda key: (
                serving.get(key[0]) if serving.get(key[0]) and serving[key[0]].key == key else None
            ),
        )
        rules = SimpleNamespace(known=True, logs=frozenset(self.sites))
        for effect in pass_on(message, exchanges, rules, settled=True):  # type: ignore[arg-type]
            assert isinstance(effect, Push)
            assert isinstance(effect.message, OrderAsk | OrderTold)
            yield int(effect.peers[0][0]), effect.message

    def finish(self) -> None:
        """With patient members everything is done in the end: nothing waits in a circle."""
        self.weather = False
        for site in self.sites.values():
            if site.away:
                site.begin()
            for name in list(site.members):
                site.group.leave(name)
            site.members = {}
            self.enter(site, bytes([site.number]) * 16)
        for _ in range(3_000):
            self.now += 0.5
            self.pass_time()
            for site in self.sites.values():
                (name,) = site.members
                member = site.group.member(name)
                assert member is not None
                member.window = 100
                member.granted = member.taken + 100
                while (found := site.group.next_lease(site.numbers)) is not None:
                    self.leased(site, found[0])
                    self.settle(site, found[0])
                site.order_questions.looked(site.group)
            self.ask()
            while self.wires:
                self.carry()
            if all(site.group.base == site.log.committed for site in self.sites.values()):
                break
        assert all(site.group.base == site.log.committed for site in self.sites.values())
        here = {site.id for site in self.sites.values()}
        assert {place for place in self.owner if place[0] in here} <= self.done


def places_of(site: Site, lease: Lease) -> list[Place]:
    return [
        (site.id, lease.offset, lease.first + at)
        for at in range(lease.length)
        if lease.open >> at & 1
    ]


@pytest.mark.parametrize("mode", ["exclusive", "keyed"])
@pytest.mark.parametrize("seed", range(60))
def test_what_a_publisher_has_sent_elsewhere_before_is_done_before(seed: int, mode: str) -> None:
    cluster = Cluster(seed, mode)
    cluster.run(STEPS)
    cluster.finish()


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("mode", ["exclusive", "keyed"])
def test_striped_publishers_do_not_wait_for_themselves_nor_for_each_other(
    mode: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is at one exchange, then at another one as well, and says so at both; much is left."""
    monkeypatch.setattr("roq.log.group_progress.WINDOW", 20)
    cluster = Cluster(0, mode)
    cluster.precede = lambda _place: None  # type: ignore[method-assign]
    striped = []
    for each in range(count):
        sender = Sender(PublisherId(bytes([100 + each]) * 16), at=1 + each)
        cluster.senders, cluster.sent[sender.id] = [sender], []
        cluster.arrive(sender)
        first = cluster.sites[sender.at]
        second = cluster.sites[2 - each]
        cluster.publish()
        other = Sender(sender.id, second.number, epoch=2, used=[first.id])
        cluster.arrive(other)
        first.stays.came(sender.id, 1, [second.id])  # its connection came anew
        striped += [sender, other]
    for _ in range(50):
        for sender in striped:
            cluster.senders = [sender]
            cluster.publish()
    cluster.finish()
