"""A consumer group at one log, beyond what the model in tests/property says of every history."""

from __future__ import annotations

import random

import msgspec
import pytest
from memory_files import MemoryFiles
from paper_group import Group, OnDisk, refuse

from roq.log import group_progress, groups
from roq.log.free_messages import FreeMessages
from roq.log.groups import SCAN_MAX, ConsumerGroup
from roq.log.keyed_messages import KeyedMessages
from roq.log.leases import NumberedLeases, Piece
from roq.log.patient_reads import REFUSED_SECONDS
from roq.model import PublisherId
from roq.protocol.batch import HEADER_BYTES, pack
from roq.protocol.columns import (
    KEY_GROUPS,
    PRIORITIES,
    pack_column,
    pack_lifetime,
)
from roq.protocol.consuming import MODES, Run


def test_members_take_turns() -> None:
    made = Group()
    for _ in range(4):
        made.append()
    made.join("a")
    made.join("b")
    assert [lease.member.name for lease in made.leases()] == ["a", "b", "a", "b"]


def test_a_batch_larger_than_a_member_ever_holds_is_split() -> None:
    made = Group()
    made.append(10)
    made.join("a", credit=4, window=4)
    made.join("b", credit=4, window=4)
    assert [(lease.first, lease.length) for lease in made.leases()] == [(0, 4), (4, 4)]
    assert made.group.out == 8


def test_what_fails_comes_later_and_later_and_holds_up_nobody() -> None:
    made = Group(retry_seconds=1.0, retry_seconds_max=3.0)
    made.append()
    made.append()
    member = made.join()
    first, second = made.leases()
    assert made.group.acknowledge(member, second.number)
    waits = []
    lease = first
    for _ in range(4):
        assert made.group.give_back(member, lease.number, 0, 1, 0.0, counted=True, reason="no")
        began = made.now
        while not (again := made.leases()):
            made.group.heard(member)
            made.pass_time(0.5)
        waits.append(made.now - began)
        lease = again[0]
    # In steps of half a second, with what each wait has more.
    assert waits == [1.0, 2.5, 3.5, 3.5]
    assert (lease.attempts, lease.reason) == (4, "no")


def test_a_process_that_stood_still_takes_nobody_for_silent() -> None:
    made = Group(lease_seconds=5.0)
    made.append()
    made.join()
    made.leases()
    made.now = 1_000.0
    assert made.group.tick(made.now) == []
    assert [member.name for member in made.pass_time(5.5)] == ["m"]
    assert made.group.lapsed == 1


def test_one_message_that_is_not_done_holds_the_group_in_the_end_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_progress, "WINDOW", 5)
    made = Group()
    for _ in range(8):
        made.append()
    member = made.join("slow")
    first, *others = made.leases()
    assert len(others) == 4
    for lease in others:
        assert made.group.acknowledge(member, lease.number)
    assert made.leases() == []
    stalled = made.group.state(who=False, most=0).stalled
    assert "the one at offset 0 is not done: slow holds it" in stalled
    assert made.group.acknowledge(member, first.number)
    assert len(made.leases()) == 3


def test_why_nothing_goes_out_is_said() -> None:
    made = Group()

    def stalled() -> str:
        return made.group.state(who=False, most=0).stalled

    assert stalled() == ""
    made.append()
    assert stalled() == "it has no member here"
    made.join(credit=0)
    assert stalled() == "each of its members holds as much as it takes"
    made.group.pause(paused=True)
    assert stalled() == "it is paused"


def test_what_leaves_the_log_is_nobody_s_and_counted() -> None:
    made = Group(capacity=1 << 16)
    made.append(size=1_000)
    member = made.join()
    (lease,) = made.leases()
    while made.log.floor < 3:
        made.append(size=1_000)
    state = made.group.state(who=True, most=10)
    assert (state.base, state.expired, state.out) == (made.log.floor, made.log.floor, 0)
    assert not made.group.acknowledge(member, lease.number)
    made.group.check()


