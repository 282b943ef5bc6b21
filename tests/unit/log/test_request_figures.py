"""How long requests have taken, counted by bounds."""

from __future__ import annotations

import math

from roq.log.request_figures import DurationMeter
from roq.protocol.requesting import DURATION_BOUNDS, Durations


def test_durations_are_counted_by_bounds() -> None:
    meter = DurationMeter()
    assert (meter.read().at(0.5), meter.count) == (0.0, 0)
    for seconds, times in ((0.0, 1), (0.001, 2), (0.0011, 3), (7.0, 3), (1_000.0, 1)):
        meter.note(seconds, times)
    read = meter.read()
    assert (read.count, meter.count, len(read.counts)) == (10, 10, len(DURATION_BOUNDS) + 1)
    assert read.seconds == meter.seconds == 0.002 + 3 * 0.0011 + 21.0 + 1_000.0
    assert [read.at(part) for part in (0.3, 0.31, 0.6, 0.9, 1.0)] == [
        0.001, 0.002, 0.002, 10.0, math.inf
    ]  # fmt: skip
    assert Durations().at(0.9) == 0.0
