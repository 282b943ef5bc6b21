"""Means are as sure as their intervals say."""

from __future__ import annotations

from random import Random

import pytest

from roq.simulation.lab.report.statistics import difference, mean, t_quantile


@pytest.mark.parametrize(
    ("freedom", "confidence", "t"),
    [
        (1, 0.95, 12.7062), (2, 0.95, 4.3027), (4, 0.95, 2.7764), (10, 0.95, 2.2281),
        (30, 0.95, 2.0423), (1_000, 0.95, 1.9623), (4, 0.99, 4.6041), (9, 0.90, 1.8331),
    ],
)  # fmt: skip
def test_quantiles_are_those_of_the_tables(freedom: float, confidence: float, t: float) -> None:
    assert t_quantile(freedom, confidence) == pytest.approx(t, abs=1e-4)


def test_a_mean_has_an_interval_from_two_runs_on() -> None:
    assert mean([3.0]) == (1, 3.0, None, 3.0, 3.0)
    found = mean([1.0, 2.0, 3.0])
    assert found.value == 2.0
    assert found.half == pytest.approx(4.3027 / 3**0.5, abs=1e-3)


def test_the_interval_holds_the_true_mean_in_nineteen_of_twenty_cases() -> None:
    random = Random(1)
    held = 0
    for _ in range(1_000):
        found = mean([random.gauss(10, 2) for _ in range(5)])
        assert found.half is not None
        held += abs(found.value - 10) <= found.half
    assert 930 <= held <= 970


def test_what_is_the_same_seldom_differs_and_what_is_not_does() -> None:
    random = Random(2)
    same = far = 0
    for _ in range(500):
        one = [random.gauss(10, 1) for _ in range(4)]
        same += difference(one, [random.gauss(10, 3) for _ in range(6)]).clear
        far += difference(one, [random.gauss(20, 3) for _ in range(6)]).clear
    assert same <= 40
    assert far >= 490


def test_one_run_differs_from_nothing() -> None:
    assert not difference([1.0], [5.0, 5.1, 5.2]).clear
    assert difference([1.0], [5.0, 5.0]).value == -4.0


def test_figures_that_never_vary_differ_if_they_are_not_the_same() -> None:
    assert difference([4.0, 4.0], [3.0, 3.0]).clear
    assert not difference([4.0, 4.0], [4.0, 4.0]).clear


def test_what_differs_by_rounding_alone_is_the_same() -> None:
    one, other = [0.1 + 0.2, 0.3, 0.3], [0.3, 0.1 + 0.2, 0.3]
    assert mean(one).half == 0
    assert not difference(one, other).clear
