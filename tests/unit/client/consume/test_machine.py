"""One member at several exchanges: when it joins, what it tells, what it goes on with."""

from __future__ import annotations

from typing import Any

import pytest

from roq.client.consume import machine
from roq.client.consume.holding import ACKED, RETURNED, Holding
from roq.client.consume.machine import (
    AGAIN_SECONDS,
    ASK_SECONDS,
    ASK_SECONDS_MAX,
    RENEW_EARLY,
    ConsumerMachine,
)
from roq.client.consume.message import Settlement
from roq.client.consume.seat import IDLE_SECONDS, Membership
from roq.client.io.queue_connections import AskExchange
from roq.errors import RemoteProtocolError
from roq.model import ExchangeInfo, LogId, PublisherId
from roq.protocol import consuming, documents
from roq.protocol.attributes import Attributes, pack_attributes
from roq.protocol.batch import pack
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.columns import KEY_GROUPS, pack_column, tag_bits
from roq.protocol.consuming import (
    CREDIT,
    DELETED,
    DONE,
    EXTEND,
    JOIN,
    LEASED,
    LEAVE,
    LOSSES_SHIFT,
    OVERDUE,
    Credit,
    Done,
    DoneConfirmed,
    Extend,
    Extended,
    GroupSettings,
    Join,
    Joined,
    LeaveGroup,
    Run,
    pack_lease,
    read_runs,
)
from roq.protocol.entry import EntryKind, pack_entry

QUEUE = b"q" * 16
PUBLISHER = PublisherId(b"p" * 16)


class Script:
    """A member, and exchanges that say what the test wants."""

    def __init__(self, **given: Any) -> None:
        fields = {
            "id": b"m" * 16, "name": "m", "group": "g", "settings": GroupSettings(),
            "latest": False, "start_us": 0, "prefetch": 10, "prefetch_bytes": 1_000,
        }  # fmt: skip
        self.machine = ConsumerMachine(Membership(**{**fields, **given}))
        self.offsets: dict[int, int] = {}

    def open(self, number: int) -> list[AskExchange]:
        info = ExchangeInfo(number=number, epoch=1, generation=1, host="h", data="d", live="l")
        self.machine.open(info, QUEUE)
        return self.machine.up(LogId(number, 1), 0.0)

    def take(self, number: int, *parts: bytes, now: float = 0.0) -> list[AskExchange]:
        return self.machine.take(LogId(number, 1), list(parts), now)

    def joined(
        self, number: int, join: Join, created_us: int = 7, **given: Any
    ) -> list[AskExchange]:
        answer = Joined(
            id=join.id, generation=1, epoch=1, settings=GroupSettings(), created_us=created_us,
            **given,
        )  # fmt: skip
        return self.take(number, JOIN, documents.encode(answer))

    def enter(self, number: int = 1) -> None:
        self.joined(number, join_in(self.open(number)))

    def refused(self, number: int, code: str) -> list[AskExchange]:
        return self.take(number, REFUSED, documents.encode(Refused(code=code, text="no")))

    def lease(
        self, lease: int, payloads: int = 3, first: int = 0, length: int = 0, attempt: int = 1,
        *, bits: int = 0, extensions: bytes = b"", attributes: bytes | None = None,
    ) -> Holding | None:  # fmt: skip
        offset = self.offsets[1] = self.offsets.get(1, -1) + 1
        batch = pack(
            [b"%d" % n for n in range(payloads)], publisher=PUBLISHER, epoch=0, link_number=1,
            first_sequence=0, created_us=0, extensions=extensions, attributes=attributes,
        )  # fmt: skip
        frame = pack_entry(EntryKind.ENTRY, 1, QUEUE, 1, offset, 0, 0)
        length = length or payloads - first
        head = pack_lease(lease, first, length, attempt, bits or (1 << length) - 1)
        self.take(1, LEASED, head, b"t", frame, batch)
        arrived = self.machine.arrived.pop() if self.machine.arrived else None
        self.machine.arrived.clear()
        return arrived

    def told(self, *holdings: Holding) -> Done:
        (ask,) = self.machine.tell(holdings, [], 0.0)
        return read(ask, Done)

    def confirm(self, serial: int, refused: list[int] | None = None) -> None:
        self.take(1, DONE, consuming.encode(DoneConfirmed(serial, refused or [])))


