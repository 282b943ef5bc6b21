"""What is done with a policy in a round, in a monitor and in a forecast alike; pure.

A policy is shown the queue, what it gives is looked at, and each decision is done in its order. One
senseless decision spoils the whole round: nothing of it is done, and its memory is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from roq.model import PublisherId
from roq.policy.snapshot import (
    Decision,
    Grow,
    Memory,
    Move,
    Policy,
    QueueView,
    Shrink,
    Stripe,
)
from roq.policy.verdict import problem_of

T = TypeVar("T")


class Decided(NamedTuple):
    """What a policy has decided.

    Attributes:
        decisions: to be done in this order.
        memory: for its next round.
        problem: why nothing is to be done, in a clause; empty: all is well.
    """

    decisions: Sequence[Decision]
    memory: Memory
    problem: str = ""


def decide(policy: Policy, view: QueueView, memory: Memory) -> Decided:
    """Show a queue to a policy, which may be a user's and do anything."""
    try:
        decisions, after = policy.decide(view, memory)
        problem = problem_of(decisions, view) or _problem_of_memory(after)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a policy is a user's code
        return Decided((), memory, f"it raised {_words_of(error)}")
    return Decided((), memory, problem) if problem else Decided(decisions, after)


def perform(
    decision: Decision,
    *,
    move: Callable[[PublisherId, tuple[int, ...], str], T],
    grow: Callable[[int, str], T],
    shrink: Callable[[int, str], T],
) -> T:
    """Have a decision done.

    Args:
        decision: what is to be done.
        move: sends a publisher to these exchanges, for a reason.
        grow: adds so many exchanges, for a reason.
        shrink: has an exchange emptied and stopped, for a reason.
    """
    match decision:
        case Move(publisher, _, target, reason):
            return move(publisher, (target,), reason)
        case Stripe(publisher, targets, reason):
            return move(publisher, targets, reason)
        case Grow(reason, count):
            return grow(count, reason)
        case Shrink(number, reason):
            return shrink(number, reason)


def _problem_of_memory(memory: object) -> str:
    return "" if isinstance(memory, Memory) else f"{type(memory).__name__} instead of a memory"


def _words_of(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - even its text is a user's code
        return type(error).__name__
