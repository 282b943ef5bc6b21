"""A consumer group against a model of what may be delivered, to whom and when.

The model is a table: each message is open, held by one lease, or done. It knows nothing of windows,
bits or deltas. Histories are random: members come, die, fall silent and come back, acknowledge in
any order, give back, repeat what is over; the process ends at any moment and another one goes on
with what its log has kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import pytest

from roq.log.group_changes import decode_deltas, encode_deltas
from roq.log.groups import STEP_SECONDS_MAX, ConsumerGroup
from roq.log.leases import Lease, NumberedLeases
from roq.log.ring import Ring
from roq.model import PublisherId
from roq.protocol.batch import Kind, pack, pack_empty
from roq.protocol.columns import KEY_GROUPS, PRIORITIES, pack_column
from roq.protocol.consuming import GroupSettings, Run

QUEUE = bytes(16)
PUBLISHER = PublisherId(bytes(range(16)))
STEPS = 250


@dataclass
class Model:
    """What may be delivered: by (offset, index) who holds a message, or that it is done."""

    holders: dict[tuple[int, int], int | None] = field(default_factory=dict)
    done: set[tuple[int, int]] = field(default_factory=set)
    kept: set[tuple[int, int]] = field(default_factory=set)
    """Done, and so in the log."""

    def free(self) -> list[tuple[int, int]]:
        return [key for key, holder in self.holders.items()
                if holder is None and key not in self.done]  # fmt: skip

    lanes: dict[tuple[int, int], int] = field(default_factory=dict)
    """Of each message with a key: its key group."""

    ranks: dict[tuple[int, int], int] = field(default_factory=dict)
    """Its priority."""

    def appended(self, offset: int, lanes: bytes, ranks: bytes) -> None:
        self.ranks |= {(offset, index): rank for index, rank in enumerate(ranks)}
        self.holders |= {(offset, index): None for index in range(len(lanes))}
        self.lanes |= {(offset, index): lane for index, lane in enumerate(lanes) if lane}

    def leased(self, lease: Lease, order: Mapping[int, bytes] | None = None) -> None:
        """Somebody gets this.

        Args:
            order: who holds each lease, if what has a key goes out in order, and to one member.
        """
        for key in mine_of(lease):
            assert key in self.holders, "only what is there, and the group's"
            assert key not in self.done, "nothing that is done"
            assert self.holders[key] is None, "nothing that another one holds"
            self.holders[key] = lease.number
        if order is None:
            return
        for key in mine_of(lease):
            lane = self.lanes.get(key)
            if lane is None:
                continue
            same = [each for each, other in self.lanes.items() if other == lane]
            assert all(
                self.holders[each] is not None or each in self.done
                for each in same if each < key
            ), "what comes first in its key group is first"  # fmt: skip
            holders = {self.holders[each] for each in same} - {None, lease.number}
            assert {order[each] for each in holders if each is not None} <= {lease.member.id}, (
                "one pair of hands"
            )

    def acknowledged(self, lease: Lease, first: int, length: int) -> None:
        for key in keys_of(lease.offset, first, length):
            if self.holders[key] == lease.number:
                self.holders[key] = None
                self.done.add(key)

    def freed(self, numbers: set[int]) -> None:
        for key, holder in self.holders.items():
            if holder in numbers:
                self.holders[key] = None

    def restarted(self) -> None:
        self.done = set(self.kept)
        self.holders = dict.fromkeys(self.holders)


def mine_of(lease: Lease) -> list[tuple[int, int]]:
    """What a lease stands for, in order."""
    every = keys_of(lease.offset, lease.first, lease.length)
    return [key for at, key in enumerate(every) if lease.open >> at & 1]


def keys_of(offset: int, first: int, length: int) -> list[tuple[int, int]]:
    return [(offset, index) for index in range(first, first + length)]


class History:
    """One random history."""

    def __init__(self, seed: int, mode: str) -> None:
        self.random = Random(seed)
        self.mode = mode
        self.log: Ring[bytes] = Ring(QUEUE, 1, 1, capacity_bytes=1 << 24, topics_max=8)
        self.settings = GroupSettings(
            mode=mode, prefixes=(b"a",), lease_seconds=5.0, retry_seconds=0.5, retry_seconds_max=2.0
        )
        self.model = Model()
        self.now = self.ticked_at = self.clock = 100.0
        self.sequence = 0
        self.written: list[bytes] = []
        self.unwritten: list[bytes] = []
        self.deltas_done: set[tuple[int, int]] = set()
        self.dead: list[tuple[bytes, Lease]] = []
        self.returned: set[tuple[int, int]] = set()
        self.inverted = self.first_served = 0
        self.begin()

    def begin(self) -> None:
        self.numbers = NumberedLeases()
        self.until: dict[tuple[int, int], float] = {}
        """By lease and message: until when its member holds it in any case."""
        self.members: dict[bytes, dict[int, Lease]] = {}
        self.group: ConsumerGroup[bytes] = ConsumerGroup(
            "g", self.log, self.settings, 1, 0, self.now
        )
        for data in self.written:
            for delta in decode_deltas(data):
                self.group.apply(delta)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.random.choice(
                [self.append, self.append, self.join, self.deliver, self.deliver, self.deliver,
                 self.acknowledge, self.acknowledge, self.part, self.give_back, self.stale,
                 self.die, self.leave, self.come_back, self.pass_time, self.write, self.restart,
                 self.seek, self.extend, self.take_over]
            )()  # fmt: skip
            self.group.check()

    def append(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            topic = self.random.choice([b"a", b"a", b"ab", b"b"])
            count = self.random.randint(1, 5)
            void = self.random.random() < 0.1
            place = {
                "publisher": PUBLISHER, "epoch": 0, "link_number": self.sequence + 1,
                "first_sequence": self.sequence, "created_us": 0,
            }  # fmt: skip
            # Few key groups, some messages without.
            lanes = bytes(self.random.choice([0, 1, 2, 3, 200]) for _ in range(count))
            ranks = bytes(self.random.choice([0, 0, 0, 4, 9]) for _ in range(count))
            area = pack_column(KEY_GROUPS, lanes) + pack_column(PRIORITIES, ranks)
            if self.mode == "shared" and self.random.random() < 0.5:
                area = b""  # what says nothing of its messages goes out in fewer steps
            batch = (
                pack_empty(Kind.VOID, count=count, **place)  # type: ignore[arg-type]
                if void
                else pack([b"x"] * count, extensions=area, **place)  # type: ignore[arg-type]
            )
            self.sequence += count
            offset = self.log.end
            self.log.append(topic, batch, len(batch))
            if not void and topic.startswith(b"a"):
                self.model.appended(offset, lanes, ranks)

    def join(self) -> None:
        if len(self.members) < 4:
            name = self.random.randbytes(16)
            self.enter(name)

    def enter(self, name: bytes) -> None:
        member = self.group.join(name, name.hex()[:4])
        assert member is not None
        self.members.setdefault(name, {})
        member.granted = self.random.choice([1, 3, 20])
        member.window = member.granted
        member.granted_bytes = 1 << 20

    def deliver(self) -> None:
        for _ in range(self.random.randint(1, 6)):
            found = self.group.next_lease(self.numbers)
            if found is None:
                return
            lease, record = found
            assert record[0].name.startswith(b"a")
            if self.mode == "exclusive":
                holders = {name for name, leases in self.members.items() if leases}
                assert holders <= {lease.member.id}, "one member has all"
                assert self.model.free(), "what comes first is first"
                assert min(self.model.free()) == (lease.offset, lease.first)
            if self.mode == "priority":
                self.ranked(lease)
            self.lease(lease)

    def lease(self, lease: Lease) -> None:
        self.members[lease.member.id][lease.number] = lease
        owners = {number: name for name, leases in self.members.items() for number in leases}
        self.model.leased(lease, owners if self.mode == "keyed" else None)

    def ranked(self, lease: Lease) -> None:
        """Nothing goes before what is higher and was never given back, but for a tenth."""
        ranks = self.model.ranks
        (rank,) = {ranks[key] for key in mine_of(lease)}
        free = {ranks[key] for key in set(self.model.free()) - self.returned - set(mine_of(lease))}
        if any(each > rank for each in free):
            self.inverted += lease.open.bit_count()
            assert 9 * self.inverted <= self.first_served
        elif any(each < rank for each in map(ranks.__getitem__, self.model.free())):
            self.first_served += lease.open.bit_count()

    def some(self) -> tuple[bytes, Lease] | None:
        held = [(name, each) for name, leases in self.members.items() for each in leases.values()]
        return self.random.choice(held) if held else None

    def credit(self, name: bytes, messages: int) -> None:
        member = self.group.member(name)
        assert member is not None
        if not member.silent:  # else it is told to join again
            member.granted += messages
            self.group.heard(member)

    def extend(self) -> None:
        chosen = self.some()
        if chosen is not None:
            name, lease = chosen
            member = self.group.member(name)
            assert member is not None
            first = self.random.randrange(lease.first, lease.first + lease.length)
            seconds = self.random.choice([1.0, 8.0, 30.0])
            mine = keys_of(lease.offset, first, 1)[0] in mine_of(lease)
            assert self.group.extend(member, lease.number, first, 1, seconds) is mine
            if mine:
                until = self.clock + seconds
                self.until[lease.number, first] = max(
                    until, self.until.get((lease.number, first), until)
                )

    def acknowledge(self) -> None:
        chosen = self.some()
        if chosen is not None:
            name, lease = chosen
            member = self.group.member(name)
            assert member is not None
            open_messages = lease.open.bit_count()
            assert self.group.acknowledge(member, lease.number)
            self.model.acknowledged(lease, lease.first, lease.length)
            del self.members[name][lease.number]
            self.credit(name, open_messages)

    def part(self) -> None:
        chosen = self.some()
        if chosen is not None:
            name, lease = chosen
            member = self.group.member(name)
            assert member is not None
            first = self.random.randrange(lease.first, lease.first + lease.length)
            length = self.random.randint(1, lease.first + lease.length - first)
            before = lease.open.bit_count()
            assert self.group.acknowledge(member, lease.number, first, length)
            self.model.acknowledged(lease, first, length)
            self.credit(name, before - lease.open.bit_count())
            if not lease.open:
                del self.members[name][lease.number]

    def give_back(self) -> None:
        chosen = self.some()
        if chosen is not None:
            name, lease = chosen
            member = self.group.member(name)
            assert member is not None
            counted = self.random.random() < 0.5
            assert self.group.give_back(
                member, lease.number, lease.first, lease.length, 0.0, counted=counted, reason="no"
            )
            self.model.freed({lease.number})
            self.returned |= set(keys_of(lease.offset, lease.first, lease.length))
            del self.members[name][lease.number]

    def stale(self) -> None:
        """What is over is not accepted, whoever says it."""
        for name, lease in self.dead[-3:]:
            for member in map(self.group.member, (name, *self.members)):
                if member is not None:
                    assert not self.group.acknowledge(member, lease.number)

    def drop(self, name: bytes) -> None:
        leases = self.members.pop(name)
        for lease in leases.values():
            self.returned |= set(keys_of(lease.offset, lease.first, lease.length))
        self.model.freed(set(leases))
        self.dead += [(name, lease) for lease in leases.values()]

    def die(self) -> None:
        if self.members and self.random.random() < 0.3:
            name = self.random.choice(list(self.members))
            self.group.gone(name)
            self.drop(name)

    def leave(self) -> None:
        if self.members and self.random.random() < 0.3:
            name = self.random.choice(list(self.members))
            self.group.leave(name)
            self.drop(name)

    def come_back(self) -> None:
        """Over another connection, with what it thinks it holds."""
        if not self.members:
            return
        name = self.random.choice(list(self.members))
        held = [Run(each.offset, each.first, each.length) for each in self.members[name].values()]
        held += [Run(each.offset, each.first, each.length) for _, each in self.dead[-2:]]
        self.drop(name)
        self.enter(name)
        member = self.group.member(name)
        assert member is not None
        leases, done = self.group.resume(member, held, self.numbers)
        for lease in leases:
            self.resumed(lease)
        for run in done:
            assert set(keys_of(*run)) <= self.model.done | set(keys_of(*run)) - set(
                self.model.holders
            )

    def resumed(self, lease: Lease) -> None:
        """Goes on, whatever stands before it: a member may do what it has begun."""
        self.model.leased(lease)
        self.members[lease.member.id][lease.number] = lease
        lanes = {self.model.lanes.get(key) for key in mine_of(lease)} - {None}
        for key, lane in self.model.lanes.items():
            number = self.model.holders[key]
            if self.mode == "keyed" and lane in lanes and number is not None:
                assert number in self.members[lease.member.id], "one pair of hands"

    def pass_time(self) -> None:
        quiet = self.random.random() < 0.2
        for _ in range(self.random.choice([1, 1, 1, 12])):
            self.now += self.random.choice([0.1, 0.5, 30.0])
            for name in self.members:
                if not quiet:
                    self.credit(name, 0)
            self.clock += min(self.now - self.ticked_at, STEP_SECONDS_MAX)
            self.ticked_at = self.now
            known = {name: self.group.member(name) for name in self.members}
            silent = {name for name, each in known.items() if each is not None and each.silent}
            for member in self.group.tick(self.now):
                assert quiet or member.id in silent, "nobody is silent who speaks"
                assert self.group.member(member.id) is None
                self.lapse(member.id)
                self.drop(member.id)
            for name in self.members:
                self.lapse(name)

    def lapse(self, name: bytes) -> None:
        """What a silent member has asked more time for it holds as long as that takes."""
        for number, lease in list(self.members[name].items()):
            for key, holder in self.model.holders.items():
                if holder != number or key in mine_of(lease):
                    continue
                assert self.until.get((number, key[1]), 0.0) <= self.clock + 1e-6
                self.model.holders[key] = None
                self.returned.add(key)
            if not lease.open:
                del self.members[name][number]
                self.dead.append((name, lease))

    def write(self) -> None:
        delta = self.group.take_changes()
        if delta is not None:
            self.unwritten.append(encode_deltas([delta]))
            self.deltas_done = set(self.model.done)
        if self.unwritten and self.random.random() < 0.8:
            self.written += self.unwritten
            self.unwritten = []
            self.model.kept = set(self.deltas_done)

    def seek(self) -> None:
        """An operator has the group begin elsewhere: what is before counts as done."""
        if self.random.random() > 0.1:
            return
        offset = self.random.randint(0, self.log.end)
        self.group.seek(offset)
        for name in list(self.members):
            self.drop(name)
        self.model.done = {key for key in self.model.holders if key[0] < offset}

    def take_over(self) -> None:
        """A batch job has done all of a part of the log, whoever has come and gone meanwhile."""
        if not self.members and self.random.random() < 0.5:
            offset = self.random.randint(0, self.log.end)
            self.group.finish_below(offset)
            self.model.done |= {key for key in self.model.holders if key[0] < offset}

    def restart(self) -> None:
        if self.random.random() > 0.15:
            return
        if self.random.random() < 0.3:
            self.written += self.written[-3:]  # what was written twice counts once
        self.unwritten = []
        for name in list(self.members):
            self.drop(name)
        self.dead = []
        self.begin()
        self.model.restarted()
        self.deltas_done = set(self.model.kept)

    def finish(self) -> None:
        """With one patient member everything is done in the end, and once."""
        for name in list(self.members):
            self.group.leave(name)
            self.drop(name)
        self.group.pause(paused=False)
        self.enter(bytes(16))
        member = self.group.member(bytes(16))
        assert member is not None
        for _ in range(10_000):
            self.credit(bytes(16), 50)
            member.window = 100
            self.now += 0.5
            self.group.tick(self.now)
            while (found := self.group.next_lease(self.numbers)) is not None:
                self.lease(found[0])
                messages = found[0].open.bit_count()
                assert self.group.acknowledge(member, found[0].number)
                self.model.acknowledged(found[0], found[0].first, found[0].length)
                self.credit(bytes(16), messages)
                del self.members[bytes(16)][found[0].number]
            self.group.check()
            if self.group.base == self.log.committed:
                break
        assert self.model.done == set(self.model.holders)
        assert self.group.base == self.group.next == self.log.committed
        assert self.group.out == 0


@pytest.mark.parametrize("mode", ["shared", "exclusive", "keyed", "priority"])
@pytest.mark.parametrize("seed", range(60))
def test_a_group_delivers_what_the_model_allows(seed: int, mode: str) -> None:
    history = History(seed, mode)
    history.run(STEPS)
    history.finish()