def read(ask: AskExchange, kind: type[Any]) -> Any:
    letter, document = ask.frames
    assert letter == {Done: DONE, Credit: CREDIT, LeaveGroup: LEAVE}[kind]
    return consuming.decode(document, kind)


def join_in(asks: list[AskExchange]) -> Join:
    ((letter, document),) = [ask.frames for ask in asks]
    assert letter == JOIN
    return documents.decode(document, Join)


# --- how much travels at once ---------------------------------------------------------------------


def test_what_is_done_travels_in_frames_that_the_exchange_takes() -> None:
    script = Script(prefetch=100_000, prefetch_bytes=1 << 30)
    script.joined(1, join_in(script.open(1)), frame_bytes=64 * 1024)
    held = [one for number in range(8) if (one := script.lease(1 << 62 | number, 1_000))]
    for each in held:
        for index in range(0, 1_000, 2):
            each.settle(index, 1, ACKED)
    why = Settlement(acked=False, dead=False, counted=True, reason="\u00e9" * 200)
    returned = [(held[0], Run(held[0].offset, at, 1), why) for at in range(1, 1_000, 2)]
    for _, run, _ in returned:
        held[0].settle(run.first, 1, RETURNED)
    asks = script.machine.tell(held, returned, 0.0)
    assert max(len(part) for ask in asks for part in ask.frames) <= 64 * 1024
    dones = [read(ask, Done) for ask in asks]
    assert [each.serial for each in dones] == list(range(1, len(dones) + 1))
    assert sum(len(each.parts) for each in dones) == 4_000
    assert sum(len(each.returned) for each in dones) == 500
    script.confirm(1, [1 << 62 | 3])
    assert (script.machine.resolved, held[3].lost) == (500, True), "of the first part, in time"
    script.confirm(len(dones))
    assert script.machine.resolved == 500 + 3_500 + 500
    assert script.machine.stats.confirmed == 3_500


def test_a_member_that_is_quick_is_granted_more() -> None:
    script = Script(prefetch=10, prefetch_quick=30, prefetch_bytes=1 << 30)
    script.enter()
    for number, now, wanted in ((1, 0.1, 20), (2, 2.0, 10)):
        held = script.lease(number, 20)
        held.settle(0, 20, ACKED)
        script.machine.tell([held], [], now)
        (asked,) = script.machine.taking(taking=True, now=now)
        assert read(asked, Credit).window == wanted


def test_a_member_that_was_quick_and_stands_still_is_granted_fewer_at_once() -> None:
    script = Script(prefetch=10, prefetch_quick=30, prefetch_bytes=1 << 30)
    script.enter()
    done, begun = script.lease(1, 20), script.lease(2, 4)
    assert done is not None
    assert begun is not None
    done.settle(0, 20, ACKED)
    script.machine.tell([done], [], 0.1)
    (asked,) = script.machine.taking(taking=True, now=0.1)
    assert read(asked, Credit).messages == 24 + 20 - 4
    assert script.machine.tick(0.1 + IDLE_SECONDS / 2) == []
    (asked,) = script.machine.tick(0.1 + IDLE_SECONDS)
    assert read(asked, Credit).messages == 24 + 10 - 4
    assert script.machine.tick(0.1 + 2 * IDLE_SECONDS) == [], "it is said once"


