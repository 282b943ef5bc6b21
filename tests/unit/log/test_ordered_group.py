"""What a group that keeps order holds back; every history is tried in tests/property."""

from __future__ import annotations

from typing import Final

import pytest

from roq.log.leases import Lease, Member, NumberedLeases
from roq.log.moved_publishers import MovedPublishers
from roq.log.ordered_group import ASK_SECONDS, ASK_SECONDS_MAX, OrderedGroup, Question
from roq.log.ring import Ring
from roq.model import LogId, PublisherId
from roq.protocol.batch import pack
from roq.protocol.consuming import AWAY, GONE, NO_GROUP, SETTLED, WAITS, GroupSettings, Run

A: Final = LogId(2, 5)
P, Q = PublisherId(b"p" * 16), PublisherId(b"q" * 16)


class Group:
    """A group, its log, and a clock; `P` has come from the log `A` under epoch 3."""

    def __init__(self, mode: str = "exclusive", capacity: int = 1 << 20) -> None:
        self.log: Ring[bytes] = Ring(b"q" * 16, 1, 1, capacity_bytes=capacity, topics_max=8)
        self.stays = MovedPublishers(LogId(1, 1), 10)
        self.stays.came(P, 3, [A])
        self.numbers = NumberedLeases()
        self.group: OrderedGroup[bytes] = OrderedGroup(
            "g", self.log, GroupSettings(mode=mode), 1, 0, 0.0, self.stays
        )
        member = self.group.join(b"m" * 16, "m")
        assert member is not None
        self.member: Member = member
        member.granted, member.granted_bytes, member.window = 1_000, 1 << 20, 100

    def append(self, publisher: PublisherId, epoch: int, size: int = 1) -> None:
        data = pack(
            [b"x" * size] * 2, publisher=publisher, epoch=epoch, link_number=1, first_sequence=0,
            created_us=0,
        )  # fmt: skip
        assert self.log.append(b"t", data, len(data)) is not None

    def leases(self) -> list[Lease]:
        found = []
        while (given := self.group.next_lease(self.numbers)) is not None:
            found.append(given[0])
        self.group.check()
        return found

    def offsets(self) -> list[int]:
        return [lease.offset for lease in self.leases()]

    def told(self, outcome: str, epoch: int = 3, log: LogId = A) -> bool:
        said = self.group.told(Question(P, epoch, log), outcome)
        self.group.check()
        return said


def test_who_has_come_from_elsewhere_is_held_back_and_nobody_else() -> None:
    for mode in ("exclusive", "keyed"):
        made = Group(mode)
        for publisher in (P, Q, P, Q):
            made.append(publisher, 3)
        assert made.offsets() == [1, 3]
        assert made.group.questions(0.0, 10) == [Question(P, 3, A)]
        assert not made.told(WAITS)
        assert made.offsets() == []
        assert made.told(SETTLED)
        assert made.offsets() == [0, 2]
        made.append(P, 3)
        assert made.offsets() == [4], "it is not asked again"
        assert made.group.ask_at is None


def test_what_has_gone_with_its_log_is_waited_for_no_more() -> None:
    made = Group()
    made.append(P, 3)
    assert made.offsets() == []
    assert made.told(GONE)
    assert made.offsets() == [0]


def test_what_was_sent_before_the_move_waits_for_nothing() -> None:
    made = Group()
    made.append(P, 2)
    assert made.offsets() == [0]


def test_all_logs_have_to_be_done() -> None:
    made, other = Group(), LogId(4, 1)
    made.stays.came(P, 3, [other])
    made.append(P, 3)
    assert made.offsets() == []
    assert {each.log for each in made.group.questions(0.0, 10)} == {A, other}
    assert not made.told(SETTLED)
    assert made.offsets() == []
    assert made.told(SETTLED, log=other)
    assert made.offsets() == [0]


def test_answers_to_what_was_not_asked_say_nothing() -> None:
    made = Group()
    made.append(P, 3)
    assert made.offsets() == []
    assert not made.told(SETTLED, epoch=4)
    assert not made.told(SETTLED, log=LogId(2, 6))
    assert made.offsets() == []
    assert made.told(SETTLED)
    assert not made.told(SETTLED)


