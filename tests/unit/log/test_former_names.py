"""By which tokens open requests are found that were sent once more."""

from __future__ import annotations

import pytest

from roq.log import former_names
from roq.log.former_names import FormerNames
from roq.model import LogId
from roq.protocol.homeless import sent_again, token_of
from roq.protocol.requesting import Position

LOG = LogId(1, 1)
MAKER = b"p" * 16
HERE = Position(7, 0)


def token(index: int, payload: bytes = b"x") -> bytes:
    return token_of(LOG, Position(0, index), MAKER, payload)


def test_a_request_is_found_by_each_of_its_earlier_names_until_it_ends() -> None:
    names = FormerNames()
    told = sent_again(sent_again({}, LOG, Position(0, 1)), LOG, Position(0, 2))
    names.opened(HERE, told, MAKER, b"x")
    names.opened(Position(7, 1), {}, MAKER, b"x")
    assert [names.where(token(index)) for index in (0, 1, 2)] == [None, HERE, HERE]
    assert names.where(token(1, b"y")) is None, "whoever has not had it cannot name it"
    names.check({HERE})
    names.ended(Position(7, 1))
    names.ended(HERE)
    names.ended(HERE)
    assert names.where(token(1)) is None
    names.check(set())


def test_of_two_that_say_the_same_the_first_one_is_found() -> None:
    names = FormerNames()
    told = sent_again({}, LOG, Position(0, 1))
    names.opened(HERE, told, MAKER, b"x")
    names.opened(HERE, told, MAKER, b"x")
    names.opened(Position(8, 0), told, MAKER, b"x")
    names.check({HERE, Position(8, 0)})
    names.ended(Position(8, 0))
    assert names.where(token(1)) == HERE
    names.clear()
    names.check(set())


def test_so_many_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(former_names, "TOKENS_MAX", 2)
    names = FormerNames()
    for index in range(3):
        told = sent_again({}, LOG, Position(0, index))
        names.opened(Position(7, index), told, MAKER, b"x")
    assert [names.where(token(index)) is not None for index in range(3)] == [True, True, False]
    names.check({Position(7, 0), Position(7, 1)})