@pytest.mark.parametrize("bound", ["UNCONFIRMED_BYTES_MAX", "UNCONFIRMED_BATCHES_MAX"])
def test_no_more_is_taken_while_much_is_done_and_not_confirmed(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(prefetch=1_000, prefetch_bytes=1 << 30)
    script.enter()
    first, second = script.lease(1, 100), script.lease(2, 100)
    assert first is not None
    assert second is not None
    one = first.batch.size if bound == "UNCONFIRMED_BYTES_MAX" else 1
    monkeypatch.setattr(machine, bound, one + 1)
    first.settle(0, 100, ACKED)
    told = script.told(first)
    assert told.credit is not None
    assert told.credit.messages == 200 + 1_000 - 100, "there is room for what was not told"
    second.settle(0, 100, ACKED)
    told = script.told(second)
    assert told.credit == Credit(200, first.batch.size + second.batch.size, 1_000)
    (asked,) = script.take(1, DONE, consuming.encode(DoneConfirmed(1, [])))
    assert read(asked, Credit).messages == 200 + 1_000
    script.confirm(2)
    assert script.machine.seats[LogId(1, 1)].held_bytes == 0


def test_what_has_no_room_in_a_join_is_not_held_any_more() -> None:
    script = Script(prefetch=100_000, prefetch_bytes=1 << 30)
    script.joined(1, join_in(script.open(1)), frame_bytes=64 * 1024)
    held = [one for number in range(4) if (one := script.lease(1 << 62 | number, 1_000))]
    for each in held:
        for index in range(0, 1_000, 2):
            each.settle(index, 1, ACKED)
    script.machine.tell(held, [], 0.0)
    script.machine.down(LogId(1, 1))
    (again,) = script.machine.up(LogId(1, 1), 1.0)
    assert len(again.frames[1]) <= 64 * 1024
    join = join_in([again])
    assert join.holds
    script.joined(1, join, done=read_runs(join.holds))
    assert script.machine.stats.lost > 0


# --- where a group begins -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "first", "later"),
    [({}, (0, False), (0, False)),
     ({"latest": True}, (0, True), (50, False)),
     ({"start_us": 20}, (20, False), (20, False)),
     ({"start_us": 80}, (80, False), (50, False))],
    ids=["earliest", "latest", "a time before", "a time after"],
)  # fmt: skip
def test_where_a_group_begins_does_not_depend_on_which_exchange_answers_first(
    given: dict[str, Any], first: tuple[int, bool], later: tuple[int, bool]
) -> None:
    script = Script(**given)
    one = join_in(script.open(1))
    assert (one.start_us, one.start_end) == first
    script.joined(1, one, created_us=50)
    two = join_in(script.open(2))
    assert (two.start_us, two.start_end) == later
    assert two.make


def test_a_group_that_begins_at_the_end_is_looked_for_before_it_is_made() -> None:
    script = Script(latest=True)
    one, two = join_in(script.open(1)), join_in(script.open(2))
    assert not one.make
    assert not two.make
    assert script.refused(1, "no_group") == []
    again = script.refused(2, "no_group")
    assert [ask.log.number for ask in again] == [1, 2]
    assert all(join_in([ask]).make for ask in again)


def test_a_silent_exchange_does_not_keep_the_group_from_being_made_for_ever() -> None:
    script = Script(latest=True)
    script.open(1)
    script.open(2)
    assert script.refused(1, "no_group") == []
    asks = script.machine.tick(ASK_SECONDS)
    assert [(ask.log.number, join_in([ask]).make) for ask in asks][-1] == (1, True)


# --- joining --------------------------------------------------------------------------------------


def test_a_member_is_in_when_every_exchange_has_taken_it() -> None:
    script = Script()
    script.enter(1)
    two = join_in(script.open(2))
    assert not script.machine.joined
    (ask,) = script.joined(2, two)
    assert script.machine.joined
    credit = read(ask, Credit)
    assert (credit.messages, credit.bytes, credit.window) == (5, 500, 5)


def test_a_join_that_is_not_answered_is_repeated_with_a_higher_attempt() -> None:
    script = Script()
    first = join_in(script.open(1))
    assert script.machine.tick(ASK_SECONDS - 0.1) == []
    second = join_in(script.machine.tick(ASK_SECONDS))
    assert (second.id, second.attempt) == (first.id + 1, first.attempt + 1)
    assert script.joined(1, first) == [], "an answer to what is not asked any more"
    assert script.joined(1, second) != []


