"""The judge of chaos finds what is wrong, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from roq.simulation.real.journal import (
    Finished,
    Got,
    Journal,
    Lost,
    Opened,
    Record,
    Refused,
    State,
    Subscribed,
    Tail,
    Upto,
    Wrong,
)
from roq.simulation.real.judge import Judge

STREAM = "ab" * 16


class Told:
    """A judge that is told what one publisher and one subscriber have written."""

    def __init__(self) -> None:
        self.judge = Judge()
        self.read(Subscribed(0.0, "s"))
        self.publish(Opened(1.0, STREAM))

    def publish(self, *records: Record) -> None:
        for record in records:
            self.judge.take("publisher-1", "q", "q.1", record)

    def read(self, *records: Record) -> None:
        for record in records:
            self.judge.take("subscriber-1", "q", "q.", record)

    def published(self, count: int, acked: int | None = None) -> None:
        self.publish(Upto(2.0, count), state(count, count if acked is None else acked))


def state(published: int, acked: int, failed: int = 0) -> State:
    return State(2.0, published, acked, failed, 0, 0.001, "x1")


def got(first: int, count: int) -> Got:
    return Got(3.0, STREAM, first, count)


@pytest.fixture
def told() -> Told:
    return Told()


def test_everything_once_and_in_order_is_right(told: Told) -> None:
    told.published(10)
    told.read(got(0, 4), got(4, 6))
    told.judge.check()
    assert not told.judge.behind(told.judge.acked(ended=True))
    assert told.judge.tally.violations == told.judge.tally.counted_lost == 0
    assert told.judge.tally.received == told.judge.tally.published == 10
    assert not told.judge.findings


def test_a_hole_is_a_loss_without_a_word(told: Told) -> None:
    told.read(got(0, 4), got(6, 2))
    told.judge.check()
    assert told.judge.tally.lost == 2
    assert "without a word" in told.judge.findings[0]


def test_a_hole_that_was_reported_is_counted_as_such(told: Told) -> None:
    told.read(got(0, 4), Lost(3.0, STREAM, 4, 2, "gone"), got(6, 2))
    told.judge.check()
    assert (told.judge.tally.lost, told.judge.tally.counted_lost) == (0, 2)
    assert told.judge.tally.violations == 0
    assert "has said so" in told.judge.findings[0]


def test_a_loss_that_is_reported_before_the_hole_shows_is_kept_until_then(told: Told) -> None:
    told.published(8)
    told.read(got(0, 4), Lost(3.0, STREAM, 4, 2, "gone"))
    told.judge.check()
    told.read(got(6, 2))
    told.judge.check()
    assert (told.judge.tally.lost, told.judge.tally.counted_lost) == (0, 2)
    assert not told.judge.behind(told.judge.acked(ended=True))


def test_what_comes_again_and_what_comes_late_are_told_apart(told: Told) -> None:
    told.read(got(0, 4), got(6, 2), got(3, 2))
    assert (told.judge.tally.duplicated, told.judge.tally.reordered) == (1, 1)


def test_who_has_not_got_what_was_acknowledged_is_behind(told: Told) -> None:
    told.published(10, acked=9)
    told.read(got(0, 8))
    (late,) = told.judge.behind(told.judge.acked(ended=True))
    assert "subscriber-1 has 8 of 9" in late
    told.read(got(8, 1))
    assert not told.judge.behind(told.judge.acked(ended=True))


def test_nothing_is_expected_of_who_has_ended(told: Told) -> None:
    told.published(10)
    told.judge.end("subscriber-1")
    assert not told.judge.behind(told.judge.acked(ended=True))


def test_what_a_dead_publisher_had_acknowledged_may_be_asked_for_once(told: Told) -> None:
    told.published(10)
    told.judge.end("publisher-1")
    assert told.judge.acked(ended=False) == {}
    assert told.judge.acked(ended=True) == {STREAM: 10}
    told.judge.check()
    assert told.judge.acked(ended=True) == {}


def test_who_comes_later_begins_with_what_comes_then(told: Told) -> None:
    told.published(10)
    told.judge.end("subscriber-1")
    told.read(Subscribed(2.5, "t"), got(7, 3))
    told.judge.check()
    assert told.judge.tally.lost == 0


def test_who_comes_later_is_owed_all_that_is_published_from_then_on(told: Told) -> None:
    told.published(10)
    told.judge.end("subscriber-1")
    told.read(Subscribed(5.0, "t"))
    for count in range(11, 21):
        told.publish(Upto(5.0 + count / 100, count))
    told.publish(state(20, 20))
    told.read(got(15, 5))
    assert not told.judge.behind(told.judge.acked(ended=True))
    told.judge.check()
    assert told.judge.tally.lost == 5  # 10 to 14
    told.judge.check()
    assert told.judge.tally.lost == 5  # once


def test_what_is_reported_of_the_beginning_is_counted_as_such(told: Told) -> None:
    told.published(10)
    told.judge.end("subscriber-1")
    told.read(Subscribed(5.0, "t"))
    told.publish(Upto(5.1, 20), state(20, 20))
    told.read(Lost(5.3, STREAM, 12, 3, "gone"), got(15, 5))
    told.judge.check()
    assert (told.judge.tally.lost, told.judge.tally.counted_lost) == (2, 3)


def test_what_comes_of_before_the_subscription_is_no_fault(told: Told) -> None:
    told.published(10)
    told.judge.end("subscriber-1")
    told.read(Subscribed(5.0, "t"))
    told.publish(Upto(5.1, 20), state(20, 20))
    told.read(got(7, 13))
    told.judge.check()
    assert told.judge.tally.violations == 0


def test_who_gets_nothing_of_a_stream_that_goes_on_is_behind_even_if_it_ends(told: Told) -> None:
    told.published(10)
    told.judge.end("subscriber-1")
    told.read(Subscribed(5.0, "t"))
    told.judge.end("publisher-1")
    assert not told.judge.behind(told.judge.acked(ended=True))  # nothing came since
    told.publish(Opened(1.0, STREAM))
    told.publish(Upto(2.0, 10), Upto(5.1, 12), state(12, 12))
    told.judge.end("publisher-1")
    (late,) = told.judge.behind(told.judge.acked(ended=True))
    assert "0 of 12" in late


def test_who_was_there_first_is_owed_the_beginning(told: Told) -> None:
    told.read(got(2, 3))
    told.judge.check()
    assert told.judge.tally.lost == 2


def test_another_topic_is_not_expected(told: Told) -> None:
    told.judge.take("publisher-2", "q", "other", Opened(1.0, "cd" * 16))
    told.judge.take("publisher-2", "q", "other", state(5, 5))
    assert not told.judge.behind(told.judge.acked(ended=True))


def test_errors_foreign_messages_and_what_was_given_up_are_violations(told: Told) -> None:
    told.publish(state(5, 5, failed=2), Refused(2.0, "Unavailable: no room", working=True))
    told.read(Wrong(3.0, STREAM, 1))
    tally = told.judge.tally
    assert (tally.failed, tally.errors, tally.foreign, tally.violations) == (2, 1, 1, 4)
    assert len(told.judge.findings) == 3


def test_not_being_able_to_connect_is_none(told: Told) -> None:
    told.publish(Refused(2.0, "Unavailable: nobody", working=False), Finished(3.0))
    assert told.judge.tally.violations == 0


def test_in_the_end_what_is_missing_at_the_end_of_a_stream_is_lost(told: Told) -> None:
    told.published(10)
    told.read(got(0, 4), got(5, 3))
    assert told.judge.finish() == (10, 1, 1)
    assert told.judge.tally.lost == 3  # 4, 8 and 9


def test_in_the_end_of_whom_nothing_was_heard_everything_is_lost(told: Told) -> None:
    told.published(10)
    assert told.judge.finish().sent == 10
    assert told.judge.tally.lost == 10


def test_in_the_end_what_was_meant_for_others_is_foreign(told: Told) -> None:
    told.judge.take("publisher-2", "q", "other", Opened(1.0, "cd" * 16))
    told.read(Got(3.0, "cd" * 16, 0, 2), Got(3.0, "ef" * 16, 0, 1))
    assert told.judge.finish() == (0, 1, 1)
    assert told.judge.tally.foreign == 3


def test_a_journal_is_read_while_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    tail = Tail(path)
    assert list(tail.read()) == []
    journal = Journal(path)
    journal.write(Opened(1.0, STREAM))
    assert list(tail.read()) == [Opened(1.0, STREAM)]
    line = path.read_bytes()
    with path.open("ab") as half:
        half.write(line[:5])
    assert list(tail.read()) == []
    with path.open("ab") as half:
        half.write(line[5:])
    journal.write(got(0, 1))
    assert list(tail.read()) == [Opened(1.0, STREAM), got(0, 1)]
    tail.close()
