"""After an exchange has come or gone: publishers are spread evenly over what there is.

A plan is a local search. The busiest exchange hands the publisher on that leaves it and the least
busy one most even, or swaps two; until it is near the mean, or nothing helps any more. When that
ends far from the mean, it is tried once more from a fresh deal, the biggest publisher first to
the least busy exchange. A plan is carried out as a whole if it takes 5 % off the peak, else not.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from roq.model import PublisherId, exchange_name
from roq.policy.loads import IMPROVEMENT, Loads
from roq.policy.relief import most_even

BALANCED: Final = 1.25
"""Peak over mean, up to which there is nothing to do."""
CLEARLY_UNBALANCED: Final = 1.50
TARGET: Final = 1.10
"""Peak over mean that a plan aims at: far enough below `BALANCED` for noise."""
GAIN_MIN: Final = 0.05
"""What a plan must take off the peak, as a part of it."""
FRESH_GAIN: Final = 0.02
"""What a fresh deal must be better by, since it moves more publishers."""


def plan(loads: Loads, moves_max: int) -> Loads | None:
    """The loads after a rebalancing that is worth it; None if none is.

    Publishers that cannot be moved, and those that are not known one by one, stay and count.
    """
    reason = (
        f"rebalancing: {exchange_name(loads.busiest)} carries {loads.imbalance:.0%} of the mean"
    )
    best = loads.trial()
    _search(best, moves_max, reason)
    if best.imbalance > BALANCED:
        fresh = _deal(loads, moves_max, reason)
        if fresh is not None and fresh.peak < (1 - FRESH_GAIN) * best.peak:
            best = fresh
    return best if best.peak <= (1 - GAIN_MIN) * loads.peak else None


def _search(loads: Loads, moves_max: int, reason: str) -> None:
    """Improve until the peak is near the mean or cannot be lowered by one move or swap."""
    for _ in range(moves_max):
        if loads.imbalance <= TARGET:
            return
        source = loads.busiest
        target = loads.lowest({source})
        if target is None:
            return
        highest = loads.load[source] * (1 - IMPROVEMENT)
        publisher = most_even(loads, source, target, highest)
        if publisher is not None:
            loads.move(publisher, source, target, reason)
        elif not _swap(loads, source, reason):
            return


def _swap(loads: Loads, source: int, reason: str) -> bool:
    """Exchange a publisher of the busiest exchange for a smaller one of another."""
    best: tuple[float, int, PublisherId, PublisherId] | None = None
    here = loads.load[source]
    for target in loads.targets:
        if target == source:
            continue
        there = loads.load[target]
        smaller = sorted((rate, publisher) for publisher, rate in loads.movable(target).items())
        for publisher, rate in loads.movable(source).items():
            # The best partner is the one whose difference is half of that of the exchanges.
            wanted = rate - (here - there) / 2
            at = bisect_left(smaller, (wanted, b""))
            for other_rate, other in smaller[max(0, at - 1) : at + 1]:
                peak = max(here - rate + other_rate, there + rate - other_rate)
                key = (peak, target, publisher, other)
                best = key if best is None else min(best, key)
    if best is None or best[0] >= here * (1 - IMPROVEMENT):
        return False
    _, target, publisher, other = best
    loads.move(publisher, source, target, reason)
    loads.move(other, target, source, reason)
    return True


def _deal(loads: Loads, moves_max: int, reason: str) -> Loads | None:
    """All publishers anew, the busiest first, each to the exchange with the lowest load."""
    trial = loads.trial()
    everybody = sorted(
        (-rate, publisher, number)
        for number in trial.load
        for publisher, rate in trial.movable(number).items()
    )
    if len(everybody) > moves_max:
        return None
    base = {
        number: load - sum(trial.movable(number).values()) for number, load in trial.load.items()
    }
    for rate, publisher, number in everybody:
        lowest = min(trial.targets, key=lambda each: (base[each], each != number, each))
        base[lowest] -= rate
        if lowest != number:
            trial.move(publisher, number, lowest, reason)
    _search(trial, moves_max, reason)
    return trial
