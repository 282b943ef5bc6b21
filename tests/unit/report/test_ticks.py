"""Axes have round numbers, whatever is shown."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roq.simulation.lab.report.ticks import linear, logarithmic, times

POSITIVE = st.floats(1e-6, 1e15)


@given(POSITIVE, st.integers(2, 8))
def test_a_linear_axis_holds_the_highest_value_with_few_round_marks(top: float, count: int) -> None:
    scale = linear(top, count)
    assert scale.low == 0
    assert scale.high >= top * (1 - 1e-9)
    assert 2 <= len(scale.ticks) <= 2 * count + 1
    assert scale.high <= 6 * top


@given(POSITIVE, st.floats(1, 1e9))
def test_a_logarithmic_axis_holds_all_between_its_ends(low: float, factor: float) -> None:
    scale = logarithmic(low, low * factor)
    assert scale.low <= low * (1 + 1e-6)
    assert scale.high >= low * factor * (1 - 1e-6)
    assert 2 <= len(scale.ticks) <= 12
    assert scale.place(scale.low) == 0
    assert scale.place(scale.high) == 1


@pytest.mark.parametrize("strange", [0.0, -1.0, nan, inf])
def test_an_axis_without_anything_to_show_goes_from_nought_to_one(strange: float) -> None:
    assert linear(strange).ticks[0] == 0
    assert linear(strange).high == 1


@pytest.mark.parametrize(
    ("seconds", "step"), [(20, 2), (108, 15), (600, 60), (3_600, 600), (86_400, 10_800)]
)
def test_times_are_those_that_clocks_show(seconds: float, step: float) -> None:
    assert times(seconds)[:2] == [0, step]


@given(st.floats(0.001, 1e9))
def test_there_are_at_most_eleven_times(seconds: float) -> None:
    found = times(seconds)
    assert len(found) <= 11
    assert found[-1] <= seconds * (1 + 1e-6)


@pytest.mark.parametrize("strange", [0.0, -1.0, nan, inf])
def test_no_time_has_one_mark(strange: float) -> None:
    assert times(strange) == [0.0]


def test_what_is_beyond_an_end_stands_at_it() -> None:
    assert [linear(10).place(value) for value in (-5, 5, 50)] == [0, 0.5, 1]