def test_an_exclusive_group_has_one_taker_and_keeps_the_order() -> None:
    made = Group(mode="exclusive", retry_seconds=1.0)
    for _ in range(3):
        made.append()
    first = made.join("a")
    made.join("b")
    leases = made.leases()
    assert {lease.member.name for lease in leases} == {"a"}
    assert made.group.give_back(first, leases[0].number, 0, 1, 0.0, counted=True, reason="no")
    made.append()
    assert made.leases() == [], "nothing passes what failed"
    made.group.leave(first.id)
    made.pass_time(1.5)
    assert [lease.offset for lease in made.leases()] == [0, 1, 2, 3]


def test_members_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    assert groups.MEMBERS_MAX == 10_000
    monkeypatch.setattr(groups, "MEMBERS_MAX", 1)
    made = Group()
    made.join("a")
    assert made.group.join(b"b" * 16, "b") is None


def test_changes_are_small() -> None:
    made = Group()
    for _ in range(1_000):
        made.append()
    member = made.join(credit=2_000, window=2_000)
    leases = made.leases()
    made.group.take_changes()
    for lease in leases[1::2]:
        assert made.group.acknowledge(member, lease.number)
    delta = made.group.take_changes()
    assert delta is not None
    assert len(delta.whole) == 500
    assert len(msgspec.msgpack.encode([delta])) <= 8 * 500
    assert made.group.take_changes() is None


@pytest.mark.parametrize("mode", ["keyed", "priority"])
def test_nobody_makes_a_group_keep_more_than_was_published(mode: str) -> None:
    made = Group(mode=mode)
    data = pack(
        [b""], publisher=PublisherId(b"p" * 16), epoch=0, link_number=1, first_sequence=0,
        created_us=0,
    )  # fmt: skip
    lying = data[:8] + (1 << 20).to_bytes(4, "little") + data[12:]
    for _ in range(200):
        assert made.log.append(b"t", lying, len(lying)) is not None
    made.append(5)
    made.join()
    assert [(lease.offset, lease.length) for lease in made.leases()] == [(200, 5)]
    state = made.group.state(who=False, most=0)
    assert (state.malformed, state.base) == (200, 200)
    free = made.group._free
    assert not isinstance(free, FreeMessages)
    assert sum(map(len, free._columns.values())) == 1


def test_a_group_looks_ahead_at_so_many_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_progress, "MESSAGES_MAX", 10)
    made = Group(mode="priority")
    for _ in range(9):
        made.append(4)
    member = made.join(credit=1_000, window=1_000)
    first, *others = made.leases()
    assert made.group.next == 3, "the third one has gone beyond it"
    assert "3 batches are open" in made.group.state(who=False, most=0).stalled
    for lease in others:
        assert made.group.acknowledge(member, lease.number)
    assert [lease.offset for lease in made.leases()] == [3, 4]
    assert set(made.group._free._columns) == {0, 3, 4}  # type: ignore[union-attr]
    assert made.group.acknowledge(member, first.number)


def test_what_leaves_the_log_is_left_behind_without_members_too() -> None:
    made = Group(capacity=400)
    for _ in range(20):
        made.append(size=40)
    assert made.group.base < made.log.floor
    made.group.tick(0.5)
    assert made.group.base == made.log.floor
    assert made.group.expired == made.log.floor


# --- a disk that does not give what it has --------------------------------------------------------


@pytest.mark.parametrize("mode", ["shared", "exclusive", "keyed", "priority"])
@pytest.mark.parametrize("looked_at", [True, False])
def test_what_the_disk_refuses_for_a_while_is_handed_out_then(
    monkeypatch: pytest.MonkeyPatch, mode: str, looked_at: bool
) -> None:
    made = OnDisk(mode=mode)
    for _ in range(12):
        made.append(2)
    member = made.join(credit=4)
    first = made.leases() if looked_at else []
    member.granted = 100
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFiles, "read", refuse)
        for _ in range(5):
            first += made.leases()
            made.pass_time(1.0)
            made.group.heard(member)
    for _ in range(20):
        first += made.leases()
        made.pass_time(0.5)
        made.group.heard(member)
    assert sorted((each.offset, each.length) for each in first) == [(at, 2) for at in range(12)]
    assert made.group.expired == 0


