"""Whole histories of queues under the policies, from any start.

`QueueModel.round` asserts in each round that the policy is deterministic and decides no nonsense:
no unknown exchange or one that takes nobody, no publisher that is on its way, no growth above the
cap or beside another change, no removal of what scaling has not made.
"""

from __future__ import annotations

from itertools import pairwise, product

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from queue_model import QueueModel

from roq.model import ElasticRules
from roq.policy.balanced import ROUNDS_TO_REST, Balanced
from roq.policy.catalogue import POLICIES
from roq.policy.known import OVERLOAD, Known
from roq.policy.loads import Loads
from roq.policy.relief import REACH
from roq.policy.snapshot import Decision, Grow, Move, QueueView, Shrink, Stripe

BALANCED = Balanced()
NOISE = 0.05
QUIET_ROUNDS = 300
"""Five minutes."""

rates = st.lists(
    st.one_of(st.sampled_from([0.05, 0.1, 0.2, 0.45, 0.5]), st.floats(0.01, 0.9)),
    min_size=1,
    max_size=16,
)
seeds = st.integers(0, 1 << 30)
delays = st.sampled_from([0.3, 1.5, 3.0])


@st.composite
def fixed_queues(draw: st.DrawFn, noise: float = 0.0, most: int = 4) -> QueueModel:
    """Queues whose number of exchanges stays as it is, with publishers anywhere."""
    brought = draw(rates)
    count = draw(st.integers(1, most))
    crowded = draw(st.booleans())
    places = draw(
        st.lists(
            st.integers(1, 1 if crowded else count),
            min_size=len(brought),
            max_size=len(brought),
        )
    )
    rules = ElasticRules(exchanges_min=count, exchanges_max=count)
    seed, delay = draw(seeds), draw(delays)
    return QueueModel(brought, places, count, rules, noise=noise, seed=seed, delay=delay)


def best_peak(model: QueueModel) -> float:
    """The lowest peak that any dealing of whole publishers can have."""
    brought = [each.rate for each in model.publishers.values()]
    numbers = range(len(model.exchanges))
    total = sum(model.loads().values()) / sum(brought)
    return total * min(
        max(sum(r for r, p in zip(brought, places, strict=True) if p == n) for n in numbers)
        for places in product(numbers, repeat=len(brought))
    )


def after_moves(view: QueueView, decisions: list[Decision]) -> tuple[Loads, Loads]:
    """What the exchanges carry before and after these moves, as far as the view knows."""
    before, after = Loads(view), Loads(view)
    for each in decisions:
        if isinstance(each, Move):
            after.move(each.publisher, each.source, each.target, each.reason)
    return before, after


@settings(max_examples=100, deadline=None)
@given(fixed_queues())
def test_nobody_is_moved_to_a_worse_place(model: QueueModel) -> None:
    for _ in range(30):
        view = model.view()
        decisions = [each for each in model.round(BALANCED) if not isinstance(each, Stripe)]
        before, after = after_moves(view, decisions)
        assert after.peak <= before.peak * (1 + 1e-9)
        for move in decisions:
            # A plan may swap two publishers: the places are better then, taken together.
            if isinstance(move, Move) and not move.reason.startswith("rebalancing"):
                assert after.load[move.target] < before.load[move.source]


@settings(max_examples=60, deadline=None)
@given(fixed_queues())
def test_all_moves_are_made_within_the_stated_number_of_rounds(model: QueueModel) -> None:
    for _ in range(ROUNDS_TO_REST):
        model.round(BALANCED)
    assert [model.round(BALANCED) for _ in range(60)] == [[]] * 60


@settings(max_examples=30, deadline=None)
@given(fixed_queues(noise=NOISE))
def test_steady_load_with_noise_moves_nobody(model: QueueModel) -> None:
    for _ in range(2 * ROUNDS_TO_REST):
        model.round(BALANCED)
    # Next to the limit noise is an overload now and then, and rightly so.
    edge = (OVERLOAD * (1 - 1.5 * NOISE), OVERLOAD * (1 + 1.5 * NOISE))
    assume(not any(edge[0] <= load <= edge[1] for load in model.loads().values()))
    assert [model.round(BALANCED) for _ in range(QUIET_ROUNDS)] == [[]] * QUIET_ROUNDS


