"""The known algorithm, line by line as it was published."""

import pytest
from queue_model import QueueModel, publisher
from queue_views import at, queue

from roq.model import ElasticRules
from roq.policy.known import Known
from roq.policy.snapshot import Decision, Grow, Memory, Move, QueueView


def told(decisions: list[Decision]) -> list[object]:
    """(publisher, source, target) of moves, "grow" for growth."""
    return [
        (int.from_bytes(each.publisher, "big"), each.source, each.target)
        if isinstance(each, Move)
        else "grow"
        for each in decisions
    ]


def decide(view: QueueView) -> list[object]:
    return told(Known().decide(view, Memory())[0])


P = [(n, 0.3) for n in range(1, 5)]

REFERENCE = [
    ("idle", [at(1), at(2)], []),
    ("exactly 110 % is not overloaded", [at(1, (1, 0.6), (2, 0.5)), at(2)], []),
    ("above 110 %: the busiest moves", [at(1, (1, 0.61), (2, 0.5)), at(2)], [(1, 1, 2)]),
    ("one publisher alone: the limit case", [at(1, (1, 1.5)), at(2)], []),
    ("one publisher alone, one exchange", [at(1, (1, 1.5))], []),
    ("the candidate has the lowest load", [at(1, *P), at(2, others=0.3), at(3, others=0.2)],
     [(1, 1, 3)]),
    ("equal candidates: the lowest number", [at(1, *P), at(2), at(3)], [(1, 1, 2)]),
    ("just below 90 % fits", [at(1, *P), at(2, others=0.59)], [(1, 1, 2)]),
    ("90 % does not fit, but evens out", [at(1, *P), at(2, others=0.61)], [(1, 1, 2)]),
    ("T(C) + b must stay below T(E)", [at(1, *P), at(2, others=0.90)], ["grow"]),
    ("T(E) - T(C) must exceed 20 % of T(E)",
     [at(1, *[(n, 0.12) for n in range(1, 11)]), at(2, others=0.97)], ["grow"]),
    ("just above 20 %", [at(1, *[(n, 0.12) for n in range(1, 11)]), at(2, others=0.95)],
     [(1, 1, 2)]),
    ("no other exchange: scale out", [at(1, *P)], ["grow"]),
    ("an exchange that takes nobody is no candidate", [at(1, *P), at(2, accepting=False)],
     ["grow"]),
    ("one that is emptied is not relieved", [at(1, *P, accepting=False), at(2)], []),
    ("a move counts at once", [at(1, *P), at(2, (5, 0.6), (6, 0.6)), at(3)],
     [(1, 1, 3), (5, 2, 3)]),
    ("a move counts at once for the candidate too",
     [at(1, *P), at(2, (5, 0.6), (6, 0.6)), at(3, others=0.35)], [(1, 1, 3), "grow"]),
    ("one that is on its way is waited for", [at(1, *P, moving=[1]), at(2)], []),
    ("nothing is known of the publishers yet", [at(1, others=1.5, publishers=3), at(2)], []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("exchanges", "expected"), [row[1:] for row in REFERENCE], ids=[row[0] for row in REFERENCE]
)
def test_decides_as_the_reference_table_says(exchanges, expected) -> None:
    assert decide(queue(*exchanges)) == expected


def test_never_more_exchanges_than_the_rules_allow() -> None:
    assert decide(queue(at(1, *P), rules=ElasticRules(exchanges_max=1))) == []


def test_one_scale_operation_at_a_time() -> None:
    assert decide(queue(at(1, *P), scaling=True)) == []


def test_the_reason_tells_the_load() -> None:
    [move], _ = Known().decide(queue(at(1, *P), at(2)), Memory())
    assert move.reason == "overload: x1 carries 120% of its limit"
    [grow], _ = Known().decide(queue(at(1, *P)), Memory())
    assert grow == Grow("no move helps: x1 carries 120% of its limit")


def test_after_growth_the_number_of_exchanges_cools_down() -> None:
    policy = Known()
    _, memory = policy.decide(queue(at(1, *P)), Memory())
    crowded = [(n, 0.6) for n in range(1, 7)]
    both = (at(1, *crowded[:3]), at(2, *crowded[3:]))
    decisions, memory = policy.decide(queue(*both, now=1002.0), memory)
    assert told(decisions) == []
    decisions, memory = policy.decide(queue(*both, now=1013.0), memory)
    assert told(decisions) == ["grow"]


def test_the_published_experiment_grows_at_the_5th_9th_and_13th_publisher() -> None:
    model = QueueModel([], [], 1, ElasticRules(cooldown_seconds=0), delay=0.5)
    grown = []
    for number in range(1, 17):
        fullest = min(model.loads(), key=lambda each: (model.loads()[each], each))
        model.join(number, 3_400 * 5_000 / 75e6, fullest)
        for _ in range(12):
            decisions = model.round(Known())
            grown += [number for each in decisions if isinstance(each, Grow)]
    assert grown == [5, 9, 13]
    assert len(model.exchanges) == 4
    assert max(model.loads().values()) <= 1.10
    assert publisher(16) in model.publishers