def test_what_the_disk_refuses_for_long_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    made = OnDisk(lease_seconds=600.0)
    for _ in range(9):
        made.append()
    made.join()
    damaged = min(name for name in made.files.names() if name.endswith(".seg"))
    read = MemoryFiles.read

    def refuse_one(self: MemoryFiles, name: str, at: int, size: int) -> bytes:
        return refuse() if name == damaged else read(self, name, at, size)

    monkeypatch.setattr(MemoryFiles, "read", refuse_one)
    while made.now < REFUSED_SECONDS:
        assert made.leases() == []
        made.pass_time(0.5)
    made.pass_time(1.0)
    assert [each.offset for each in made.leases()] == [5, 6, 7, 8]
    assert made.group.expired == 5


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(8))
def test_what_has_outlived_its_time_goes_to_nobody_and_is_counted(seed: int, mode: str) -> None:
    chance = random.Random(seed)
    made = Group(mode=mode, retry_seconds=0.5)
    lifetimes = made.group.lifetimes
    lifetimes.queue_us = chance.choice([0, 0, 4_000_000])
    member, ends, acknowledged, published = made.join(credit=1 << 20, window=10), {}, 0, 0
    for step in range(120):
        made.log.advance_clock(step * 100_000)
        lifetimes.now_us = step * 100_000
        if chance.random() < 0.5:
            count, lives_ms = chance.randrange(1, 5), chance.choice([0, 0, 300, 1_000, 9_000])
            columns = bytes(chance.randrange(5) for _ in range(count))
            area = pack_column(KEY_GROUPS, columns) + pack_column(PRIORITIES, columns)
            shortest = min(each for each in (lives_ms * 1_000, lifetimes.queue_us, 1 << 60) if each)
            ends[made.log.end] = made.log.time_us + shortest
            made.append(count, area=pack_lifetime(lives_ms) + area)
            published += count
        member.granted = member.taken + chance.randrange(20)
        for lease in made.leases():
            assert lifetimes.now_us < ends[lease.offset]
        for lease in list(member.leases.values()):
            if chance.random() < 0.4:
                acknowledged += lease.open.bit_count()
                assert made.group.acknowledge(member, lease.number)
            elif chance.random() < 0.5:
                assert made.group.give_back(
                    member, lease.number, lease.first, lease.length, 0.3, counted=True, reason=""
                )
        made.pass_time(0.5 * chance.randrange(3))
        made.group.heard(member)
    member.granted = 1 << 30
    for _ in range(200):
        made.pass_time(2.0)
        made.group.heard(member)
        for lease in made.leases():
            acknowledged += lease.open.bit_count()
        for lease in list(member.leases.values()):
            made.group.acknowledge(member, lease.number)
    state = made.group.state(who=False, most=0)
    assert made.group.base == made.log.end
    assert state.stale > 0
    assert made.group.acknowledged + state.stale == published
    assert state.expired == 0


def test_time_that_nobody_has_looked_at_ends_nothing_and_a_clock_that_goes_back_neither() -> None:
    made = Group()
    made.log.advance_clock(5_000_000)
    made.append(area=pack_lifetime(1))
    made.join()
    (lease,) = made.leases()
    made.group.lifetimes.now_us = 1_000_000  # before it was appended
    made.group.recall(lease, 1, 0)
    assert len(made.leases()) == 1


