"""What a scenario wants to be sent: in all, in a phase, from moment to moment; pure.

Publisher n of group g is the same one in all phases that have a group g with more than n: it is
there already, and of a phase with a `spawn_rate` only newcomers take their turn.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from roq.simulation.scenario.draws import mean_size
from roq.simulation.scenario.rates import sent_by
from roq.simulation.scenario.scenario import Phase, PublisherGroup, Scenario


class Offered(NamedTuple):
    """What publishers are to send."""

    messages: float
    bytes: float
    """Of payloads."""


class Crowd(NamedTuple):
    """A group in one phase.

    Attributes:
        begins: of the phase, seconds since the first one began.
        place: of the group, among those of the phase.
        there: so many of them publish since an earlier phase; the first ones.
    """

    begins: float
    phase: Phase
    place: int
    group: PublisherGroup
    there: int

    def present(self, seconds: float) -> int:
        """How many have begun, so many seconds after the phase did; the first ones.

        Who would begin at that very moment has begun.
        """
        group = self.group
        if not group.spawn_rate:
            return group.count
        begun = bisect_right(range(group.count), seconds, key=group.begins)
        return max(min(self.there, group.count), begun)

    @property
    def at_last(self) -> int:
        """How many have begun before the phase ends."""
        group = self.group
        if not group.spawn_rate:
            return group.count
        begun = bisect_left(range(group.count), self.phase.seconds, key=group.begins)
        return max(min(self.there, group.count), begun)


def crowds(scenario: Scenario) -> Iterator[list[Crowd]]:
    """The groups of each phase."""
    there: list[int] = []
    for begins, phase in scenario.timed():
        found = [
            Crowd(begins, phase, place, group, there[place] if place < len(there) else 0)
            for place, group in enumerate(phase.publishers)
        ]
        yield found
        there = [each.at_last for each in found]


def present(scenario: Scenario, at: float) -> int:
    """How many publishers there are at a moment, seconds since the first phase began."""
    return sum(
        crowd.present(at - crowd.begins)
        for crowd in chain.from_iterable(crowds(scenario))
        if crowd.begins <= at < crowd.begins + crowd.phase.seconds
    )


def offered(scenario: Scenario, begin: float, end: float) -> Offered:
    """What is to be sent between two moments, seconds since the first phase began."""
    messages = size = 0.0
    for crowd in chain.from_iterable(crowds(scenario)):
        low = max(begin - crowd.begins, 0.0)
        high = min(end - crowd.begins, crowd.phase.seconds)
        if low < high:
            sent = _sent(crowd, low, high)
            messages += sent
            size += sent * mean_size(crowd.group.size)
    return Offered(messages, size)


def offered_by_phase(scenario: Scenario) -> list[Offered]:
    """What is to be sent in each phase."""
    return [offered(scenario, begins, begins + phase.seconds) for begins, phase in scenario.timed()]


def _sent(crowd: Crowd, low: float, high: float) -> float:
    """Messages of all publishers of a group between two moments of its phase."""
    rate, phase = crowd.group.rate, crowd.phase.seconds
    until = sent_by(rate, high, phase)
    before = crowd.present(low)
    newcomers = range(before, crowd.present(high))
    return before * (until - sent_by(rate, low, phase)) + sum(
        until - sent_by(rate, crowd.group.begins(index), phase) for index in newcomers
    )
