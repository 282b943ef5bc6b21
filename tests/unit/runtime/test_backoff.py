"""How long it is waited before the next attempt."""

from __future__ import annotations

import random

import pytest

from roq.runtime.backoff import FIRST_SECONDS, MOST_SECONDS, Backoff, longest_wait


def test_the_first_attempt_is_made_at_once_and_again_after_a_success() -> None:
    backoff = Backoff(lambda: 0.999)
    assert backoff.wait() == 0.0
    assert backoff.wait() > 0.0
    backoff.reset()
    assert backoff.wait() == 0.0


def test_the_bound_doubles_up_to_a_limit() -> None:
    backoff = Backoff(lambda: 1.0)
    waits = [backoff.wait() for _ in range(200)]
    assert waits[1:5] == [FIRST_SECONDS * 2**n for n in range(4)]
    assert max(waits) == waits[-1] == MOST_SECONDS


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 0.5), (1, 0.5), (2, 1.0), (4, 4.0), (5, 5.0), (10_000, 5.0)]
)
def test_the_longest_wait_doubles_with_each_failure(failures: int, seconds: float) -> None:
    assert longest_wait(failures, 0.5, 5.0) == seconds


def test_a_wait_may_have_a_limit_of_its_own() -> None:
    backoff = Backoff(lambda: 1.0)
    for _ in range(20):
        backoff.wait()
    assert backoff.wait(5.0) == 5.0


@pytest.mark.parametrize("clients", [1_000])
def test_clients_that_have_failed_together_do_not_try_together(clients: int) -> None:
    """A thousand that fail at once, and fail each time they try: nobody leads a flock."""
    dice = random.Random(4)
    backoffs = [Backoff(dice.random) for _ in range(clients)]
    attempts: list[float] = []
    for backoff in backoffs:
        now = 0.0
        while now < 30.0:
            now += backoff.wait()
            attempts.append(now)
    slots = [0] * 3_000
    for at in attempts:
        if 1.0 <= at < 30.0:
            slots[int(at * 100)] += 1
    busy = slots[100:]
    mean = sum(busy) / len(busy)
    # After the first second a hundredth of a second sees a few more than its share, not the flock.
    assert mean == pytest.approx(clients / (MOST_SECONDS / 2) / 100, rel=0.2)
    assert max(busy) < 6 * mean + 5
    late = slots[1_000:]
    assert max(late) < 3.5 * mean
