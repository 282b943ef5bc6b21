"""Free messages that go out by key: which come first, and what waits for what."""

from __future__ import annotations

import pytest

from roq.log.keyed_messages import KeyedMessages
from roq.log.leases import Lease, Member, Piece, piece_of

ME = b"m" * 16


class Keyed:
    """Free messages, one member, and a clock."""

    def __init__(self) -> None:
        self.free = KeyedMessages()
        self.free.join(ME)
        self.member = Member(ME, "m", 0.0)
        self.now = 0.0

    def batch(self, offset: int, keys: str) -> None:
        """A letter for each message; `-`: without a key."""
        column = bytes(0 if key == "-" else ord(key) for key in keys)
        self.free.open(offset, column, 0)
        self.free.add(piece_of(offset, (1 << len(keys)) - 1))

    def late(self, offset: int, bits: int, until: float, attempts: int = 1) -> None:
        self.free.wait(piece_of(offset, bits, attempts, "no"), until)

    def next(self) -> tuple[int, int] | None:
        """Offset and bits of what goes out."""
        piece = self.free.choose(ME, self.now)
        if piece is None:
            return None
        self.free.remove(piece)
        self.free.leased(Lease(1, self.member, piece))
        return piece.offset, piece.bits << piece.first


def test_batches_go_out_whole_and_in_order() -> None:
    keyed = Keyed()
    keyed.batch(3, "aab")
    keyed.batch(7, "b-")
    assert keyed.free.count == 5
    assert [keyed.next(), keyed.next(), keyed.next()] == [(3, 0b111), (7, 0b11), None]
    assert not keyed.free


def test_what_failed_holds_back_its_key_alone() -> None:
    keyed = Keyed()
    keyed.batch(1, "abac")
    assert keyed.next() == (1, 0b1111)
    keyed.late(1, 0b0001, 5.0)
    keyed.batch(2, "aabb")
    keyed.batch(3, "a")
    assert keyed.next() == (2, 0b1100)
    assert keyed.next() is None
    keyed.now = 5.0
    assert [keyed.next(), keyed.next(), keyed.next()] == [(1, 1), (2, 0b11), (3, 1)]


def test_what_was_given_back_untried_comes_before_what_is_behind_it() -> None:
    keyed = Keyed()
    keyed.batch(1, "ab")
    keyed.batch(2, "ab")
    assert [keyed.next(), keyed.next()] == [(1, 0b11), (2, 0b11)]
    keyed.batch(3, "ab")
    keyed.free.wait(piece_of(2, 0b01), 0.0)
    keyed.free.wait(piece_of(1, 0b10), 0.0)
    assert [keyed.next(), keyed.next(), keyed.next()] == [(1, 0b10), (2, 0b01), (3, 0b11)]


def test_what_is_ready_again_goes_before_what_is_behind_it_whatever_its_key() -> None:
    keyed = Keyed()
    keyed.batch(1, "a")
    assert keyed.next() == (1, 1)
    keyed.late(1, 1, 0.0)
    keyed.batch(2, "b")
    assert [keyed.next(), keyed.next()] == [(1, 1), (2, 1)]


def test_in_one_batch_a_late_message_divides_what_is_before_from_what_is_behind() -> None:
    keyed = Keyed()
    keyed.batch(1, "aaaab")
    assert keyed.next() == (1, 0b11111)
    keyed.free.wait(piece_of(1, 0b11001), 0.0)
    keyed.late(1, 0b00010, 5.0)
    keyed.late(1, 0b00100, 1.0, 2)
    assert [keyed.next(), keyed.next()] == [(1, 0b10001), None]
    keyed.now = 2.0
    assert keyed.next() is None, "the second one waits for the first one"
    keyed.now = 5.0
    assert [keyed.next(), keyed.next(), keyed.next()] == [(1, 0b10), (1, 0b100), (1, 0b1000)]


def test_a_part_of_a_late_piece_may_go_and_the_rest_keeps_its_time() -> None:
    keyed = Keyed()
    keyed.batch(1, "abc")
    assert keyed.next() == (1, 0b111)
    keyed.late(1, 0b111, 5.0)
    keyed.free.remove(piece_of(1, 0b010, 1, "no"))
    assert keyed.next() is None
    assert [each.bits << each.first for each in keyed.free] == [0b101]
    keyed.now = 5.0
    assert keyed.next() == (1, 0b101)


def test_a_member_takes_back_what_it_had_in_pieces_without_holes() -> None:
    keyed = Keyed()
    keyed.batch(1, "abcd")
    assert keyed.next() == (1, 0b1111)
    keyed.free.wait(piece_of(1, 0b1010), 0.0)
    keyed.late(1, 0b0101, 5.0)
    taken = keyed.free.take(1, 0, 3, ME)
    assert sorted(taken) == [
        Piece(1, 0, 1, 1, "no"), Piece(1, 1, 1, 0, ""), Piece(1, 2, 1, 1, "no"),
    ]  # fmt: skip
    assert keyed.next() == (1, 0b1000)
    assert keyed.free.take(9, 0, 3, ME) == []
    stranger = b"s" * 16
    keyed.free.wait(piece_of(1, 0b0001), 0.0)
    assert keyed.free.take(1, 0, 1, stranger) == [], "of its key something is out"


def test_what_a_new_member_is_to_have_it_gets_when_it_has_come_back() -> None:
    keyed = Keyed()
    keyed.batch(1, "".join(map(chr, range(1, 100))))
    keyed.free.join(b"s" * 16)
    mine = keyed.free.choose(ME, 0.0)
    theirs = keyed.free.choose(b"s" * 16, 0.0)
    assert mine is not None
    assert theirs is not None
    assert (mine.bits << mine.first) | (theirs.bits << theirs.first) == (1 << 99) - 1
    assert mine.amount + theirs.amount == 99
    keyed.free.leave(b"s" * 16)
    assert keyed.next() == (1, (1 << 99) - 1)


@pytest.mark.parametrize("count", [1, 3_000])
def test_nothing_grows_with_what_has_left(count: int) -> None:
    keyed = Keyed()
    for offset in range(count):
        keyed.free.open(offset, b"a", offset)
        keyed.free.add(piece_of(offset, 1))
        assert keyed.next() == (offset, 1)
        keyed.late(offset, 1, 0.0)
        assert keyed.next() == (offset, 1)
    free = keyed.free
    assert not free
    assert free.first(0.0) is None
    assert len(free._columns) == 1
    assert len(free._offsets) <= 1_001
    assert len(free._heap) <= 1_001
    free.clear()
    assert (list(free), free.count) == ([], 0)


@pytest.mark.parametrize("key", ["a", "-"])
def test_one_key_group_of_a_whole_batch_takes_one_byte(key: str) -> None:
    keyed = Keyed()
    keyed.free.open(1, bytes(0 if key == "-" else ord(key) for key in key), 0)
    keyed.free.add(piece_of(1, 0b1111))
    assert keyed.next() == (1, 0b1111)
    keyed.late(1, 0b0010, 5.0)
    keyed.late(1, 0b1101, 0.0)
    assert keyed.next() == (1, 0b0001), "what comes before the late one"
    keyed.now = 5.0
    assert [keyed.next(), keyed.next()] == [(1, 0b0010), (1, 0b1100)]
    assert keyed.free.take(1, 0, 4, ME) == []
    keyed.free.done(1)
    assert not keyed.free._columns
