"""The default policy, rule by rule; properties of whole histories are in tests/property."""

from itertools import pairwise

from queue_model import LIMIT, QueueModel, publisher
from queue_views import at, queue

from roq.model import ElasticRules
from roq.policy.balanced import Balanced
from roq.policy.snapshot import (
    Decision,
    ExchangeView,
    HostView,
    Memory,
    Move,
    QueueView,
    Shrink,
    Stripe,
)

POLICY = Balanced()
FIVE = [(n, 0.3) for n in range(1, 6)]


def decide(view: QueueView, memory: Memory | None = None) -> list[Decision]:
    return POLICY.decide(view, memory or Memory())[0]


def kinds(decisions: list[Decision]) -> list[str]:
    return [type(each).__name__ for each in decisions]


def rounds(count: int, *exchanges: ExchangeView, **fields: object) -> list[list[Decision]]:
    """The decisions of some rounds in which nothing changes."""
    memory = Memory()
    found = []
    for number in range(count):
        view = queue(*exchanges, now=1000.0 + number, **fields)
        decisions, memory = POLICY.decide(view, memory)
        found.append(decisions)
    return found


# --- overload -------------------------------------------------------------------------------------


def test_a_load_out_of_reach_of_all_exchanges_that_there_may_be_is_left_alone() -> None:
    flood = at(1, (1, 300.0))
    assert rounds(10, flood) == [[]] * 10
    assert rounds(10, flood, at(2)) == [[]] * 10


def test_a_load_within_reach_makes_the_queue_grow() -> None:
    assert "Grow" in {kind for each in rounds(3, at(1, (1, 8.0), (2, 7.0))) for kind in kinds(each)}


def test_an_overload_moves_publishers_in_the_round_that_shows_it() -> None:
    calm = queue(at(1, (1, 0.3), (2, 0.3), (3, 0.3)), at(2, (4, 0.5)), at(3, (5, 0.5)))
    _, memory = POLICY.decide(calm, Memory())
    step = queue(
        at(1, (1, 0.5), (2, 0.5), (3, 0.5), mean=1.02), at(2, (4, 0.3)), at(3, (5, 0.5)), now=1001.0
    )
    decisions = decide(step, memory)
    assert kinds(decisions) == ["Move"]
    assert isinstance(decisions[0], Move)
    assert (decisions[0].source, decisions[0].target) == (1, 2)


def test_as_many_leave_as_it_takes() -> None:
    crowd = [(n, 0.1) for n in range(1, 21)]
    decisions = decide(queue(at(1, *crowd), at(2), at(3)))
    assert len(decisions) >= 10
    left = {each.publisher for each in decisions if isinstance(each, Move)}
    assert len(left) == len(decisions)


def test_nobody_moves_below_the_limit_once_things_are_balanced() -> None:
    told = rounds(30, at(1, (1, 0.5), (2, 0.55)), at(2, (3, 0.5), (4, 0.4)))
    assert told == [[]] * 30


def test_without_room_anywhere_the_queue_grows_in_the_same_round() -> None:
    assert kinds(decide(queue(at(1, *FIVE)))) == ["Grow"]
    full = queue(at(1, *FIVE), at(2, *[(n, 0.2) for n in range(6, 12)], mean=1.2))
    assert "Grow" in kinds(decide(full))


def test_a_weak_overload_needs_a_second_round_to_grow() -> None:
    weak = at(1, (1, 0.38), (2, 0.38), (3, 0.38), mean=0.8)
    assert [kinds(each) for each in rounds(2, weak)] == [[], ["Grow"]]


def test_a_flicker_at_the_limit_is_no_overload_until_it_lasts() -> None:
    flicker = at(1, (1, 0.56), (2, 0.56), mean=1.08)
    told = rounds(4, flicker, at(2, (3, 0.5), (4, 0.49)))
    assert told[:3] == [[], [], []]
    assert kinds(told[3]) == ["Grow"]


def test_publishers_do_not_go_to_a_host_that_a_rule_says_is_full() -> None:
    rules = ElasticRules(host_cpu_percent=80)
    hosts = (HostView("h2", cpu_percent=95), HostView("h3", cpu_percent=10))
    view = queue(at(1, *FIVE), at(2), at(3, (9, 0.2)), rules=rules, hosts=hosts)
    targets = {each.target for each in decide(view) if isinstance(each, Move)}
    assert targets == {3}


def test_an_exchange_of_which_nothing_is_known_yet_gets_nobody() -> None:
    new = at(2, others=0.0, publishers=3, age=0.5)
    view = queue(at(1, *FIVE), new, at(3, (9, 0.3)))
    assert {each.target for each in decide(view) if isinstance(each, Move)} == {3}


def test_a_hopeless_overload_is_left_in_peace_until_something_changes() -> None:
    model = QueueModel([0.9, 0.9, 0.9], [1, 1, 2], 2, ElasticRules(exchanges_max=2), noise=0.05)
    for _ in range(20):
        model.round(POLICY)
    assert any(name.startswith("resigned") for name in model.memory.marks)
    assert [model.round(POLICY) for _ in range(50)] == [[]] * 50
    model.publishers[publisher(3)].rate = 0.0
    told = [each for _ in range(3) for each in model.round(POLICY)]
    assert kinds(told) == ["Move"]


