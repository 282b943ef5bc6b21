"""What a publisher has sent by a moment fits its rate at each moment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roq.simulation.scenario.rates import (
    Burst,
    Diurnal,
    Ramp,
    Rate,
    Step,
    Trace,
    highest,
    rate_at,
    sent_by,
    stretched,
)

PHASE = 60.0
RATES: list[Rate] = [
    40.0,
    Ramp(start=10, end=100),
    Ramp(start=100, end=0),
    Step(rates=[5, 50, 20]),
    Burst(base=10, peak=200, every=7, width=1.5),
    Diurnal(low=5, high=80, period=60),
    Trace(points=[(0, 10), (4, 90), (10, 0), (11, 30)]),
]


@pytest.mark.parametrize("rate", RATES, ids=repr)
def test_what_was_sent_is_the_area_below_the_rate(rate: Rate) -> None:
    steps = 60_000
    width = PHASE / steps
    area = 0.0
    for index in range(steps):
        area += rate_at(rate, (index + 0.5) * width, PHASE) * width
        if index % 10_000 == 9_999:
            assert sent_by(rate, (index + 1) * width, PHASE) == pytest.approx(area, rel=1e-3)


@pytest.mark.parametrize("rate", RATES, ids=repr)
@given(st.floats(-10, 100), st.floats(0, 50))
def test_what_was_sent_never_falls_and_ends_with_the_phase(
    rate: Rate, at: float, more: float
) -> None:
    assert sent_by(rate, at, PHASE) <= sent_by(rate, at + more, PHASE) + 1e-6
    assert sent_by(rate, PHASE + 50, PHASE) == sent_by(rate, PHASE, PHASE)
    assert sent_by(rate, 0, PHASE) == pytest.approx(0)
    assert 0 <= rate_at(rate, at, PHASE) <= highest(rate) + 1e-6


@pytest.mark.parametrize("rate", RATES, ids=repr)
@pytest.mark.parametrize("part", [0.2, 0.5, 1.0])
def test_in_half_the_time_it_has_the_same_course_and_half_the_messages(rate: Rate, part) -> None:
    quick = stretched(rate, 0.5)
    assert highest(quick) == highest(rate)
    sent = sent_by(rate, part * PHASE, PHASE)
    assert sent_by(quick, part * PHASE / 2, PHASE / 2) == pytest.approx(sent / 2)


def test_numbers_of_a_ramp() -> None:
    assert sent_by(Ramp(start=0, end=10), PHASE, PHASE) == 300
    assert rate_at(Ramp(start=0, end=10), 30, PHASE) == 5


def test_a_trace_begins_again_at_its_end() -> None:
    trace = Trace(points=[(0, 10), (10, 10)])
    assert sent_by(trace, 35, PHASE) == 350


@pytest.mark.parametrize(
    "points", [[(1, 5), (2, 5)], [(0, 5)], [(0, 5), (0, 6)], [(0, 5), (3, 5), (2, 5)]]
)
def test_points_go_on_in_time(points: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="points"):
        Trace(points=points)
