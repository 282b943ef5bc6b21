"""When a queue shrinks: the rest can carry the load for good, and no rule would be broken by it.

The load is the greater of the last period and the mean of the window. It has to fit under 70 % of
the limit of the exchanges that stay, while a queue grows above 110 % only: what has just shrunk is
far from growing again. All other rules that are set must keep 20 % of room with one exchange less.

How long this must last doubles each time the queue had to grow again soon after it had shrunk, and
halves when it had not, so even a load that no rule foresees does not make it swing.
"""

from __future__ import annotations

from typing import Final

from roq.policy.emptying import emptying
from roq.policy.growth import may_scale, signals
from roq.policy.loads import shares_of
from roq.policy.memory import Marks
from roq.policy.snapshot import ExchangeView, Move, QueueView, Shrink

CARRIED: Final = 0.70
"""Part of their limit that the exchanges that stay may carry."""
ROOM: Final = 0.80
"""Part of any other rule that may be used with one exchange less."""
PATIENCE_SECONDS: Final = 5.0
"""For so long it must have been so."""
PATIENCE_MAX_SECONDS: Final = 600.0
REGRET_SECONDS: Final = 60.0
"""A queue that grows so soon after it has shrunk should not have."""

_LOW: Final = "low"
_SHRUNK: Final = "shrunk"
_PATIENCE: Final = "patience"


def shrink(marks: Marks, view: QueueView, quiet: bool = True) -> Shrink | None:
    """The exchange that is not needed, if that has lasted and nothing else is going on.

    Args:
        marks: of the policy.
        view: of the queue.
        quiet: no publisher was moved in this round or shortly before.
    """
    candidate = _candidate(view)
    held = candidate is not None and _is_spare(view, candidate)
    lasted = marks.lasting(_LOW, held)
    if candidate is None or not held or not quiet or not may_scale(marks, view):
        return None
    if lasted < marks.get(_PATIENCE, PATIENCE_SECONDS):
        return None
    if _SHRUNK in marks:  # the last time was no mistake
        marks.put(_PATIENCE, max(marks.get(_PATIENCE) / 2, PATIENCE_SECONDS))
    marks.start(_SHRUNK)
    marks.drop(_LOW)
    part = _load(view) / ((_accepting(view) - 1) * view.limit)
    return Shrink(candidate.number, f"the others can carry all of it: {part:.0%} of their limit")


def regret(marks: Marks) -> None:
    """The queue grows: if it has shrunk a moment ago, that was too early."""
    if _SHRUNK in marks and marks.since(_SHRUNK) < REGRET_SECONDS + marks.get(_PATIENCE):
        patience = marks.get(_PATIENCE, PATIENCE_SECONDS)
        marks.put(_PATIENCE, min(2 * patience, PATIENCE_MAX_SECONDS))
        marks.drop(_SHRUNK)
    marks.drop(_LOW)


def _candidate(view: QueueView) -> ExchangeView | None:
    """The least busy exchange that scaling has made; of equal ones the newest."""
    if _accepting(view) <= max(1, view.rules.exchanges_min):
        return None
    removable = [each for each in view.exchanges if each.accepting and each.removable]
    return min(removable, key=lambda each: (each.mean, -each.number), default=None)


def _is_spare(view: QueueView, exchange: ExchangeView) -> bool:
    rest = _accepting(view) - 1
    return (
        _load(view) <= CARRIED * view.limit * rest
        and _rules_allow(view, rest)
        and _others_take_it(view, exchange)
    )


def _rules_allow(view: QueueView, rest: int) -> bool:
    """Whether all rules would be kept easily, were what they measure dealt to one exchange less."""
    grown = (rest + 1) / rest
    return all(each.value * grown <= ROOM * each.limit for each in signals(view))


def _others_take_it(view: QueueView, exchange: ExchangeView) -> bool:
    """Whether no exchange would be busy for what it gets of this one."""
    load = {each.number: max(each.throughput, each.mean) for each in view.exchanges}
    here = {each.id: each.throughput for each in exchange.top}
    most = CARRIED * view.limit
    for decision in emptying(view, exchange.number):
        if isinstance(decision, Move):  # it publishes here and nowhere else
            rate = here[decision.publisher]
            load[exchange.number] -= rate
            load[decision.target] += rate
            if load[decision.target] > most:
                return False
            continue
        targets, shares = decision.targets, shares_of(view, decision.publisher)
        rate = sum(shares.values())
        for number, share in shares.items():
            load[number] -= share
        for number in targets:
            load[number] += rate / len(targets)
        if any(load[number] > most for number in targets):
            return False
    return True


def _accepting(view: QueueView) -> int:
    return sum(each.accepting for each in view.exchanges)


def _load(view: QueueView) -> float:
    """Of the whole queue, by the last period or by the window, whichever is more."""
    return max(
        sum(each.throughput for each in view.exchanges), sum(each.mean for each in view.exchanges)
    )