@settings(max_examples=60, deadline=None)
@given(fixed_queues(most=3))
def test_a_queue_with_load_ends_balanced_from_any_start(model: QueueModel) -> None:
    assume(len(model.publishers) <= 7 and max(model.loads().values()) > 0.2)
    assume(not any(each.rate > 75_000_000 for each in model.publishers.values()))
    for _ in range(ROUNDS_TO_REST):
        model.round(BALANCED)
    loads = model.loads().values()
    mean = sum(loads) / len(loads)
    assert max(loads) <= max(1.25 * mean, 1.1 * best_peak(model)) + 1e-9


@settings(max_examples=40, deadline=None)
@given(st.integers(12, 64), seeds, st.sampled_from([0.0, NOISE]))
def test_a_step_from_one_exchange_to_four_is_balanced_within_five_periods(
    count: int, seed: int, noise: float
) -> None:
    model = QueueModel([], [], 1, ElasticRules(exchanges_max=1), noise=noise, seed=seed, delay=0.9)
    for number in range(1, count + 1):
        model.join(number, 3.0 / count * model.random.uniform(0.7, 1.3), 1)
    for _ in range(10):
        model.round(BALANCED)
    for _ in range(3):
        model.add_exchange()
    for _ in range(5):
        model.round(BALANCED)
    assert model.imbalance() <= 1.25 * (1 + noise)  # a plan is as good as the rates it is made by


@settings(max_examples=40, deadline=None)
@given(fixed_queues(noise=NOISE), st.floats(1.3, 3.0))
def test_a_clear_overload_is_answered_in_the_round_that_shows_it(
    model: QueueModel, factor: float
) -> None:
    for _ in range(2 * ROUNDS_TO_REST):
        model.round(BALANCED)
    assume(
        max(model.loads().values()) < 0.8 and not any(p.going for p in model.publishers.values())
    )
    model.rules = ElasticRules(exchanges_max=8)
    busiest = max(model.exchanges, key=lambda number: model.loads()[number])
    there = [each for each in model.publishers.values() if busiest in each.at]
    scale = factor / model.loads()[busiest]
    assume(scale > 1)
    for each in there:
        each.rate *= scale
    assert not any(isinstance(each, Shrink) for each in model.round(BALANCED))
    assert model.round(BALANCED) != []


@settings(max_examples=30, deadline=None)
@given(rates, st.integers(1, 4), st.integers(0, 30), seeds, st.sampled_from(sorted(POLICIES)))
def test_caps_and_cool_down_hold_for_every_policy(
    brought: list[float], most: int, cooldown: int, seed: int, name: str
) -> None:
    rules = ElasticRules(
        exchanges_max=most, cooldown_seconds=cooldown, queue_publishers_per_exchange=3
    )
    model = QueueModel(brought, [1] * len(brought), 1, rules, noise=NOISE, seed=seed)
    changed = []
    for number in range(120):
        if number == 60:
            for each in model.publishers.values():
                each.rate /= 20
        decisions = model.round(POLICIES[name])
        changed += [number for each in decisions if isinstance(each, Grow | Shrink)]
        assert 1 <= len(model.exchanges) <= most
    assert all(after - before >= cooldown for before, after in pairwise(changed))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.one_of(st.floats(0.01, 0.5), st.floats(1.2, 4.0)), min_size=1, max_size=8),
    st.integers(1, 6),
    seeds,
)
def test_growing_striping_and_shrinking_come_to_rest(
    brought: list[float], most: int, seed: int
) -> None:
    rules = ElasticRules(exchanges_max=most, cooldown_seconds=5)
    model = QueueModel(brought, [1] * len(brought), 1, rules, noise=0.0, seed=seed)
    for _ in range(20 * most + 60):
        model.round(BALANCED)
    assert [model.round(BALANCED) for _ in range(60)] == [[]] * 60
    if len(model.exchanges) < most and sum(brought) <= REACH * most:
        assert max(model.loads().values()) <= OVERLOAD + 1e-9


@settings(max_examples=20, deadline=None)
@given(rates, seeds)
def test_the_known_algorithm_decides_no_nonsense(brought: list[float], seed: int) -> None:
    model = QueueModel(brought, [1] * len(brought), 2, noise=NOISE, seed=seed)
    for _ in range(60):
        for each in model.round(Known()):
            assert not isinstance(each, Stripe | Shrink)
