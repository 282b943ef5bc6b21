"""The requests of a service against a model of how each may end, over random histories.

The model is a table of what has happened to each request: it knows nothing of leases, bits, parked
requests or deltas. Members come, die, fall silent, come back and answer what is not theirs any
more, one by one and many together; requests are delayed, run again by their instance and by an
operator, and answered from elsewhere as they were sent once more; the exchange ends at any moment,
and another one goes on with what its log has kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random

import pytest

from roq.log.group_changes import decode_deltas, encode_deltas
from roq.log.leases import Lease, Member, NumberedLeases, bits_at
from roq.log.ring import Ring
from roq.log.service_group import ServiceGroup
from roq.model import LogId, PublisherId
from roq.protocol.attributes import Attributes, pack_attributes
from roq.protocol.batch import pack
from roq.protocol.columns import PRIORITIES, pack_column, pack_sent_again
from roq.protocol.consuming import GroupSettings, Run
from roq.protocol.orphaned_answers import OrphanedAnswer, sent_again, token_of
from roq.protocol.requesting import (
    AGAIN,
    AGAIN_PUBLISHER,
    DELAYED_FROM,
    ENDS,
    Answer,
    Begun,
    Position,
    RequestEnd,
    RequestState,
    ServiceSettings,
    delayed_message,
    prefix_of,
)

QUEUE = bytes(16)
PUBLISHER = PublisherId(bytes(range(16)))
GONE = LogId(9, 1)
LATER = b"l" * 16
"""Who has made the requests that are delayed."""
SETTINGS = ServiceSettings(
    send_attempts=3, send_wait=0.5, confirm_within=1.0, result_within=30.0, keep_result=5.0
)


@dataclass
class Table:
    """What is known of requests, by the name of each: what is written, an exchange goes on with."""

    begun: dict[Position, int] = field(default_factory=dict)
    """How often it was begun, of those that must not be begun again."""
    answered: dict[Position, tuple[RequestState, bytes, str]] = field(default_factory=dict)
    """What its instance has said, if that was taken in."""
    ends: dict[Position, RequestState] = field(default_factory=dict)
    ended_at: dict[Position, float] = field(default_factory=dict)
    fetched: set[Position] = field(default_factory=set)
    silent: set[Position] = field(default_factory=set)
    """Nobody waits for them: how they have ended is not kept."""
    done: set[Position] = field(default_factory=set)
    """Places in the log that have ended."""


@dataclass
class Model:
    """What is known of each request: whether it may be begun again, who runs it, how it ended."""

    once: dict[Position, bool] = field(default_factory=dict)
    accepted: dict[Position, float] = field(default_factory=dict)
    names: dict[Position, Position] = field(default_factory=dict)
    """Of those that are known by another name than where they are, by place."""
    where: dict[Position, Position] = field(default_factory=dict)
    cancelled: set[Position] = field(default_factory=set)
    tried: set[Position] = field(default_factory=set)
    """An instance has begun them, whether that was kept or not."""
    table: Table = field(default_factory=Table)
    kept: Table = field(default_factory=Table)

    def name(self, place: Position) -> Position:
        return self.names.get(place, place)

    def ended(self, end: RequestEnd, now: float) -> None:
        name, table = end.position, self.table
        assert name in self.once, "only what was requested ends"
        assert name not in table.ends, "each request ends once"
        told = table.answered.get(name)
        if told is not None:
            assert (end.state, end.value, end.text) == told, "it ends as its instance has said"
        else:
            assert end.state in ENDS - {RequestState.DONE, RequestState.FAILED}, "nobody said so"
            assert not end.value
            if end.state is RequestState.CANCELLED:
                assert name in self.cancelled
            elif end.state is RequestState.UNKNOWN:
                assert name in self.tried
            elif end.state is RequestState.DISCARDED:
                assert now - self.accepted[name] >= 1.5, "an instance was looked for"
            elif name not in self.cancelled:
                assert now - self.accepted[name] >= 30.0, "its time was over"
        self.close(name, end.state, now)

    def close(self, name: Position, state: RequestState, now: float) -> None:
        self.table.ends[name] = state
        self.table.ended_at[name] = now
        self.table.done.add(self.where.get(name, name))

    def open_again(self, name: Position) -> None:
        """What is known of how it ended counts no more."""
        for known in (self.table.ends, self.table.answered, self.table.begun, self.table.ended_at):
            known.pop(name, None)  # type: ignore[attr-defined]
        self.table.fetched.discard(name)
        self.table.silent.discard(name)

    def begins(self, name: Position) -> None:
        assert name not in self.table.ends, "nothing is begun that has ended"
        self.tried.add(name)
        if self.once[name]:
            self.table.begun[name] = self.table.begun.get(name, 0) + 1
            assert self.table.begun[name] == 1, "it is not begun again"

    def restarted(self) -> None:
        self.table = deepcopy(self.kept)
        for place, name in self.names.items():
            if place not in self.table.done and name.offset < DELAYED_FROM:
                self.open_again(name)


class Delayed:
    """What keeps the delayed requests that are not due."""

    def __init__(self) -> None:
        self.waiting: dict[bytes, Position] = {}
        self.kept: dict[bytes, Position] = {}

    def request(self, message: bytes) -> int | None:
        return 0 if message in self.waiting else None

    def withdraw(self, message: bytes) -> bool:
        return self.waiting.pop(message, None) is not None


class History:
    """One random history."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.ranked = self.random.random() < 0.5
        """Some requests have priorities."""
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
        self.waits: dict[Position, float] = {}
        """Until when nobody gets what is to be run again."""
        self.delayed = Delayed()
        self.tokens: dict[bytes, Position] = {}
        """Of requests that were sent once more."""
        self.said = 0
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
        self.group.delayed.keeper = self.delayed
        self.waits.clear()
        self.resumed: set[int] = set()
        """Leases of what an instance goes on with: it is said to have begun all of it."""
        self.group.hold()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.random.choice(
                [self.append, self.append, self.append, self.join, self.join, self.join,
                 *[self.deliver] * 5, *[self.start] * 3, *[self.answer] * 2,
                 *[self.answer_together] * 4, self.stale, self.give_back, self.try_again,
                 self.recall, self.die, self.leave, self.come_back, self.come_back, self.pass_time,
                 self.write, self.write, self.restart, self.cancel, self.cancel, self.fetch,
                 self.delay, self.publish_due, self.run_again, *[self.answer_elsewhere] * 2]
            )()  # fmt: skip
            self.look()
            self.group.check()
            self.compare()
        self.finish()

    def look(self) -> None:
        for publisher, outcome in self.group.ended:
            for each in outcome.each():
                late = each.offset >= DELAYED_FROM
                assert publisher in ({LATER, b""} if late else {PUBLISHER}), "who has asked is told"
                self.model.ended(each, self.now)
        self.group.ended.clear()
        for member, lease, _ in self.group.revoked:
            held = self.members.get(member, {}).get(lease)
            if held is not None and not held.open:
                self.dead.append((member, held))
                del self.members[member][lease]
        self.group.revoked.clear()

    def compare(self) -> None:
        """What the service knows of each request is what has happened to it."""
        table, group = self.model.table, self.group
        for stored in group.outcomes:
            name = stored.position
            if self.at_hand(name):
                assert stored.state is table.ends[name]
                assert name not in table.fetched | table.silent
                told = table.answered.get(name, (stored.state, b"", stored.text))
                assert (stored.state, stored.value, stored.text) == told
        for name, state in table.ends.items():
            if not self.at_hand(name):
                continue
            if name in table.fetched:
                assert group.state_of(name) is RequestState.RETRIEVED
            elif name in table.silent:  # another process may not know
                assert group.state_of(name) in {state, RequestState.FORGOTTEN, None}
            elif group.outcomes.get(name) is None:
                assert group.state_of(name) is RequestState.EXPIRED
                assert self.now - table.ended_at[name] >= SETTINGS.keep_result, "it was kept"
            else:
                assert group.state_of(name) is state
        held = {
            place: lease
            for leases in self.members.values()
            for lease in leases.values()
            for place in positions(lease)
        }
        for name in self.model.once.keys() - table.ends.keys():
            place = self.model.where.get(name, name)
            lease, state = held.get(place), group.state_of(name)
            assert group.outcomes.get(name) is None or not self.at_hand(name)
            if delayed_message(name) in self.delayed.waiting:
                assert state is RequestState.DELAYED
            elif lease is not None:
                begun = (lease.number, place) in self.confirmed or lease.number in self.resumed
                assert state is (RequestState.RUNNING if begun else RequestState.OFFERED)
            elif self.at_hand(name):
                assert state not in ENDS
                assert state not in {RequestState.OFFERED, RequestState.NEVER}

    def at_hand(self, name: Position) -> bool:
        """Whether the service has looked at it where it is now."""
        return self.model.where.get(name, name).offset < self.group.next

    def append(self) -> None:
        count = self.random.randint(1, 8)
        some = self.ranked and self.random.random() < 0.5
        ranks = bytes(self.random.choice([0, 0, 1, 9]) for _ in range(count)) if some else b""
        area, attributes, offset = pack_column(PRIORITIES, ranks), None, self.log.end
        if self.random.random() < 0.5:
            area, attributes = area + pack_sent_again(), self.sent_again(offset, count)
        batch = pack(
            [b"x"] * count, publisher=PUBLISHER, epoch=0, link_number=self.sequence + 1,
            first_sequence=self.sequence, created_us=0, extensions=area, attributes=attributes,
        )  # fmt: skip
        self.sequence += count
        self.log.append(b"s/do", batch, len(batch))
        once = self.random.random() < 0.5
        for index in range(count):
            self.model.once[Position(offset, index)] = once
            self.model.accepted[Position(offset, index)] = self.now

    def sent_again(self, offset: int, count: int) -> bytes:
        """Some of these were known otherwise, at an exchange that is gone."""
        given = {}
        for index in range(count):
            if self.random.random() < 0.7:
                before = Position(len(self.tokens), 0)
                self.tokens[token_of(GONE, before, PUBLISHER, b"x")] = Position(offset, index)
                given[index] = Attributes(None, (), sent_again({}, GONE, before), 0)
        return pack_attributes(given)

    def answer_elsewhere(self) -> None:
        """An instance has an answer to what was sent once more: it counts unless another one is
        known to have begun with it."""
        if not self.tokens or not self.members:
            return
        table, some = self.model.table, list(self.tokens.items())
        if self.random.random() < 0.8:
            some = [each for each in some if each[1] not in table.ends] or some
        token, name = self.random.choice(some[-20:])
        member = self.group.member(self.random.choice(list(self.members)))
        leases = [each for some in self.members.values() for each in some.values()]
        lease = next((each for each in leases if name in positions(each)), None)
        self.said += 1
        state = self.random.choice([RequestState.DONE, RequestState.FAILED])
        answer = OrphanedAnswer(token, state, str(self.said).encode(), f"said {self.said}")
        if member is None:
            return
        counts = self.group.answer_former(member, answer)
        if name in self.model.table.ends or not self.at_hand(name):
            assert counts is None
            return
        begun = lease and ((lease.number, name) in self.confirmed or lease.number in self.resumed)
        assert counts is not (bool(begun) or name in self.running)
        if counts:
            self.model.table.answered[name] = state, answer.value, answer.text
            self.model.tried.add(name)

    def publish(self, name: Position, properties: dict[str, str]) -> None:
        """The exchange publishes a request itself: it is known by another name."""
        attributes = pack_attributes({0: Attributes(None, (), properties, 0)})
        batch = pack(
            [b"x"], publisher=PublisherId(b"e" * 16), epoch=0, link_number=0, first_sequence=0,
            created_us=0, attributes=attributes,
        )  # fmt: skip
        place = Position(self.log.end, 0)
        self.log.append(b"s/do", batch, len(batch))
        self.model.names[place], self.model.where[name] = name, place
        self.model.accepted[name] = self.now

    def delay(self) -> None:
        """A request that nobody gets before it is due."""
        name = Position(DELAYED_FROM + len(self.model.once), 0)
        message = delayed_message(name)
        assert message is not None
        self.model.once[name] = self.random.random() < 0.5
        # That it waits is in the log, which loses nothing.
        self.delayed.waiting[message] = self.delayed.kept[message] = name

    def publish_due(self) -> None:
        if self.delayed.waiting:
            message = self.random.choice(list(self.delayed.waiting))
            name = self.delayed.waiting.pop(message)
            self.delayed.kept.pop(message)
            given = {"roq.delayed.id": message.hex(), "roq.delayed.publisher": LATER.hex()}
            self.publish(name, given)

    def run_again(self) -> None:
        """An operator has one run again that is known to have ended badly."""
        again = {RequestState.DISCARDED, RequestState.FAILED, RequestState.UNKNOWN}
        self.write()  # what has ended is kept when somebody knows of it
        names = [
            name
            for name, state in self.model.table.ends.items()
            if state in again and self.at_hand(name) and name.offset < DELAYED_FROM
            and self.group.state_of(name) in again
        ]  # fmt: skip
        if names:
            name = self.random.choice(names)
            given = {AGAIN: f"{name.offset}-{name.at}", AGAIN_PUBLISHER: PUBLISHER.hex()}
            self.publish(name, given)
            self.group.outcomes.run_again(name, self.now)
            self.model.open_again(name)

    def join(self) -> None:
        if len(self.members) < 4:
            self.enter(self.random.randbytes(16), [])

    def enter(self, name: bytes, held: list[Run]) -> None:
        member = self.group.join(name, name.hex()[:4])
        assert member is not None
        leases, _ = self.group.resume(member, held, self.numbers)
        self.members[name] = {lease.number: lease for lease in leases}
        self.resumed |= {lease.number for lease in leases}
        self.model.tried |= {self.model.name(at) for lease in leases for at in positions(lease)}
        for lease in leases:
            self.confirmed |= {
                (lease.number, at) for at in positions(lease) if self.running.get(at) == name
            }
        member.granted, member.window = self.random.choice([1, 3, 20]), 1
        member.granted_bytes = 1 << 20

    def deliver(self) -> None:
        for name in self.members:
            member = self.group.member(name)
            if member is not None and self.random.random() < 0.5:
                member.granted = member.taken + self.random.choice([1, 3, 20])
        for _ in range(self.random.randint(1, 6)):
            found = self.group.next_lease(self.numbers)
            if found is None:
                return
            lease, _ = found
            for place in positions(lease):
                name = self.model.name(place)
                assert name not in self.model.table.ends, "nothing that has ended"
                assert not self.model.table.begun.get(name), "nothing that must not be begun again"
                assert self.waits.pop(place, 0.0) <= self.now, "nothing before its time"
            self.members[lease.member.id][lease.number] = lease

    def some(self) -> Iterator[tuple[bytes, Member, Lease]]:
        """One that is held, with who holds it, if there is any."""
        held = [(name, each) for name, leases in self.members.items() for each in leases.values()]
        if held:
            name, lease = self.random.choice(held)
            member = self.group.member(name)
            assert member is not None
            yield name, member, lease

    def start(self) -> None:
        for name, member, lease in self.some():
            for position in positions(lease):
                if (lease.number, position) in self.confirmed:
                    continue
                once = self.model.once[self.model.name(position)]
                if self.group.begin(member, Begun(lease.number, position.at, 1, once)):
                    self.confirmed.add((lease.number, position))
                    self.model.begins(self.model.name(position))
                    if once:
                        self.running[position] = name

    def answer(self) -> None:
        for name, member, lease in self.some():
            for position in positions(lease):
                if (lease.number, position) in self.confirmed and self.random.random() < 0.7:
                    answer = self.answer_of(lease, [position])
                    assert self.group.answer(member, answer)
                    assert not self.group.answer(member, Answer(lease.number, position.at)), "twice"
            self.drop(name, lease)

    def answer_of(self, lease: Lease, places: list[Position]) -> Answer:
        """What an instance says of requests that follow each other, each with a value of its own;
        of those that are its own it is taken in."""
        state = self.random.choice([RequestState.DONE, RequestState.FAILED])
        text = "" if state is RequestState.DONE else f"error {self.said}"
        silent = self.random.random() < 0.1
        values, own = [], positions(lease)
        for place in places:
            self.said += 1
            values.append(str(self.said).encode())
            if place not in own:
                continue
            name = self.model.name(place)
            self.model.table.answered[name] = state, values[-1], text
            self.model.tried.add(name)
            if silent:
                self.model.close(name, state, self.now)
                self.model.table.silent.add(name)
        return Answer(lease.number, places[0].at, state, values[0], text, silent, values[1:])

    def answer_together(self) -> None:
        """Several answers at once, each of several requests; also of what it has not."""
        for name, member, lease in self.some():
            runs: list[list[Position]] = []
            for place in positions(lease):
                if runs and runs[-1][-1].at + 1 == place.at and self.random.random() < 0.7:
                    runs[-1].append(place)
                else:
                    runs.append([place])
            if runs and self.random.random() < 0.6:  # also of what was taken from it meanwhile
                first, end = runs[0][0], runs[-1][-1].at + 2
                runs = [[Position(first.offset, at) for at in range(first.at, end)]]
            self.random.shuffle(runs)
            runs = [each for each in runs if self.random.random() < 0.8]
            many = sum(place in positions(lease) for each in runs for place in each)
            answers = [self.answer_of(lease, each) for each in runs]
            foreign = [Answer(lease.number, lease.first + lease.length, value=b"nobody's")]
            foreign += answers[:1]  # once more
            assert self.group.answer_all(member, lease.number, [*answers, *foreign]) == many
            self.drop(name, lease)

    def drop(self, name: bytes, lease: Lease) -> None:
        if not lease.open:
            self.members[name].pop(lease.number, None)
            self.dead.append((name, lease))

    def try_again(self) -> None:
        """What runs has failed, and is to run again after a while: `retry_on`."""
        for name, member, lease in self.some():
            for place in positions(lease):
                if (lease.number, place) in self.confirmed:
                    delay = self.random.choice([0.0, 1.0, 3.0])
                    self.group.take_back(member, lease.number, place.at, 1)
                    assert self.group.give_back(
                        member,
                        lease.number,
                        place.at,
                        1,
                        delay,
                        counted=True,
                        reason="raised",
                    )
                    self.waits[place] = self.now + delay
                    self.model.table.begun.pop(self.model.name(place), None)
                    self.running.pop(place, None)
                    break
            self.drop(name, lease)

    def stale(self) -> None:
        """Who has lost a lease, or never had it, can neither begin nor answer."""
        for name, _, lease in self.some():
            for other in self.members.keys() - {name}:
                member = self.group.member(other)
                if member is not None:
                    assert not self.group.answer(member, Answer(lease.number, lease.first))
                    assert not self.group.begin(member, Begun(lease.number, lease.first, 1, True))
        for name, lease in self.random.sample(self.dead, min(3, len(self.dead))):
            member = self.group.member(name)
            if member is not None:
                assert not self.group.answer(member, Answer(lease.number, lease.first))
                assert not self.group.begin(member, Begun(lease.number, lease.first, 1, True))

    def recall(self) -> None:
        """It could not be sent, as a connection was full."""
        for name, _, lease in self.some():
            places = positions(lease)
            if not any((lease.number, place) in self.confirmed for place in places):
                self.group.recall(lease, len(places), 0)
                self.drop(name, lease)

    def give_back(self) -> None:
        """It has not run, or failed and may run again: its instance says so."""
        for name, member, lease in self.some():
            self.group.take_back(member, lease.number, lease.first, lease.length)
            for position in positions(lease):
                self.model.table.begun.pop(self.model.name(position), None)
                self.running.pop(position, None)
            assert self.group.give_back(
                member, lease.number, lease.first, lease.length, 0.0, counted=False, reason=""
            )
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
            position = self.random.choice(list(self.model.once)[-20:])
            if self.group.cancel(position, late=self.random.random() < 0.5):
                self.model.cancelled.add(position)

    def fetch(self) -> None:
        stored = [Position(each.offset, each.index) for each in self.group.outcomes]
        if stored:
            name = self.random.choice(stored)
            assert self.group.outcomes.fetched(name, self.now)
            if name in self.model.table.ends:
                self.model.table.fetched.add(name)

    def write(self) -> None:
        delta = self.group.take_changes()
        if delta is not None:
            self.written.append(encode_deltas([delta]))
        self.look()
        self.model.kept = deepcopy(self.model.table)
        self.delayed.kept = dict(self.delayed.waiting)

    def restart(self) -> None:
        if self.random.random() < 0.6:
            stored, changed = self.stored(), self.group.changed
            self.model.restarted()
            self.delayed.waiting = dict(self.delayed.kept)
            begun = self.model.table.begun
            self.running = {
                at: who for at, who in self.running.items() if self.model.name(at) in begun
            }
            self.begin()
            if not changed:
                assert self.stored() == stored, "what was written is stored again"

    def stored(self) -> dict[Position, tuple[RequestState, bytes, str]]:
        """But of what runs again: until that is looked at, its end is stored."""
        return {
            each.position: (each.state, each.value, each.text)
            for each in self.group.outcomes
            if self.model.where.get(each.position) in {None, *self.model.kept.done}
        }

    def finish(self) -> None:
        """Nobody is there any more: in the end each request has ended."""
        for name in list(self.members):
            self.group.gone(name)
        self.members.clear()
        while self.delayed.waiting:
            self.publish_due()
        for _ in range(100):
            self.now += 0.5
            self.log.advance_clock(int(self.now * 1e6))
            self.group.tick(self.now)
            self.look()
            self.group.check()
        ends = self.model.table.ends
        assert ends.keys() == self.model.once.keys(), "each request has ended"
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


@pytest.mark.parametrize("seed", range(120))
def test_each_request_ends_once(seed: int) -> None:
    History(seed).run(300)
