"""What has come of a stream, and what is missing."""

from __future__ import annotations

import random

import pytest

from roq.testing import positions
from roq.testing.positions import Positions


def fed(*numbers: int) -> Positions:
    one_by_one, by_rule = Positions(), Positions()
    for number in numbers:
        by_rule.take(number)
        if number == one_by_one.next:
            one_by_one.next = number + 1
        else:
            one_by_one.odd(number)
    for name in Positions.__slots__:
        assert getattr(one_by_one, name) == getattr(by_rule, name)
    return by_rule


def test_in_order_nothing_is_missing() -> None:
    tally = fed(*range(10))

    assert (tally.next, tally.missing, tally.doubled, tally.reordered) == (10, [], 0, 0)
    assert tally.lost(0, 10) == 0


def test_what_was_sent_and_never_came_is_lost_also_at_the_end() -> None:
    tally = fed(0, 1, 5, 6)

    assert tally.lost(0, 7) == 3
    assert tally.lost(0, 10) == 6
    assert tally.lost(3, 6) == 2
    assert tally.lost(6, 6) == 0


def test_what_comes_again_is_doubled_and_what_comes_late_is_reordered() -> None:
    tally = fed(0, 3, 1, 1, 3, 2, 4)

    assert (tally.doubled, tally.reordered) == (2, 2)
    assert tally.lost(0, 5) == 0


def test_what_fills_a_hole_in_the_middle_leaves_both_sides_missing() -> None:
    tally = fed(0, 10, 5)

    assert tally.missing == [(1, 5), (6, 10)]
    assert tally.lost(0, 11) == 8


@pytest.mark.parametrize("seed", range(20))
def test_any_order_is_counted_as_a_plain_set_would(seed: int) -> None:
    chance = random.Random(seed)
    numbers = [number for number in range(200) if chance.random() > 0.1]
    numbers += chance.choices(numbers, k=20)
    for _ in range(chance.randrange(30)):
        first, second = chance.randrange(len(numbers)), chance.randrange(len(numbers))
        numbers[first], numbers[second] = numbers[second], numbers[first]

    tally = fed(*numbers)

    seen: set[int] = set()
    doubled = reordered = 0
    for number in numbers:
        doubled += number in seen
        reordered += number not in seen and number < max(seen, default=-1)
        seen.add(number)
    assert (tally.doubled, tally.reordered) == (doubled, reordered)
    for begin, end in ((0, 200), (50, 150), (0, 0), (190, 260)):
        lacking = set(range(begin, end)) - seen
        assert tally.lost(begin, end) == len(lacking)
        assert list(tally.lacking(begin, end)) == sorted(lacking)
    assert tally.first == min(seen)


def test_holes_are_bounded_and_rather_too_much_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "RANGES_MAX", 5)

    tally = fed(*range(0, 100, 2))

    assert len(tally.missing) <= 6
    assert tally.lost(0, 100) >= 50


def test_batches_are_taken_in_as_their_messages_are() -> None:
    found = Positions(begin=3)
    for first, count in ((3, 2), (8, 2), (4, 3), (8, 4)):
        found.take(first, count)

    assert (found.next, found.missing) == (12, [(7, 8)])
    assert (found.doubled, found.reordered) == (3, 2)
