"""The driver's clock on other machines."""

from __future__ import annotations

import random

import pytest

from roq.simulation.lab.live import clocks
from roq.simulation.lab.live.clocks import (
    Anchor,
    Clock,
    RoundTrip,
    anchor,
    clock_here,
    estimate,
    machine,
    sentence,
)


@pytest.mark.parametrize("seed", range(20))
def test_the_estimate_is_within_the_error_that_it_states(seed: int) -> None:
    chance = random.Random(seed)
    offset = chance.randrange(-(10**12), 10**12)
    trips = []
    for number in range(30):
        asked = number * 10_000
        there, back = chance.randrange(100, 5_000), chance.randrange(100, 5_000)
        trips.append(RoundTrip(asked, asked + there + offset, asked + there + back))

    found = estimate(trips)

    assert abs(found.offset_us - offset) <= found.error_us
    assert found.error_us <= min(trip.came - trip.asked for trip in trips) // 2 + 1


def test_one_machine_has_one_clock_without_error() -> None:
    clock = clock_here(anchor(), machine())

    assert clock is not None
    assert clock.error_seconds() == 0.0
    assert abs(clock.now_us() - anchor().wall_us) < 10_000_000


def test_another_machine_has_to_ask() -> None:
    assert clock_here(Anchor(machine="a", wall_us=1, monotonic_us=1), "b") is None
    assert clock_here(Anchor(machine="", wall_us=1, monotonic_us=1), "") is None


def test_the_error_grows_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0, 1_000)
    now = clocks.monotonic_us()

    monkeypatch.setattr(clocks, "monotonic_us", lambda: now + 100_000_000)

    assert clock.error_seconds() == pytest.approx(0.011, abs=0.001)


def test_people_are_told_how_times_were_compared() -> None:
    assert "one monotonic clock" in sentence(1, 0.0)
    assert "3 machines" in sentence(3, 0.002)
    assert "2.00 ms" in sentence(3, 0.002)
