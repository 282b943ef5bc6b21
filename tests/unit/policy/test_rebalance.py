from itertools import product
from random import Random

import pytest
from queue_model import LIMIT
from queue_views import at, queue

from roq.policy.loads import Loads
from roq.policy.rebalance import BALANCED, plan
from roq.policy.snapshot import Move


def spread_of(rates: list[list[float]]) -> Loads:
    """Exchanges with these publishers."""
    names = iter(range(1, 1000))
    exchanges = [
        at(n, *[(next(names), rate) for rate in there]) for n, there in enumerate(rates, 1)
    ]
    return Loads(queue(*exchanges))


def peak(rates: list[list[float]]) -> float:
    better = plan(spread_of(rates), 256)
    return max(map(sum, rates)) if better is None else better.peak / LIMIT


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([[0.1] * 8, []], 0.4),
        ([[0.25] * 4, [], [], []], 0.25),
        ([[0.8], [], []], 0.8),  # one publisher is as even as it gets
        ([[0.5, 0.4], [0.3]], 0.7),  # one move is all it takes
        ([[0.6, 0.45], [0.5, 0.05]], 0.95),  # two moves and a swap
    ],
)
def test_a_plan_evens_out(rates: list[list[float]], expected: float) -> None:
    assert peak(rates) <= expected + 1e-9


def test_what_is_even_enough_is_left_alone() -> None:
    assert plan(spread_of([[0.2, 0.2], [0.21, 0.2]]), 256) is None


def test_a_gain_below_five_percent_is_not_worth_it() -> None:
    assert plan(spread_of([[0.9, 0.04], [0.1]]), 256) is None


def test_what_cannot_be_moved_counts_all_the_same() -> None:
    loads = Loads(queue(at(1, (1, 0.2), (2, 0.2), others=0.4), at(2, others=0.2)))
    better = plan(loads, 256)
    assert better is not None
    assert [each.target for each in better.decisions() if isinstance(each, Move)] == [2]
    assert better.load == {1: 0.6 * LIMIT, 2: 0.4 * LIMIT}


def test_plans_come_near_the_best_there_is() -> None:
    random = Random(5)
    for _ in range(60):
        count = random.randint(2, 3)
        rates = [random.choice([0.05, 0.1, 0.3, 0.45, 0.5]) for _ in range(random.randint(3, 8))]
        dealt: list[list[float]] = [[] for _ in range(count)]
        for rate in rates:
            dealt[random.randrange(count)].append(rate)
        best = min(
            max(sum(r for r, p in zip(rates, places, strict=True) if p == n) for n in range(count))
            for places in product(range(count), repeat=len(rates))
        )
        mean = sum(rates) / count
        assert peak(dealt) <= max(BALANCED * mean, 1.1 * best) + 1e-9, (dealt, best)
