"""As what delayed requests are known, whatever their batches say."""

from __future__ import annotations

import pytest
import zmq

from roq.log import delayed_requests
from roq.log.delayed_requests import DelayedRequests, FormerNames
from roq.model import LogId, PublisherId
from roq.protocol.attributes import Attributes, pack_attributes
from roq.protocol.batch import pack
from roq.protocol.columns import PRIORITIES, pack_column, pack_sent_again
from roq.protocol.orphaned_answers import sent_again, token_of
from roq.protocol.requesting import AGAIN, AGAIN_PUBLISHER, DELAYED_FROM, Position


def batch(
    *names: str, link_number: int = 0, publisher: str = "aa" * 16, extensions: bytes = b""
) -> bytes:
    given = {
        index: Attributes(None, (), {"roq.delayed.id": name, "roq.delayed.publisher": publisher}, 0)
        for index, name in enumerate(names)
    }
    return pack(
        [b"x"] * len(names), publisher=PublisherId(b"e" * 16), epoch=0, link_number=link_number,
        first_sequence=0, created_us=0, attributes=pack_attributes(given), extensions=extensions,
    )  # fmt: skip


def name(number: int) -> str:
    return (DELAYED_FROM + number).to_bytes(8, "big").hex()


def known(number: int) -> Position:
    return Position(DELAYED_FROM + number, 0)


def test_each_is_known_by_its_message_until_it_ends() -> None:
    delayed = DelayedRequests()
    delayed.opened(7, 0b101, batch(name(1), name(2), name(3)))
    assert delayed.where(known(3)) == Position(7, 2)
    assert delayed.where(known(2)) == known(2), "that one has ended"
    assert delayed.name(Position(7, 0)) == known(1)
    assert delayed.name(Position(7, 1)) == Position(7, 1)
    delayed.check({Position(7, 0), Position(7, 2)})
    assert delayed.ended(Position(7, 0)) == (known(1), b"\xaa" * 16)
    assert delayed.ended(Position(7, 0)) is None
    delayed.check({Position(7, 2)})
    delayed.clear()
    delayed.check(set())


def test_one_that_runs_again_is_known_by_where_it_was() -> None:
    delayed = DelayedRequests()
    again = Attributes(None, (), {AGAIN: "3-1", AGAIN_PUBLISHER: "bb" * 16}, 0)
    both = Attributes(None, (), {AGAIN: "4-0", "roq.delayed.id": name(1)}, 0)
    wrong = Attributes(None, (), {AGAIN: "3-x"}, 0)
    data = pack(
        [b"x"] * 3, publisher=PublisherId(b"e" * 16), epoch=0, link_number=0, first_sequence=0,
        created_us=0, attributes=pack_attributes({0: again, 1: both, 2: wrong}),
    )  # fmt: skip
    assert delayed.opened(7, 0b111, data) == [Position(3, 1)]
    assert delayed.where(Position(3, 1)) == Position(7, 0)
    assert delayed.where(known(1)) == Position(7, 1), (
        "what its requester has said counts for nothing"
    )
    assert delayed.name(Position(7, 2)) == Position(7, 2)
    assert delayed.ended(Position(7, 0)) == (Position(3, 1), b"\xbb" * 16)


def test_what_comes_out_of_a_transaction_is_known_by_where_it_is() -> None:
    delayed = DelayedRequests()
    theirs = {"roq.transaction.id": name(1), "roq.delayed.id": name(2), AGAIN: "3-1"}
    given = {
        at: Attributes(None, (), {k: theirs[k] for k in ("roq.transaction.id", also)}, 0)
        for at, also in enumerate(("roq.delayed.id", AGAIN))
    }
    data = pack(
        [b"x"] * 2, publisher=PublisherId(b"e" * 16), epoch=0, link_number=0, first_sequence=0,
        created_us=0, attributes=pack_attributes(given),
    )  # fmt: skip
    assert delayed.opened(7, 0b11, data) == [], "nobody else's outcome goes for it"
    delayed.check(set())


@pytest.mark.parametrize("extensions", [b"", pack_sent_again()])
def test_only_an_exchange_says_so(extensions: bytes) -> None:
    delayed = DelayedRequests()
    delayed.opened(7, 1, batch(name(1), link_number=1, extensions=extensions))
    assert delayed.where(known(1)) == known(1)


def test_a_batch_may_be_a_message_as_it_was_received() -> None:
    delayed = DelayedRequests()
    delayed.opened(7, 1, zmq.Frame(batch(name(1), link_number=1)))
    delayed.check(set())


def test_no_name_is_given_twice() -> None:
    delayed = DelayedRequests()
    delayed.opened(7, 1, batch(name(1)))
    delayed.opened(8, 1, batch(name(1)))
    assert delayed.ended(Position(8, 0)) is None, "it has the name of where it is"
    assert delayed.where(known(1)) == Position(7, 0)


def test_what_cannot_be_read_has_the_name_of_where_it_is() -> None:
    delayed = DelayedRequests()
    for data in (batch("zz"), batch("00" * 8), batch(name(1), publisher="zz"), batch(name(1))[:70]):
        delayed.opened(7, 1, data)
    delayed.check(set())