def test_an_exchange_may_take_longer_to_take_a_member_in_than_is_waited_at_first() -> None:
    """It drops what it has not said yet when it is asked again."""
    script, late, now = Script(), 3.5 * ASK_SECONDS, 0.0
    join, answer_at = join_in(script.open(1)), late
    joins = 1
    while not script.machine.joined:
        now += ASK_SECONDS / 2
        assert now < 30 * ASK_SECONDS, "it is never in"
        if now >= answer_at:
            script.joined(1, join)
        elif asks := script.machine.tick(now):
            join, answer_at = join_in(asks), now + late
            joins += 1
    assert joins == 3
    script.machine.down(LogId(1, 1))
    script.machine.up(LogId(1, 1), now)
    assert script.machine.tick(now + ASK_SECONDS) != [], "a new connection is as good as any"


def test_the_time_that_an_exchange_has_to_take_a_member_in_is_bounded() -> None:
    script, now = Script(), 0.0
    script.open(1)
    for _ in range(10):
        now += ASK_SECONDS_MAX
        assert script.machine.tick(now) != []


def test_who_is_refused_for_good_is_told_and_others_try_again() -> None:
    script = Script()
    script.open(1)
    script.refused(1, "full")
    assert script.machine.refusal is None
    assert join_in(script.machine.tick(AGAIN_SECONDS)).attempt == 2
    script.refused(1, "group_differs")
    assert script.machine.refusal == ("group_differs", "no")


def test_a_member_of_a_deleted_group_does_not_come_back() -> None:
    script = Script()
    script.enter()
    assert script.refused(1, DELETED) == []
    assert script.machine.refusal == (DELETED, "no")
    assert script.machine.tick(100.0) == []
    assert script.open(2) == []


# --- leases ---------------------------------------------------------------------------------------


def test_what_is_acknowledged_is_told_by_lease_and_confirmed() -> None:
    script = Script()
    script.enter()
    holding = script.lease(4)
    assert holding is not None
    assert holding.batch.payloads == [b"0", b"1", b"2"]
    holding.settle(1, 1, ACKED)
    done = script.told(holding)
    assert (done.serial, done.whole, done.parts) == (1, [], [(4, 1, 1)])
    assert done.credit is not None
    assert done.credit.messages == 11, "one of three is settled"
    holding.settle(0, 3, ACKED)
    assert script.told(holding).parts == [(4, 0, 1), (4, 2, 1)]
    assert script.machine.resolved == 0
    script.confirm(2)
    assert script.machine.resolved == 3
    assert script.machine.stats.confirmed == 3


def test_a_whole_lease_is_told_by_its_number_alone() -> None:
    script = Script()
    script.enter()
    holding = script.lease(4, payloads=5, first=2, attempt=3)
    assert holding is not None
    assert (holding.first, holding.batch.payloads) == (2, [b"2", b"3", b"4"])
    assert script.machine.stats.redelivered == 3
    holding.settle(0, 3, ACKED)
    done = script.told(holding)
    assert (done.whole, done.parts) == ([4], [])


def test_what_is_given_back_says_why_and_when() -> None:
    script = Script()
    script.enter()
    holding = script.lease(4)
    assert holding is not None
    holding.settle(1, 1, RETURNED)
    verdict = Settlement(delay=2.0, reason="busy")
    (ask,) = script.machine.tell([], [(holding, Run(0, 1, 1), verdict)], 0.0)
    (back,) = read(ask, Done).returned
    assert (back.lease, back.first, back.length) == (4, 1, 1)
    assert (back.delay, back.counted, back.reason) == (2.0, True, "busy")


