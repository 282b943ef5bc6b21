"""Transactions at an exchange: kept out of sight, asked about, ended once, whatever happens."""

from __future__ import annotations

import pytest
from exchange_driver import QUEUE, Publisher, exchange, publisher_id
from transaction_driver import START_US, Durable, half, name

from roq.exchange import commit, delayed_messages, producers
from roq.exchange import transactions as module
from roq.exchange.events import Received
from roq.log.disk_groups import perform
from roq.log.timing_wheel import TimingWheel
from roq.protocol import batch, documents
from roq.protocol.channel import HELLO, READER_BYTES, Hello
from roq.protocol.delayed import (
    CANCEL_DELAYED,
    DELAYED,
    DELAYED_TOPIC,
    CancelDelayed,
    CancelledDelayed,
    Delayed,
    DelayedList,
    DelayedRequest,
    encode_delayed,
)
from roq.protocol.transaction import (
    SETTLE,
    TRANSACTIONS,
    Decision,
    Fate,
    Settle,
    Settled,
    TransactionsQuery,
)
from roq.timing import PRODUCER_SILENT_SECONDS

COMMIT, ROLLBACK, UNKNOWN, BUSY = Decision


@pytest.fixture
def made() -> Durable:
    durable = Durable()
    durable.open()
    return durable


def test_nobody_sees_a_half_message_and_a_commit_shows_all_of_it(made: Durable) -> None:
    assert made.prepare(half(1, topics=(b"t", b"u", b"t")))
    made.wait(5.0)
    assert not made.shown
    assert made.settle(1, COMMIT) is Fate.COMMITTED
    made.wait(1.0)
    assert made.shown == {b"1:0:": 1, b"1:1:": 1, b"1:2:": 1}
    assert made.keys[b"1:0:"].key == "k"
    properties = made.keys[b"1:2:"].properties
    assert properties["roq.transaction.id"] == name(1).hex()
    assert not any(each.startswith("roq.delayed.") for each in properties)
    assert (made.table_size, len(made.core.delayed)) == (0, 0)


def test_a_rollback_leaves_nothing(made: Durable) -> None:
    made.prepare(half(1), half(2))
    assert made.settle(1, ROLLBACK) is Fate.ROLLED_BACK
    made.wait(200.0)
    assert (made.table_size, made.shown) == (1, {})


def test_the_end_is_told_when_it_is_kept_and_not_before(made: Durable) -> None:
    made.prepare(half(1))
    made.turn()
    made.say(1, COMMIT)
    assert made.fates() == []
    made.turn(sync=False)
    assert (made.fates(), made.shown) == ([], {})
    made.turn()
    assert made.fates() == [(1, Fate.COMMITTED)]


def test_an_end_is_said_again_as_it_was_and_another_one_changes_nothing(made: Durable) -> None:
    made.prepare(half(1), half(2))
    assert made.settle(1, COMMIT) is made.settle(1, COMMIT) is Fate.COMMITTED
    assert made.settle(1, ROLLBACK) is Fate.COMMITTED
    assert made.settle(2, ROLLBACK) is made.settle(2, COMMIT) is Fate.ROLLED_BACK
    made.wait(1.0)
    assert made.shown == {b"1:0:": 1}


def test_what_is_not_here_or_not_the_groups_own_is_told_so(made: Durable) -> None:
    made.prepare(half(1))
    assert made.settle(9, COMMIT) is Fate.NOT_HERE
    assert made.settle(1, COMMIT, group="other") is Fate.FOREIGN
    assert made.settle(1, UNKNOWN) is Fate.OPEN
    assert made.table_size == 1


def test_the_end_of_a_transaction_outlives_the_process(made: Durable) -> None:
    made.prepare(half(1), half(2), half(3, topics=(b"t", b"u")))
    made.turn()
    made.settle(1, COMMIT)
    made.settle(2, ROLLBACK)
    made.open()
    assert [made.settle(each, COMMIT) for each in (1, 2)] == [Fate.COMMITTED, Fate.ROLLED_BACK]
    assert made.table_size == 1
    assert made.settle(3, COMMIT) is Fate.COMMITTED
    made.wait(1.0)
    assert made.shown == {b"1:0:": 1, b"3:0:": 1, b"3:1:": 1}


def test_an_end_in_a_snapshot_is_known_when_its_record_has_left(made: Durable) -> None:
    made.prepare(half(1), half(2))
    made.turn()
    made.settle(1, ROLLBACK)
    for _ in range(600):
        made.fill()
        made.turn(0.1)
    assert made.log.floor > 5, "the record has left"
    made.open()
    assert made.settle(1, COMMIT) is Fate.ROLLED_BACK
    assert made.settle(2, COMMIT) is Fate.COMMITTED, "which was appended again"