def test_it_is_asked_again_less_and_less_often() -> None:
    made = Group()
    made.append(P, 3)
    assert made.offsets() == []
    now, pauses = 0.0, []
    for _ in range(9):
        assert made.group.questions(now, 10)
        assert not made.group.questions(now, 10)
        assert made.group.ask_at is not None
        pauses.append(round(made.group.ask_at - now, 9))
        now = made.group.ask_at
    assert pauses[0] == ASK_SECONDS
    assert pauses == sorted(pauses)
    assert pauses[-1] == ASK_SECONDS_MAX


def test_no_more_is_asked_at_once_than_is_wanted() -> None:
    made = Group()
    publishers = [PublisherId(bytes([each]) * 16) for each in range(5)]
    for publisher in publishers:
        made.stays.came(publisher, 1, [A])
        made.append(publisher, 1)
    assert made.offsets() == []
    first, second = made.group.questions(0.0, 3), made.group.questions(0.0, 3)
    assert [each.publisher for each in first + second] == publishers


def test_a_group_says_what_others_may_have_after_it() -> None:
    made = Group()
    made.append(P, 1)
    made.append(Q, 1)
    assert not made.group.is_done(P, 2, 2), "it has not looked so far"
    one, two = made.leases()
    assert not made.group.is_done(P, 2, 2)
    assert made.group.is_done(P, 1, 2), "only what has a lower epoch counts"
    assert made.group.acknowledge(made.member, one.number)
    assert made.group.is_done(P, 2, 2)
    assert not made.group.is_done(Q, 2, 2)
    assert made.group.is_done(Q, 2, 1), "what came later does not count"
    assert made.group.acknowledge(made.member, two.number)
    assert made.group.is_done(Q, 2, 2)


def test_a_group_that_cannot_look_further_waits_for_nobody_who_may_still_be_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("roq.log.group_progress.WINDOW", 3)
    made = Group()
    made.stays.began(Q, 1, 0)
    for publisher, epoch in ((P, 3), (Q, 1), (P, 3), (Q, 1)):
        made.append(publisher, epoch)
    (lease,) = made.leases()
    assert not made.group.is_done(Q, 2, 4)
    assert made.group.acknowledge(made.member, lease.number)
    assert made.group.is_done(Q, 2, 4), "what it sends now has no order"
    assert not made.group.is_done(P, 4, 4), "this is open"
    made.stays.ended(Q, 1, 4)
    assert not made.group.is_done(Q, 2, 4), "it has gone, and this came before"


def test_what_a_member_had_before_the_process_ended_it_has_again_at_once() -> None:
    made = Group()
    made.append(P, 3)
    made.append(P, 3)
    leases, done = made.group.resume(made.member, [Run(0, 0, 2)], made.numbers)
    assert ([(each.offset, each.length) for each in leases], done) == ([(0, 2)], [])
    made.group.check()
    assert made.offsets() == [1]


def test_who_goes_elsewhere_in_the_log_begins_anew() -> None:
    made = Group()
    made.append(P, 3)
    made.append(P, 3)
    assert made.offsets() == []
    made.group.seek(1)
    made.group.check()
    assert made.group.ask_at is None


def test_what_leaves_the_log_is_waited_for_no_more() -> None:
    made = Group(capacity=2_000)
    made.append(P, 3)
    assert made.offsets() == []
    for _ in range(10):
        made.append(Q, 1, size=300)
    made.group.tick(0.5)
    made.group.check()
    assert made.group.ask_at is None


def test_who_waits_for_long_is_named() -> None:
    made = Group()
    made.append(P, 3)
    assert made.offsets() == []
    for outcome, said in ((WAITS, "not done there"), (AWAY, "is away"), (NO_GROUP, "not there")):
        made.told(outcome)
        assert "x2" not in made.group.state(who=False, most=0).stalled or outcome != WAITS
        for _ in range(9):
            assert made.group.ask_at is not None
            made.group.questions(made.group.ask_at, 10)
        stalled = made.group.state(who=False, most=0).stalled
        assert stalled.startswith("2 messages of 1 publishers wait")
        assert "x2" in stalled
        assert said in stalled
    assert made.group.state(who=False, most=0).waiting == 2
    made.told(SETTLED)
    assert made.group.state(who=False, most=0).stalled == ""
