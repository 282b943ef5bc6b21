"""When messages are tried at another exchange, on a clock that the test sets."""

from __future__ import annotations

import math

import pytest
from publisher_script import NoWaiter

from roq.client.publish.receipt import Outcome, Receipt, SendStatus
from roq.client.publish.retries import SENDS_MAX, Sends, Tries


def receipt() -> Receipt:
    return Receipt(NoWaiter())  # type: ignore[arg-type]


def test_each_try_has_an_equal_part_of_the_time() -> None:
    tries = Tries(100.0, 9.0, 2)
    assert tries.next_at == 103.0
    tries.again(103.0)
    assert tries.next_at == 106.0
    tries.again(106.0)
    assert (tries.left, tries.next_at) == (0, math.inf), "the last one has the rest"


def test_what_a_try_that_failed_early_leaves_is_for_the_others() -> None:
    tries = Tries(100.0, 9.0, 2)
    tries.again(101.0)
    assert tries.next_at == 101.0 + 8.0 / 2


@pytest.mark.parametrize(("seconds", "retries"), [(9.0, 0), (0.0, 2), (9.0, -1)])
def test_without_time_or_retries_there_is_one_try(seconds: float, retries: int) -> None:
    assert Tries(1.0, seconds, retries).next_at == math.inf


def test_a_message_that_waits_is_due_once_for_each_part_and_no_more() -> None:
    sends, one = Sends(), receipt()
    sends.watch(one, Tries(0.0, 9.0, 2))
    assert sends.next_deadline() == 3.0
    assert [sends.take_due(at) for at in (2.9, 3.0, 3.1, 6.0, 8.0, 20.0)] == [
        False, True, False, True, False, False,
    ]  # fmt: skip
    assert len(sends) == 0


def test_all_that_wait_at_the_same_time_share_a_try() -> None:
    sends = Sends()
    for _ in range(5):
        sends.watch(receipt(), Tries(0.0, 9.0, 2))
    assert sends.take_due(3.0)
    assert not sends.take_due(3.0)
    assert sends.next_deadline() == 6.0


def test_what_is_acknowledged_is_not_tried_again() -> None:
    sends, one = Sends(), receipt()
    sends.watch(one, Tries(0.0, 9.0, 2))
    one.settle(SendStatus(outcome=Outcome.OK))
    assert not sends.take_due(5.0)
    sends.watch(one, Tries(5.0, 9.0, 2))
    assert len(sends) == 0


def test_what_is_watched_is_bounded() -> None:
    sends = Sends()
    sends.watch(receipt(), Tries(0.0, 90.0, 2))
    for _ in range(3 * SENDS_MAX):
        sends.watch(receipt(), Tries(0.0, 9.0, 2))
    assert SENDS_MAX <= len(sends) <= 2 * SENDS_MAX
    assert sends.take_due(3.0)
    assert sends.take_due(6.0)
    assert len(sends) == 0, "the one that is due last was left out"


def test_what_was_acknowledged_meanwhile_takes_the_place_of_nothing() -> None:
    sends = Sends()
    for _ in range(3 * SENDS_MAX):
        one = receipt()
        sends.watch(one, Tries(0.0, 60.0, 2))
        one.settle(SendStatus(outcome=Outcome.OK))
    sends.watch(receipt(), Tries(1.0, 60.0, 2))
    assert [sends.take_due(at) for at in (20.0, 21.0)] == [False, True]
