"""What consumers are owed, put together; and what a batch job does in their place."""

from __future__ import annotations

from typing import Any

import pytest
from exchange_driver import EPOCH, QUEUE, Exchange, Publisher
from exchange_members import Consumer, filled, pass_time

from roq.exchange import consumer_peers
from roq.exchange.consumer_peers import Owed, Peer
from roq.exchange.events import Received, Send
from roq.log.group_changes import GroupDelta, Mask, decode_deltas
from roq.log.groups import RETURN_SECONDS, ConsumerGroup
from roq.log.leases import Member
from roq.log.ring import Ring
from roq.protocol import documents
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.consuming import (
    DONE,
    GROUP_ORDER,
    LEAVE,
    GroupOrder,
    GroupSettings,
    LeaveGroup,
    Moved,
    Ordered,
    encode,
)
from roq.protocol.requesting import ServiceSettings


def peer(route: bytes) -> Peer[bytes]:
    log: Ring[bytes] = Ring(b"q" * 16, 1, 1, capacity_bytes=1 << 20, topics_max=8)
    group = ConsumerGroup("g", log, GroupSettings(), 1, 0, 0.0)
    return Peer(route, b"tag!", group, Member(route * 16, "m", 0.0), 1)


def test_a_message_goes_to_one_of_those_that_share_a_connection() -> None:
    assert peer(b"a").send(DONE, b"x") == Send(b"a", (DONE + b"tag!", b"x"))


def test_of_two_debts_the_later_serial_counts_and_all_that_was_refused() -> None:
    one, two = peer(b"a"), peer(b"b")
    owed: Owed[bytes] = Owed()
    assert not owed
    for each, serial, refused in ((one, 1, [7]), (two, 2, []), (one, 3, [9])):
        owed.note(each, serial, refused)
    assert owed.done == {one: (3, [7, 9]), two: (2, [])}
    assert owed


def test_of_what_was_refused_a_member_is_told_each_once_and_of_very_many_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer_peers, "SETTLED_MAX", 3)
    one, owed = peer(b"a"), Owed[bytes]()
    owed.note(one, 1, [7, 7, 8, 9, 10])
    assert owed.done == {one: (1, [7, 8, 9])}
    owed.note(one, 2, [11])
    assert owed.done == {one: (2, [7, 8, 9])}


# --- a batch job that works for a group -----------------------------------------------------------


def answer(there: Exchange, word: str, *moves: Moved, **given: Any) -> Ordered | Refused:
    """What a batch job is told."""
    asked = GroupOrder(id=9, queue=QUEUE, group="g", order=word, moves=list(moves), **given)
    there.tell(Received(b"job", (GROUP_ORDER, documents.encode(asked))))
    there.serve()
    ((letter, document),) = there.answers(b"job")
    kind = Refused if letter == REFUSED else Ordered
    return documents.decode(document, kind)


def taken(there: Exchange) -> GroupDelta:
    """How far the group is."""
    found = answer(there, "take")
    assert isinstance(found, Ordered), found
    (delta,) = decode_deltas(found.position)
    return delta


def refused(there: Exchange, word: str, *moves: Moved, **given: Any) -> str:
    found = answer(there, word, *moves, **given)
    assert isinstance(found, Refused)
    assert found.code in {"invalid_request", "no_group", "busy"}
    return found.text


def made(*counts: int) -> Exchange:
    """An exchange with a group, in which a member has done the third batch, and a part of the
    first, and has gone."""
    there = filled(*counts)
    member = Consumer(there)
    member.enter()
    member.credit()
    member.done(3, parts=[(1, 1, 1)])
    member.say(LEAVE, encode(LeaveGroup(member.id)))
    return there


def test_what_a_batch_job_has_moved_is_handed_out_no_more_and_the_rest_is() -> None:
    there = made(3, 1, 1, 2, 1)
    delta = taken(there)
    assert (delta.base, delta.whole, delta.parts) == (0, [(2, 1)], [Mask(0, b"\x02")])
    move = Moved(EPOCH, delta.base, 4, delta.created_us)
    for _ in range(2):  # to repeat it does no harm
        moved = answer(there, "move", move)
        assert isinstance(moved, Ordered)
        assert moved.base == 4
    member = Consumer(there, "late")
    member.enter()
    assert [lease[1:] for lease in member.credit()] == [(0, 1, 1)]
    assert member.leases[0][0] > 0


