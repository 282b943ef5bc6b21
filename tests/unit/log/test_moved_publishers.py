"""What is remembered of where publishers were."""

from __future__ import annotations

from roq.log.moved_publishers import ENDS_MAX, MovedPublishers
from roq.model import LogId, PublisherId
from roq.protocol.batch import LOGS_MAX

OWN, A, B = LogId(1, 1), LogId(2, 5), LogId(3, 7)
P = PublisherId(b"p" * 16)


def stays(most: int = 10) -> MovedPublishers:
    return MovedPublishers(OWN, most)


def test_what_comes_before_counts_from_the_epoch_under_which_it_was_said() -> None:
    made = stays()
    made.came(P, 3, [A, OWN])
    made.came(P, 5, [A, B])
    assert made.before(P, 2) == ()
    assert made.before(P, 3) == made.before(P, 4) == (A,)
    assert made.before(P, 5) == (A, B)


def test_a_publisher_that_was_only_here_has_nothing_before() -> None:
    made = stays()
    made.came(P, 3, [OWN])
    assert made.before(P, 9) == ()


def test_only_the_newest_logs_are_remembered() -> None:
    made = stays()
    made.came(P, 1, [LogId(number, 1) for number in range(2, LOGS_MAX + 4)])
    assert len(made.before(P, 1)) == LOGS_MAX
    made.check()


def test_where_stays_have_ended() -> None:
    made = stays()
    made.began(P, 2)
    made.ended(P, 2, 10)
    made.began(P, 6)
    assert made.end_of(P, 6, 99) == 10
    assert made.end_of(P, 3, 99) == 10
    assert made.end_of(P, 2, 99) == 0, "nothing was sent under a lower epoch"
    made.check()


def test_a_stay_that_has_not_ended_may_have_sent_anything_until_now() -> None:
    made = stays()
    made.began(P, 2)
    made.ended(P, 2, 10)
    made.began(P, 4)
    assert made.end_of(P, 5, 30) == 30
    assert made.end_of(P, 5, 50) == 30, "the same question has the same answer"


def test_what_was_sent_before_the_first_stay_lies_below_its_beginning() -> None:
    made = stays()
    made.began(P, 4, 20)
    assert made.end_of(P, 3, 99) == 20
    assert not made.may_stay(P, 3)
    assert made.may_stay(P, 5)
    made.ended(P, 4, 30)
    made.began(P, 6, 40)
    assert made.end_of(P, 6, 99) == 30
    made.check()


def test_of_who_was_forgotten_anything_may_be_there() -> None:
    made = stays(most=1)
    made.began(P, 2)
    made.ended(P, 2, 10)
    made.began(PublisherId(b"q" * 16), 1)
    assert made.end_of(P, 3, 40) == 40
    made.check()


def test_of_many_stays_the_oldest_count_as_one() -> None:
    made = stays()
    for epoch in range(1, ENDS_MAX + 4):
        made.began(P, epoch)
        made.ended(P, epoch, 10 * epoch)
    made.check()
    assert made.end_of(P, ENDS_MAX + 4, 0) == 10 * (ENDS_MAX + 3)
    assert made.end_of(P, 3, 0) >= 20


def test_a_snapshot_says_all_of_it() -> None:
    made, other = stays(), stays()
    made.came(P, 3, [A])
    made.began(P, 3)
    made.ended(P, 3, 8)
    other.recover(P, *made.told(P), 0)
    assert other.told(P) == made.told(P)
    assert other.before(P, 3) == (A,)
    assert other.end_of(P, 4, 99) == 8
    other.recover(P, [], [], 5)
    assert other.end_of(P, 6, 99) == 99, "it is here"
    assert made.told(PublisherId(b"q" * 16)) == ([], [])
