"""Calls and how long they took."""

from __future__ import annotations

from pathlib import Path

import pytest

from roq.simulation.real.timings import Timings, percentile


def made() -> Timings:
    timings = Timings()
    for number in range(10):
        timings.add(float(number), number / 1_000)
    return timings


def test_calls_within_windows_are_found() -> None:
    found = list(made().within([(6.5, 8.0), (0.5, 2.0)]))
    assert found == pytest.approx([0.001, 0.002, 0.007, 0.008])


def test_no_window_holds_nothing() -> None:
    assert list(made().within([])) == []


def test_a_file_holds_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "timings"
    assert len(Timings.load(path)) == 0
    timings = made()
    timings.append_to(path)
    timings.add(10.0, 0.01)
    timings.append_to(path)
    with path.open("ab") as file:
        file.write(bytes(9))  # a pair that is not written as a whole yet
    again = Timings.load(path)
    assert (len(timings), len(again)) == (0, 11)
    assert list(again.within([(0.0, 9.5)])) == list(made().within([(0.0, 99.0)]))


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(number) for number in range(100)]
    assert (percentile(values, 50), percentile(values, 99), percentile(values, 100)) == (50, 99, 99)
    assert percentile([], 99) == 0.0
