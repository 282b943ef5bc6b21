from queue_model import QueueModel
from queue_views import at, queue

from roq.model import ElasticRules
from roq.policy.snapshot import Decision, ExchangeView, Grow, Memory, Move, Shrink
from roq.policy.spread import Spread

RULES = ElasticRules(queue_publishers_per_exchange=4)


def last(count: int, *exchanges: ExchangeView, rules: ElasticRules = RULES) -> list[Decision]:
    """The decisions after so many rounds of the same."""
    memory = Memory()
    decisions: list[Decision] = []
    for number in range(count):
        view = queue(*exchanges, rules=rules, now=1000.0 + number)
        decisions, memory = Spread().decide(view, memory)
    return decisions


def test_counts_are_evened_out_in_the_second_round() -> None:
    crowd = at(1, *[(n, 0.01) for n in range(1, 7)])
    assert last(1, crowd, at(2)) == []
    assert [each.target for each in last(2, crowd, at(2)) if isinstance(each, Move)] == [2, 2, 2]


def test_a_difference_of_one_is_even() -> None:
    assert last(5, at(1, (1, 0.9), (2, 0.9)), at(2, (3, 0.0)), rules=ElasticRules()) == []


def test_too_many_publishers_make_it_grow() -> None:
    crowd = at(1, *[(n, 0.01) for n in range(1, 7)])
    assert [type(each) for each in last(2, crowd)] == [Grow]


def test_few_publishers_make_it_shrink() -> None:
    few = (at(1, (1, 0.1)), at(2, (2, 0.1), removable=True))
    assert [type(each) for each in last(6, *few)] == [Shrink]
    assert last(6, *few, rules=ElasticRules()) == []


def test_it_comes_to_rest() -> None:
    model = QueueModel([0.1] * 14, [1] * 14, 1, RULES)
    for _ in range(60):
        model.round(Spread())
    counts = [len([p for p in model.publishers.values() if p.at == (n,)]) for n in model.exchanges]
    assert sorted(counts) == [3, 3, 4, 4]
    assert [model.round(Spread()) for _ in range(100)] == [[]] * 100
