"""The clock of a subscriber."""

import time

import pytest

from roq.client.io.clock import CLOCK_STEP_SECONDS, ActiveClock


def test_the_time_in_which_the_process_was_stopped_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    clock = ActiveClock()
    now += 0.1
    assert clock() == pytest.approx(0.1)
    now += 3_600.0
    assert clock() == pytest.approx(0.1 + CLOCK_STEP_SECONDS)
    now += 0.1
    assert clock() == pytest.approx(0.2 + CLOCK_STEP_SECONDS)


def test_what_others_measure_is_compared_with_all_the_time_that_has_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr(time, "clock_gettime", lambda _: now)
    clock = ActiveClock()
    now += 3_600.0
    assert clock.elapsed() == pytest.approx(3_600.0)
