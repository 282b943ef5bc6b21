"""A seat begins with nothing; who is quick holds more."""

from __future__ import annotations

import pytest

from roq.client.consume.seat import (
    HOLD_SECONDS,
    IDLE_SECONDS,
    LOOK_SECONDS,
    Prefetch,
    Seat,
    SeatPhase,
)
from roq.model import ExchangeInfo


def test_seats_share_nothing() -> None:
    info = ExchangeInfo(number=1, epoch=1, generation=1, host="h", data="d", live="l")
    one, other = Seat(info, b"q"), Seat(info, b"q")
    one.holdings[1] = None  # type: ignore[assignment]
    one.returns.append(None)  # type: ignore[arg-type]
    assert (other.holdings, other.returns, other.phase) == ({}, [], SeatPhase.AWAY)
    assert one.extensions is not other.extensions


def test_who_is_quick_holds_what_it_settles_in_a_tenth_of_a_second() -> None:
    prefetch = Prefetch(4_096, 32_768)
    prefetch.look(0, 100.0)
    prefetch.look(10_000, 100.0 + HOLD_SECONDS)
    assert prefetch.messages == pytest.approx(10_000, abs=1)
    prefetch.look(1_000_000, 100.0 + 2 * HOLD_SECONDS)
    assert prefetch.messages == 32_768


def test_who_becomes_slow_holds_as_few_as_in_the_beginning() -> None:
    prefetch = Prefetch(4_096, 32_768)
    assert prefetch.messages == 4_096
    prefetch.look(0, 100.0)
    prefetch.look(50_000, 100.1)
    assert prefetch.messages == 32_768
    prefetch.look(50_001, 101.0)
    assert prefetch.messages == 4_096


def test_who_tells_nothing_for_a_while_holds_as_few_as_in_the_beginning() -> None:
    prefetch = Prefetch(4_096, 32_768)
    assert not prefetch.idle(50.0)
    prefetch.look(0, 100.0)
    prefetch.look(50_000, 100.1)
    assert not prefetch.idle(100.1 + IDLE_SECONDS / 2)
    assert prefetch.messages == 32_768
    assert prefetch.idle(100.1 + IDLE_SECONDS)
    assert prefetch.messages == 4_096
    assert not prefetch.idle(101.0), "nothing has changed since"


def test_it_is_not_judged_by_a_moment() -> None:
    prefetch = Prefetch(4_096, 32_768)
    prefetch.look(0, 100.0)
    prefetch.look(10_000, 100.0 + LOOK_SECONDS / 2)
    assert prefetch.messages == 4_096


def test_what_the_program_wants_to_hold_is_neither_raised_nor_lowered() -> None:
    prefetch = Prefetch(7, 0)
    prefetch.look(0, 100.0)
    prefetch.look(1_000_000, 101.0)
    assert prefetch.messages == 7