def test_of_batches_that_say_so_it_is_known_what_was_sent_once_more() -> None:
    gone, maker = LogId(1, 1), b"p" * 16
    told = sent_again({"mark": "x"}, gone, Position(4, 0))
    token = token_of(gone, Position(4, 0), maker, b"x")
    for link_number, area, found in (
        (1, pack_sent_again(), True),
        (1, pack_column(PRIORITIES, b"\x01"), False),
        (1, b"", False),
        (0, b"", True),  # the exchange has published it, and reads what it has itself
    ):
        delayed = DelayedRequests()
        data = pack(
            [b"x"], publisher=PublisherId(maker), epoch=0, link_number=link_number,
            first_sequence=0, created_us=0, extensions=area,
            attributes=pack_attributes({0: Attributes(None, (), told, 0)}),
        )  # fmt: skip
        assert delayed.opened(7, 1, data) == []
        assert (delayed.former.where(token) == Position(7, 0)) is found
        assert bool(delayed) is found
        delayed.check({Position(7, 0)})
        assert delayed.ended(Position(7, 0)) is None
        delayed.check(set())


def test_a_delayed_request_that_was_sent_once_more_has_both_names() -> None:
    gone, maker = LogId(1, 1), b"\xaa" * 16
    given = {"roq.delayed.id": name(1), "roq.delayed.publisher": maker.hex()}
    data = pack(
        [b"x"], publisher=PublisherId(b"e" * 16), epoch=0, link_number=0, first_sequence=0,
        created_us=0,
        attributes=pack_attributes({0: Attributes(None, (), sent_again(given, gone, known(1)), 0)}),
    )  # fmt: skip
    delayed = DelayedRequests()
    delayed.opened(7, 1, data)
    assert delayed.where(known(1)) == Position(7, 0)
    assert delayed.former.where(token_of(gone, known(1), maker, b"x")) == Position(7, 0)
    assert delayed.ended(Position(7, 0)) == (known(1), maker)
    delayed.check(set())


# --- earlier names -------------------------------------------------------------------------------

LOG = LogId(1, 1)
MAKER = b"p" * 16
HERE = Position(7, 0)


def token_at(index: int, payload: bytes = b"x") -> bytes:
    return token_of(LOG, Position(0, index), MAKER, payload)


def test_a_request_is_found_by_each_of_its_earlier_names_until_it_ends() -> None:
    names = FormerNames()
    told = sent_again(sent_again({}, LOG, Position(0, 1)), LOG, Position(0, 2))
    names.opened(HERE, told, MAKER, b"x")
    names.opened(Position(7, 1), {}, MAKER, b"x")
    assert [names.where(token_at(index)) for index in (0, 1, 2)] == [None, HERE, HERE]
    assert names.where(token_at(1, b"y")) is None, "whoever has not had it cannot name it"
    names.check({HERE})
    names.ended(Position(7, 1))
    names.ended(HERE)
    names.ended(HERE)
    assert names.where(token_at(1)) is None
    names.check(set())


def test_of_two_that_say_the_same_the_first_one_is_found() -> None:
    names = FormerNames()
    told = sent_again({}, LOG, Position(0, 1))
    names.opened(HERE, told, MAKER, b"x")
    names.opened(HERE, told, MAKER, b"x")
    names.opened(Position(8, 0), told, MAKER, b"x")
    names.check({HERE, Position(8, 0)})
    names.ended(Position(8, 0))
    assert names.where(token_at(1)) == HERE
    names.clear()
    names.check(set())


def test_so_many_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_requests, "TOKENS_MAX", 2)
    names = FormerNames()
    for index in range(3):
        told = sent_again({}, LOG, Position(0, index))
        names.opened(Position(7, index), told, MAKER, b"x")
    assert [names.where(token_at(index)) is not None for index in range(3)] == [True, True, False]
    names.check({Position(7, 0), Position(7, 1)})


def test_where_no_more_are_known_batches_are_not_read_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After an exchange has died a hundred thousand requests may come."""
    monkeypatch.setattr(delayed_requests, "TOKENS_MAX", 1)
    delayed, told = DelayedRequests(), sent_again({}, LOG, Position(4, 0))
    data = pack(
        [b"x"] * 3, publisher=PublisherId(MAKER), epoch=0, link_number=1, first_sequence=0,
        created_us=0, extensions=pack_sent_again(),
        attributes=pack_attributes({at: Attributes(None, (), told, 0) for at in range(3)}),
    )  # fmt: skip
    delayed.opened(7, 0b111, data)
    assert (delayed.former.full, delayed.former.read) == (True, 1)
    monkeypatch.setattr(delayed_requests, "read_header", None)
    delayed.opened(8, 0b111, data)
    assert delayed.former.read == 1


def test_so_many_requests_are_looked_at_between_two_ticks_whatever_they_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All may say the same, so that hardly any name is known."""
    monkeypatch.setattr(delayed_requests, "READS_MAX", 5)
    delayed, told = DelayedRequests(), sent_again({}, LOG, Position(4, 0))

    def data(link_number: int) -> bytes:
        named = told | ({} if link_number else {"roq.delayed.id": name(1)})
        return pack(
            [b"x"] * 3, publisher=PublisherId(MAKER), epoch=0, link_number=link_number,
            first_sequence=0, created_us=0, extensions=pack_sent_again(),
            attributes=pack_attributes({at: Attributes(None, (), named, 0) for at in range(3)}),
        )  # fmt: skip

    for read in (5, 10):
        for offset in range(10):
            delayed.opened(offset, 0b111, data(1))
        assert delayed.former.read == read
        delayed.former.tick()
    for offset in range(10):
        delayed.opened(offset, 0b111, data(1))
    delayed.opened(99, 0b111, data(0))
    assert delayed.where(known(1)) == Position(99, 0), "what its exchange has named is"
    token = token_of(LOG, Position(4, 0), MAKER, b"x")
    assert delayed.former.where(token) == Position(0, 0)
