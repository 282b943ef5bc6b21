"""Three exchanges come to a queue that has one: it is balanced soon, however they come."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from monitor_queue import STEP, Queue

LIMIT = 100_000
PERIODS = 5
BALANCED = 1.25
OF_BEST = 1.1
GAPS = st.lists(st.sampled_from([0, 0.25, 0.5, 1.0, 1.5, 2.5]), min_size=3, max_size=3)
WEIGHTS = st.lists(st.floats(0.3, 3.0), min_size=8, max_size=32)


def imbalance(queue: Queue) -> float:
    """Busiest over mean, by what publishers really bring."""
    load = dict.fromkeys(queue.exchanges, 0.0)
    for publisher in queue.publishers.values():
        for number in publisher.numbers:
            load[number] += publisher.rate / len(publisher.numbers)
    return max(load.values()) * len(load) / sum(load.values())


def best(rates: list[float], count: int) -> float:
    """What the biggest first to the emptiest gives; nearly the best that whole publishers allow."""
    load = [0.0] * count
    for rate in sorted(rates, reverse=True):
        load[load.index(min(load))] += rate
    return max(load) * count / sum(load)


@settings(max_examples=40, deadline=None)
@given(gaps=GAPS, weights=WEIGHTS, total=st.floats(0.8, 3.0))
def test_a_step_from_one_exchange_to_four_is_balanced_within_five_periods(
    gaps, weights, total
) -> None:
    queue = Queue(1, limit=LIMIT, exchanges_max=1, cooldown_seconds=1)
    rates = [total * LIMIT * each / sum(weights) for each in weights]
    for number, rate in enumerate(rates):
        queue.add_publisher(f"p{number:02d}", rate)
    queue.add_subscriber("s")
    queue.run(5)
    for gap in gaps:
        queue.run(gap)
        queue.add_exchange()
    queue.run(PERIODS)
    wanted = max(BALANCED, OF_BEST * best(rates, 4))
    assert imbalance(queue) <= wanted + 1e-9
    moves = len(queue.moves())
    queue.run(10, step=STEP)
    assert imbalance(queue) <= wanted + 1e-9
    assert len(queue.moves()) <= moves + 2 * len(rates)
