"""The load of the queue that grows and shrinks."""

from __future__ import annotations

import pytest

from roq.simulation.experiments.elastic import LOW_LOADS, PEAK_LOADS, load_at


@pytest.mark.parametrize(
    ("share", "load"),
    [(0.0, LOW_LOADS), (0.06, LOW_LOADS), (0.22, (LOW_LOADS + PEAK_LOADS) / 2),
     (0.38, PEAK_LOADS), (0.5, PEAK_LOADS), (0.64, LOW_LOADS), (9.0, LOW_LOADS)],
)  # fmt: skip
def test_load_follows_straight_lines_between_the_points(share: float, load: float) -> None:
    assert load_at(share) == pytest.approx(load)
