"""A run in columns: nothing is lost, nothing invented."""

from __future__ import annotations

import msgspec
import pytest
from runs import partly_heard, run_of, series_of

from roq.simulation.lab.archive.document import (
    Event,
    EventKind,
    ExchangeWindow,
    LatencyWindow,
    Series,
    Window,
)
from roq.simulation.lab.report.columns import (
    EXCHANGES_MAX,
    OTHERS,
    WINDOWS_MAX,
    at_the_end,
    columns_of,
    phases_of,
    silence,
)


def test_an_exchange_that_does_not_serve_has_no_value() -> None:
    found = columns_of(series_of(4))
    assert found.exchanges == [1, 2]
    assert found.messages[2] == [None, None, 200.0, 200.0]
    assert found.total == [200.0, 200.0, 400.0, 400.0]
    assert (found.begins, found.ends) == ([0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0])


def test_a_run_without_windows_has_empty_columns() -> None:
    found = columns_of(Series(window_seconds=1.0, windows=[]), 20.0)
    assert (found.ends, found.exchanges, found.span) == ([], [], 20.0)


def test_many_windows_are_merged_rates_as_means_and_percentiles_as_the_worst() -> None:
    series = series_of(3 * WINDOWS_MAX)
    spiky = msgspec.structs.replace(
        series.windows[1],
        latency=LatencyWindow(count=100, mean=9, p50=8, p90=20, p99=50, p999=60, most=70),
    )
    series.windows[1] = spiky
    found = columns_of(series)
    assert len(found.ends) == WINDOWS_MAX
    assert found.merged == 3
    assert found.latency["p99"][:2] == [50, 4.0]
    assert found.latency["mean"][0] == pytest.approx((9 * 100 + 1.5 * 800) / 900)
    assert sum(found.total) * 3 == pytest.approx(sum(columns_of(series_of(WINDOWS_MAX)).total) * 3)


def test_of_very_many_exchanges_the_quietest_are_taken_together() -> None:
    rows = [
        ExchangeWindow(exchange=number, messages_in=float(number), bytes_in=1.0, publishers=1)
        for number in range(1, 101)
    ]
    found = columns_of(
        Series(window_seconds=1.0, windows=[Window(at=1.0, exchanges=rows, serving=100)])
    )
    assert len(found.exchanges) == EXCHANGES_MAX
    assert found.exchanges[-1] == OTHERS
    assert found.total == [pytest.approx(5_050)]
    assert found.publishers[OTHERS] == [41.0]


def test_figures_of_the_last_phase_and_of_growth_are_derived() -> None:
    figures = at_the_end(run_of("a"), columns_of(series_of(20)))
    assert figures["last_phase_in_per_second"] == pytest.approx(300)
    assert figures["last_phase_out_per_second"] == pytest.approx(600)
    assert figures["publishers_at_exchange_2"] == 4
    assert "publishers_at_exchange_3" not in figures


def test_a_publisher_that_has_just_moved_is_counted_once() -> None:
    series = series_of(20)
    came = series.windows[10]
    both = [msgspec.structs.replace(each, publishers=3) for each in came.exchanges]
    series.windows[10] = msgspec.structs.replace(came, exchanges=both)
    assert at_the_end(run_of("a"), columns_of(series))["publishers_at_exchange_2"] == 4


def test_phases_of_a_run_that_did_not_end_are_those_that_began() -> None:
    run = msgspec.structs.replace(run_of("a"), phases=[], seconds=0.0)
    series = msgspec.structs.replace(
        series_of(10),
        events=[
            Event(at=0.0, kind=EventKind.PHASE, text="one"),
            Event(at=4.0, kind=EventKind.PHASE, text="two"),
        ],
    )
    phases = [(each.name, each.begins, each.ends) for each in phases_of(run, series)]
    assert phases == [("one", 0.0, 4.0), ("two", 4.0, 10.0)]
    assert phases_of(run, None) == []


def test_a_phase_of_which_nothing_is_known_has_no_figures() -> None:
    windows = [Window(at=at + 1.0, exchanges=[], serving=0) for at in range(20)]
    assert at_the_end(run_of("a"), columns_of(Series(window_seconds=1.0, windows=windows))) == {}


def test_a_window_that_was_not_heard_is_unknown_and_not_nought() -> None:
    found = columns_of(partly_heard(series_of(6), 1, 2), 6.0)
    assert found.heard == [True, False, False, True, True, True]
    assert found.total == [200.0, None, None, 400.0, 400.0, 400.0]
    assert found.out == [400.0, None, None, 800.0, 800.0, 800.0]
    assert found.serving == [1, None, None, 2, 2, 2]
    assert found.messages[1][:4] == [200.0, None, None, 200.0]
    assert found.latency["p99"] == [4.0] * 6
    assert found.offered == [400.0] * 6
    assert found.quiet == [(1.0, 3.0)]
    assert silence(found) == (
        "The statistics were silent for 2 s of 6 s (1 s to 3 s): what exchanges did then is not "
        "known. Latency is measured by clients and goes on."
    )


def test_of_a_window_that_was_hardly_heard_nothing_is_shown() -> None:
    series = series_of(4)
    series.windows[0] = msgspec.structs.replace(series.windows[0], covered=0.4)
    series.windows[3] = msgspec.structs.replace(series.windows[3], covered=0.6)
    found = columns_of(series)
    assert found.total == [None, 200.0, 400.0, 400.0]
    assert found.silent == pytest.approx(1.0)
    series.windows[0] = msgspec.structs.replace(series.windows[0], covered=0.5)
    assert "silent for 0.9 s of 4 s, never for most of a window" in silence(columns_of(series))
    assert silence(columns_of(series_of(4))) == ""


def test_merged_windows_know_what_was_heard_of_them() -> None:
    series = partly_heard(series_of(3 * WINDOWS_MAX), 0, 3, 4)
    found = columns_of(series)
    assert found.total[:3] == [200.0, None, 200.0]
    assert found.serving[:3] == [1, None, 1]
    assert found.silent == pytest.approx(3.0)


def test_figures_are_worked_out_of_what_was_heard() -> None:
    figures = at_the_end(run_of("a"), columns_of(partly_heard(series_of(20), 0, 19)))
    assert figures["last_phase_in_per_second"] == pytest.approx(300)
    assert "publishers_at_exchange_2" not in figures
    grown = at_the_end(run_of("a"), columns_of(partly_heard(series_of(20), 9)))
    assert "publishers_at_exchange_2" not in grown
