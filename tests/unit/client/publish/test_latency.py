"""Which exchanges are left alone for now, on a clock that the test sets."""

from __future__ import annotations

import pytest

from roq.client.publish.latency import (
    AVOID_SECONDS,
    AVOID_SECONDS_MAX,
    EXCHANGES_MAX,
    SLOW_IN_A_ROW,
    LatencyBook,
)

ONE, TWO, THREE = (1, 5), (2, 5), (3, 5)


def book(*serving: tuple[int, int]) -> LatencyBook:
    made = LatencyBook(0.1)
    made.serving = serving or (ONE, TWO, THREE)
    return made


def test_one_slow_acknowledgement_is_bad_luck_several_in_a_row_are_not() -> None:
    latency = book()
    for _ in range(SLOW_IN_A_ROW - 1):
        assert not latency.took(ONE, 0.2, 0.0)
    assert not latency.took(ONE, 0.05, 0.0), "a quick one between them"
    results = [latency.took(ONE, 0.2, 0.0) for _ in range(SLOW_IN_A_ROW)]
    assert results == [False] * (SLOW_IN_A_ROW - 1) + [True]
    assert latency.avoided(0.0) == [ONE]


def test_one_that_is_far_too_slow_is_enough() -> None:
    latency = book()
    assert latency.took(ONE, 1.5, 0.0)
    assert latency.avoids(ONE, AVOID_SECONDS - 0.1)
    assert not latency.avoids(ONE, AVOID_SECONDS)


def test_it_is_probed_and_avoided_for_longer_each_time_but_never_for_ever() -> None:
    latency = book()
    now, waits = 0.0, []
    assert latency.took(ONE, 2.0, now)
    for _ in range(12):
        began = now
        while latency.avoids(ONE, now):
            now += 0.5
        waits.append(now - began)
        assert latency.took(ONE, 0.2, now), "one slow acknowledgement of a probe is enough"
    assert waits[:4] == [AVOID_SECONDS * 2**times for times in range(4)]
    assert waits[-1] == AVOID_SECONDS_MAX


def test_a_probe_that_is_quick_makes_it_as_good_as_any() -> None:
    latency = book()
    latency.took(ONE, 2.0, 0.0)
    assert not latency.took(ONE, 0.01, 1.0), "said of what it was sent before"
    assert latency.avoids(ONE, 1.0)
    assert not latency.took(ONE, 0.01, AVOID_SECONDS)
    assert not latency.took(ONE, 0.2, AVOID_SECONDS)
    assert latency.avoided(AVOID_SECONDS) == []


def test_one_is_used_in_any_case() -> None:
    latency = book(ONE, TWO)
    assert latency.took(ONE, 2.0, 0.0)
    assert not latency.took(TWO, 2.0, 1.0), "there is no other one to go to"
    # Both would be avoided: the one whose time is over first is used.
    assert latency.avoided(1.0) == [TWO]
    assert not book(ONE).took(ONE, 99.0, 0.0)


@pytest.mark.parametrize("serving", [(), (TWO,)])
def test_who_does_not_serve_is_nobody_to_leave(serving: tuple[tuple[int, int], ...]) -> None:
    latency = LatencyBook(0.1)
    latency.serving = serving
    assert not latency.took(ONE, 5.0, 0.0)
    assert latency.avoided(0.0) == []


def test_what_is_remembered_is_bounded() -> None:
    latency = book()
    for number in range(3 * EXCHANGES_MAX):
        latency.took((number, 1), 5.0, float(number))
    assert len(latency._standings) == EXCHANGES_MAX
