"""What a policy is shown: who is where, what it brings, and who is to be left alone."""

from __future__ import annotations

import pytest
from monitor_queue import Queue, Script

from roq.policy.snapshot import ExchangeView, Move, QueueView, Stripe

P, Q = b"p", b"q"


def scripted() -> tuple[Queue, Script]:
    """Two exchanges that all know; publisher p at the first one, q at the second one."""
    script = Script()
    queue = Queue(2, policy=script)
    queue.add_publisher("p", 100)
    queue.add_publisher("q", 50)
    queue.periods(2)
    return queue, script


def shown(script: Script) -> tuple[QueueView, ExchangeView, ExchangeView]:
    """The last view, and the exchanges in it."""
    view = script.views[-1]
    first, second = view.exchanges
    return view, first, second


def test_an_exchange_is_shown_with_what_it_carries_and_who_brings_most_of_it() -> None:
    _, script = scripted()
    view, first, second = shown(script)
    assert (view.missing, view.scaling) == (0, False)
    assert [first.number, second.number] == [1, 2]
    assert (first.publishers, first.accepting) == (1, True)
    assert first.throughput == pytest.approx(6_000)
    assert [(each.id, each.exchanges, each.moving) for each in first.top] == [(P, (1,), False)]


def test_a_move_counts_where_it_leads_to_before_reports_tell_it() -> None:
    queue, script = scripted()
    script.wanted = [Move(P, 1, 2, "because")]
    queue.periods(2)
    _, first, second = shown(script)
    assert first.throughput == pytest.approx(0, abs=1)
    assert second.throughput == pytest.approx(9_000)
    assert [each.id for each in second.top] == [P, Q], "the busiest first"


def test_a_publisher_that_is_on_its_way_is_to_be_left_alone() -> None:
    queue, script = scripted()
    queue.publishers["p"].mood = "ignores"
    script.wanted = [Move(P, 1, 2, "because")]
    queue.periods(2)
    _, first, second = shown(script)
    (p,) = [each for each in (*first.top, *second.top) if each.id == P]
    assert p.moving


def test_a_striped_publisher_is_shown_at_all_its_exchanges() -> None:
    queue, script = scripted()
    script.wanted = [Stripe(P, (1, 2), "because")]
    queue.periods(3)
    _, first, second = shown(script)
    for exchange in (first, second):
        (p,) = [each for each in exchange.top if each.id == P]
        assert sorted(p.exchanges) == [1, 2]


def test_an_exchange_that_the_queue_has_and_that_does_not_serve_is_missing() -> None:
    queue, script = scripted()
    queue.missing.append(2)
    queue.kill(2)
    queue.periods(6)
    view = script.views[-1]
    assert [each.number for each in view.exchanges] == [1]
    assert (view.missing, view.size) == (1, 2)
