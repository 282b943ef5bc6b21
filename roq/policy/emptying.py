"""Where the publishers of an exchange go that is being emptied."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from roq.model import exchange_name
from roq.policy.known import FULL
from roq.policy.loads import shares_of
from roq.policy.snapshot import ExchangeView, Move, PublisherView, QueueView, Stripe


def emptying(
    view: QueueView,
    number: int,
    publishers: Sequence[PublisherView] | None = None,
    reason: str = "",
) -> list[Move | Stripe]:
    """Find a place for all publishers of an exchange, the busiest first, each where load is lowest.

    Publishers whose rate is not known count as one of the rest of that exchange's load does, so a
    crowd of them spreads out. A striped one keeps its other exchanges, and gets another one in the
    place of this one only if it needs as many.

    Args:
        view: of the queue.
        number: of the exchange that is to be left, accepting or not.
        publishers: all that publish there, if more are known than those in its `top`.
        reason: why they go; empty: the exchange is emptied.

    Returns:
        One decision for each publisher that is not on its way already; none if no other exchange
        takes publishers.
    """
    leaving = next((each for each in view.exchanges if each.number == number), None)
    load = {
        each.number: each.throughput
        for each in view.exchanges
        if each.accepting and each.number != number
    }
    if leaving is None or not load:
        return []
    there = leaving.top if publishers is None else publishers
    usual = _usual_rate(leaving)
    decisions: list[Move | Stripe] = []
    reason = reason or f"{exchange_name(number)} is emptied"
    for publisher in sorted(there, key=lambda each: (-each.throughput, each.id)):
        if publisher.moving:
            continue
        if len(publisher.exchanges) > 1:
            decisions.append(_stripe(view, publisher, load, reason))
            continue
        target = _lowest(load)
        load[target] += publisher.throughput or usual
        decisions.append(Move(publisher.id, number, target, reason))
    return decisions


def _stripe(
    view: QueueView, publisher: PublisherView, load: dict[int, float], reason: str
) -> Stripe:
    """Without this exchange; changes the loads accordingly."""
    shares = shares_of(view, publisher.id)
    rate = sum(shares.values())
    targets = [each for each in publisher.exchanges if each in load]
    for each in targets:
        load[each] -= shares.get(each, 0.0)
    needed = max(1, ceil(rate / (FULL * view.limit)))
    while not targets or len(targets) < min(needed, len(publisher.exchanges), len(load)):
        targets.append(_lowest({each: load[each] for each in load if each not in targets}))
    for each in targets:
        load[each] += rate / len(targets)
    return Stripe(publisher.id, tuple(sorted(targets)), reason)


def _usual_rate(exchange: ExchangeView) -> float:
    """What a publisher brings that is not among the busiest of its exchange."""
    unknown = exchange.publishers - len(exchange.top)
    rest = exchange.throughput - sum(each.throughput for each in exchange.top)
    if unknown > 0 and rest > 0:
        return rest / unknown
    return 1.0  # next to nothing, but it counts: a crowd of idle ones spreads out as well


def _lowest(load: dict[int, float]) -> int:
    return min(zip(load.values(), load, strict=True))[1]
