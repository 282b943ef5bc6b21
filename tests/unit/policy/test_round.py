"""A round: what a policy gives is looked at, and done in its order."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from queue_views import at, queue

from roq.model import PublisherId
from roq.policy.round import decide, perform
from roq.policy.snapshot import Decision, Grow, Memory, Move, Shrink, Stripe

if TYPE_CHECKING:
    from roq.policy.snapshot import Policy, QueueView

BEFORE = Memory({"round": 1.0})
AFTER = Memory({"round": 2.0})
ONE = PublisherId(bytes(16))


class Gives:
    """A policy that gives whatever it is told to, or raises it."""

    def __init__(self, decisions: object, memory: object = AFTER) -> None:
        self.given = decisions, memory

    def decide(self, _view: QueueView, _memory: Memory) -> object:
        if isinstance(self.given[0], BaseException):
            raise self.given[0]
        return self.given


def policy(decisions: object, memory: object = AFTER) -> Policy:
    return cast("Policy", Gives(decisions, memory))


def test_what_makes_sense_is_to_be_done_and_remembered() -> None:
    grow = Grow("why")
    assert decide(policy([grow]), queue(at(1)), BEFORE) == ([grow], AFTER, "")


@pytest.mark.parametrize(
    ("decisions", "memory", "problem"),
    [
        ([Shrink(7, "why")], AFTER, "x7"),
        ("nonsense", AFTER, "str instead of a list"),
        ([], {"round": 2.0}, "dict instead of a memory"),
        (ValueError("no idea"), AFTER, "it raised ValueError: no idea"),
        (SystemExit(1), AFTER, "it raised SystemExit"),
    ],
)
def test_of_what_makes_no_sense_nothing_is_done_or_remembered(
    decisions: object, memory: object, problem: str
) -> None:
    found = decide(policy(decisions, memory), queue(at(1)), BEFORE)
    assert problem in found.problem
    assert (list(found.decisions), found.memory) == ([], BEFORE)


@pytest.mark.parametrize(
    ("decision", "done"),
    [
        (Move(ONE, 1, 2, "a"), ("move", ONE, (2,), "a")),
        (Stripe(ONE, (2, 3), "b"), ("move", ONE, (2, 3), "b")),
        (Grow("c", 2), ("grow", 2, "c")),
        (Shrink(4, "d"), ("shrink", 4, "d")),
    ],
)
def test_each_decision_is_done_by_what_it_is(decision: Decision, done: tuple[object, ...]) -> None:
    found = perform(
        decision,
        move=lambda *given: ("move", *given),
        grow=lambda *given: ("grow", *given),
        shrink=lambda *given: ("shrink", *given),
    )
    assert found == done
