"""Who carries what, as it will be after the decisions of this round.

Decisions of one round build upon each other: a publisher that is sent somewhere counts there at
once, so the next one is not sent to the same place for the same reason. `trial()` gives a copy to
try things out on; `adopt()` takes it over when it was worth it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from roq.model import PublisherId
from roq.policy.snapshot import ExchangeView, Move, PublisherView, QueueView, Stripe

IMPROVEMENT: Final = 1e-6
"""Relative; less than this is rounding."""

Shares = dict[int, float]
"""Number of an exchange → what one publisher brings to it."""


class Loads:
    """Bytes per minute of each exchange that takes publishers, and the publishers that can move.

    Args:
        view: of the queue.
        avoid: exchanges that are sent nobody, unless there is no other.
        resting: publishers that were moved a moment ago and are not moved for weak reasons.
    """

    def __init__(
        self,
        view: QueueView,
        avoid: Collection[int] = (),
        resting: Collection[PublisherId] = (),
    ) -> None:
        accepting = [each for each in view.exchanges if each.accepting]
        self.limit = view.limit
        self.load = {each.number: each.throughput for each in accepting}
        """Number of the exchange → what it will carry."""
        targets = [number for number in self.load if number not in avoid]
        self.targets: tuple[int, ...] = tuple(targets or self.load)
        """Exchanges that may be sent a publisher."""
        self._exchanges = {each.number: each for each in accepting}
        self._at: dict[int, dict[PublisherId, float]] = {}
        """Who can be moved, of exchanges that were looked at: in most rounds none is."""
        self.resting = frozenset(resting)
        """Publishers that are not moved for weak reasons."""
        self._origin: dict[PublisherId, int] = {}
        self._decided: dict[PublisherId, str | Stripe] = {}
        self._left: dict[PublisherId, tuple[int, ...]] = {}

    def trial(self) -> Loads:
        """A copy to try things out on."""
        copy = object.__new__(Loads)
        copy.limit, copy.targets, copy.resting = self.limit, self.targets, self.resting
        copy.load, copy._exchanges = dict(self.load), self._exchanges
        copy._at = {number: dict(there) for number, there in self._at.items()}
        copy._origin, copy._decided = dict(self._origin), dict(self._decided)
        copy._left = dict(self._left)
        return copy

    def adopt(self, trial: Loads) -> None:
        """Take over what a trial has led to."""
        self.load, self._at = trial.load, trial._at
        self._origin, self._decided, self._left = trial._origin, trial._decided, trial._left

    # --- looking ----------------------------------------------------------------------------------

    @property
    def busiest(self) -> int:
        """The exchange with most load; the lowest number of equal ones."""
        return min((-load, number) for number, load in self.load.items())[1]

    @property
    def mean(self) -> float:
        """Load per exchange."""
        return sum(self.load.values()) / len(self.load) if self.load else 0.0

    @property
    def peak(self) -> float:
        """What the busiest exchange carries."""
        return max(self.load.values(), default=0.0)

    @property
    def imbalance(self) -> float:
        """Load of the busiest exchange over the mean; 1 is best."""
        return self.peak / self.mean if self.mean > 0 else 1.0

    def movable(self, number: int, *, hasty: bool = False) -> dict[PublisherId, float]:
        """The publishers of an exchange that can be moved, with their rates.

        Args:
            number: of the exchange.
            hasty: those that rest as well.
        """
        there = self._there(number)
        if hasty or not self.resting:
            return there
        return {each: rate for each, rate in there.items() if each not in self.resting}

    def lowest(self, besides: Collection[int]) -> int | None:
        """The exchange with least load among those that may be sent a publisher."""
        usable = [(self.load[number], number) for number in self.targets if number not in besides]
        return min(usable)[1] if usable else None

    # --- deciding ---------------------------------------------------------------------------------

    def move(self, publisher: PublisherId, source: int, target: int, reason: str) -> None:
        """Send a publisher elsewhere."""
        rate = self._there(source).pop(publisher)
        self._there(target)[publisher] = rate
        self.load[source] -= rate
        self.load[target] += rate
        self._origin.setdefault(publisher, source)
        self._decided.setdefault(publisher, reason)

    def stripe(
        self, publisher: PublisherView, shares: Shares, targets: Iterable[int], reason: str
    ) -> None:
        """Spread a publisher evenly over these exchanges, each at its share of the whole."""
        chosen = tuple(targets)
        for number, rate in shares.items():
            self._there(number).pop(publisher.id, None)
            self.load[number] -= rate
        share = sum(shares.values()) / len(chosen)
        for number in chosen:
            self.load[number] += share
        self._left[publisher.id] = tuple(shares)
        self._decided[publisher.id] = Stripe(publisher.id, chosen, reason)

    @property
    def touched(self) -> set[int]:
        """The exchanges that take part in what was decided."""
        found: set[int] = set()
        for decision in self.decisions():
            match decision:
                case Move(_, source, target, _):
                    found |= {source, target}
                case Stripe(_, targets, _):
                    found |= {*targets, *self._left.get(decision.publisher, ())}
        return found

    def decisions(self) -> list[Move | Stripe]:
        """What was decided, in that order; a publisher that ends where it was is left alone."""
        found: list[Move | Stripe] = []
        for publisher, decided in self._decided.items():
            if isinstance(decided, Stripe):
                found.append(decided)
                continue
            origin, place = self._origin[publisher], self._place(publisher)
            if place != origin:
                found.append(Move(publisher, origin, place, decided))
        return found

    def _there(self, number: int) -> dict[PublisherId, float]:
        found = self._at.get(number)
        if found is None:
            found = self._at[number] = _movable(self._exchanges[number])
        return found

    def _place(self, publisher: PublisherId) -> int:
        """Where a publisher that was moved will be."""
        return next(number for number, there in self._at.items() if publisher in there)


def _movable(exchange: ExchangeView) -> dict[PublisherId, float]:
    """Publishers of an exchange that can be sent elsewhere by a plain move, with their rates."""
    alone = (exchange.number,)
    return {
        each.id: each.throughput
        for each in exchange.top
        if each.throughput > 0 and not each.moving and each.exchanges == alone
    }


def shares_of(view: QueueView, publisher: PublisherId) -> Shares:
    """What a publisher brings to each exchange at which it is seen."""
    return {
        exchange.number: each.throughput
        for exchange in view.exchanges
        for each in exchange.top
        if each.id == publisher
    }
