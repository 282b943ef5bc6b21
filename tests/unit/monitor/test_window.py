import math

import pytest

from roq.machine import ObservedClock
from roq.monitor.window import LoadWindow, Rates, rate
from roq.protocol.reports import ExchangeLoad, PublisherLoad


def test_one_report_says_nothing_about_rates() -> None:
    window = LoadWindow()
    window.add(ExchangeLoad(bytes_in=1_000_000), [], 10.0)
    assert window.mean() == Rates()


def test_rates_are_differences_of_totals_over_the_time_between() -> None:
    window = LoadWindow()
    window.add(ExchangeLoad(messages_in=10, bytes_in=100), [], 10.0)
    window.add(ExchangeLoad(messages_in=30, bytes_in=500, messages_out=6), [], 12.0)
    assert window.mean() == Rates(messages_in=10, bytes_in=200, messages_out=3, bytes_out=0)


def test_only_the_last_five_seconds_count() -> None:
    window = LoadWindow()
    for second in range(20):
        window.add(ExchangeLoad(bytes_in=1_000 if second < 10 else 1_000 + second), [], second)
    assert window.mean().bytes_in == 1.0


def test_a_pause_between_two_reports_still_gives_a_rate() -> None:
    window = LoadWindow()
    window.add(ExchangeLoad(bytes_in=0), [], 0.0)
    window.add(ExchangeLoad(bytes_in=100), [], 100.0)
    assert window.mean().bytes_in == 1.0


def test_a_counter_that_fell_has_started_anew() -> None:
    assert rate(500, 30, 10) == 3.0
    assert rate(500, 530, 10) == 3.0
    assert rate(0, 5, 0) == 0.0


def test_the_busiest_come_first_and_who_was_not_told_before_has_no_rate_yet() -> None:
    window = LoadWindow()
    window.add(
        ExchangeLoad(publishers=3), [PublisherLoad(b"a", 10, 100), PublisherLoad(b"b", 0, 0)], 1.0
    )
    window.add(
        ExchangeLoad(),
        [PublisherLoad(b"a", 20, 200), PublisherLoad(b"b", 5, 900), PublisherLoad(b"c", 9, 9_999)],
        3.0,
    )
    assert [(each.load.publisher, each.messages, each.bytes) for each in window.top()] == [
        (b"b", 2.5, 450.0),
        (b"a", 5.0, 50.0),
        (b"c", 0.0, 0.0),
    ]


def test_a_publisher_that_has_joined_since_has_brought_all_of_it_since() -> None:
    window = LoadWindow()
    window.add(ExchangeLoad(publishers=1), [PublisherLoad(b"a", 10, 100)], 1.0)
    window.add(ExchangeLoad(), [PublisherLoad(b"a", 10, 100), PublisherLoad(b"c", 9, 90)], 2.0)
    assert [(each.load.publisher, each.bytes) for each in window.top()] == [(b"c", 90), (b"a", 0)]


def test_the_last_period_tells_at_once_what_the_mean_tells_slowly() -> None:
    window = LoadWindow()
    for second, total in enumerate([0, 0, 0, 0, 1_000]):
        window.add(ExchangeLoad(bytes_in=total), [], float(second))
    assert window.last().bytes_in == 1_000
    assert window.mean().bytes_in == 250


def test_a_report_out_of_turn_does_not_make_a_period_of_its_own() -> None:
    window = LoadWindow()
    window.add(ExchangeLoad(bytes_in=0), [PublisherLoad(b"a", 0, 0)], 0.0)
    window.add(ExchangeLoad(bytes_in=500), [PublisherLoad(b"a", 5, 500)], 1.0)
    window.add(ExchangeLoad(bytes_in=600), [PublisherLoad(b"a", 6, 600)], 1.01)
    assert window.last().bytes_in == pytest.approx(600 / 1.01)
    assert window.top()[0].bytes == pytest.approx(600 / 1.01)


def test_how_much_of_a_period_lies_before_a_moment() -> None:
    window = LoadWindow()
    assert window.last_before(5.0) == 1.0
    for second in (0.0, 1.0, 2.0):
        window.add(ExchangeLoad(), [], second)
    assert [window.last_before(moment) for moment in (0.5, 1.0, 1.25, 2.0, math.inf)] == [
        0.0, 0.0, 0.25, 1.0, 1.0,
    ]  # fmt: skip
    assert [window.mean_before(moment) for moment in (-1.0, 0.5, 9.0)] == [0.0, 0.25, 1.0]


def test_the_clock_stands_still_while_the_process_does() -> None:
    clock = ObservedClock(10.0)
    assert clock.read(11.0) == 11.0
    assert clock.read(71.0) == 12.5
    assert clock.read(71.5) == 13.0
    assert clock.outside(14.0) == pytest.approx(72.5, abs=1e-3)
    assert clock.read(clock.outside(14.0)) >= 14.0
