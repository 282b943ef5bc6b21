"""What a scenario wants to be sent, moment by moment; pure."""

from __future__ import annotations

from simulation.description.rates import sent_by
from simulation.description.scenario import Phase, PublisherGroup, Scenario


def offered(scenario: Scenario, begin: float, end: float) -> float:
    """Messages that are to be sent between two moments, seconds since the load began."""
    total = start = 0.0
    for phase in scenario.phases:
        low, high = max(begin - start, 0.0), min(end - start, phase.seconds)
        if high > low:
            total += sum(_group(group, phase, low, high) for group in phase.publishers)
        start += phase.seconds
    return total


def _group(group: PublisherGroup, phase: Phase, low: float, high: float) -> float:
    """Of all publishers of a group, between two moments of a phase."""

    def whole(begin: float) -> float:
        first = max(low, begin)
        return sent_by(group.rate, high, phase.seconds) - sent_by(group.rate, first, phase.seconds)

    if not group.spawn_rate:
        return group.count * whole(low)
    # Those that were there before, and one after the other those that come meanwhile.
    before = min(group.count, int(low * group.spawn_rate) + 1)
    until = min(group.count, int(high * group.spawn_rate) + 1)
    return before * whole(low) + sum(whole(group.begins(index)) for index in range(before, until))
