"""What is kept of requests that have ended, and for how long."""

from __future__ import annotations

import math
import sys

import pytest
from paper_service import Desk

from roq.log import outcomes
from roq.log.group_changes import Known
from roq.log.outcomes import OVERHEAD_BYTES, DurationMeter, OutcomeStore
from roq.log.service_group import ServiceGroup
from roq.protocol.requesting import (
    DURATION_BOUNDS,
    Answer,
    Durations,
    Position,
    RequestEnd,
    RequestState,
)

AT = Position(3, 1)


def done(value: bytes = b"v", at: Position = AT) -> RequestEnd:
    return RequestEnd(*at, RequestState.DONE, value)


def test_one_that_is_fetched_is_remembered_as_such() -> None:
    store = OutcomeStore()
    store.put(done(), 10.0)
    assert store.get(AT) == done()
    assert store.bytes == OVERHEAD_BYTES + 1
    assert store.fetched(AT, 1.0)
    assert not store.fetched(AT, 1.0)
    assert store.get(AT) is None
    assert store.remembered(AT) is RequestState.RETRIEVED
    assert store.bytes == 0
    store.check()


def test_of_a_log_that_nobody_writes_nothing_is_noted() -> None:
    store = OutcomeStore()
    store.put(done(), 10.0)
    assert store.changed
    store.note_no_changes()
    store.put(done(at=Position(4, 0)), 10.0)
    assert store.fetched_all([(3, 0, 2), (4, 0, 1)], 1.0) == 2
    store.put_state([AT], RequestState.EXPIRED, 1.0)
    assert not store.changed
    assert store.remembered(AT) is RequestState.EXPIRED


def test_one_that_nobody_fetches_expires_and_is_forgotten_in_the_end() -> None:
    store = OutcomeStore()
    store.put(done(), 10.0)
    assert store.pass_time(9.9) == 0
    assert store.pass_time(10.0) == 1
    assert store.remembered(AT) is RequestState.EXPIRED
    store.pass_time(10.0 + outcomes.REMEMBER_SECONDS)
    assert store.remembered(AT) is None
    assert len(store) == 0
    store.check()


def test_nothing_is_overwritten() -> None:
    store = OutcomeStore()
    store.put(done(b"first"), 10.0)
    store.put(done(b"second"), 20.0)
    assert store.get(AT) == done(b"first")
    assert not store.fits([b"x" * 100], "", store.bytes + 100)
    assert store.fits([b"x" * 100], "", store.bytes + 100 + OVERHEAD_BYTES)
    store.check()


def test_a_request_that_runs_again_is_open_until_its_second_end() -> None:
    store = OutcomeStore()
    store.put(done(b"first"), 10.0)
    store.run_again(AT, 1.0)
    assert (store.get(AT), store.remembered(AT)) == (None, RequestState.ACCEPTED)
    store.reopen(AT)
    assert (store.remembered(AT), store.bytes) == (None, 0)
    store.put(done(b"second"), 20.0)
    assert store.pass_time(10.0) == 0, "the time of the first one is over"
    store.put(done(b"third"), 20.0, again=True)
    assert store.get(AT) == done(b"third")
    store.check()


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "REMEMBER_MAX", 3)
    store = OutcomeStore()
    for offset in range(5):
        store.note([Position(offset, 0)], RequestState.DONE, 0.0)
    assert [store.remembered(Position(offset, 0)) for offset in range(5)] == [
        None, None, *[RequestState.DONE] * 3
    ]  # fmt: skip
    store.check()


def test_changes_are_told_once_and_what_came_and_went_is_only_gone() -> None:
    store = OutcomeStore()
    store.put(done(), 10.0)
    store.put(done(b"w", Position(4, 0)), 10.0)
    store.fetched(Position(4, 0), 1.0)
    assert store.changed
    gone = Known(Position(4, 0), RequestState.RETRIEVED)
    assert store.take_changes() == ([done()], [gone])
    assert not store.changed
    store.know(Known(AT, RequestState.EXPIRED), 2.0)
    assert store.get(AT) is None
    store.know(Known(Position(5, 0), RequestState.LATE), 2.0)
    assert store.remembered(AT) is RequestState.EXPIRED
    assert store.remembered(Position(5, 0)) is RequestState.LATE