def test_a_refused_acknowledgement_means_that_the_messages_are_lost() -> None:
    script = Script()
    script.enter()
    holding = script.lease(4)
    assert holding is not None
    holding.settle(0, 3, ACKED)
    script.told(holding)
    script.confirm(1, [4])
    assert holding.lost
    assert (script.machine.stats.lost, script.machine.stats.confirmed) == (3, 0)


def test_after_a_lost_connection_it_goes_on_with_what_is_still_its_own() -> None:
    script = Script()
    script.enter()
    mine, gone, done = script.lease(4), script.lease(5), script.lease(6)
    assert mine is not None
    assert gone is not None
    assert done is not None
    mine.settle(0, 1, ACKED)
    script.told(mine)  # and the confirmation is lost
    script.machine.down(LogId(1, 1))
    assert script.machine.tell([mine], [], 0.0) == [], "told when it is in again"
    join = join_in(script.machine.up(LogId(1, 1), 1.0))
    assert read_runs(join.holds) == [Run(0, 0, 3), Run(1, 0, 3), Run(2, 0, 3)]
    (ask,) = script.joined(1, join, again=[(9, 0, 0, 3)], done=[Run(2, 0, 3)])
    again = read(ask, Done)
    assert again.parts == [(9, 0, 1)], "under the new lease"
    assert (mine.lost, gone.lost, done.lost) == (False, True, True), "done, by somebody else"
    assert script.machine.stats.lost == 6


def test_who_is_told_that_its_leases_are_over_joins_again() -> None:
    script = Script()
    script.enter()
    script.lease(4)
    assert read_runs(join_in(script.take(1, LEAVE, b"")).holds) == [Run(0, 0, 3)]


def test_leases_are_renewed_and_nothing_more_is_taken_while_it_closes() -> None:
    script = Script()
    script.enter()
    script.lease(4)
    assert script.machine.tick(1.0) == []
    (ask,) = script.machine.tick(5.0)
    assert read(ask, Credit).messages == 10, "ten at once, three of them are here"
    (ask,) = script.machine.taking(taking=False, now=6.0)
    assert read(ask, Credit).messages == 3
    (ask,) = script.machine.farewells()
    assert read(ask, LeaveGroup).member == b"m" * 16


def test_leases_are_renewed_a_little_early_when_the_exchange_is_heard() -> None:
    script = Script()
    join = join_in(script.open(1))
    (log,) = script.machine.seats
    assert script.machine.heard(log, 4.0) == [], "it is not in"
    script.joined(1, join)
    assert script.machine.heard(log, RENEW_EARLY * 5.0 - 0.1) == []
    (ask,) = script.machine.heard(log, RENEW_EARLY * 5.0 + 0.1)
    assert read(ask, Credit).messages == 10
    assert script.machine.tick(5.0) == [], "that was it"
    assert script.machine.heard(log, 60.0) == [], "it was silent for too long, and joins again"


def test_what_cannot_be_read_is_given_back_as_an_attempt() -> None:
    script = Script()
    script.enter()
    assert script.lease(4, payloads=2, first=1, length=4) is None
    assert script.machine.stats.malformed == 1
    with pytest.raises(RemoteProtocolError):
        script.take(1, DONE, b"\xc1")


@pytest.mark.parametrize(
    ("attempts", "attempt", "over"), [(16, 16, False), (16, 17, True), (0, 50, False)]
)
def test_what_nobody_can_read_is_passed_over_after_its_attempts(
    attempts: int, attempt: int, over: bool
) -> None:
    script = Script()
    script.enter()
    script.machine.attempts = attempts
    batch = b"no batch at all"
    frame = pack_entry(EntryKind.ENTRY, 1, QUEUE, 1, 7, 0, 0)
    (ask,) = script.take(1, LEASED, pack_lease(4, 0, 3, attempt, 0b111), b"t", frame, batch)
    done = read(ask, Done)
    assert (done.whole, len(done.returned)) == (([4], 0) if over else ([], 1))
    assert script.machine.stats.malformed == 1
    assert script.machine.stats.given_up == over
    assert [each[:2] for each in script.machine.given_up] == [(LogId(1, 1), 7)] * over


