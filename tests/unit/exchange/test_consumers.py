"""What members say to an exchange, what they get, and what they get when they say it wrongly."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from exchange_driver import EPOCH, QUEUE, Exchange, Publisher, exchange
from exchange_members import FIRST, SETTINGS, Consumer, filled, order, pass_time, states

from roq.exchange import consumers
from roq.exchange.consumer_peers import BLOCKED_SECONDS, Delivery
from roq.exchange.events import Received, Unreachable
from roq.log.steady_clock import SteadyClock
from roq.protocol import consuming, documents
from roq.protocol.consuming import (
    CREDIT,
    DONE,
    EXTEND,
    GROUP_ORDER,
    GROUPS,
    JOIN,
    LEAVE,
    RUNS_MAX,
    Credit,
    DoneConfirmed,
    Extend,
    Extended,
    GroupOrder,
    GroupSettings,
    GroupsRequest,
    LeaveGroup,
    Returned,
    Run,
)

# --- joining --------------------------------------------------------------------------------------


def test_the_first_member_makes_the_group_and_gets_what_it_is_ready_for() -> None:
    there = filled(3, 2)
    member = Consumer(there)
    joined = member.enter()
    assert (joined.generation, joined.epoch, joined.settings) == (EPOCH, EPOCH, SETTINGS)
    assert member.leases == [], "not before it said so"
    assert member.credit(4) == [(1, 0, 3, 1)]
    assert member.credit(5) == [(2, 0, 2, 1)]
    member.done(1, 2)
    assert member.confirmed() == DoneConfirmed(1, [])
    (state,) = states(there)
    assert (state.name, state.acknowledged, state.out, state.members) == ("g", 5, 0, 1)
    assert (state.base, state.end) == (2, 2)


@pytest.mark.parametrize(
    ("given", "code"),
    [({"queue": b"z" * 16}, "foreign_queue"), ({"member": b"short"}, "malformed"),
     ({"settings": GroupSettings(mode="exclusive")}, "group_differs"),
     ({"settings": GroupSettings(prefixes=(b"x",))}, "group_differs"),
     ({"settings": GroupSettings(tags=("eu",))}, "group_differs"),
     ({"settings": GroupSettings(prefixes=())}, "invalid_request"),
     ({"settings": GroupSettings(prefixes=(b"x" * 70_000,))}, "invalid_request"),
     ({"group": "other", "make": False}, "no_group")],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_who_cannot_join_is_told_why(given: dict[str, Any], code: str) -> None:
    there = filled(1)
    Consumer(there, "first").enter()
    late = Consumer(there, "late")
    late.join(**given)
    assert late.refusal().code == code
    assert len(there.core.consumers) == 1


def test_an_unreadable_join_is_counted_and_named() -> None:
    there = filled(1)
    member = Consumer(there)
    member.say(JOIN, b"\x00")
    assert member.refusal().code == "malformed"
    assert there.core.counters.malformed == 1


def test_members_and_groups_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (consumers.MEMBERS_MAX, consumers.GROUPS_MAX) == (10_000, 4_096)
    monkeypatch.setattr(consumers, "MEMBERS_MAX", 3)
    monkeypatch.setattr(consumers, "GROUPS_MAX", 2)
    there = filled(1)
    for number in range(3):
        Consumer(there, f"m{number}", group=f"g{number % 2}").enter()
    third = Consumer(there, "m3", group="g2")
    third.join()
    assert third.refusal().code == "full"
    fourth = Consumer(there, "m4", group="g0")
    fourth.join()
    assert fourth.refusal().code == "full"
    Consumer(there, "m0", group="g0", attempt=2).enter()


def test_a_member_that_comes_back_goes_on_and_its_older_connection_counts_no_more() -> None:
    there = filled(3)
    old = Consumer(there)
    old.enter()
    assert old.credit() == [(1, 0, 3, 1)]
    new = Consumer(there, attempt=2)
    joined = new.enter(held=[Run(0, 0, 3)], generation=EPOCH)
    assert joined.again == [(FIRST + 2, 0, 0, 3)]
    old.done(1)
    assert old.take(LEAVE) == b""
    late = Consumer(there)
    late.join()
    assert late.refusal().code == "stale_epoch"
    new.done(2)
    assert new.confirmed().refused == []


def test_who_says_what_it_holds_of_another_log_holds_nothing() -> None:
    there = filled(3)
    joined = Consumer(there).enter(held=[Run(0, 0, 3)], generation=EPOCH - 1)
    assert (joined.again, joined.done) == ([], [])


@pytest.mark.parametrize("jump_us", [-3_600_000_000, 3_600_000_000])
def test_a_clock_that_jumps_takes_nothing_for_old_that_has_just_come(jump_us: int) -> None:
    there = exchange(message_seconds=60)
    there.core.delayed.clock = SteadyClock()
    publisher = Publisher(there)
    publisher.hello()
    start_us = 10_000_000_000
    there.core.begin(0.0, start_us)
    member = Consumer(there)
    member.enter()
    for offset, now in enumerate((30.0, 300.0, 700.0, 900.0)):
        there.core.begin(now, start_us + int(now * 1_000_000) + jump_us)
        publisher.send()
        assert len(member.credit(offset + 1)) == 1, now
    assert there.core.consumers.groups[0].stale == 0


def test_all_that_a_member_may_hold_is_taken_and_more_is_refused() -> None:
    there = filled(*[3] * 20)
    member = Consumer(there)
    member.enter()
    member.credit()
    new = Consumer(there, attempt=2)
    every = [Run(offset, at, 1) for offset in range(20) for at in range(3)]
    held = [*every, *[Run(1 << 40, 0, 1)] * (RUNS_MAX - len(every))]
    joined = new.enter(held=held, generation=EPOCH)
    assert sorted(each[1:] for each in joined.again) == every
    new.join(held=[*held, held[0]], generation=EPOCH)
    assert new.refusal().code == "malformed"
    new.join(holds=b"\x91\x91\x93\x00\x00", generation=EPOCH)
    assert new.refusal().code == "malformed"


def test_a_group_begins_where_its_first_member_says() -> None:
    there = exchange()
    publisher = Publisher(there)
    publisher.hello()
    for time_us in (5_000, 6_000, 7_000):
        there.core.begin(0.0, time_us)
        publisher.send()
    Consumer(there, "a", group="all").enter()
    Consumer(there, "b", group="end").enter(start_end=True)
    Consumer(there, "c", group="time").enter(start_us=6_000)
    assert [(each.name, each.base) for each in states(there)] == [
        ("all", 0), ("end", 3), ("time", 1),
    ]  # fmt: skip


# --- acknowledging --------------------------------------------------------------------------------


def test_leases_of_nobody_of_another_one_or_that_are_over_are_refused_by_number() -> None:
    there = filled(3, 3)
    one, two = Consumer(there, "one"), Consumer(there, "two")
    one.enter()
    two.enter()
    assert one.credit(3) == [(1, 0, 3, 1)]
    assert two.credit(3) == [(2, 0, 3, 1)]
    one.done(2, 99)
    assert one.confirmed() == DoneConfirmed(1, [2, 99])
    one.done(1)
    assert one.confirmed().refused == []
    one.done(1)
    assert one.confirmed().refused == [1]
    two.done(parts=[(2, 1, 9)])
    assert two.confirmed().refused == [2], "messages that the lease does not have"
    two.done(returned=[Returned(77, 0, 1)])
    assert two.confirmed().refused == [77]
    assert states(there)[0].acknowledged == 3


def test_a_batch_may_be_done_in_parts_and_given_back_in_parts() -> None:
    there = filled(4)
    member = Consumer(there)
    member.enter()
    member.credit()
    member.done(
        parts=[(1, 0, 1), (1, 3, 1)], returned=[Returned(1, 1, 1, 0.0, True, "no")],
        credit=Credit(100, 1 << 20, 100),
    )  # fmt: skip
    (state,) = states(there, "g")
    assert (state.acknowledged, state.failed, state.waiting, state.out) == (2, 1, 1, 1)
    assert state.who[0].held == 1
    pass_time(there, 1.0)
    member.leases = []
    member.look()
    assert member.leases == [(2, 1, 1, 2)], "its second attempt"


def test_what_is_no_message_of_a_member_is_counted_and_refused() -> None:
    there = filled(1)
    member = Consumer(there)
    member.enter()
    for letter in (DONE, CREDIT, LEAVE):
        member.say(letter, b"\xc1")
        assert member.refusal().code == "malformed"
    member.say(LEAVE, consuming.encode(LeaveGroup(b"x" * 16)))
    assert member.refusal().code == "malformed"
    assert there.core.counters.malformed == 4
    assert len(there.core.consumers) == 1


def test_who_is_not_known_is_told_to_join_but_for_a_goodbye() -> None:
    stranger = Consumer(filled(1))
    stranger.credit()
    assert stranger.take(LEAVE) == b""
    stranger.say(LEAVE, consuming.encode(LeaveGroup(stranger.id)))
    assert stranger.other == []


# --- members that go ------------------------------------------------------------------------------


def test_what_a_member_held_that_leaves_is_free_and_was_not_tried() -> None:
    there = filled(3)
    one, two = Consumer(there, "one"), Consumer(there, "two")
    one.enter()
    two.enter()
    one.credit()
    one.say(LEAVE, consuming.encode(LeaveGroup(one.id)))
    assert two.credit() == [(2, 0, 3, 1)]


def test_what_a_member_held_whose_connection_ends_was_tried() -> None:
    there = filled(3)
    one, two = Consumer(there, "one"), Consumer(there, "two")
    one.enter()
    two.enter()
    one.credit()
    there.tell(Unreachable(one.route))
    assert two.credit() == [(2, 0, 3, 2)]
    assert states(there)[0].lapsed == 3


def test_what_a_member_held_whose_connection_ends_goes_to_others_at_once() -> None:
    there = filled(3)
    one, two = Consumer(there, "one"), Consumer(there, "two")
    one.enter()
    two.enter()
    one.credit()
    assert two.credit() == []
    there.tell(Unreachable(one.route))
    two.look()
    assert two.leases == [(2, 0, 3, 2)], "no time has passed"
    there.tell(Unreachable(two.route))
    assert not there.core.consumers.runnable(), "nobody is there"


def test_a_silent_member_loses_what_it_holds_and_one_that_speaks_does_not() -> None:
    there = filled(3)
    one, two = Consumer(there, "one"), Consumer(there, "two")
    one.enter()
    two.enter()
    one.credit()
    for _ in range(3):
        pass_time(there, 3.0)
        one.credit()
        two.credit()
    assert states(there)[0].out == 3
    one.other = []
    for _ in range(2):
        pass_time(there, 3.0)
        two.credit()
    assert two.leases == [(2, 0, 3, 2)]
    one.look()
    assert one.take(LEAVE) == b""


def test_nothing_is_sent_to_members_that_have_nothing_to_do() -> None:
    there = filled()
    member = Consumer(there)
    member.enter()
    member.other = []
    pass_time(there, 5.0)
    member.look()
    assert member.other == []


def test_a_full_connection_holds_up_its_own_members_alone() -> None:
    there = filled(1, 1)
    one, two = Consumer(there, "one"), Consumer(there, "two")
    one.enter()
    two.enter()
    served = there.core.consumers
    for member in (one, two):
        said = consuming.encode(Credit(1, 1 << 20, 1))
        there.tell(Received(member.route, (CREDIT + member.tag, said)))
    served.begin(there.now)
    first = served.next_delivery()
    assert first is not None
    served.blocked(first)
    assert served.next_deadline() == there.now + BLOCKED_SECONDS
    second = served.next_delivery()
    assert second is not None
    assert second.route != first.route
    served.sent(second)
    served.begin(there.now + BLOCKED_SECONDS)
    assert served.runnable()
    again = served.next_delivery()
    assert again is first


def test_a_full_connection_that_ends_is_nothing_to_send_to() -> None:
    there = filled(1)
    one = Consumer(there)
    one.enter()
    said = consuming.encode(Credit(1, 1 << 20, 1))
    there.tell(Received(one.route, (CREDIT + one.tag, said)))
    served = there.core.consumers
    first = served.next_delivery()
    assert first is not None
    served.blocked(first)
    there.tell(Unreachable(one.route))
    while served.runnable():
        assert served.next_delivery() is None
    served.begin(there.now + BLOCKED_SECONDS)
    assert not served.runnable()
    assert states(there)[0].lapsed == 0
    two = Consumer(there, "two")
    two.enter()
    assert two.credit() == [(2, 0, 1, 1)], "nobody has tried it"


def stuck(there: Exchange, member: Consumer) -> Delivery[bytes]:
    """It takes one message, and its connection is full."""
    said = consuming.encode(Credit(9, 1 << 20, 9))
    there.tell(Received(member.route, (CREDIT + member.tag, said)))
    served = there.core.consumers
    served.begin(there.now)
    delivery = served.next_delivery()
    assert delivery is not None
    assert delivery.route == member.route
    served.blocked(delivery)
    there.core.check()
    return delivery


def test_of_full_connections_that_end_the_others_keep_their_turn() -> None:
    there = filled(1, 1, 1, 1)
    members = [Consumer(there, name) for name in ("one", "two", "three", "four")]
    waiting = {}
    for member in members:
        member.enter()
        waiting[member.name] = stuck(there, member)
    for gone in (members[0], members[2]):
        there.tell(Unreachable(gone.route))
        there.core.check()
    served = there.core.consumers
    served.begin(there.now + BLOCKED_SECONDS)
    for name in ("two", "four"):
        assert served.next_delivery() is waiting[name]
        served.sent(waiting[name])
    assert served.next_deadline() is None
    given = [served.next_delivery() for _ in range(2)]
    assert {each.lease.offset for each in given if each is not None} == {
        waiting[name].lease.offset for name in ("one", "three")
    }, "what was not sent is handed out again"


def test_what_waits_for_a_member_that_has_come_anew_lets_nothing_pass() -> None:
    """The turn of its old connection comes first, while the new one is full as well."""
    there = filled(1, 1)
    member = Consumer(there)
    member.enter()
    stuck(there, member)
    member.attempt += 1
    there.now += BLOCKED_SECONDS / 2
    member.enter()
    again = stuck(there, member)
    served = there.core.consumers
    served.begin(there.now + BLOCKED_SECONDS / 2)
    while served.runnable():
        assert served.next_delivery() is None
    served.begin(there.now + BLOCKED_SECONDS)
    assert served.next_delivery() is again


def test_a_group_whose_members_are_not_ready_for_the_next_batch_costs_no_turn() -> None:
    there = filled(3, 2)
    member = Consumer(there)
    member.enter()
    assert member.credit(4) == [(1, 0, 3, 1)]
    assert not there.core.consumers.runnable()


def test_batches_of_other_topics_are_passed_over_however_many_there_are() -> None:
    there = exchange()
    publisher = Publisher(there)
    publisher.hello()
    for _ in range(600):
        publisher.send(b"other")
    publisher.send(b"t")
    member = Consumer(there)
    member.enter(settings=GroupSettings(prefixes=(b"t",)))
    assert member.credit() == [(1, 0, 1, 1)]
    assert states(there)[0].base == 600


# --- operators ------------------------------------------------------------------------------------


def test_a_paused_group_gets_nothing_until_it_is_resumed() -> None:
    there = filled(3)
    member = Consumer(there)
    member.enter()
    order(there, "pause")
    assert member.credit() == []
    assert states(there)[0].stalled == "it is paused"
    order(there, "resume")
    member.look()
    assert member.leases == [(1, 0, 3, 1)]


def test_members_of_a_group_that_goes_elsewhere_have_to_join_again() -> None:
    there = filled(3, 2)
    member = Consumer(there)
    member.enter()
    member.credit()
    member.done(1, 2)
    member.confirmed()
    order(there, "seek")
    member.look()
    assert member.take(LEAVE) == b""
    member.enter()
    assert member.credit() == [(3, 0, 3, 1), (4, 0, 2, 1)]
    order(there, "seek", to_end=True)
    assert (states(there)[0].base, states(there)[0].out) == (2, 0)


def test_members_of_a_deleted_group_are_told_that_it_is_gone() -> None:
    there = filled(3)
    member = Consumer(there)
    member.enter()
    member.credit()
    order(there, "delete")
    member.look()
    assert member.refusal().code == consuming.DELETED
    assert (states(there), len(there.core.consumers)) == ([], 0)
    member.done(1)
    assert member.take(LEAVE) == b"", "and its leases are over"


@pytest.mark.parametrize("word", ["pause", "seek", "delete"])
def test_an_order_for_no_group_is_refused(word: str) -> None:
    there = filled(1)
    stranger = Consumer(there)
    wanted = GroupOrder(id=4, queue=QUEUE, group="none", order=word)
    stranger.say(GROUP_ORDER, documents.encode(wanted))
    assert stranger.refusal().code == "no_group"
    stranger.say(GROUPS, documents.encode(GroupsRequest(id=1, queue=QUEUE, group="none")))
    assert stranger.refusal().code == "no_group"
    stranger.say(GROUPS, documents.encode(GroupsRequest(id=1, queue=b"z" * 16)))
    assert stranger.refusal().code == "foreign_queue"


def test_publishers_wait_for_a_group_of_a_log_in_memory() -> None:
    there = exchange(ring_bytes=1 << 20, window_bytes=1 << 17)
    publisher = Publisher(there)
    publisher.hello()
    member = Consumer(there)
    member.enter()
    for _ in range(200):
        if not publisher.send(b"t", 2_000):
            break
    else:
        pytest.fail("nobody was held back")
    assert there.core.log.floor == 0, "nothing has left that is not done"


def test_what_could_not_be_sent_does_not_overtake_what_is_given_back() -> None:
    there = filled(1, 1)
    served = there.core.consumers
    member = Consumer(there)
    settings = GroupSettings(mode="exclusive", retry_seconds=5.0)
    member.enter(settings=settings)
    assert member.credit(1) == [(1, 0, 1, 1)]
    served.begin(there.now)
    there.core.handle(
        Received(member.route, (CREDIT + member.tag, consuming.encode(Credit(2, 1 << 20, 2)))),
        there.now,
    )
    delivery = served.next_delivery()
    assert delivery is not None
    served.blocked(delivery)
    member.done(returned=[Returned(1, 0, 1)])
    assert member.confirmed().refused == []
    there.now += 1.0
    member.look()
    assert len(member.leases) == 1, "the second one waits for the first one"
    (state,) = states(there)
    assert (state.out, state.waiting) == (0, 2)
    pass_time(there, 6.0)
    member.look()
    assert [each[1:] for each in member.leases[1:]] == [(0, 1, 2)]
    assert [each[1:] for each in member.credit(3)] == [(0, 1, 1)]


# --- more time ------------------------------------------------------------------------------------


def extend(member: Consumer, *parts: tuple[int, int, int], seconds: float = 60.0) -> Extended:
    parts_of = [(FIRST + lease, *rest) for lease, *rest in parts]
    member.say(EXTEND, consuming.encode(Extend(7, seconds, parts_of)))  # type: ignore[arg-type]
    return consuming.decode(member.take(EXTEND), Extended)


def test_a_member_is_told_for_how_long_it_holds_what_it_has_asked_for() -> None:
    there = filled(3)
    member, other = Consumer(there), Consumer(there, "other")
    member.enter()
    other.enter()
    assert member.credit() == [(1, 0, 3, 1)]
    assert extend(member, (1, 0, 1)) == Extended(7, 60.0)
    assert extend(member, (1, 0, 1), (9, 0, 1)) == Extended(7, 0.0), "of all, or it is none"
    assert extend(other, (1, 0, 1)) == Extended(7, 0.0)
    for bad in ((7, 0.0, [(1, 0, 1)]), (7, 1e9, [(1, 0, 1)]), (7, 5.0, [])):
        member.say(EXTEND, msgspec.msgpack.encode(bad))
        assert member.refusal().code == "malformed"


def test_a_member_that_was_silent_is_told_to_join_again_and_holds_on() -> None:
    there = filled(2)
    member = Consumer(there)
    member.enter()
    member.credit()
    extend(member, (1, 0, 1))
    pass_time(there, 6.0)
    there.answers(member.route)
    assert len(there.core.consumers) == 1
    member.credit(50)
    assert member.take(LEAVE) == b""
    member.attempt = 2
    joined = member.enter(held=[Run(0, 0, 2)], generation=EPOCH)
    assert {each[2:] for each in joined.again} == {(0, 1), (1, 1)}, "nobody has taken it"
    there.core.check()
