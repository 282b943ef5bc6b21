"""The policy "known": the published algorithm for moving publishers and adding exchanges.

For each exchange E with throughput T(E), and the limit L:

    T(E) <= 1.10 L                              nothing
    one publisher                               the limit case: nothing helps, so nothing is done
    p the most productive publisher of E, b its rate, C the other exchange with the lowest T:
        T(C) + b < 0.90 L                       p moves to C
        T(C) + b < T(E), T(E) - T(C) > 0.20 T(E)   p moves to C ("load optimisation")
        otherwise                               scale out

A move counts at once: T(C) += b, T(E) -= b. One move for each exchange and round. It is kept as it
was published, as a baseline; `balanced` is what to use.
"""

from __future__ import annotations

from typing import Final

from roq.model import exchange_name
from roq.policy.growth import may_grow, watch_exchanges
from roq.policy.memory import Marks
from roq.policy.snapshot import Decision, ExchangeView, Grow, Memory, Move, QueueView

OVERLOAD: Final = 1.10
"""An exchange above so much of its limit is overloaded."""
FULL: Final = 0.90
"""A move fills an exchange up to so much of its limit."""
GAIN: Final = 0.20
"""Exchanges that differ by less than this part of the busier one are not evened out."""


class Known:
    """The known algorithm, with rates instead of totals per minute."""

    def decide(self, view: QueueView, memory: Memory) -> tuple[list[Decision], Memory]:
        """At most one move for each overloaded exchange, and at most one exchange more."""
        marks = Marks(memory, view.now)
        watch_exchanges(marks, view)
        accepting = [each for each in view.exchanges if each.accepting]
        load = {each.number: each.throughput for each in accepting}
        decisions: list[Decision] = []
        growth: Grow | None = None
        for exchange in accepting:
            match _relieve(exchange, load, view.limit):
                case Move() as move:
                    decisions.append(move)
                case Grow() as wanted:
                    growth = growth or wanted
                case _:
                    pass
        if growth is not None and may_grow(marks, view):
            decisions.append(growth)
        return decisions, marks.memory()


def _relieve(exchange: ExchangeView, load: dict[int, float], limit: float) -> Move | Grow | None:
    number = exchange.number
    here = load[number]
    if here <= OVERLOAD * limit or exchange.publishers <= 1:
        return None
    busiest = next((each for each in exchange.top if each.exchanges == (number,)), None)
    if busiest is None or busiest.moving:
        return None  # nothing is known of its publishers yet, or the busiest is on its way
    others = [other for other in load if other != number]
    lowest = min(others, key=lambda other: (load[other], other), default=None)
    if lowest is not None:
        rate, there = busiest.throughput, load[lowest]
        fits = there + rate < FULL * limit
        evens = there + rate < here and here - there > GAIN * here
        if fits or evens:
            load[lowest] += rate
            load[number] -= rate
            reason = "overload" if fits else "load optimisation"
            return Move(busiest.id, number, lowest, f"{reason}: {_shown(number, here, limit)}")
    return Grow(f"no move helps: {_shown(number, here, limit)}")


def _shown(number: int, load: float, limit: float) -> str:
    return f"{exchange_name(number)} carries {load / limit:.0%} of its limit"
