"""Producers of transactions: who is asked next, and that it costs little to find."""

from __future__ import annotations

import pytest

from roq.exchange import producers as module
from roq.exchange.producers import AT_ONCE, Producer, Producers
from roq.exchange.readers import RefusedRequest


def made(*names: str, group: str = "g") -> tuple[Producers, list[Producer]]:
    """Each publishes as its first letter; the last one is asked first."""
    there = Producers()
    every = [Producer(each.encode(), b"tag1", group, each[:1].encode(), 0.0) for each in names]
    for each in every:
        there.add(each)
    there.check()
    return there, every


def test_who_publishes_as_this_is_asked_and_then_whoever_was_asked_longest_ago() -> None:
    there, (a, b, c) = made("a", "b", "c")
    assert there.choose("g", b"a", None) is a
    assert there.choose("g", b"a", a) is c
    there.ask(c, b"1")
    assert there.choose("g", b"z", None) is b
    there.ask(b, b"2")
    assert there.choose("g", b"z", None) is a
    assert there.choose("other", b"a", None) is None
    there.check()


def test_who_was_asked_last_is_asked_again_only_if_nobody_else_has_room() -> None:
    there, (a, b) = made("a1", "a2")
    for name in range(AT_ONCE):
        there.ask(b, b"%d" % name)
    assert there.choose("g", b"a", a) is a
    for name in range(AT_ONCE):
        there.ask(a, b"%d" % name)
    assert there.choose("g", b"a", None) is None


def test_of_two_that_publish_as_one_the_one_that_was_asked_longest_ago_is_asked() -> None:
    there, (first, second, _) = made("a1", "a2", "b")
    there.ask(second, b"1")
    assert there.choose("g", b"a", None) is first


def test_to_choose_among_thousands_few_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    there, every = made(*map(str, range(1_000)))
    looked: list[int] = []
    monkeypatch.setattr(module, "len", lambda some: looked.append(1) or len(some), raising=False)
    for name in range(500):
        chosen = there.choose("g", b"none", every[0])
        assert chosen is not None
        there.ask(chosen, b"%d" % name)
    assert len(looked) <= 2 * 500


def test_who_is_silent_is_named_and_who_is_heard_is_not() -> None:
    there, (a, b) = made("a", "b")
    assert there.heard(a.route, a.tag, "g", 5.0) is a
    assert there.heard(a.route, a.tag, "other", 5.0) is None
    assert there.silent(1.0) is b
    there.remove(b)
    assert there.silent(1.0) is None
    assert (there.has("g"), there.of(b.route), len(there)) == (True, [], 1)
    there.remove(a)
    assert not there.has("g")
    there.check()


def test_they_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PRODUCERS_MAX", 1)
    there, _ = made("a")
    with pytest.raises(RefusedRequest, match="close some"):
        there.add(Producer(b"b", b"tag1", "g", b"", 0.0))
    there.check()