@pytest.mark.parametrize("mode", MODES)
def test_much_that_has_outlived_its_time_is_passed_over_a_part_at_a_time(mode: str) -> None:
    made, count = Group(mode=mode), 2 * SCAN_MAX + 10
    for _ in range(count):
        made.append(area=pack_lifetime(1))
    member = made.join(credit=2 * count, window=2 * count)
    while made.group.next_lease(made.numbers) or made.group.busy:
        pass
    assert made.group.out == count
    made.group.leave(member.id)
    made.group.lifetimes.now_us = 1 << 40
    made.join()
    passed = []
    while made.group.next_lease(made.numbers) is None and made.group.busy:
        passed.append(made.group.stale)
    assert passed == [SCAN_MAX, 2 * SCAN_MAX]
    assert (made.group.stale, made.group.base) == (count, count)


def test_what_was_done_before_a_start_is_not_counted_as_stale() -> None:
    made = Group()
    made.append(3, area=pack_lifetime(1))
    member = made.join()
    (lease,) = made.leases()
    assert made.group.acknowledge(member, lease.number, 1, 1)
    after = ConsumerGroup("g", made.log, made.group.settings, 1, 0, 0.0)
    after.apply(made.group.snapshot())
    after.lifetimes.now_us = 1 << 40
    made.group = after
    made.join()
    assert made.leases() == []
    assert (after.base, after.stale) == (1, 2)


def test_a_batch_of_other_topics_is_not_counted_as_stale() -> None:
    made = Group(prefixes=(b"other",))
    made.append(area=pack_lifetime(1))
    made.group.lifetimes.now_us = 1 << 40
    made.join()
    assert made.leases() == []
    assert made.group.state(who=False, most=0).stale == 0


def test_who_seeks_below_the_floor_or_beyond_the_end_begins_there() -> None:
    made = Group(capacity=400)
    for _ in range(20):
        made.append(size=40)
    assert 0 < made.log.floor < made.log.end
    made.group.seek(0)
    assert made.group.base == made.log.floor
    made.group.seek(made.log.end + 1_000)
    assert made.group.base == made.log.end
    made.append()
    made.join()
    assert [lease.offset for lease in made.leases()] == [20]


def test_what_a_member_says_to_hold_beyond_the_end_or_the_batch_is_nobody_s() -> None:
    made = Group()
    made.append(2)
    member = made.join()
    held = [Run(1, 0, 1), Run(1 << 61, 0, 1), Run(0, 1, 2)]
    assert made.group.resume(member, held, made.numbers) == ([], [])
    (lease,) = made.leases()
    for first, count in ((0, 3), (2, 1), (1 << 19, 1)):
        assert not made.group.acknowledge(member, lease.number, first, count)
    assert made.group.acknowledged == 0
    assert made.group.acknowledge(member, lease.number)
    made.group.check()


# --- time to live, and dead letters ---------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seen", [False, True], ids=["looked at late", "grown old"])
def test_what_is_over_is_handed_out_for_the_dead_letters_if_that_is_wanted(
    mode: str, seen: bool
) -> None:
    made = Group(mode=mode, bury_expired=True)
    made.append(2, area=pack_lifetime(1_000))
    made.append()
    if seen:
        early = made.join("early", credit=0)
        made.leases()
        made.group.leave(early.id)
    made.group.lifetimes.now_us = 2_000_000
    member = made.join()
    old, fresh = made.leases()
    assert (old.offset, old.overdue, fresh.overdue) == (0, True, False)
    assert made.group.stale == 0, "its letter is not written yet"
    assert made.group.acknowledge(member, old.number)
    assert made.group.stale == 2


# --- more time ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_silent_member_holds_what_it_has_asked_more_time_for_and_nothing_else(mode: str) -> None:
    made = Group(mode=mode, lease_seconds=5.0, retry_seconds=0.0)
    made.append(3)
    slow = made.join("slow", credit=4, window=4)
    (lease,) = made.leases()
    assert made.group.extend(slow, lease.number, 1, 1, 20.0)
    assert made.pass_time(6.0) == [], "it is a member still"
    assert (made.group.out, made.group.lapsed, slow.silent) == (1, 2, True)
    made.append()
    assert slow.credit == 0, "and gets nothing"
    other = made.join("other")
    if mode == "exclusive":
        assert made.leases() == [], "what is held comes first"
    else:
        free = {(each.offset, each.open << each.first) for each in made.leases()}
        one_key = mode == "keyed"  # as what has none of one batch counts, and that is held
        assert free == (
            {(1, 1)}
            if one_key
            else {(0, 1), (0, 4), (1, 1)}
            if mode == "shared"
            else {(0, 5), (1, 1)}
        )
    made.group.heard(other)
    assert [each.name for each in made.pass_time(16.0) if each is slow] == ["slow"]
    made.group.check()
    assert made.group.lapsed >= 3