def test_rows_that_a_snapshot_has_twice_end_no_exchange_and_no_transaction_twice(
    made: Durable, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = TimingWheel.pack
    monkeypatch.setattr(TimingWheel, "pack", lambda wheel, others: 2 * pack(wheel, others))
    made.prepare(half(1), half(2), half(3))
    for _ in range(20):
        made.fill()
        made.turn(0.1)
    made.open()
    monkeypatch.undo()
    assert made.table_size == 3
    assert made.settle(1, COMMIT) is Fate.COMMITTED
    assert made.settle(2, ROLLBACK) is Fate.ROLLED_BACK
    for lives in range(3):
        for _ in range(300 * (lives < 2)):
            made.fill()
            made.turn(0.1)
        made.open()
        assert (made.table_size, len(made.core.delayed)) == (1, 0)
    assert made.settle(3, COMMIT) is Fate.COMMITTED
    made.wait(1.0)
    assert made.shown == {b"1:0:": 1, b"3:0:": 1}


def test_who_has_prepared_is_asked_first_and_then_another_one(made: Durable) -> None:
    made.enroll(b"a")
    made.enroll(b"b", publisher="p")
    made.enroll(b"c", group="other")
    made.prepare(half(1))
    made.wait(9.0)
    assert made.checks(b"b") == []
    made.wait(1.5)
    ((number, head),) = made.checks(b"b")
    assert (number, head.attempt, head.prepared_us) == (1, 1, 7)
    made.wait(module.ANSWER_SECONDS + 1.0)  # it does not answer
    assert [each for each, _ in made.checks(b"a")] == [1]
    assert made.settle(1, COMMIT, b"a") is Fate.COMMITTED
    assert made.checks(b"c") == []


def test_of_a_producer_that_is_killed_another_one_is_asked_at_once(made: Durable) -> None:
    made.enroll(b"a")
    made.enroll(b"b", publisher="p")
    made.prepare(half(1))
    made.wait(11.0)
    assert len(made.checks(b"b")) == 1
    made.leave(b"b")
    made.turn()
    ((_, head),) = made.checks(b"a")
    assert head.attempt == 1, "that it has died is no attempt"


def test_whose_local_work_goes_on_is_asked_again_and_that_is_no_attempt(made: Durable) -> None:
    made.enroll(b"a")
    made.enroll(b"b", publisher="p")
    made.prepare(half(1, attempts=2))
    for _ in range(20):
        made.wait(10.5)
        ((_, head),) = made.checks(b"b")
        assert (head.attempt, made.settle(1, BUSY, b"b")) == (1, Fate.OPEN)
    assert made.checks(b"a") == []


@pytest.mark.parametrize(
    ("otherwise", "fate"),
    [("rollback", Fate.ROLLED_BACK), ("commit", Fate.COMMITTED), ("keep", Fate.OPEN)],
)
def test_after_its_attempts_the_policy_decides(made: Durable, otherwise: str, fate: Fate) -> None:
    made.enroll(b"a")
    made.prepare(half(1, attempts=3, otherwise=otherwise))  # type: ignore[arg-type]
    asked: list[float] = []
    for _ in range(300):
        made.turn(1.0)
        if int(made.now) % 20 == 0:
            made.enroll(b"a")
        if made.checks(b"a"):
            asked.append(made.now)
            made.settle(1, UNKNOWN, b"a")
    assert len(asked) == 3
    assert asked[2] - asked[1] >= 2 * (asked[1] - asked[0]) - 2.0, "less and less often"
    (state,) = made.look(1).transactions
    assert (state.fate, state.kept) == (fate, otherwise == "keep")
    figures = made.look().figures
    assert (figures.checked, figures.by_policy) == (3, otherwise != "keep")
    assert figures.kept == (otherwise == "keep")
    assert made.settle(1, COMMIT) is (fate if fate is not Fate.OPEN else Fate.COMMITTED)


def test_while_nobody_of_its_group_is_there_it_waits_and_asks_the_first_who_comes(
    made: Durable,
) -> None:
    made.prepare(half(1, attempts=1, patience=50_000.0))
    made.wait(40_000.0, 60.0)
    assert made.table_size == 1
    made.enroll(b"a")
    made.turn()
    assert [number for number, _ in made.checks(b"a")] == [1]


def test_when_nobody_comes_for_as_long_as_its_patience_lasts_the_policy_decides(
    made: Durable,
) -> None:
    made.prepare(half(1, patience=100.0))
    made.wait(105.0)
    assert made.table_size == 1
    made.wait(10.0)
    assert (made.table_size, made.look().figures.by_policy) == (0, 1)


def test_a_producer_that_is_silent_is_not_asked(made: Durable) -> None:
    made.enroll(b"a")
    made.prepare(half(1, check=PRODUCER_SILENT_SECONDS + 5.0))
    made.wait(PRODUCER_SILENT_SECONDS + 10.0)
    assert (made.checks(b"a"), made.look().figures.producers) == ([], 0)


def test_one_producer_is_asked_a_few_at_a_time_and_the_others_wait(made: Durable) -> None:
    made.enroll(b"a")
    made.prepare(*(half(each, patience=0.5) for each in range(7)))
    made.wait(11.0)
    asked = made.checks(b"a")
    assert len(asked) == producers.AT_ONCE
    for number, _ in asked:
        made.settle(number, COMMIT, b"a")
    made.wait(2.0)
    assert len(made.checks(b"a")) == 7 - producers.AT_ONCE


@pytest.mark.parametrize("days", [-1, 1])
def test_a_clock_that_jumps_changes_nothing_and_neither_does_a_start_within(
    made: Durable, days: int
) -> None:
    made.enroll(b"a")
    made.prepare(half(1, attempts=1), half(2, attempts=1))
    made.jump_us = days * 86_400_000_000
    made.wait(9.0)
    assert (made.checks(b"a"), made.table_size) == ([], 2)
    made.open()
    made.enroll(b"a")
    made.wait(9.0)
    assert (made.checks(b"a"), made.table_size) == ([], 2)
    made.wait(2.0)
    assert len(made.checks(b"a")) == 2
    assert made.settle(1, COMMIT, b"a") is Fate.COMMITTED
    made.wait(1.0)
    assert made.shown == {b"1:0:": 1}


def test_open_ones_are_bounded_and_refused_not_forgotten(
    made: Durable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OPEN_MAX", 2)
    assert made.prepare(half(1), half(2))
    assert not made.prepare(half(3))
    assert made.table_size == 2
    made.settle(1, ROLLBACK)
    assert made.prepare(half(3))


def test_an_id_that_was_there_before_is_refused(made: Durable) -> None:
    assert made.prepare(half(1), half(2))
    assert not made.prepare(half(3), half(1))
    assert not made.prepare(half(4), half(4))
    made.settle(2, COMMIT)
    assert not made.prepare(half(2))
    assert made.table_size == 1


def test_a_half_message_is_no_delayed_message_that_can_be_listed_or_cancelled(
    made: Durable,
) -> None:
    made.prepare(half(1))
    made.turn()
    made.ask(b"l", DELAYED, documents.encode(DelayedRequest(id=1, queue=QUEUE)))
    ((document, *_),) = made.told(b"l", DELAYED)
    answer = documents.decode(document, DelayedList)
    assert (answer.pending, answer.messages) == (0, [])
    made.ask(
        b"l", CANCEL_DELAYED, documents.encode(CancelDelayed(id=1, queue=QUEUE, message=name(1)))
    )
    ((document, *_),) = made.told(b"l", CANCEL_DELAYED)
    assert not documents.decode(document, CancelledDelayed).found
    assert made.table_size == 1


def test_they_are_listed_oldest_first_and_by_group(made: Durable) -> None:
    made.prepare(half(1))
    made.turn(5.0)
    made.prepare(half(2, group="h"), half(3))
    made.turn()
    assert [int.from_bytes(each.transaction, "big") for each in made.look().transactions] == [
        1, 2, 3,
    ]  # fmt: skip
    (state,) = made.look(group="h").transactions
    assert (state.transaction, state.group, state.fate) == (name(2), "h", Fate.OPEN)
    assert len(made.look(most=1).transactions) == 1
    figures = made.look().figures
    assert (figures.open, figures.prepared, figures.oldest_seconds) == (3, 3, 5.0)
    assert made.look(77).transactions[0].fate is Fate.NOT_HERE


def test_one_whose_batch_is_damaged_is_counted_and_is_not_here(made: Durable) -> None:
    made.prepare(half(1))
    for _ in range(40):
        made.fill()
        made.turn(0.01)
    first = min(each for each in made.files.names() if each.endswith(".seg"))
    made.files.write(first, 0, [bytes(made.files.size(first))])
    assert made.settle(1, COMMIT) is Fate.NOT_HERE
    assert (made.table_size, made.core.delayed.lost, made.shown) == (0, 1, {})


def test_what_the_disk_does_not_give_now_is_said_again(
    made: Durable, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.prepare(half(1))
    for _ in range(40):
        made.fill()
        made.turn(0.01)

    def refuse(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(made.files, "read", refuse)
        assert made.settle(1, COMMIT) is Fate.FULL
    assert made.settle(1, COMMIT) is Fate.COMMITTED


def test_answers_that_wait_for_the_disk_are_bounded_and_nothing_is_done_for_others(
    made: Durable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "OWED_MAX", 1)
    made.prepare(half(1), half(2))
    made.say(1, COMMIT)
    made.say(2, COMMIT)
    assert made.refusals(b"r") == ["full"]
    assert made.table_size == 1


def test_what_is_no_request_is_refused(made: Durable) -> None:
    made.ask(b"r", SETTLE, b"garbage")
    settle = Settle(id=1, queue=b"x" * 16, group="g", ends=[])
    made.ask(b"r", SETTLE, documents.encode(settle))
    raw = documents.encode_raw({"id": 1, "queue": QUEUE, "group": "g", "ends": [[b"short", "x"]]})
    made.ask(b"r", SETTLE, raw)
    assert made.refusals(b"r") == ["malformed", "foreign_queue", "malformed"]


def test_producers_are_bounded_and_leave(made: Durable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 1)
    made.enroll(b"a")
    with pytest.raises(AssertionError):
        made.enroll(b"b")
    assert made.refusals(b"b") == ["full"]
    made.enroll(b"a", leave=True)
    made.enroll(b"b")


def test_all_producers_of_a_connection_go_with_it_and_no_others(made: Durable) -> None:
    for route, group in ((b"a", "g"), (b"a", "h"), (b"b", "g"), (b"b", "h")):
        made.enroll(route, group)
    made.enroll(b"b", "h", leave=True)
    made.leave(b"a")
    made.leave(b"nobody")
    assert made.look().figures.producers == 1
    made.leave(b"b")
    assert made.look().figures.producers == 0


def test_a_publisher_cannot_say_that_a_delayed_message_was_committed(made: Durable) -> None:
    forged = Delayed(START_US, b"t", b"7:0:", name(7), b"", 0, name(8))
    made.prepare(encode_delayed(forged))
    made.wait(1.0)
    assert "roq.transaction.id" not in made.keys[b"7:0:"].properties


def test_a_commit_pushes_out_nothing_that_a_group_has_still_to_do() -> None:
    there = exchange(ring_bytes=40_000)
    publisher = Publisher(there, "p")
    publisher.hello()
    payload = half(1, size=900)
    there.append(
        publisher.route, DELAYED_TOPIC, publisher.batch(DELAYED_TOPIC, 1, payloads=[payload])
    )
    report = there.core.backpressure.report
    report(b"g" * READER_BYTES, b"g", 0, patient=True)
    there.core.intake.look()
    for _ in range(60):  # until there is no room for one more
        data = publisher.batch(b"t", 1, payloads=[b"n" * 900])
        there.append(publisher.route, b"t", data)
    settle = Settle(id=1, queue=QUEUE, group="g", ends=[(name(1), COMMIT)])
    assert documents.decode(there.ask(SETTLE, settle), Settled).fates == [Fate.FULL]
    assert there.core.log.floor == 0, "the group has not read that"
    report(b"g" * READER_BYTES, b"g", there.core.log.end, patient=True)
    assert documents.decode(there.ask(SETTLE, settle), Settled).fates == [Fate.COMMITTED]


def test_in_memory_it_is_the_same_as_long_as_the_process_lives() -> None:
    there = exchange()
    there.tell(
        Received(b"p", (HELLO, documents.encode(Hello(
            queue=QUEUE, publisher=publisher_id("p"), epoch=1, attempt=1))))
    )  # fmt: skip
    data = batch.pack(
        [half(1, topics=(b"t", b"u")), half(2)], publisher=publisher_id("p"), epoch=1,
        link_number=1, first_sequence=0, created_us=7,
    )  # fmt: skip
    assert not there.append(b"p", DELAYED_TOPIC, data)
    settle = Settle(id=1, queue=QUEUE, group="g", ends=[(name(1), COMMIT), (name(2), ROLLBACK)])
    answer = documents.decode(there.ask(SETTLE, settle), Settled)
    assert answer.fates == [Fate.COMMITTED, Fate.ROLLED_BACK]
    there.settle()
    shown = [parts[0] for parts in there.live if len(parts) == 3]
    assert shown == [b"t", b"u"]
    assert (len(there.core.delayed), len(there.core.delayed.transactions)) == (0, 0)


def test_what_is_left_to_a_person_stays_so_when_a_producer_comes(made: Durable) -> None:
    made.prepare(half(1, patience=100.0, otherwise="keep"))
    made.wait(120.0)
    assert made.look().figures.kept == 1
    made.enroll(b"a")
    made.wait(2.0)
    assert (made.checks(b"a"), made.look().figures.kept) == ([], 1)
    assert made.settle(1, COMMIT) is Fate.COMMITTED
    assert made.look().figures.kept == 0


def test_patience_counts_the_time_in_which_nobody_is_there_and_no_other(made: Durable) -> None:
    made.prepare(*(half(each, patience=100.0, attempts=99) for each in range(5)))
    made.wait(60.0)
    made.enroll(b"a")  # which is asked four at a time, and does not answer
    made.wait(60.0)
    made.leave(b"a")
    made.wait(60.0)
    assert made.table_size == 5


def test_what_is_committed_comes_at_once_also_where_the_clock_was_set_back_meanwhile(
    made: Durable,
) -> None:
    made.prepare(half(1))
    made.turn()
    made.say(1, COMMIT)
    group = made.log.gather(made.core.snapshot)
    assert group is not None
    perform(made.files, group)  # and then it is killed
    made.jump_us = -86_400_000_000
    made.open()
    made.wait(2.0)
    assert made.shown == {b"1:0:": 1}


def test_how_one_has_ended_is_shown_when_that_is_kept(made: Durable) -> None:
    made.prepare(half(1))
    made.turn()
    made.say(1, COMMIT)
    query = TransactionsQuery(id=1, queue=QUEUE, transaction=name(1))
    made.ask(b"l", TRANSACTIONS, documents.encode(query))
    made.turn(sync=False)
    assert made.told(b"l", TRANSACTIONS) == []
    made.turn()
    assert len(made.told(b"l", TRANSACTIONS)) == 1


def test_a_commit_needs_no_room_that_delayed_messages_have_taken(
    made: Durable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delayed_messages, "PENDING_MAX", 2)
    later_on = START_US + 3_600_000_000
    assert made.prepare(half(1, topics=(b"t", b"u")))
    assert made.prepare(encode_delayed(Delayed(later_on, b"t", b"7:0:", name(7))))
    assert not made.prepare(encode_delayed(Delayed(later_on, b"t", b"8:0:", name(8))))
    assert made.settle(1, COMMIT) is Fate.COMMITTED
    made.wait(1.0)
    assert made.shown == {b"1:0:": 1, b"1:1:": 1}


def test_many_that_wait_for_a_busy_producer_are_looked_at_as_often_as_a_few(
    made: Durable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRIES_A_SECOND", 1)
    made.enroll(b"a")
    made.prepare(*(half(each) for each in range(producers.AT_ONCE + 8)))
    looks: list[float] = []
    there = made.core.delayed.transactions._producers
    choose = there.choose

    def count(*given: object) -> object:
        looks.append(made.now)
        return choose(*given)  # type: ignore[arg-type]

    made.wait(11.0)
    with monkeypatch.context() as patch:
        patch.setattr(there, "choose", count)
        made.wait(producers.AT_ONCE + 8.0)
    assert len(looks) <= producers.AT_ONCE + 8


def test_of_many_large_ones_some_are_settled_at_a_time(
    made: Durable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SETTLED_BYTES", 1_500)
    made.prepare(*(half(each, size=1_000) for each in (1, 2)))
    made.turn()
    ends = [(name(1), COMMIT), (name(2), COMMIT)]
    settle = documents.encode(Settle(id=1, queue=QUEUE, group="g", ends=ends))
    fates = []
    for _ in range(2):
        made.ask(b"r", SETTLE, settle)
        made.turn()
        ((document,),) = made.told(b"r", SETTLE)
        fates.append(documents.decode(document, Settled).fates)
    assert fates == [[Fate.COMMITTED, Fate.FULL], [Fate.COMMITTED, Fate.COMMITTED]]


def test_a_producer_that_was_killed_takes_nobodys_place_for_ever(
    made: Durable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 2)
    made.enroll(b"a")
    made.enroll(b"b")
    made.wait(PRODUCER_SILENT_SECONDS - 1.0, 10.0)
    made.enroll(b"a")
    made.wait(2.0)
    made.enroll(b"c")
    assert made.look().figures.producers == 2
    made.prepare(half(1))
    made.wait(11.0)
    assert made.checks(b"a") or made.checks(b"c")
