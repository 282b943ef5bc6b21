"""How much is fetched again at a time."""

from __future__ import annotations

from roq.client.subscribe.recalls import Recall, Recalls
from roq.client.subscribe.stream import Held
from roq.model import LogId
from roq.protocol.batch import Kind

A, B = (1, 7), (2, 7)


def stub(source: LogId, offset: int) -> Held:
    return Held(offset, offset + 1, int(Kind.DATA), 0.0, source, b"t", offset, None)


def test_each_exchange_has_room_for_so_many() -> None:
    wishes = Recalls(2)
    assert wishes.make(b"a", stub(A, 1)) == Recall(A, b"t", 1)
    assert wishes.make(b"a", stub(A, 2)) == Recall(A, b"t", 2)
    assert wishes.make(b"b", stub(A, 3)) is None
    assert wishes.make(b"b", stub(B, 3)) == Recall(B, b"t", 3)
    assert wishes.queued
    assert list(wishes.ready()) == []


def test_who_waits_has_its_turn_when_there_is_room_again() -> None:
    wishes = Recalls(1)
    wishes.make(b"a", stub(A, 1))
    for key, offset in ((b"b", 2), (b"c", 3)):
        assert wishes.make(key, stub(A, offset)) is None
    assert wishes.done(A, b"t", 1) == b"a"
    assert wishes.done(A, b"t", 1) is None
    granted = []
    for key in wishes.ready():
        granted.append(key)
        assert wishes.make(key, stub(A, 2)) is not None
    assert granted == [b"b"]
    assert wishes.queued
    wishes.done(A, b"t", 2)
    assert list(wishes.ready()) == [b"c"]
    assert not wishes.queued


def test_what_an_exchange_was_asked_for_is_over_when_it_has_gone() -> None:
    wishes = Recalls(1)
    wishes.make(b"a", stub(A, 1))
    wishes.make(b"b", stub(A, 2))
    wishes.drop(A)
    assert not wishes.queued
    assert wishes.done(A, b"t", 1) is None
    assert wishes.make(b"b", stub(A, 2)) is not None
