"""Messages that nobody holds: in which order they go out, and when."""

from __future__ import annotations

import pytest

from roq.log.free_messages import STALE_MAX, FreeMessages
from roq.log.leases import Piece


def piece(offset: int, first: int = 0, length: int = 4) -> Piece:
    return Piece(offset, first, length, 0, "")


def test_what_is_ready_goes_out_in_its_order_and_what_was_split_first() -> None:
    free = FreeMessages()
    free.add(piece(1))
    free.add(piece(2))
    free.add(piece(0), first=True)
    order = []
    while (first := free.first(0.0)) is not None:
        free.remove(first)
        order.append(first.offset)
    assert order == [0, 1, 2]
    assert not free
    assert free.count == 0


def test_what_waits_goes_out_at_its_time_before_what_is_ready() -> None:
    free = FreeMessages()
    free.wait(piece(1), 5.0)
    free.wait(piece(2), 3.0)
    assert free.first(2.9) is None
    assert free.first(3.0) == piece(2)
    free.add(piece(3))
    assert free.first(9.0) == piece(2)
    free.remove(piece(2))
    assert free.first(4.9) == piece(3)
    assert free.first(5.0) == piece(1)
    free.remove(piece(1))
    assert free.count == 4


def test_the_lowest_holds_up_the_others_until_its_time() -> None:
    free = FreeMessages()
    free.add(piece(2))
    free.wait(piece(1), 5.0)
    assert free.lowest(4.0) is None
    assert free.lowest(5.0) == piece(1)


def test_a_part_is_taken_out_and_the_rest_stays_as_it_was() -> None:
    free = FreeMessages()
    free.wait(piece(1, 0, 10), 5.0)
    free.add(piece(2))
    assert free.take(1, 3, 4) == [piece(1, 3, 4)]
    assert sorted(free) == [piece(1, 0, 3), piece(1, 7, 3), piece(2)]
    assert free.first(0.0) == piece(2)
    free.remove(piece(2))
    assert free.first(4.0) is None
    assert free.first(5.0) == piece(1, 0, 3)
    assert free.take(1, 20, 4) == []
    free.clear()
    assert (list(free), free.count) == ([], 0)


def test_one_is_found_by_where_it_is() -> None:
    free = FreeMessages()
    some = Piece(7, 2, 4, 1, "no", 0b1011)
    free.wait(some, 9.0)
    assert [free.at(7, index) for index in range(1, 7)] == [None, some, some, None, some, None]
    assert free.at(8, 2) is None


def test_what_has_left_is_forgotten_though_nobody_asks_for_the_lowest_again() -> None:
    free = FreeMessages()
    free.wait(piece(0), 5.0)
    assert free.lowest(0.0) is None
    for offset in range(1, 10_000):
        free.add(piece(offset))
        free.remove(piece(offset))
    assert len(free._lowest) <= STALE_MAX + 4
    free.add(piece(10_000))
    assert free.lowest(4.0) is None
    assert free.lowest(5.0) == piece(0)


def test_of_pieces_tried_one_by_one_only_those_meant_are_looked_into(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks, bits = 0, Piece.bits.fget  # type: ignore[attr-defined]

    def counted(self: Piece) -> int:
        nonlocal looks
        looks += 1
        return int(bits(self))

    monkeypatch.setattr(Piece, "bits", property(counted))
    free = FreeMessages()
    for index in range(100):
        free.wait(piece(1, index, 1), 5.0)
    assert free.at(1, 50) == piece(1, 50, 1)
    assert free.take(1, 50, 2) == [piece(1, 50, 1), piece(1, 51, 1)]
    assert looks <= 5
    assert free.at(1, 50) is None
    assert free.at(1, 52) == piece(1, 52, 1)