def test_a_member_that_has_come_and_gone_meanwhile_keeps_what_it_has_done_above() -> None:
    there = made(1, 1, 1)
    delta = taken(there)
    other = Publisher(there, "other")
    other.hello()
    assert other.send(b"t", 1)
    assert other.send(b"t", 1)
    member = Consumer(there, "meanwhile")
    member.enter()
    numbers = [lease[0] for lease in member.credit()]
    assert len(numbers) == 4
    member.done(numbers[-1])  # of what has come since
    member.say(LEAVE, encode(LeaveGroup(member.id)))
    answer(there, "move", Moved(EPOCH, delta.base, 3, delta.created_us))
    late = Consumer(there, "late")
    late.enter()
    assert len(late.credit()) == 1, "the one batch that nobody has done"


def test_a_member_is_not_overtaken() -> None:
    there = made(1, 1, 1)
    delta = taken(there)
    member = Consumer(there, "back")
    member.enter()
    move = Moved(EPOCH, delta.base, 3, delta.created_us)
    for word in ("take", "move"):
        assert "has 1 members" in refused(there, word, move)
    assert len(member.credit()) == 2
    member.say(LEAVE, encode(LeaveGroup(member.id)))
    assert isinstance(answer(there, "move", move), Ordered)


def test_members_that_may_come_back_after_a_restart_are_waited_for() -> None:
    there = made(1, 1, 1)
    (group,) = there.core.consumers.groups
    group.hold()
    assert "may come back" in refused(there, "take")
    pass_time(there, RETURN_SECONDS + 0.5)
    assert taken(there).base == 0


@pytest.mark.parametrize(
    ("move", "why"),
    [(Moved(EPOCH, 0, 9, 0), "offset 9 lies beyond the end of the log, which is 3"),
     (Moved(EPOCH, 1, 3, 0), "was moved to another offset meanwhile"),
     (Moved(EPOCH, 0, 3, 7), "was deleted meanwhile, and this is another one")],
)  # fmt: skip
def test_a_group_that_is_not_where_it_was_is_not_moved(move: Moved, why: str) -> None:
    there = made(1, 1, 1)
    assert why in refused(there, "move", move)
    assert taken(there).base == 0


def test_what_an_operator_wants_done_again_is_not_passed_over() -> None:
    there = made(1, 1, 1)
    delta = taken(there)
    assert delta.whole == [(2, 1)], "no row of the job"
    move = Moved(EPOCH, delta.base, 3, delta.created_us, delta.sought_us)
    assert isinstance(answer(there, "seek"), Ordered)
    assert "was moved to another offset" in refused(there, "move", move)
    delta = taken(there)
    assert (delta.base, delta.whole) == (0, [])
    (group,) = there.core.consumers.groups
    group.apply(group.snapshot())  # as another process does
    assert isinstance(answer(there, "move", move._replace(sought_us=delta.sought_us)), Ordered)


def test_of_many_moves_in_one_order_each_log_takes_its_first() -> None:
    there = made(1, 1, 1)
    moved = answer(there, "move", Moved(EPOCH, 0, 1, 0), Moved(EPOCH, 0, 9, 7))
    assert isinstance(moved, Ordered)
    assert (moved.base, moved.position) == (1, b"")


@pytest.mark.parametrize("mode", ["keyed", "priority"])
def test_a_group_whose_order_no_log_has_is_not_taken_over(mode: str) -> None:
    there = filled(1)
    member = Consumer(there)
    member.enter(settings=GroupSettings(mode=mode))
    member.say(LEAVE, encode(LeaveGroup(member.id)))
    assert f"is a {mode} group" in refused(there, "take")


def test_a_group_is_made_where_it_was_not_yet_and_only_by_who_has_taken_it_elsewhere() -> None:
    there = filled(1, 1)
    for given in ({}, {"settings": GroupSettings()}):
        assert "no group" in refused(there, "move", Moved(EPOCH, 0, 2, 5), **given)
        assert "no group" in refused(there, "move", Moved(EPOCH + 1, 0, 2, 0), **given)
    move = Moved(EPOCH, 0, 2, 0)
    assert "no group" in refused(there, "move", move)
    service = GroupSettings(service=ServiceSettings())
    assert "is a service group" in refused(there, "move", move, settings=service)
    beyond = Moved(EPOCH, 0, 3, 0)
    assert "beyond the end" in refused(there, "move", beyond, settings=GroupSettings())
    assert not there.core.consumers.groups, "nothing was made"
    none = GroupSettings(prefixes=())
    assert "at least one topic" in refused(there, "move", move, settings=none)
    assert isinstance(answer(there, "move", move, settings=GroupSettings()), Ordered)
    assert taken(there).base == 2
    assert isinstance(answer(there, "move", Moved(EPOCH + 1, 0, 9, 1)), Ordered), "another log"
