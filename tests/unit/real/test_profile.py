"""Load over time."""

from __future__ import annotations

import pytest

from roq.simulation.real.profile import Profile

PROFILE = Profile([(0.0, 1.0), (10.0, 1.0), (20.0, 3.0), (30.0, 0.0)])


@pytest.mark.parametrize(
    ("seconds", "load"), [(-5.0, 1.0), (0.0, 1.0), (15.0, 2.0), (20.0, 3.0), (25.0, 1.5), (99, 0.0)]
)
def test_load_follows_straight_lines_between_the_points(seconds: float, load: float) -> None:
    assert PROFILE.at(seconds) == pytest.approx(load)


def test_a_profile_knows_its_length_and_its_peak() -> None:
    assert (PROFILE.seconds, PROFILE.peak) == (30.0, 3.0)


@pytest.mark.parametrize("points", [[], [(1.0, 1.0), (0.0, 1.0)]])
def test_points_out_of_order_are_refused(points: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="order"):
        Profile(points)


def test_a_load_may_jump() -> None:
    jump = Profile([(0.0, 1.0), (5.0, 1.0), (5.0, 9.0)])
    assert (jump.at(4.9), jump.at(5.0)) == (1.0, 9.0)