# --- rebalancing ----------------------------------------------------------------------------------


def test_a_new_exchange_gets_its_share() -> None:
    model = QueueModel([0.2] * 4, [1] * 4, 1, ElasticRules(exchanges_max=1))
    for _ in range(5):
        assert model.round(POLICY) == []
    model.add_exchange()
    for _ in range(5):
        model.round(POLICY)
    assert model.loads() == {1: 0.4, 2: 0.4}


def test_after_a_move_nothing_is_evened_out_at_once_and_then_not_by_whom_was_moved() -> None:
    step = at(1, (1, 0.5), (2, 0.45), (3, 0.45)), at(2, (4, 0.3))
    uneven = at(1, (2, 0.1), (3, 0.1)), at(2, (1, 0.5), (4, 0.5))
    memory = Memory()
    told = []
    for number, exchanges in enumerate((step, uneven, uneven)):
        decisions, memory = POLICY.decide(queue(*exchanges, now=1000.0 + number), memory)
        told.append({each.publisher for each in decisions if isinstance(each, Move)})
    assert told == [{publisher(1)}, set(), {publisher(4), publisher(2)}]


def test_nothing_is_rebalanced_while_there_is_no_load() -> None:
    cold = at(1, *[(n, 0.01) for n in range(1, 9)])
    assert rounds(5, cold, at(2)) == [[]] * 5


def test_load_that_comes_later_is_still_rebalanced() -> None:
    model = QueueModel([0.001] * 8, [1] * 8, 2, ElasticRules(exchanges_min=2))
    for _ in range(50):
        assert model.round(POLICY) == []
    for each in model.publishers.values():
        each.rate = 0.1 * LIMIT
    for _ in range(6):
        model.round(POLICY)
    assert model.imbalance() <= 1.25


# --- growth and shrinking -------------------------------------------------------------------------


def test_growth_waits_for_the_cool_down() -> None:
    rules = ElasticRules(cooldown_seconds=30)
    model = QueueModel([0.3] * 20, [1] * 20, 1, rules)
    told = [model.round(POLICY) for _ in range(80)]
    grown = [number for number, each in enumerate(told) if "Grow" in kinds(each)]
    assert len(grown) == 3
    assert all(after - before >= 30 for before, after in pairwise(grown))


def test_an_exchange_that_is_not_needed_goes() -> None:
    model = QueueModel([0.2, 0.2], [1, 1], 1)
    model.add_exchange(removable=True)
    model.add_exchange(removable=True)
    told = [each for _ in range(60) for each in model.round(POLICY)]
    assert [each.number for each in told if isinstance(each, Shrink)] == [3, 2]
    assert list(model.exchanges) == [1]
    assert model.loads() == {1: 0.4}


def test_a_queue_that_swings_learns_patience() -> None:
    model = QueueModel([0.4] * 4, [1] * 4, 1, ElasticRules(exchanges_max=2, cooldown_seconds=2))
    shrunk = []
    for number in range(600):
        rate = 0.4 if number % 40 < 25 else 0.05
        for each in model.publishers.values():
            each.rate = rate * LIMIT
        told = model.round(POLICY)
        shrunk += [number for each in told if isinstance(each, Shrink)]
    assert 1 <= len(shrunk) <= 4


# --- striping -------------------------------------------------------------------------------------


def test_a_publisher_bigger_than_an_exchange_is_spread_over_several() -> None:
    told = decide(queue(at(1, (1, 2.5), (2, 0.1)), at(2), at(3), at(4, (3, 0.5))))
    assert [each for each in told if isinstance(each, Stripe)] == [
        Stripe(publisher(1), (1, 2, 3), "striping: it brings 250% of what one exchange takes")
    ]


def test_a_giant_with_too_few_exchanges_makes_the_queue_grow_first() -> None:
    assert kinds(decide(queue(at(1, (1, 2.5))))) == ["Grow"]


def test_a_giant_ends_on_as_many_exchanges_as_it_needs_and_comes_back_when_small() -> None:
    model = QueueModel([2.5], [1], 1, noise=0.05)
    for _ in range(60):
        model.round(POLICY)
    giant = model.publishers[publisher(1)]
    assert len(giant.at) == 3
    giant.rate = 0.3 * LIMIT
    for _ in range(80):
        model.round(POLICY)
    assert len(giant.at) == 1
    assert len(model.exchanges) == 1


# --- memory ---------------------------------------------------------------------------------------


def test_memory_forgets_publishers_and_exchanges_that_are_gone() -> None:
    model = QueueModel([0.05] * 100, [1] * 100, 1, noise=0.05)
    for _ in range(60):
        model.round(POLICY)
    model.publishers.clear()
    for _ in range(60):
        model.round(POLICY)
    assert not [name for name in model.memory.marks if name.startswith(("moved", "small"))]
    assert len(model.memory.marks) < 12
