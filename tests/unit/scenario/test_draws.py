"""Sizes and topics are drawn as their distributions say, and the same for a seed."""

from __future__ import annotations

from collections import Counter
from random import Random
from statistics import mean, median

import pytest

from roq.simulation.scenario.draws import (
    Choice,
    LogNormal,
    Size,
    Topics,
    Uniform,
    mean_size,
    sizes,
    topics,
)

DRAWS = 20_000


@pytest.mark.parametrize(
    "size", [100, Uniform(least=10, most=30), LogNormal(median=200, sigma=0.5, most=1_000_000),
             LogNormal(median=200, sigma=2, most=500),
             Choice(values=[10, 1_000], weights=[9, 1])], ids=repr,
)  # fmt: skip
def test_the_mean_is_what_is_said(size: Size) -> None:
    draw = sizes(size, Random(1))
    assert mean(draw() for _ in range(DRAWS)) == pytest.approx(mean_size(size), rel=0.05)


def test_a_log_normal_has_its_median_and_its_maximum() -> None:
    draw = sizes(LogNormal(median=200, sigma=1, most=500), Random(1))
    drawn = [draw() for _ in range(DRAWS)]
    assert median(drawn) == pytest.approx(200, rel=0.05)
    assert max(drawn) == 500


def test_the_same_seed_draws_the_same() -> None:
    one, other = (sizes(Uniform(least=0, most=1_000), Random(7)) for _ in range(2))
    assert [one() for _ in range(50)] == [other() for _ in range(50)]


def test_topics_of_lower_rank_come_more_often() -> None:
    draw = topics(Topics(count=10, prefix="a.", zipf=1.0), Random(1))
    drawn = Counter(draw() for _ in range(DRAWS))
    assert set(drawn) == {f"a.{index}" for index in range(10)}
    assert drawn["a.0"] == pytest.approx(10 * drawn["a.9"], rel=0.2)


def test_named_topics_have_their_weights() -> None:
    draw = topics(Topics(names=["x", "y"], weights=[3, 1]), Random(1))
    drawn = Counter(draw() for _ in range(DRAWS))
    assert drawn["x"] == pytest.approx(3 * drawn["y"], rel=0.1)


def test_weights_fit_the_values() -> None:
    with pytest.raises(ValueError, match="weights"):
        Topics(names=["x"], weights=[1, 2])
    with pytest.raises(ValueError, match="weights"):
        Choice(values=[1, 2], weights=[1])
    with pytest.raises(ValueError, match="max"):
        Uniform(least=5, most=4)
