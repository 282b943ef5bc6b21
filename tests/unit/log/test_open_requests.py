"""Books of the requests that are open."""

from __future__ import annotations

from roq.log.leases import Lease, Member, Piece
from roq.log.open_requests import OpenRequests, RequestBatch, indexes
from roq.protocol.requesting import Position, RequestState


def books(length: int = 4) -> tuple[OpenRequests, Lease]:
    requests = OpenRequests()
    requests.batches[7] = RequestBatch(b"p" * 16, 1, 60.0, 0.0)
    lease = Lease(1, Member(b"m" * 16, "m", 0.0), Piece(7, 2, length, 0, ""))
    requests.lease(lease, 1.0, 0)
    return requests, lease


def test_an_offer_is_confirmed_in_parts() -> None:
    requests, lease = books()
    assert requests.state(Position(7, 3), None) is RequestState.OFFERED
    requests.confirm(lease, 0b0010)
    assert requests.state(Position(7, 3), None) is RequestState.RUNNING
    assert requests.state(Position(7, 2), None) is RequestState.OFFERED
    assert requests.state(Position(7, 0), None) is RequestState.ACCEPTED
    requests.confirm(lease, 0b1101)
    assert not requests.offers
    requests.check()


def test_what_is_free_is_neither_leased_nor_parked() -> None:
    requests, _ = books()
    requests.begin_once(7, b"m", 0b1)
    requests.park(7, 0b1, 5.0)
    assert requests.free(7, 0b1111_1111) == 0b1100_0010
    assert requests.state(Position(7, 0), None) is RequestState.RUNNING
    assert requests.parked_places() == [(7, 0)]
    requests.unpark(7, 0b1)
    assert requests.free(7, 0b1111_1111) == 0b1100_0011
    requests.check()


def test_a_lease_without_a_word_tells_what_was_begun() -> None:
    requests, lease = books()
    requests.confirm(lease, 0b0011)
    requests.begin_once(7, b"m", 0b0100)
    assert requests.withdraw(lease) == (0b1000, 0b0100)


def test_what_must_not_be_begun_again_is_told_when_it_changes() -> None:
    requests, lease = books()
    requests.begin_once(7, b"m", 0b1100)
    requests.begin_once(7, b"n", 0b0001)
    assert sorted(requests.take_begun()) == [(7, b"m", b"\x0c"), (7, b"n", b"\x01")]
    assert not requests.once_changed
    assert (requests.once(7), requests.once_by(7, b"m")) == (0b1101, 0b1100)
    requests.close(lease, 0b0001)
    assert requests.take_begun() == [(7, b"m", b"\x08")]
    requests.check()
    requests.forget_once(7, 0b1000)
    assert requests.all_begun() == [(7, b"n", b"\x01")]
    requests.drop_below(8)
    assert requests.all_begun() == []


def test_bits_have_indexes() -> None:
    assert indexes(0b1011_0001) == [0, 4, 5, 7]