def test_of_what_finds_no_room_the_state_is_known() -> None:
    store = OutcomeStore()
    store.put_state([AT], RequestState.LATE, 1.0)
    assert (store.remembered(AT), store.bytes) == (RequestState.LATE, 0)
    assert store.take_changes() == ([], [Known(AT, RequestState.LATE)])


def test_all_may_be_kept_for_another_while() -> None:
    store = OutcomeStore()
    store.put(done(), 10.0)
    store.put(done(at=Position(4, 0)), 10.0)
    store.fetched(Position(4, 0), 1.0)
    store.retime(lambda end: float(end.offset))
    assert store.pass_time(2.9) == 0
    assert store.pass_time(3.0) == 1
    store.check()


def test_durations_are_counted_by_bounds() -> None:
    meter = DurationMeter()
    assert (meter.read().at(0.5), meter.count) == (0.0, 0)
    for seconds, times in ((0.0, 1), (0.001, 2), (0.0011, 3), (7.0, 3), (1_000.0, 1)):
        meter.note(seconds, times)
    read = meter.read()
    assert (read.count, meter.count, len(read.counts)) == (10, 10, len(DURATION_BOUNDS) + 1)
    assert read.seconds == meter.seconds == 0.002 + 3 * 0.0011 + 21.0 + 1_000.0
    assert [read.at(part) for part in (0.3, 0.31, 0.6, 0.9, 1.0)] == [
        0.001, 0.002, 0.002, 10.0, math.inf
    ]  # fmt: skip
    assert Durations().at(0.9) == 0.0


def test_those_that_have_come_together_are_told_apart_and_share_their_room() -> None:
    store = OutcomeStore()
    store.put(RequestEnd(3, 4, RequestState.DONE, b"a", more=[b"bb", b"c"]), 10.0)
    assert [each.value for each in store] == [b"a", b"bb", b"c"]
    assert store.get(Position(3, 5)) == done(b"bb", Position(3, 5))
    assert store.get(Position(3, 7)) is None
    whole = store.bytes
    assert whole == 3 * OVERHEAD_BYTES + 4
    assert store.fetched_all([(3, 3, 2)], 1.0, 1) == 1
    assert (len(store), store.bytes, store.unfetched.count) == (2, whole, 1)
    store.check()
    store.put(RequestEnd(3, 4, RequestState.DONE, b"x", more=[b"y"]), 10.0)
    assert [each.value for each in store] == [b"bb", b"c", b"x"], "what is here stays"
    assert [(each.index, each.value) for each in store.take_changes()[0]] == [
        (5, b"bb"), (6, b"c"), (4, b"x")
    ]  # fmt: skip
    assert store.pass_time(10.0) == 3
    assert (len(store), store.bytes) == (0, 0)
    store.check()


def test_values_that_are_fetched_are_given_back_at_once() -> None:
    """And not when their time is over: `store_bytes` counts them no more."""
    store = OutcomeStore()
    store.note_no_changes()
    value = b"v" * 1_000
    before = sys.getrefcount(value)
    store.put(RequestEnd(3, 4, RequestState.DONE, b"a", more=[value]), 10.0)
    assert sys.getrefcount(value) > before
    assert store.fetched_all([(3, 4, 2)], 1.0, 1) == 2
    assert (sys.getrefcount(value), store.bytes) == (before, 0)
    assert store.pass_time(10.0) == 0
    store.check()


def test_answers_of_which_not_all_find_room_are_looked_at_alone() -> None:
    store = OutcomeStore()
    answer = Answer(1, 4, value=b"a", more=[b"b" * 900, b"c", b"d"])
    kept = []
    for index, state, values, text in store.fitting(answer, [(4, 3)], 1_000):
        kept.append((index, str(state), values))
        store.keep(RequestEnd(3, index, state, values[0], text, more=values[1:]), 9.0, 2_000)
    assert kept == [(4, "done", [b"a"]), (5, "failed", [b""]), (6, "failed", [b""])]
    ((index, _, values, _),) = OutcomeStore().fitting(answer, [(6, 2)], 1_000)
    assert (index, values) == (6, [b"c", b"d"])


# --- of a service ---------------------------------------------------------------------------------


