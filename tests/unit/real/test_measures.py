"""From a recorded statistics stream to figures."""

from __future__ import annotations

import pytest
from kpi_samples import exchange, move, rate, scale, subscriber

from roq.simulation.real import measures
from roq.simulation.real.measures import Window
from roq.simulation.real.record import Record


def record(*samples: object) -> Record:
    return Record(0.0, list(samples))  # type: ignore[arg-type]


def test_throughput_comes_from_the_growth_of_totals() -> None:
    samples = [exchange(0.0, 1, 100), exchange(2.0, 1, 300), exchange(2.0, 2, 0)]
    assert measures.throughput(samples) == {1: [(2.0, 100.0)], 2: []}


def test_an_exchange_that_was_restarted_counts_anew() -> None:
    samples = [exchange(0.0, 1, 500), exchange(1.0, 1, 10, epoch=2), exchange(2.0, 1, 30, epoch=2)]
    assert measures.throughput(samples) == {1: [(2.0, 20.0)]}


def test_the_rate_in_a_window_is_that_of_all_exchanges_together() -> None:
    samples = [
        exchange(0.0, 1, 0), exchange(1.0, 1, 100), exchange(2.0, 1, 300),
        exchange(0.5, 2, 0), exchange(1.5, 2, 50),
    ]  # fmt: skip
    assert measures.rate(samples, Window(0.0, 2.0)) == pytest.approx((100 + 200 + 50) / 2)
    assert measures.rate(samples, Window(1.0, 1.5)) == pytest.approx((100 + 25) / 0.5)
    assert measures.rate(samples, Window(1.0, 1.0)) == 0.0


def test_loads_stand_side_by_side_for_each_period() -> None:
    samples = [
        exchange(0.0, 1, 0), exchange(0.1, 2, 0),
        exchange(1.0, 1, 400), exchange(1.1, 2, 0),
        exchange(2.0, 1, 600), exchange(2.1, 2, 200),
        exchange(3.0, 1, 800), exchange(3.1, 2, 400),
    ]  # fmt: skip
    rows = measures.loads(samples, [1, 2])
    assert [when for when, _ in rows] == [1.0, 2.0, 3.0]
    assert rows[0][1] == [400.0, 0.0]
    assert rows[2][1] == pytest.approx([200.0, 200.0])


def test_balance_is_the_highest_load_over_the_mean() -> None:
    assert measures.imbalance([1.0, 1.0]) == 1.0
    assert measures.imbalance([3.0, 1.0]) == 1.5
    assert measures.imbalance([]) == measures.imbalance([0.0, 0.0]) == 1.0


def test_the_best_balance_is_that_of_whole_publishers() -> None:
    assert measures.best_imbalance([1.0] * 8, 4) == 1.0
    assert measures.best_imbalance([3.0, 1.0, 1.0, 1.0], 2) == 1.0
    assert measures.best_imbalance([9.0, 1.0], 2) == 1.8


def test_periods_are_counted_until_the_first_balanced_row() -> None:
    rows = [(1.0, [1.0, 1.0]), (3.0, [4.0, 1.0]), (4.0, [2.0, 2.0])]
    assert measures.periods_until_balanced(rows, 2.0, 1.25, 0.5) == 4.0
    assert measures.periods_until_balanced(rows, 4.0, 1.25, 0.5) is None


def test_the_first_move_after_a_moment_is_found() -> None:
    seen = record(move(1.0, "aa", "accepted"), move(2.0, "bb", "started"),
                  move(3.5, "bb", "accepted"))  # fmt: skip
    assert measures.first_move_after(seen, 2.0) == 1.5
    assert measures.first_move_after(seen, 4.0) is None


def test_serving_counts_from_the_decision_until_the_exchange_is_heard_of() -> None:
    seen = record(
        scale(1.0, "out", "started"), scale(1.8, "out", "done", 2), exchange(2.0, 2),
        scale(5.0, "out", "started"), exchange(5.5, 3), scale(5.6, "out", "done", 3),
    )  # fmt: skip
    assert measures.serve_seconds(seen) == pytest.approx([1.0, 0.6])


def test_publishers_are_counted_at_a_moment() -> None:
    samples = [exchange(1.0, 1, publishers=4), exchange(2.0, 1, publishers=3),
               exchange(2.0, 2, publishers=1)]  # fmt: skip
    assert measures.publishers_at(samples, 1.5) == {1: 4}
    assert measures.publishers_at(samples, 9.0) == {1: 3, 2: 1}


def test_a_publisher_is_where_it_brings_most() -> None:
    samples = [exchange(1.0, 1, top=[rate("aa", 10.0), rate("bb", 0.0)]),
               exchange(1.0, 2, top=[rate("aa", 2.0)])]  # fmt: skip
    assert measures.places(samples) == {"aa": 1, "bb": 1}


def test_latency_is_what_busy_subscribers_tell() -> None:
    seen = record(
        subscriber(1.0, "aa", 5.0), subscriber(1.2, "bb", 7.0), subscriber(1.4, "cc", 99.0, 0.0),
        subscriber(3.0, "aa", 4.0),
    )  # fmt: skip
    assert measures.latency_of(seen) == [(1.5, 6.0), (3.5, 4.0)]


def test_quiet_windows_are_as_long_as_the_moves_and_far_from_them() -> None:
    moves = [Window(2.0, 2.2), Window(2.9, 3.0), Window(7.0, 7.3)]
    pairs = measures.quiet_windows(moves, Window(0.0, 10.0), 0.5, 1.0)
    assert [moved for moved, _ in pairs] == moves
    quiet = [window for _, window in pairs]
    for (moved, window), periods in zip(pairs, (2.0, 2.0, 1.0), strict=True):
        assert window.begin - moved.begin == pytest.approx(periods)
        assert window.seconds == pytest.approx(moved.seconds)
    for window in quiet:
        for other in moves:
            assert window.end <= other.begin - 0.5 or window.begin >= other.end + 0.5


def test_where_there_is_no_room_between_moves_there_is_no_quiet_window() -> None:
    moves = [Window(1.0, 2.0), Window(2.1, 3.0), Window(3.1, 4.0)]
    assert measures.quiet_windows(moves, Window(0.9, 4.1), 0.2, 0.5) == []
