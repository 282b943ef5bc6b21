"""Members, and what they get of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from roq.log.group_changes import Tried
from roq.log.leases import (
    Lease,
    Member,
    NumberedLeases,
    Piece,
    bits_at,
    runs_of,
    split_by_attempts,
    wait_after,
)
from roq.model import HOST_EPOCH_MAX, child_epoch
from roq.protocol.consuming import GroupSettings


def member(granted: int, window: int, granted_bytes: int = 1) -> Member:
    made = Member(bytes(16), "one", 0.0)
    made.granted, made.window, made.granted_bytes = granted, window, granted_bytes
    return made


@pytest.mark.parametrize(
    ("granted", "window", "count", "share"),
    [(10, 10, 4, 4), (3, 10, 4, 0), (4, 4, 9, 4), (1, 4, 9, 0), (1, 1, 9, 1), (0, 4, 1, 0)],
)
def test_a_batch_is_split_only_for_who_could_never_hold_it(
    granted: int, window: int, count: int, share: int
) -> None:
    assert member(granted, window).share(count) == share


def test_who_has_no_room_in_bytes_or_a_full_connection_gets_nothing() -> None:
    assert member(10, 10, 0).share(1) == 0
    blocked = member(10, 10)
    blocked.blocked = True
    assert blocked.credit == 0


def test_a_lease_has_a_bit_for_each_message_and_a_number_of_its_own() -> None:
    numbers = NumberedLeases()
    one = Lease(numbers.next(), member(1, 1), Piece(5, 2, 3, 1, "no"))
    assert (one.open, one.attempts, one.reason) == (0b111, 1, "no")
    assert numbers.next() > one.number


@pytest.mark.parametrize("host", [5, 20, 2_004, HOST_EPOCH_MAX])
def test_the_numbers_of_a_later_process_are_higher(host: int) -> None:
    before, later = NumberedLeases(child_epoch(4, 2)), NumberedLeases(child_epoch(host, 2))
    numbers = [before.next() for _ in range(1_000)]
    first = later.next()
    assert first > numbers[-1]
    assert first < 1 << 63


def test_bits_are_read_as_runs() -> None:
    assert bits_at(2, 3) == 0b11100
    assert runs_of(0b1101_0011) == [(0, 2), (4, 1), (6, 2)]
    assert runs_of(0) == []


def test_what_was_tried_differently_goes_out_apart() -> None:
    tried = [Tried(5, 1, 2, 1, "first"), Tried(5, 2, 1, 2, "second")]
    assert split_by_attempts(5, 0, 4, tried) == [
        Piece(5, 0, 1, 0, ""), Piece(5, 1, 1, 1, "first"), Piece(5, 2, 1, 2, "second"),
        Piece(5, 3, 1, 0, ""),
    ]  # fmt: skip
    assert split_by_attempts(5, 0, 4, []) == [Piece(5, 0, 4, 0, "")]


def test_what_was_tried_message_by_message_is_looked_at_once() -> None:
    class Once(list[Tried]):
        looks = 0

        def __iter__(self) -> Iterator[Tried]:
            Once.looks += 1
            return super().__iter__()

        def __reversed__(self) -> Iterator[Tried]:
            Once.looks += 1
            return super().__reversed__()

    tried = Once(Tried(5, index, 1, 1 + index % 2, "no") for index in range(100))
    assert len(split_by_attempts(5, 10, 50, tried)) == 50
    assert Once.looks == 1


def test_waits_double_up_to_the_longest_and_are_spread_over_a_quarter_more() -> None:
    settings = GroupSettings(retry_seconds=1.0, retry_seconds_max=60.0)
    for tried, least in ((0, 1.0), (1, 2.0), (5, 32.0), (6, 60.0), (10_000, 60.0)):
        waits = [wait_after(tried, offset, settings) for offset in range(1_000)]
        assert waits == [wait_after(tried, offset, settings) for offset in range(1_000)]
        assert least <= min(waits) < 1.01 * least
        assert 1.24 * least < max(waits) < 1.25 * least
        tenths = Counter(int(40 * (wait / least - 1)) for wait in waits)
        assert set(tenths) == set(range(10))
        assert max(tenths.values()) < 130
    assert wait_after(0, 7, settings) != wait_after(1, 7, settings) / 2
    longest = GroupSettings(retry_seconds=86_400.0, retry_seconds_max=86_400.0)
    assert max(wait_after(3, offset, longest) for offset in range(100)) == 86_400.0
    assert wait_after(3, 7, GroupSettings(retry_seconds=0.0)) == 0.0
