"""What goes back because a message before it has failed."""

from __future__ import annotations

from roq.client.consume.holding import ACKED, GIVEN, RETURNED, Holding
from roq.client.consume.ordering import Ordering
from roq.model import LogId, PublisherId
from roq.read.message import Batch

LOG = LogId(1, 1)


def holding(offset: int, lanes: str | None, first: int = 0, log: LogId = LOG) -> Holding:
    """A letter for the key of each message, `-` for none; None: four of an exclusive group."""
    count = 4 if lanes is None else len(lanes)
    batch = Batch([b"x"] * count, "t", PublisherId(bytes(16)), first, 0, 9)
    made = Holding(log, offset, offset, first, 1, batch)
    made.lanes = None if lanes is None else bytes(0 if k == "-" else ord(k) for k in lanes)
    return made


def fail(ordering: Ordering, failed: Holding, index: int, *waiting: Holding) -> list[list[int]]:
    assert failed.settle(index, 1, RETURNED)
    back = ordering.failed(failed, [index], waiting)
    return [[index for each, index in back if each is one] for one in waiting]


def test_what_is_behind_and_was_not_begun_goes_back() -> None:
    one, two = holding(5, None), holding(6, None)
    one.begun = 2
    assert fail(Ordering(), one, 0, one, two) == [[2, 3], [0, 1, 2, 3]]


def test_what_is_before_stays_and_other_exchanges_are_others() -> None:
    early, failed, other = holding(4, None), holding(5, None), holding(6, None, log=LogId(2, 1))
    assert fail(Ordering(), failed, 2, early, failed, other) == [[], [3], []]


def test_only_what_has_the_same_key_goes_back() -> None:
    one, two = holding(5, "abac"), holding(6, "ca-a")
    one.begun = 1
    assert fail(Ordering(), one, 0, one, two) == [[2], [1, 3]]
    assert fail(Ordering(), holding(5, "-a"), 0, two) == [[]], "what has no key has no order"


def test_what_is_settled_already_is_no_matter() -> None:
    one, two = holding(5, None), holding(6, None)
    two.settle(1, 1, ACKED)
    assert fail(Ordering(), one, 3, two) == [[0, 2, 3]]


def test_several_that_fail_together_hold_back_from_the_first_one_of_each_key() -> None:
    one, two = holding(5, "abab"), holding(6, "ab")
    ordering = Ordering()
    for index in (2, 3):
        one.settle(index, 1, RETURNED)
    back = ordering.failed(one, [2, 3], [one, two])
    assert sorted((each.offset, index) for each, index in back) == [(6, 0), (6, 1)]


def test_what_was_on_its_way_goes_back_until_the_exchange_has_heard_of_it() -> None:
    ordering, failed = Ordering(), holding(5, None)
    fail(ordering, failed, 1)
    assert ordering.arrived(holding(6, None)) == [0, 1, 2, 3]
    assert ordering.arrived(holding(4, None)) == []
    assert ordering.arrived(holding(5, None)) == [2, 3], "the one that failed may begin again"
    failed.states[1] = GIVEN
    failed.unconfirmed = 1
    assert ordering.arrived(holding(6, None)) == [0, 1, 2, 3]
    failed.unconfirmed = 0
    assert ordering.arrived(holding(6, None)) == []
