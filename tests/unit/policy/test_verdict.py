"""What is wrong with a decision, in a sentence."""

import pytest
from queue_model import publisher
from queue_views import at, queue

from roq.model import ElasticRules
from roq.policy.snapshot import Grow, Move, Shrink, Stripe
from roq.policy.verdict import DECISIONS_MAX, problem_of

VIEW = queue(
    at(1, (1, 0.5), (2, 0.1), (9, 0.1), moving=[9], striped={2: (1, 3)}),
    at(2, removable=True),
    at(3, (2, 0.1), striped={2: (1, 3)}),
    at(4, accepting=False, removable=True),
    rules=ElasticRules(exchanges_max=5, exchanges_min=1),
)
P1, P2, P9 = publisher(1), publisher(2), publisher(9)

SENSE = [
    [],
    [Move(P1, 1, 2, ""), Stripe(P2, (1, 2), ""), Grow("more")],
    [Stripe(P1, (1, 2, 3), "")],
    [Stripe(P2, (3,), "")],
    [Shrink(2, "")],
]
NONSENSE = [
    (None, "instead of a list"),
    ([Move(P1, 1, 7, "")], "no exchange x7"),
    ([Move(P1, 1, 4, "")], "x4 takes no publishers"),
    ([Move(P1, 1, 1, "")], "both x1"),
    ([Move(P1, 2, 3, "")], "is not at x2"),
    ([Move(publisher(7), 1, 2, "")], "is not at x1"),
    ([Move(P2, 1, 2, "")], "not at x1 alone"),
    ([Move(P9, 1, 2, "")], "on its way"),
    ([Move(P1, 1, 2, ""), Move(P1, 1, 3, "")], "two places"),
    ([Stripe(P1, (), "")], "0 targets"),
    ([Stripe(P1, tuple(range(99)), "")], "99 targets"),
    ([Stripe(P1, (1, 1), "")], "twice"),
    ([Stripe(P1, (1, 4), "")], "takes no"),
    ([Stripe(P9, (1, 2), "")], "on its way"),
    ([Stripe(publisher(7), (1,), "")], "not known"),
    ([Grow("", 0)], "0 exchanges at once"),
    ([Grow("", 5)], "5 exchanges at once"),
    ([Grow("", None)], "wrong type"),
    ([Grow(""), Grow("")], "already"),
    ([Grow(""), Shrink(2, "")], "already"),
    ([Shrink(1, "")], "not made by scaling"),
    ([Shrink(4, "")], "emptied already"),
    ([Shrink(7, "")], "no exchange"),
    ([Grow("x" * 1000)], "at most 500"),
    (["move"], "no decision"),
    ([Move([], 1, 2, "")], "wrong type"),
    ([Stripe(P1, 3, "")], "wrong type"),
    ([Grow(None)], "wrong type"),
    ([Move(P1, 1, 2, "")] * (DECISIONS_MAX + 1), "in one round"),
]


@pytest.mark.parametrize("decisions", SENSE)
def test_sense_is_accepted(decisions) -> None:
    assert problem_of(decisions, VIEW) == ""


@pytest.mark.parametrize(("decisions", "text"), NONSENSE)
def test_nonsense_is_explained(decisions, text: str) -> None:
    assert text in problem_of(decisions, VIEW)


def test_caps_hold_for_everybody() -> None:
    full = queue(at(1), rules=ElasticRules(exchanges_max=1))
    assert "may have 1 exchanges" in problem_of([Grow("")], full)
    last = queue(at(1, removable=True))
    assert "keeps 1 exchanges" in problem_of([Shrink(1, "")], last)
    busy = queue(at(1), at(2, removable=True), scaling=True)
    assert "already" in problem_of([Shrink(2, "")], busy)
