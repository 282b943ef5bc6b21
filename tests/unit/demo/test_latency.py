"""Percentiles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roq.demo.latency import Histogram


@given(st.lists(st.floats(2e-6, 100.0), min_size=1, max_size=200), st.floats(1.0, 100.0))
def test_a_percentile_is_exact_to_two_percent(values: list[float], percent: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    rank = max(0, -int(-len(values) * percent // 100) - 1)
    assert histogram.percentile(percent) == pytest.approx(sorted(values)[rank], rel=0.02)


def test_counts_weigh() -> None:
    histogram = Histogram()
    histogram.add(0.001, 98)
    histogram.add(1.0, 2)
    assert histogram.percentile(50) == pytest.approx(0.001, rel=0.02)
    assert histogram.percentile(99) == pytest.approx(1.0, rel=0.02)


def test_histograms_add_up_and_travel() -> None:
    one, two = Histogram(), Histogram()
    one.add(0.01)
    two.add(5.0, 3)
    one.merge(Histogram(two.counts()))
    assert one.percentile(25) == pytest.approx(0.01, rel=0.02)
    assert one.percentile(100) == pytest.approx(5.0, rel=0.02)


def test_nothing_has_no_percentile_and_a_negative_latency_is_a_tiny_one() -> None:
    histogram = Histogram()
    assert histogram.percentile(50) == 0.0
    histogram.add(-1.0)
    assert histogram.percentile(50) == pytest.approx(1e-6, rel=0.02)