def test_leases_of_an_earlier_stay_or_another_log_are_not_taken() -> None:
    script = Script()
    script.enter()
    script.machine.down(LogId(1, 1))
    assert script.lease(4) is None
    assert script.take(2, LEAVE, b"") == []


def test_what_goes_with_its_exchange_is_lost() -> None:
    script = Script()
    script.enter()
    holding = script.lease(4)
    assert holding is not None
    for _ in range(2):
        script.machine.leave(LogId(1, 1))
        assert holding.lost
        assert script.machine.stats.lost == len(holding.batch)


def test_what_has_come_while_this_process_stood_still_is_not_believed() -> None:
    script = Script()
    script.enter()
    late = GroupSettings().lease_seconds + 1.0
    frame = pack_entry(EntryKind.ENTRY, 1, QUEUE, 1, 0, 0, 0)
    batch = pack(
        [b"a"], publisher=PUBLISHER, epoch=0, link_number=1, first_sequence=0, created_us=0
    )
    asks = script.take(1, LEASED, pack_lease(4, 0, 1, 1, 1), b"t", frame, batch, now=late)
    assert script.machine.arrived == []
    assert join_in(asks).holds == b""


# --- leases of some messages, and of tags ---------------------------------------------------------


def test_a_lease_of_some_messages_is_settled_when_these_are() -> None:
    script = Script()
    script.enter()
    held = script.lease(4, payloads=5, bits=0b10110)
    assert held is not None
    assert [held.is_open(index) for index in range(5)] == [False, True, True, False, True]
    assert script.machine.stats.received == 3
    assert [held.next_run(9), held.next_run(9), held.next_run(9)] == [(1, 2), (4, 1), (0, 0)]
    assert held.settle(1, 2, ACKED) == 2
    assert script.told(held).parts == [(4, 1, 2)]
    assert held.settle(4, 1, ACKED) == 1
    done = script.told(held)
    assert done.parts == [(4, 4, 1)]
    assert done.credit is not None
    assert done.credit.messages == 3 + 10, "only these count"
    script.confirm(2)
    assert script.machine.resolved == 3


def test_all_messages_of_a_lease_of_some_are_told_as_a_whole() -> None:
    script = Script()
    script.enter()
    held = script.lease(4, payloads=5, bits=0b10110)
    assert held is not None
    for index in (1, 2, 4):
        held.settle(index, 1, ACKED)
    assert script.told(held).whole == [4]


def test_what_has_none_of_the_tags_is_acknowledged_unseen() -> None:
    script = Script(settings=GroupSettings(tags=("eu", "us")))
    script.enter()
    packed = pack_attributes({0: Attributes(tags=("eu",)), 1: Attributes(tags=("asia",))})
    held = script.lease(4, attributes=packed)
    assert held is not None
    assert [held.is_open(index) for index in range(3)] == [True, False, False]
    assert script.machine.passed_over == [held]
    assert script.told(held).parts == [(4, 1, 2)]
    assert script.machine.stats.passed_over == 2
    assert script.machine.stats.received == 1


def test_a_tag_that_exchanges_take_for_another_one_is_told_by_the_member() -> None:
    twin = next(
        tag for number in range(10_000) if tag_bits([tag := f"t{number}"]) == tag_bits(["eu"])
    )
    script = Script(settings=GroupSettings(tags=("eu",)))
    script.enter()
    packed = pack_attributes({0: Attributes(tags=(twin,)), 1: Attributes(tags=("eu",))})
    held = script.lease(4, attributes=packed)
    assert held is not None
    assert [held.is_open(index) for index in range(2)] == [False, True]


def test_of_a_batch_without_a_tag_nothing_comes_and_what_cannot_be_read_does() -> None:
    script = Script(settings=GroupSettings(tags=("eu",)))
    script.enter()
    assert script.lease(4) is None
    assert [each.open for each in script.machine.passed_over] == [0]
    held = script.lease(5, attributes=b"\xc1")
    assert held is not None
    assert held.open == 3