@pytest.mark.parametrize("mode", MODES)
def test_a_silent_member_that_comes_back_goes_on_with_what_it_holds(mode: str) -> None:
    made = Group(mode=mode, lease_seconds=5.0)
    made.append(2)
    slow = made.join("slow")
    (lease,) = made.leases()
    assert made.group.extend(slow, lease.number, 0, 1, 60.0)
    made.pass_time(6.0)
    again = made.join("slow")
    assert (again is slow, slow.silent) == (True, False)
    leases, _ = made.group.resume(slow, [Run(0, 0, 1)], made.numbers)
    assert [(each.first, each.length) for each in leases] == [(0, 1)]
    made.group.check()
    assert made.group.acknowledge(slow, leases[0].number)
    made.pass_time(1.0)
    made.group.heard(slow)
    assert [each.first for each in made.leases()] == [1], "and it gets messages as before"


def test_a_silent_member_gets_nothing_for_what_could_not_be_sent_to_it() -> None:
    made = Group(lease_seconds=5.0)
    made.append()
    made.append()
    slow = made.join("slow")
    held, unsent = made.leases()
    assert made.group.extend(slow, held.number, 0, 1, 60.0)
    made.pass_time(6.0)
    made.group.recall(unsent, 1, 100)
    assert (slow.credit, made.leases()) == (0, [])


def test_a_silent_member_goes_when_what_it_holds_has_left_the_log() -> None:
    made = Group(capacity=4_000, mode="exclusive", lease_seconds=5.0)
    made.append()
    slow = made.join("slow")
    (lease,) = made.leases()
    assert made.group.extend(slow, lease.number, 0, 1, 3_600.0)
    made.pass_time(6.0)
    for _ in range(20):
        made.append(size=1_000)
    made.join("other")
    assert made.pass_time(1.0) == [slow]
    assert {each.member.name for each in made.leases()} == {"other"}


def test_a_member_that_goes_gives_back_what_it_has_asked_more_time_for() -> None:
    made = Group(lease_seconds=5.0)
    made.append()
    slow = made.join("slow")
    (lease,) = made.leases()
    assert made.group.extend(slow, lease.number, 0, 1, 60.0)
    made.pass_time(6.0)
    made.group.gone(slow.id)
    assert (len(made.group), made.group.out) == (0, 0)
    made.group.check()


def test_there_is_no_more_time_for_what_is_settled_or_somebody_elses() -> None:
    made = Group()
    made.append(2)
    member, other = made.join("a"), made.join("b", credit=0)
    (lease,) = made.leases()
    assert not made.group.extend(other, lease.number, 0, 1, 60.0)
    assert not made.group.extend(member, lease.number + 1, 0, 1, 60.0)
    assert not made.group.extend(member, lease.number, 1, 2, 60.0), "beyond its end"
    assert made.group.acknowledge(member, lease.number, 0, 1)
    assert not made.group.extend(member, lease.number, 0, 1, 60.0)
    assert made.group.extend(member, lease.number, 1, 1, 60.0)
    assert made.group.extend(member, lease.number, 1, 1, 1.0)
    assert made.group.extend(member, lease.number, 0, 2, 2.0), "as far as it is open"
    assert lease.until == 60.0, "never less"


