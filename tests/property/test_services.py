"""The requests of a service against a model of how each may end, over random histories.

The model is a table of what has happened to each request: it knows nothing of leases, bits, parked
requests or deltas. Members come, die, fall silent, come back and answer what is not theirs any
more; the exchange ends at any moment, and another one goes on with what its log has kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from roq.log.group_changes import decode_deltas, encode_deltas
from roq.log.leases import Lease, NumberedLeases, bits_at
from roq.log.ring import Ring
from roq.log.service_group import ServiceGroup
from roq.model import PublisherId
from roq.protocol.batch import pack
from roq.protocol.consuming import GroupSettings, Run
from roq.protocol.requesting import (
    ENDS,
    Answer,
    Begun,
    Position,
    RequestState,
    ServiceSettings,
    prefix_of,
)

QUEUE = bytes(16)
PUBLISHER = PublisherId(bytes(range(16)))
SETTINGS = ServiceSettings(
    send_attempts=3, send_wait=0.5, confirm_within=1.0, result_within=30.0, keep_result=5.0
)


@dataclass
class Model:
    """What is known of each request: whether it may be begun again, who runs it, how it ended."""

    once: dict[Position, bool] = field(default_factory=dict)
    begun: dict[Position, int] = field(default_factory=dict)
    """How often it was begun, of those that must not be begun again."""
    ends: dict[Position, RequestState] = field(default_factory=dict)
    kept_ends: dict[Position, RequestState] = field(default_factory=dict)
    kept_begun: dict[Position, int] = field(default_factory=dict)

    def ended(self, position: Position, state: RequestState) -> None:
        assert position in self.once, "only what was requested ends"
        assert position not in self.ends, "each request ends once"
        assert state in ENDS
        self.ends[position] = state

    def begins(self, position: Position) -> None:
        assert position not in self.ends, "nothing is begun that has ended"
        if self.once[position]:
            self.begun[position] = self.begun.get(position, 0) + 1
            assert self.begun[position] == 1, "it is not begun again"

    def restarted(self) -> None:
        self.ends = dict(self.kept_ends)
        self.begun = dict(self.kept_begun)


class History:
    """One random history."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.log: Ring[bytes] = Ring(QUEUE, 1, 1, capacity_bytes=1 << 24, topics_max=8)
        self.settings = GroupSettings(
            prefixes=(prefix_of("s"),), lease_seconds=5.0, attempts=0, retry_seconds=0.5,
            service=SETTINGS,
        )  # fmt: skip
        self.model = Model()
        self.now = 100.0
        self.sequence = 0
        self.written: list[bytes] = []
        self.epoch = 0
        self.dead: list[tuple[bytes, Lease]] = []
        self.members: dict[bytes, dict[int, Lease]] = {}
        self.away: dict[bytes, list[Position]] = {}
        """Members without a connection, and what each believes to hold."""
        self.running: dict[Position, bytes] = {}
        """Who has begun what must not be begun again."""
        self.begin()

    def begin(self) -> None:
        self.epoch += 1
        self.numbers = NumberedLeases(self.epoch)
        for name in list(self.members):
            self.lost(name)
        self.confirmed: set[tuple[int, Position]] = set()
        self.log.advance_clock(int(self.now * 1e6))
        self.group: ServiceGroup[bytes] = ServiceGroup("s", self.log, self.settings, 1, 0, self.now)
        for data in self.written:
            for delta in decode_deltas(data):
                self.group.apply(delta)
        self.group.hold()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.random.choice(
                [self.append, self.append, self.join, self.join, self.deliver, self.deliver,
                 self.write,
                 self.start, self.start, self.answer, self.answer, self.stale, self.give_back,
                 self.die, self.leave, self.come_back, self.come_back, self.pass_time, self.write,
                 self.restart, self.cancel, self.fetch]
            )()  # fmt: skip
            self.look()
            self.group.check()
        self.finish()

    def look(self) -> None:
        for publisher, outcome in self.group.ended:
            assert publisher == PUBLISHER
            self.model.ended(Position(outcome.offset, outcome.index), outcome.state)
        self.group.ended.clear()
        for member, lease, _ in self.group.revoked:
            held = self.members.get(member, {}).get(lease)
            if held is not None and not held.open:
                self.dead.append((member, held))
                del self.members[member][lease]
        self.group.revoked.clear()

    def append(self) -> None:
        count = self.random.randint(1, 5)
        batch = pack(
            [b"x"] * count, publisher=PUBLISHER, epoch=0, link_number=self.sequence + 1,
            first_sequence=self.sequence, created_us=0,
        )  # fmt: skip
        self.sequence += count
        offset = self.log.end
        self.log.append(b"s/do", batch, len(batch))
        once = self.random.random() < 0.5
        self.model.once |= {Position(offset, index): once for index in range(count)}

    def join(self) -> None:
        if len(self.members) < 4:
            self.enter(self.random.randbytes(16), [])

    def enter(self, name: bytes, held: list[Run]) -> None:
        member = self.group.join(name, name.hex()[:4])
        assert member is not None
        leases, _ = self.group.resume(member, held, self.numbers)
        self.members[name] = {lease.number: lease for lease in leases}
        for lease in leases:
            self.confirmed |= {
                (lease.number, at) for at in positions(lease) if self.running.get(at) == name
            }
        member.granted, member.window = self.random.choice([1, 3, 20]), 1
        member.granted_bytes = 1 << 20

    def deliver(self) -> None:
        for _ in range(self.random.randint(1, 6)):
            found = self.group.next_lease(self.numbers)
            if found is None:
                return
            lease, _ = found
            for position in positions(lease):
                assert position not in self.model.ends, "nothing that has ended"
                assert not self.model.begun.get(position), "nothing that must not be begun again"
            self.members[lease.member.id][lease.number] = lease

    def some(self) -> tuple[bytes, Lease] | None:
        held = [(name, each) for name, leases in self.members.items() for each in leases.values()]
        return self.random.choice(held) if held else None

    def start(self) -> None:
        chosen = self.some()
        if chosen is None:
            return
        name, lease = chosen
        member = self.group.member(name)
        assert member is not None
        for position in positions(lease):
            if (lease.number, position) in self.confirmed:
                continue
            once = self.model.once[position]
            if self.group.begin(member, Begun(lease.number, position.at, 1, once)):
                self.confirmed.add((lease.number, position))
                self.model.begins(position)
                if once:
                    self.running[position] = name

    def answer(self) -> None:
        chosen = self.some()
        if chosen is None:
            return
        name, lease = chosen
        member = self.group.member(name)
        assert member is not None
        for position in positions(lease):
            if (lease.number, position) in self.confirmed and self.random.random() < 0.7:
                state = self.random.choice([RequestState.DONE, RequestState.FAILED])
                assert self.group.answer(member, Answer(lease.number, position.at, state, b"v"))
                assert not self.group.answer(member, Answer(lease.number, position.at)), "twice"
                member.granted += 1
        if not lease.open:
            self.members[name].pop(lease.number, None)
            self.dead.append((name, lease))

    def stale(self) -> None:
        """Who has lost a lease can neither begin nor answer."""
        for name, lease in self.random.sample(self.dead, min(3, len(self.dead))):
            member = self.group.member(name)
            if member is not None:
                assert not self.group.answer(member, Answer(lease.number, lease.first))
                assert not self.group.begin(member, Begun(lease.number, lease.first, 1, True))

    def give_back(self) -> None:
        """It has not run, or failed and may run again: its instance says so."""
        chosen = self.some()
        if chosen is None:
            return
        name, lease = chosen
        member = self.group.member(name)
        assert member is not None
        self.group.take_back(member, lease.number, lease.first, lease.length)
        for position in positions(lease):
            self.model.begun.pop(position, None)
            self.running.pop(position, None)
        assert self.group.give_back(
            member, lease.number, lease.first, lease.length, 0.0, counted=False, reason=""
        )
        member.granted += lease.length
        del self.members[name][lease.number]
        self.dead.append((name, lease))

    def die(self) -> None:
        if self.members:
            name = self.random.choice(list(self.members))
            self.lost(name)
            self.group.gone(name)

    def lost(self, name: bytes) -> None:
        leases = list(self.members.pop(name).values())
        self.dead += [(name, lease) for lease in leases]
        self.away[name] = [position for lease in leases for position in positions(lease)]

    def leave(self) -> None:
        if self.members:
            name = self.random.choice(list(self.members))
            self.dead += [(name, lease) for lease in self.members.pop(name).values()]
            self.group.leave(name)

    def come_back(self) -> None:
        """Over another connection: it says what it believes to hold."""
        names = [*self.members, *self.away]
        if names:
            name = self.random.choice(names)
            if name in self.members:
                self.lost(name)
            believed = self.away.pop(name)
            self.enter(name, [Run(position.offset, position.at, 1) for position in believed])

    def pass_time(self) -> None:
        quiet = self.random.choice([None, *self.members])
        for _ in range(self.random.choice([1, 3, 6, 12])):
            self.now += 0.5
            self.log.advance_clock(int(self.now * 1e6))
            for name in self.members:
                member = self.group.member(name)
                if member is not None and name != quiet and self.random.random() < 0.8:
                    self.group.heard(member)
            for silent in self.group.tick(self.now):
                self.lost(silent.id)
            self.look()

    def cancel(self) -> None:
        if self.model.once:
            position = self.random.choice(list(self.model.once))
            self.group.cancel(position, late=self.random.random() < 0.5)

    def fetch(self) -> None:
        stored = [Position(each.offset, each.index) for each in self.group.outcomes]
        if stored:
            assert self.group.outcomes.fetched(self.random.choice(stored), self.now)

    def write(self) -> None:
        delta = self.group.take_changes()
        if delta is not None:
            self.written.append(encode_deltas([delta]))
        self.model.kept_ends = dict(self.model.ends)
        self.model.kept_begun = dict(self.model.begun)

    def restart(self) -> None:
        if self.random.random() < 0.6:
            stored = {Position(each.offset, each.index) for each in self.group.outcomes}
            changed = self.group.changed
            self.model.restarted()
            self.running = {at: who for at, who in self.running.items() if at in self.model.begun}
            self.begin()
            if not changed:
                after = {Position(each.offset, each.index) for each in self.group.outcomes}
                assert after == stored, "what was written is stored again"

    def finish(self) -> None:
        """Nobody is there any more: in the end each request has ended."""
        for name in list(self.members):
            self.group.gone(name)
        self.members.clear()
        for _ in range(100):
            self.now += 0.5
            self.log.advance_clock(int(self.now * 1e6))
            self.group.tick(self.now)
            self.look()
            self.group.check()
        assert self.model.ends.keys() == self.model.once.keys(), "each request has ended"
        assert not len(self.group.outcomes), "and what nobody fetches goes"
        for position in self.model.once:
            assert self.group.state_of(position) not in {None, RequestState.NEVER}


def positions(lease: Lease) -> list[Position]:
    """What of a lease is open."""
    return [
        Position(lease.offset, lease.first + at)
        for at in range(lease.length)
        if lease.open & bits_at(at, 1)
    ]


@pytest.mark.parametrize("seed", range(60))
def test_each_request_ends_once(seed: int) -> None:
    History(seed).run(300)