def test_the_keys_of_a_keyed_group_come_with_its_messages() -> None:
    script = Script(settings=GroupSettings(mode="keyed"))
    script.enter()
    held = script.lease(4, first=1, extensions=pack_column(KEY_GROUPS, b"\x07\x00\x09"))
    assert held is not None
    assert held.lanes == b"\x00\x09"


def test_of_a_batch_of_two_holdings_each_goes_on_with_its_own_messages() -> None:
    script = Script()
    script.enter()
    a = script.lease(4, payloads=5, bits=0b01010)
    script.offsets[1] = -1  # of the same batch
    b = script.lease(5, payloads=5, bits=0b10101)
    assert a is not None
    assert b is not None
    a.settle(1, 1, ACKED)
    script.machine.down(LogId(1, 1))
    join = join_in(script.machine.up(LogId(1, 1), 1.0))
    assert read_runs(join.holds) == [Run(0, at, 1) for at in (1, 3, 0, 2, 4)]
    again = [(10 + at, 0, at, 1) for at in (1, 3, 0, 2, 4)]
    (ask,) = script.joined(1, join, again=again)
    assert read(ask, Done).parts == [(11, 1, 1)]
    seat = script.machine.seats[LogId(1, 1)]
    assert list(seat.holdings.values()) == [a, b]
    assert [[(each.lease, each.first) for each in held.segments] for held in (a, b)] == [
        [(11, 1), (13, 3)], [(10, 0), (12, 2), (14, 4)],
    ]  # fmt: skip
    assert script.machine.stats.lost == 0
    a.settle(3, 1, ACKED)
    for index in (0, 2, 4):
        b.settle(index, 1, ACKED)
    assert sorted(script.told(a, b).parts) == [
        (10, 0, 1), (12, 2, 1), (13, 3, 1), (14, 4, 1),
    ]  # fmt: skip
    script.confirm(2)
    assert not seat.holdings
    assert (script.machine.stats.confirmed, seat.open, seat.open_bytes) == (5, 0, 0)


@pytest.mark.parametrize(
    ("mode", "waits"), [("exclusive", True), ("keyed", True), ("shared", False)]
)
def test_in_order_nothing_more_is_taken_until_what_was_returned_is_back(
    mode: str, waits: bool
) -> None:
    column = pack_column(KEY_GROUPS, bytes((1, 1, 1)))
    script = Script(settings=GroupSettings(mode=mode))
    script.enter()
    one, two, three = (script.lease(number, extensions=column) for number in (1, 2, 3))
    assert one is not None
    assert two is not None
    assert three is not None
    room = []
    for each in (one, two):
        each.settle(0, 3, RETURNED)
        (ask,) = script.machine.tell([], [(each, Run(each.offset, 0, 3), Settlement())], 0.0)
        room.append(read(ask, Done).credit.messages - 9)
    three.settle(0, 3, ACKED)
    room.append(script.told(three).credit.messages - 9)
    assert room == ([0, 0, 0] if waits else [4, 7, 10])
    assert script.take(1, DONE, consuming.encode(DoneConfirmed(1))) == []
    asks = script.take(1, DONE, consuming.encode(DoneConfirmed(2)))
    assert [read(ask, Credit).messages - 9 for ask in asks] == ([10] if waits else [])
    assert script.take(1, DONE, consuming.encode(DoneConfirmed(3))) == []


def test_what_was_returned_is_back_when_the_member_has_joined_anew() -> None:
    script = Script(settings=GroupSettings(mode="exclusive"))
    script.enter()
    held = script.lease(1)
    assert held is not None
    held.settle(0, 3, RETURNED)
    script.machine.tell([], [(held, Run(0, 0, 3), Settlement())], 0.0)
    script.machine.down(LogId(1, 1))
    (credit,) = script.joined(1, join_in(script.machine.up(LogId(1, 1), 0.0)))
    assert read(credit, Credit).messages == 10


