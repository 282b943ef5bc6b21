"""Free messages with priorities: which go out first, and what the lower ones get."""

from __future__ import annotations

from roq.log.free_messages import FreeMessages
from roq.log.leases import piece_of
from roq.log.ranked_messages import HIGHER_OF_LOWER, RankedMessages, RankedRequests


def made(*batches: str, requests: bool = False) -> RankedMessages:
    """Batches, a digit for the priority of each message."""
    ranked = RankedRequests(FreeMessages()) if requests else RankedMessages()
    for offset, ranks in enumerate(batches):
        ranked.open(offset, bytes(map(int, ranks)), 0)
        ranked.add(piece_of(offset, (1 << len(ranks)) - 1))
    return ranked


def take(ranked: RankedMessages, now: float = 0.0) -> tuple[int, int] | None:
    """Offset and bits of what goes out."""
    piece = ranked.first(now)
    if piece is None:
        return None
    ranked.remove(piece)
    ranked.went(piece, now)
    return piece.offset, piece.bits << piece.first


def test_higher_ones_go_first_and_of_each_batch_all_of_a_priority_together() -> None:
    ranked = made("0100", "09", "1")
    assert ranked.count == 7
    got = [take(ranked) for _ in range(6)]
    assert got == [(1, 0b10), (0, 0b10), (2, 1), (0, 0b1101), (1, 0b01), None]
    assert not ranked
    assert (ranked.count, list(ranked)) == (0, [])


def test_of_ten_messages_one_is_of_the_lower_ones_that_wait() -> None:
    ranked = made("0", "5", *(["9"] * 40))
    got = [take(ranked) for _ in range(42)]
    at = [index for index, each in enumerate(got) if each in {(0, 1), (1, 1)}]
    assert at == [HIGHER_OF_LOWER, 2 * HIGHER_OF_LOWER + 1]
    assert got[at[0]] == (0, 1), "the one that waits longest"


def test_lower_requests_of_one_batch_get_their_part_from_the_beginning() -> None:
    ranked = made("0" * 20, *(["9"] * 100), requests=True)
    got = []
    for _ in range(60):
        piece = ranked.first(0.0)
        assert piece is not None
        ranked.remove(piece)
        if piece.amount > 1:  # a member takes one of them
            bits = piece.bits << piece.first
            ranked.add(piece.part(bits & (bits - 1)), first=True)
            piece = piece.part(bits & -bits)
        ranked.went(piece, 0.0)
        got.append(piece.offset)
    low = [at for at, offset in enumerate(got) if not offset]
    assert low == [9, 19, 29, 39, 49, 59]


def test_who_takes_many_lower_requests_at_once_waits_longer_for_the_next() -> None:
    ranked = made("000", *(["9"] * 60), "0", requests=True)
    got = [take(ranked) for _ in range(62)]
    low = [at for at, each in enumerate(got) if each is not None and each[0] in {0, 61}]
    assert low == [9, 9 + 28], "three of forty are as many as one of ten"


def test_a_priority_that_cannot_be_is_the_highest_one() -> None:
    ranked = made("9")
    ranked.open(1, b"\xff\x0a", 0)
    ranked.add(piece_of(1, 0b11))
    assert [take(ranked) for _ in range(2)] == [(0, 1), (1, 0b11)]


def test_an_index_that_its_batch_does_not_have_is_nobody_s() -> None:
    assert made("0900").at(0, 4) is None
    assert made("0", "90", requests=True).at(1, 7) is None


def test_what_waits_for_its_time_holds_up_nobody_and_keeps_its_priority() -> None:
    ranked = made("9", "0")
    first = ranked.first(0.0)
    assert first is not None
    ranked.remove(first)
    ranked.wait(first._replace(attempts=1), 5.0)
    assert take(ranked, 1.0) == (1, 1)
    assert take(ranked, 1.0) is None
    assert take(ranked, 5.0) == (0, 1)


def test_of_requests_nothing_is_reserved_and_those_of_one_priority_go_together() -> None:
    ranked = RankedRequests(FreeMessages())
    ranked.open(0, b"\x00\x01\x00\x00\x01", 0)
    assert [ranked.reserve(piece_of(0, bits)) for bits in (0b01, 0b10)] == [0, 0]
    ranked.add(piece_of(0, 0b11111))
    assert [take(ranked) for _ in range(2)] == [(0, 0b10010), (0, 0b01101)]
    ranked.wait(piece_of(0, 0b01101, 1), 1.0)
    assert [take(ranked, 1.0) for _ in range(2)] == [(0, 0b01101), None]


def test_what_was_there_before_has_the_lowest_priority_and_keeps_its_time() -> None:
    before = FreeMessages()
    before.add(piece_of(0, 0b11))
    before.wait(piece_of(1, 0b1), 5.0)
    ranked = RankedRequests(before)
    ranked.open(2, b"\x03", 0)
    ranked.add(piece_of(2, 0b1))
    ranked.add(piece_of(3, 0b1))
    assert (ranked.count, len(list(ranked))) == (5, 4)
    assert [take(ranked, 1.0) for _ in range(4)] == [(2, 1), (0, 0b11), (3, 1), None]
    assert take(ranked, 5.0) == (1, 1)


def test_one_message_is_found_by_its_place() -> None:
    ranked = made("0900", "7")
    piece = ranked.at(0, 1)
    assert piece is not None
    assert (piece.offset, piece.bits << piece.first) == (0, 0b10)
    assert ranked.at(1, 0) is not None
    ranked.remove(piece)
    assert ranked.at(0, 1) is None
    rest = ranked.at(0, 2)
    assert rest is not None
    assert rest.bits << rest.first == 0b1101


def test_the_lowest_priority_leaves_one_message_of_what_members_take() -> None:
    ranked = made("01")
    assert [ranked.reserve(piece_of(0, bits)) for bits in (0b01, 0b10)] == [1, 0]


def test_messages_are_taken_back_whatever_their_priority() -> None:
    ranked = made("0909")
    taken = ranked.take(0, 0, 3)
    assert sorted(each.bits << each.first for each in taken) == [0b001, 0b010, 0b100]
    assert [each.bits << each.first for each in ranked] == [0b1000]
    ranked.clear()
    assert ranked.first(0.0) is None


def test_nothing_is_kept_of_batches_that_are_done() -> None:
    ranked = RankedMessages()
    for offset in range(100):
        ranked.open(offset, b"\x00", offset)
        ranked.add(piece_of(offset, 1))
        assert take(ranked) == (offset, 1)
    assert len(ranked._columns) == 1


def test_one_priority_of_a_whole_batch_takes_one_byte() -> None:
    ranked = made("01")
    ranked.open(1, b"\x05", 0)
    ranked.add(piece_of(1, (1 << 1_000) - 1))
    assert take(ranked) == (1, (1 << 1_000) - 1)
    ranked.done(1)
    assert take(ranked) == (0, 0b01)
    assert ranked._columns == {0: b"\x00\x01"}
