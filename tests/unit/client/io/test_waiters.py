"""Bells and callbacks of those who wait for a publisher."""

from __future__ import annotations

import select
from collections.abc import Iterator

import pytest

from roq.client.io import waiters
from roq.client.io.waiters import Visit, Waiters


@pytest.fixture
def room() -> Iterator[Waiters]:
    room = Waiters()
    yield room
    room.close()


def rings(bell: int) -> bool:
    return bool(select.select([bell], [], [], 0)[0])


def test_a_bell_rings_until_it_is_silenced(room: Waiters) -> None:
    visit = Visit()
    bell = room.enter(visit)
    assert room.threads
    assert not rings(bell)
    room.ring()
    waiters.sleep([bell], 10.0)
    assert rings(bell)
    waiters.sleep([bell], 10.0, bell)
    assert not rings(bell)
    room.ring(bell)
    assert not rings(bell), "who says so looks anyway"
    room.ring()
    waiters.silence(bell)
    waiters.silence(bell)
    assert not rings(bell)
    room.leave(visit)
    assert not room.threads
    room.leave(visit)
    assert not room.threads


def test_bells_are_used_again(room: Waiters) -> None:
    first, second = Visit(), Visit()
    bell = room.enter(first)
    room.leave(first)
    assert room.enter(second) == bell
    room.leave(second)


def test_who_is_gone_without_a_word_waits_no_more(room: Waiters) -> None:
    visit, other = Visit(), Visit()
    bell = room.enter(visit)
    room.enter(other)
    del visit
    assert room.threads
    room.leave(other)
    assert not room.threads
    assert bell in room._spare


def test_an_event_loop_is_called_once(room: Waiters) -> None:
    calls: list[int] = []
    room.call(lambda: calls.append(1))
    assert room.loops
    room.ring()
    room.ring()
    assert calls == [1]
    assert not room.loops


def test_a_callback_may_ask_to_be_called_again(room: Waiters) -> None:
    calls: list[int] = []
    room.call(lambda: room.call(lambda: calls.append(1)))
    room.ring()
    assert calls == []
    assert room.loops
    room.ring()
    assert calls == [1]


def test_nobody_is_called_after_the_end(room: Waiters) -> None:
    calls: list[int] = []
    room.call(lambda: calls.append(1))
    room.forget()
    room.ring()
    assert calls == []