def test_a_process_that_uses_the_number_of_an_earlier_lease_takes_nothing_from_the_list() -> None:
    """Numbers may meet when a process has given very many of them."""
    script = Script()
    script.enter()
    before = script.lease(4)
    assert before is not None
    script.machine.down(LogId(1, 1))
    script.joined(1, join_in(script.machine.up(LogId(1, 1), 1.0)), again=[(3, 0, 0, 3)])
    after = script.lease(4)
    assert after is not None
    seat = script.machine.seats[LogId(1, 1)]
    assert list(seat.holdings.values()) == [before, after]
    before.settle(0, 3, ACKED)
    assert script.told(before).whole == [3]
    script.confirm(1)
    assert list(seat.holdings.values()) == [after]


def test_what_is_confirmed_late_gives_no_credit_before_the_exchange_has_taken_it_in_again() -> None:
    script = Script(settings=GroupSettings(mode="exclusive"))
    script.enter()
    holding = script.lease(1)
    assert holding is not None
    holding.settle(0, 3, RETURNED)
    script.machine.tell([], [(holding, Run(holding.offset, 0, 3), Settlement())], 0.0)
    confirmed = consuming.encode(DoneConfirmed(1))
    (again,) = script.take(1, DONE, confirmed, now=60.0)
    assert again.frames[0] == JOIN
    assert script.take(1, DONE, confirmed, now=60.0) == []


# --- more time ------------------------------------------------------------------------------------


def test_more_time_is_asked_for_at_once_and_again_where_it_joins_anew() -> None:
    script = Script()
    script.enter()
    held = script.lease(4)
    assert held is not None
    log, run = LogId(1, 1), Run(0, 0, 1)
    (ask,) = script.machine.extend(held, run, 100.0, 1, 0.0)
    assert consuming.decode(ask.frames[1], Extend) == Extend(1, 100.0, [(4, 0, 1)])
    script.take(1, EXTEND, consuming.encode(Extended(1, 100.0)))
    assert script.machine.extended == [(1, 100.0)]
    script.machine.extended.clear()
    script.machine.down(log)
    assert script.machine.extend(held, Run(0, 1, 1), 50.0, 2, 1.0) == [], "when it is in again"
    join = join_in(script.machine.up(log, 2.0))
    credit, *asks = script.joined(1, join, again=[(9, 0, 0, 2)])
    assert credit.frames[0] == CREDIT
    asked = [consuming.decode(each.frames[1], Extend) for each in asks]
    assert asked == [Extend(0, 100.0, [(9, 0, 1)]), Extend(2, 50.0, [(9, 1, 1)])]
    script.machine.leave(log)
    assert script.machine.extended == [(2, 0.0)]
    script.machine.extended.clear()
    assert script.machine.extend(held, run, 100.0, 3, 3.0) == []
    assert script.machine.extended == [(3, 0.0)], "that exchange is gone"


def test_what_nobody_answers_ends_with_its_time() -> None:
    script = Script()
    script.enter()
    held = script.lease(4)
    assert held is not None
    script.machine.extend(held, Run(0, 0, 1), 8.0, 1, 0.0)
    script.machine.tick(7.0)
    assert script.machine.extended == []
    script.machine.tick(8.0)
    assert script.machine.extended == [(1, 0.0)]


def test_what_is_overdue_is_marked_and_its_attempt_is_what_it_was() -> None:
    script = Script()
    script.enter()
    old, fresh = script.lease(4, attempt=2 | OVERDUE), script.lease(5)
    assert old is not None
    assert fresh is not None
    assert (old.overdue, old.attempt, fresh.overdue) == (True, 2, False)


def test_of_a_request_it_is_told_how_many_instances_were_lost_with_it() -> None:
    script = Script()
    script.enter()
    held = script.lease(4, attempt=7 | 3 << LOSSES_SHIFT)
    assert held is not None
    assert (held.overdue, held.attempt, held.losses) == (False, 7, 3)