def test_a_full_store_holds_dispatch_and_takes_nothing_that_does_not_fit() -> None:
    desk = Desk(store_bytes=4_096)
    desk.request(3)
    member = desk.join(credit=2)
    (lease,) = desk.leases()
    assert desk.group.answer(member, Answer(lease.number, 0, value=b"x" * 5_000))
    ((state, text),) = desk.ends()
    assert state == "failed"
    assert "finds no room in the store of 4096 bytes" in text
    assert desk.group.answer(member, Answer(lease.number, 1, value=b"x" * 2_000))
    member.granted = 10
    assert desk.group.full
    assert desk.leases() == []
    desk.pass_time(10.0, member)
    assert desk.group.state_of(Position(0, 2)) is RequestState.ACCEPTED, "it is not discarded"
    desk.group.outcomes.fetched(Position(0, 1), desk.now)
    assert len(desk.leases()) == 1


def test_ends_that_the_exchange_makes_leave_half_of_the_store_to_answers() -> None:
    desk = Desk(store_bytes=8_192)
    desk.request(20)
    running = desk.join(credit=1)
    (lease,) = desk.leases()
    for index in range(1, 20):
        assert desk.group.cancel(Position(0, index), late=False)
    assert desk.group.outcomes.bytes <= 4_096
    assert [state for state, _ in desk.ends()] == ["cancelled"] * 19, "who waits is told"
    states = {desk.group.state_of(Position(0, index)) for index in range(1, 20)}
    assert states == {RequestState.CANCELLED}
    kept = desk.group.snapshot()
    assert (len(kept.ends), len(kept.known)) == (9, 10)
    assert desk.group.answer(running, Answer(lease.number, 0, value=bytes(3_000)))
    assert [state for state, _ in desk.ends()] == ["done"]


def test_a_failure_for_want_of_room_has_none_either() -> None:
    desk = Desk(store_bytes=1_024)
    desk.request(2)
    member = desk.join()
    (lease,) = desk.leases()
    assert desk.group.answer(member, Answer(lease.number, 0, value=bytes(600)))
    assert desk.group.answer(member, Answer(lease.number, 1, value=bytes(600)))
    assert desk.group.outcomes.bytes <= 1_024
    assert [state for state, _ in desk.ends()] == ["done", "failed"]


def test_another_process_knows_what_nobody_has_fetched() -> None:
    desk = Desk(keep_result=1.0)
    desk.request(2)
    member = desk.join()
    (lease,) = desk.leases()
    for index in range(2):
        desk.group.answer(member, Answer(lease.number, index))
    deltas = [desk.group.snapshot()]
    desk.group.take_changes()
    desk.group.outcomes.fetched(Position(0, 0), desk.now)
    desk.pass_time(2.0)
    deltas += [each for each in [desk.group.take_changes()] if each is not None]
    after = Desk(keep_result=1.0)
    after.log = desk.log
    after.group = ServiceGroup("s", desk.log, desk.group.settings, 1, 0, 0.0)
    for delta in [*deltas, *deltas[1:]]:
        after.group.apply(delta)
    states = [after.group.state_of(Position(0, index)) for index in range(2)]
    assert states == ["retrieved", "expired"]
    assert not after.group.outcomes.changed


def test_expired_fetched_forgotten_and_never_known_are_told_apart() -> None:
    desk = Desk(keep_result=1.0)
    desk.request(2)
    member = desk.join()
    (lease,) = desk.leases()
    desk.group.answer(member, Answer(lease.number, 0))
    desk.group.answer(member, Answer(lease.number, 1))
    desk.group.outcomes.fetched(Position(0, 0), desk.now)
    desk.pass_time(2.0)
    states = [desk.group.state_of(Position(*at)) for at in ((0, 0), (0, 1), (1, 0))]
    assert states == ["retrieved", "expired", "never"]
    desk.pass_time(601.0)
    assert desk.group.state_of(Position(0, 0)) is RequestState.FORGOTTEN


def test_a_full_store_is_named_as_a_stall() -> None:
    desk = Desk(store_bytes=4_096)
    desk.request(2)
    member = desk.join(credit=1)
    (lease,) = desk.leases()
    desk.group.answer(member, Answer(lease.number, 0, value=b"x" * 2_000))
    member.granted = 10
    told = desk.group.state(who=False, most=0).stalled
    assert told == "its store has 2,400 bytes that nobody has fetched"
    desk.group.outcomes.fetched(Position(0, 0), desk.now)
    assert "store" not in desk.group.state(who=False, most=0).stalled