@pytest.mark.parametrize("seed", range(5))
def test_the_straight_way_out_gives_what_the_long_one_does(seed: int) -> None:
    dice = random.Random(seed)
    one = Group(prefixes=(b"t",))
    other: ConsumerGroup[bytes] = ConsumerGroup("g", one.log, one.group.settings, 1, 0, 0.0)
    other._plain = False
    pairs = [(one.group, one.numbers), (other, NumberedLeases())]
    held: list[int] = []
    straight = list[object]()
    way = one.group._next_straight

    def noted(numbers: NumberedLeases) -> object:
        straight.append(way(numbers))
        return straight[-1]

    one.group._next_straight = noted  # type: ignore[assignment, method-assign]
    for at in range(200):
        area = pack_column(PRIORITIES, b"\1") if dice.random() < 0.1 else b""
        for _ in range(dice.randint(0, 3)):
            count, name = dice.randint(1, 9), dice.choice([b"t", b"t", b"t", b"no"])
            data = pack(
                [b"x"] * count, publisher=PublisherId(b"p" * 16), epoch=0, link_number=1,
                first_sequence=0, created_us=0, extensions=area,
            )  # fmt: skip
            data = data[: dice.choice([len(data)] * 9 + [HEADER_BYTES])]  # too short for its count
            one.log.append(name, data, len(data))
        who = dice.choice([b"a" * 16, b"b" * 16])
        credit, settle, back = dice.choice([0, 3, 20, 50]), dice.random() < 0.9, dice.random() < 0.1
        number = held.pop(dice.randrange(len(held))) if held and (settle or back) else 0
        gone = dice.random() < 0.03
        told = []
        for group, numbers in pairs:
            member = group.member(who) or group.join(who, "m")
            assert member is not None
            member.granted, member.granted_bytes, member.window = (
                member.granted + credit, 1 << 20, 8,
            )  # fmt: skip
            owner = next((m for m in map(group.member, (b"a" * 16, b"b" * 16))
                          if m is not None and number in m.leases), None)  # fmt: skip
            if owner is not None and back:
                lease = owner.leases[number]
                group.give_back(
                    owner, number, lease.first, lease.length, 0.0, counted=True, reason="no"
                )
            elif owner is not None:
                group.acknowledge(owner, number)
            if gone:
                group.gone(who)
            group.tick(at * 0.5)
            found = []
            for _ in range(4):
                given = group.next_lease(numbers)
                if given is not None:
                    found.append((given[0].number, given[0].member.id, given[0].offset,
                                  given[0].first, given[0].length, given[0].attempts))  # fmt: skip
            group.check()
            told.append((found, group.busy, group.take_changes(), group.state(who=True, most=9)))
        assert told[0] == told[1]
        held += [each[0] for each in told[0][0]]
    assert None in straight
    assert sum(each is not None for each in straight) > 20


def test_members_without_keys_of_what_is_free_cost_nothing_for_each_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hot key: all others of thousands of members have nothing, for as long as it is busy."""
    looks, chosen = 0, KeyedMessages._first_fresh

    def counted(self: KeyedMessages, member: bytes, allowed: bytes) -> Piece | None:
        nonlocal looks
        looks += 1
        return chosen(self, member, allowed)

    monkeypatch.setattr(KeyedMessages, "_first_fresh", counted)
    made = Group(mode="keyed")
    members = [made.join(f"m{number}", credit=2) for number in range(300)]
    asked, choose = 0, KeyedMessages.choose

    def asks(self: KeyedMessages, member: bytes, now: float) -> Piece | None:
        nonlocal asked
        asked += 1
        return choose(self, member, now)

    monkeypatch.setattr(KeyedMessages, "choose", asks)
    for _ in range(200):
        made.append(area=pack_column(KEY_GROUPS, b"\x07"))
    assert [lease.offset for lease in made.leases()] == [0, 1]
    with_keys = sum(bool(made.group._free.groups.lanes(each.id)) for each in members)  # type: ignore[union-attr]
    assert looks <= 3
    assert asked <= 210 * with_keys
    made.group.leave(next(each.id for each in members if not each.held))
    assert made.leases() == []
    assert looks <= 3, "nobody looks at them again"
