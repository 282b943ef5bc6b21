"""A queue of arithmetic: publishers with rates, exchanges, a monitor that reports a period late.

It shows a policy what a monitor would show it, and does what it decides, with the delays of the
real thing: a move takes effect somewhere in the middle of a later period, a new exchange starts
some periods after it was wanted, one that is not wanted is emptied first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from roq.model import ElasticRules, PublisherId
from roq.policy.emptying import emptying
from roq.policy.snapshot import (
    Decision,
    ExchangeView,
    Grow,
    HostView,
    Memory,
    Move,
    Policy,
    PublisherView,
    QueueView,
    Shrink,
    Stripe,
)
from roq.policy.verdict import problem_of

LIMIT = 75_000_000.0
WINDOW = 5
MOVING_PERIODS = 2
"""Periods for which a publisher that has arrived is still shown as moving."""


def publisher(number: int) -> PublisherId:
    """An id to test with."""
    return PublisherId(number.to_bytes(16, "big"))


@dataclass
class Publisher:
    rate: float
    at: tuple[int, ...]
    going: tuple[int, ...] = ()
    arrives: float = 0.0
    arrived: float = -100.0
    brought: dict[int, float] = field(default_factory=dict)
    """In the last period, by exchange."""


@dataclass
class Exchange:
    since: float
    accepting: bool = True
    removable: bool = False
    periods: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))


class QueueModel:
    """A queue that a policy steers.

    Args:
        rates: of the publishers, as a part of the limit.
        places: at which exchange each of them starts.
        exchanges: how many there are; numbered from 1.
        rules: in force.
        noise: each rate varies by so much in each period.
        seed: of the noise and of the delays.
        delay: longest time until a move takes effect, in periods.
        starting: periods until a wanted exchange is there; None: it never comes.
        reported: publishers that a report lists.
    """

    def __init__(
        self,
        rates: list[float],
        places: list[int],
        exchanges: int,
        rules: ElasticRules | None = None,
        *,
        noise: float = 0.0,
        seed: int = 0,
        delay: float = 1.5,
        starting: int | None = 2,
        reported: int = 64,
    ) -> None:
        self.now = 1000.0
        self.rules = rules if rules is not None else ElasticRules()
        self.noise, self.delay, self.starting, self.reported = noise, delay, starting, reported
        self.random = Random(seed)
        self.exchanges = {n: Exchange(self.now) for n in range(1, exchanges + 1)}
        self.publishers = {
            publisher(n): Publisher(rate * LIMIT, (place,))
            for n, (rate, place) in enumerate(zip(rates, places, strict=True), 1)
        }
        self.next_number = exchanges + 1
        self.coming: float | None = None
        self.leaving: int | None = None
        self.memory = Memory()
        self.latency_ms = 0.0
        self.hosts: tuple[HostView, ...] = ()
        self._pass()

    # --- what is true -----------------------------------------------------------------------------

    def loads(self) -> dict[int, float]:
        """What each exchange would carry if all moves were made, as a part of the limit."""
        found = dict.fromkeys(self.exchanges, 0.0)
        for each in self.publishers.values():
            places = each.going or each.at
            for number in places:
                found[number] += each.rate / LIMIT / len(places)
        return found

    def imbalance(self) -> float:
        """Peak over mean of these."""
        loads = self.loads().values()
        return max(loads) / (sum(loads) / len(loads)) if sum(loads) else 1.0

    def join(self, number: int, rate: float, place: int) -> None:
        """One more publisher; its rate as a part of the limit."""
        self.publishers[publisher(number)] = Publisher(rate * LIMIT, (place,))

    def add_exchange(self, *, removable: bool = False) -> int:
        """One more, at once."""
        number = self.next_number
        self.next_number += 1
        self.exchanges[number] = Exchange(self.now, removable=removable)
        self.exchanges[number].periods.append(0.0)
        return number

    # --- what a monitor shows ---------------------------------------------------------------------

    def view(self) -> QueueView:
        """The queue as its monitor sees it now."""
        shifted = dict.fromkeys(self.exchanges, 0.0)
        for each in self.publishers.values():
            if each.going:
                rate = sum(each.brought.values())
                for number, brought in each.brought.items():
                    shifted[number] = shifted.get(number, 0.0) - brought
                for number in each.going:
                    shifted[number] = shifted.get(number, 0.0) + rate / len(each.going)
        return QueueView(
            now=self.now,
            limit=LIMIT,
            rules=self.rules,
            exchanges=tuple(
                self._exchange_view(number, shifted[number]) for number in sorted(self.exchanges)
            ),
            hosts=self.hosts,
            latency_ms=self.latency_ms,
            scaling=self.coming is not None or self.leaving is not None,
        )

    def _exchange_view(self, number: int, shifted: float) -> ExchangeView:
        exchange = self.exchanges[number]
        there = [
            PublisherView(
                key,
                each.brought.get(number, 0.0),
                each.at,
                bool(each.going) or self.now - each.arrived < MOVING_PERIODS,
            )
            for key, each in self.publishers.items()
            if number in each.at
        ]
        there.sort(key=lambda each: (-each.throughput, each.id))
        return ExchangeView(
            number=number,
            host=f"h{number}",
            throughput=max(0.0, exchange.periods[-1] + shifted),
            mean=sum(exchange.periods) / len(exchange.periods),
            publishers=len(there),
            top=tuple(there[: self.reported]),
            accepting=exchange.accepting,
            removable=exchange.removable,
            age=self.now - exchange.since,
        )

    # --- what happens -----------------------------------------------------------------------------

    def round(self, policy: Policy) -> list[Decision]:
        """Ask the policy, do what it says, and let one period pass."""
        view = self.view()
        decisions, memory = policy.decide(view, self.memory)
        assert (decisions, memory) == policy.decide(view, self.memory), "not deterministic"
        assert problem_of(decisions, view) == ""
        self.memory = memory
        for decision in decisions:
            self._do(decision)
        self._pass()
        return decisions

    def _do(self, decision: Decision) -> None:
        match decision:
            case Move(key, _, target, _):
                self._send(key, (target,))
            case Stripe(key, targets, _):
                self._send(key, targets)
            case Grow():
                if self.starting is not None:
                    self.coming = self.now + self.starting
            case Shrink(number, _):
                self.leaving = number
                self.exchanges[number].accepting = False
                for each in emptying(self.view(), number):
                    self._do(each)

    def _send(self, key: PublisherId, targets: tuple[int, ...]) -> None:
        going = self.publishers[key]
        going.going = targets
        going.arrives = self.now + self.random.uniform(0.05, self.delay)

    def _pass(self) -> None:
        carried = dict.fromkeys(self.exchanges, 0.0)
        end = self.now + 1
        for each in self.publishers.values():
            rate = each.rate * (1 + self.random.uniform(-self.noise, self.noise))
            before = min(1.0, max(0.0, each.arrives - self.now)) if each.going else 1.0
            each.brought = {}
            for places, part in ((each.at, before), (each.going, 1 - before)):
                for number in places:
                    brought = rate * part / len(places)
                    each.brought[number] = each.brought.get(number, 0.0) + brought
                    carried[number] += brought
            if each.going and each.arrives <= end:
                each.at, each.going, each.arrived = each.going, (), each.arrives
        self.now = end
        for number, exchange in self.exchanges.items():
            exchange.periods.append(carried[number])
        self._scale()

    def _scale(self) -> None:
        if self.coming is not None and self.now >= self.coming:
            self.coming = None
            self.add_exchange(removable=True)
        if self.leaving is None:
            return
        there = [each for each in self.publishers.values() if self.leaving in each.at]
        if not there:
            del self.exchanges[self.leaving]
            self.leaving = None
        elif not any(each.going for each in there):
            for decision in emptying(self.view(), self.leaving):
                self._do(decision)
