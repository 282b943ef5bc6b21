"""Members of an exchange whose log commits later: what is confirmed, and what outlives a crash."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from exchange_driver import EPOCH, NUMBER, QUEUE, Exchange, Publisher, exchange
from exchange_members import FIRST, SETTINGS, Consumer, pass_time, states
from segmented_log import SegmentedLog

from roq.exchange import commit, consumer_peers, consumers
from roq.exchange.events import Unreachable
from roq.exchange.machine import ExchangeCore
from roq.log.group_changes import decode_deltas
from roq.log.groups import RETURN_SECONDS
from roq.model import Limits
from roq.protocol import consuming, documents
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.consuming import (
    GROUP_ORDER,
    JOIN,
    LEAVE,
    DoneConfirmed,
    GroupOrder,
    Joined,
    LeaveGroup,
    Returned,
    Run,
)


@dataclass
class Durable:
    """An exchange with such a log, and what was written beside the batches."""

    log: SegmentedLog[bytes] = field(
        default_factory=lambda: SegmentedLog(
            QUEUE, NUMBER, EPOCH, capacity_bytes=1 << 20, topics_max=10, commits=False
        )
    )
    changes: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.there = exchange(late=self.log)
        self.publisher = Publisher(self.there)
        self.publisher.hello()

    def send(self, count: int) -> None:
        self.there.core.begin(self.there.now, 1_000)
        data = self.publisher.batch(b"t", count)
        self.there.append(self.publisher.route, b"t", data)

    def write(self) -> None:
        """The disk takes what there is; it is kept when that has returned."""
        changes = self.there.core.consumers.take_changes()
        self.log.commit()
        if changes:
            self.changes.append(changes)
        self.there.core.consumers.kept()
        self.there.publish()

    def restart(self, snapshot: bytes | None = None) -> None:
        """The process is killed, and the next one reads what was kept."""
        self.log.crash()
        before = self.there
        core: ExchangeCore[bytes] = ExchangeCore(
            QUEUE, NUMBER, before.core.epoch + 1, Limits(), late=self.log
        )
        core.begin(before.now, 2_000)
        core.recover(before.now, snapshot, 0, self.changes)
        self.there = Exchange(core, Limits(), before.now)
        self.there.publish()


def enter(made: Durable, member: Consumer, **given: Any) -> Joined:
    """Join; it is answered when the disk has it."""
    member.join(**given)
    made.write()
    member.look()
    return documents.decode(member.take(JOIN), Joined)


def test_an_acknowledgement_is_confirmed_when_it_is_on_the_disk() -> None:
    made = Durable()
    made.send(3)
    made.write()
    member = Consumer(made.there)
    member.join()
    assert member.other == [], "the group is not kept yet"
    made.write()
    member.look()
    member.take(JOIN)
    assert member.credit() == [(1, 0, 3, 1)]
    member.done(1)
    assert member.other == []
    made.write()
    member.look()
    assert member.confirmed() == DoneConfirmed(1, [])


def test_what_changes_nothing_is_confirmed_without_the_disk() -> None:
    made = Durable()
    made.send(3)
    made.write()
    member = Consumer(made.there)
    enter(made, member)
    member.credit()
    member.done(1)
    made.write()
    member.look()
    member.confirmed()
    member.done(1)  # once more
    assert made.there.core.consumers.take_changes() == b""
    member.look()
    assert member.confirmed() == DoneConfirmed(2, [1])


def test_what_the_disk_does_not_give_a_group_is_told_also_after_the_process_has_stood_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Durable()
    member = Consumer(made.there)
    enter(made, member)
    made.there.now += 60.0
    pass_time(made.there, 0.5)
    made.send(3)
    made.write()
    monkeypatch.setattr(made.log, "record", lambda _: None)
    monkeypatch.setattr(made.log, "is_lost", lambda _: False)
    assert member.credit() == []
    assert made.there.core.unread.startswith("its disk does not give what is asked for")


def test_what_is_not_committed_is_handed_to_nobody() -> None:
    made = Durable()
    member = Consumer(made.there)
    enter(made, member)
    made.send(3)
    assert member.credit() == []
    made.write()
    member.look()
    assert member.leases == [(1, 0, 3, 1)]


def test_one_confirmation_stands_for_all_that_was_said_until_the_write() -> None:
    made = Durable()
    for _ in range(3):
        made.send(1)
    made.write()
    member = Consumer(made.there)
    enter(made, member)
    member.credit()
    for lease in (1, 2, 3):
        member.done(lease)
    made.write()
    member.look()
    assert member.confirmed().serial == 3


def test_what_was_confirmed_does_not_come_again_after_a_crash() -> None:
    made = Durable()
    made.send(3)
    made.send(2)
    made.write()
    member = Consumer(made.there)
    enter(made, member)
    member.credit()
    member.done(parts=[(1, 1, 1)])
    made.write()
    member.look()
    assert member.confirmed().refused == []
    member.done(2)  # and the process is killed before the disk has it
    made.restart()
    heir = Consumer(made.there, "heir")
    enter(made, heir)
    assert heir.credit() == [], "members have a moment to say what they hold"
    pass_time(made.there, RETURN_SECONDS + 0.5)
    heir.look()
    assert [lease[1:] for lease in heir.leases] == [(0, 1, 1), (2, 1, 1), (0, 2, 1)]


def test_members_hold_on_what_they_held_over_a_restart() -> None:
    made = Durable()
    made.send(3)
    made.write()
    member = Consumer(made.there)
    enter(made, member)
    member.credit()
    made.restart()
    member = Consumer(made.there, attempt=2)
    joined = enter(made, member, held=[Run(0, 0, 3)], generation=EPOCH)
    assert [each[1:] for each in joined.again] == [(0, 0, 3)]
    assert joined.epoch == EPOCH + 1
    other = Consumer(made.there, "other")
    enter(made, other)
    pass_time(made.there, 3.0)
    assert other.credit() == []


def test_a_snapshot_and_what_came_behind_it_are_all_that_is_needed() -> None:
    made = Durable()
    for _ in range(3):
        made.send(1)
    made.write()
    member = Consumer(made.there)
    enter(made, member)
    member.credit()
    member.done(2, returned=[Returned(3, 0, 1, 0.0, True, "bad")])
    made.write()
    snapshot = made.there.core.snapshot()
    made.changes = []
    member.done(1)
    made.write()
    assert len(made.changes) == 1
    made.restart(snapshot)
    (state,) = states(made.there)
    assert (state.base, state.settings) == (2, SETTINGS)
    heir = Consumer(made.there, "heir")
    enter(made, heir)
    heir.credit()
    pass_time(made.there, 3.0)
    heir.look()
    assert [lease[1:] for lease in heir.leases] == [(0, 1, 2)], "its first attempt is remembered"


def test_a_deleted_group_stays_deleted() -> None:
    made = Durable()
    made.send(1)
    made.write()
    enter(made, Consumer(made.there))
    operator = Consumer(made.there, "operator")
    wanted = GroupOrder(id=4, queue=QUEUE, group="g", order="delete")
    operator.say(GROUP_ORDER, documents.encode(wanted))
    assert operator.other == [], "it is answered when it is kept"
    made.write()
    operator.look()
    operator.take(GROUP_ORDER)
    assert decode_deltas(made.changes[-1])[0].deleted
    made.restart()
    assert states(made.there) == []


def test_orders_that_wait_for_the_disk_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "OWED_MAX", 3)
    made = Durable()
    enter(made, Consumer(made.there))
    operator = Consumer(made.there, "operator")
    for word in ("pause", "resume", "pause", "resume", "resume"):
        wanted = GroupOrder(id=4, queue=QUEUE, group="g", order=word)
        operator.say(GROUP_ORDER, documents.encode(wanted))
    (group,) = made.there.core.consumers.groups
    assert group.paused, "what is refused changes nothing"
    assert [each[0] for each in operator.other] == [REFUSED] * 2
    made.write()
    operator.look()
    assert [each[0] for each in operator.other[2:]] == [GROUP_ORDER] * 3


def test_what_members_are_owed_while_the_disk_is_stuck_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer_peers, "SETTLED_MAX", 4)
    monkeypatch.setattr(consumers, "MEMBERS_MAX", 2)
    made = Durable()
    made.send(3)
    made.write()
    member = Consumer(made.there)
    enter(made, member)
    member.credit()
    member.done(1)
    for lease in range(9):
        member.done(70 + lease, 71)
    owed = made.there.core.consumers._due.done
    ((_, refused),) = owed.values()
    assert [each - FIRST for each in refused or []] == [70, 71, 72, 73]
    made.there.tell(Unreachable(member.route))
    assert not owed, "nobody is there any more"
    for attempt in range(2, 9):
        member.attempt = attempt
        member.join()
        member.done(99)
        member.say(LEAVE, consuming.encode(LeaveGroup(member.id)))
    refused = [
        documents.decode(told, Refused) for letter, told in member.other if letter == REFUSED
    ]
    assert [each.code for each in refused] == ["full"] * 3
    assert member.other[-1][0] == LEAVE, "it is not in"
    assert len(owed) == 4, "those that have left wait for that"


def test_changes_are_read_back_and_garbage_is_refused() -> None:
    deltas = [
        consumers.GroupDelta("g", 5, [(6, 2)]), consumers.GroupDelta("gone", 0, deleted=True),
    ]  # fmt: skip
    packed = consumers.encode_deltas(deltas)
    assert consumers.decode_deltas(packed) == deltas
    for data in (b"", b"\xc1", b"\x91\x01", packed[:-1], b"\x91" * 100_000):
        with pytest.raises(consumers.RemoteProtocolError):
            consumers.decode_deltas(data)


def test_what_comes_while_the_disk_writes_is_confirmed_by_the_next_write() -> None:
    """One Done is under way to the disk when the next one of the same consumer comes."""
    made = Durable()
    member = Consumer(made.there)
    enter(made, member)
    made.send(1)
    made.send(1)
    made.write()
    assert len(member.credit()) == 2
    served = made.there.core.consumers
    member.done(1)
    assert served.take_changes()
    member.done(2)
    assert member.other == [], "nothing is kept yet"
    served.kept()
    member.look()
    assert member.confirmed() == DoneConfirmed(1)
    assert served.take_changes()
    served.kept()
    member.look()
    assert member.confirmed() == DoneConfirmed(2)
    member.done(77)
    assert served.take_changes() == b"", "nothing has changed, and nothing is written for it"
    assert member.confirmed() == DoneConfirmed(3, [77])


def test_a_log_that_writes_nothing_owes_each_member_one_answer_to_its_joins() -> None:
    made = Durable()
    one, two = Consumer(made.there, "one"), Consumer(made.there, "two")
    for attempt in range(1, 20):
        one.attempt = attempt
        one.join(id=attempt)
        two.join(id=attempt)
    owed = made.there.core.consumers._due
    assert (len(owed.joined), len(owed.answers)) == (2, 0)
    made.there.tell(Unreachable(two.route))
    assert len(owed.joined) == 1
    made.write()
    one.look()
    assert documents.decode(one.take(JOIN), Joined).id == 19


def test_a_group_without_members_is_not_behind_what_has_left_the_log() -> None:
    made = Durable()
    member = Consumer(made.there)
    enter(made, member)
    made.there.tell(Unreachable(member.route))
    made.send(3)
    made.write()
    core = made.there.core.consumers
    assert core.behind == 1
    made.log.floor = made.log.end  # its time is over
    pass_time(made.there, 1.0)
    assert core.behind == 0
    assert states(made.there)[0].expired == 1
