"""Who publishes how much and when: a scenario as timelines, one for each group of publishers.

Publisher n of group g is the same one in all phases that have a group g with more than n. What a
scenario says of one queue is dealt to all queues: publisher n belongs to queue n modulo their
number. Messages are counted by the mean size of a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from roq.simulation.forecast.parameters import Parameters
from roq.simulation.forecast.timeline import Timeline, steps
from roq.simulation.scenario.draws import mean_size
from roq.simulation.scenario.offered import crowds
from roq.simulation.scenario.scenario import Phase, PublisherGroup, Scenario


class Coming(NamedTuple):
    """A publisher comes or goes."""

    when: float
    number: int
    """In its group; the order in which those that come at once are assigned."""
    group: int
    comes: bool


class Group(NamedTuple):
    """What one publisher of a group brings, over the whole scenario."""

    bytes: Timeline
    """Payload bytes per minute."""
    messages: Timeline
    """Messages per minute."""
    batches: Timeline
    """Batches per minute."""
    work: Timeline
    """Cores that an exchange is busy with for it."""


class Load:
    """The load of a scenario.

    Args:
        scenario: what is to be played.
        parameters: what work costs, and how fine steps are.

    Attributes:
        groups: by their place in the phases.
        seconds: how long it takes.
        subscribers: how many get everything, over time.
        changes: the moments at which some rate changes.
    """

    def __init__(self, scenario: Scenario, parameters: Parameters) -> None:
        self._scenario = scenario
        self._crowds = list(crowds(scenario))
        self.seconds = scenario.seconds
        count = max(len(phase.publishers) for phase in scenario.phases)
        self.groups = [self._group(place, parameters) for place in range(count)]
        self.subscribers = Timeline(
            ((begin, float(readers)) for begin, _, readers in self._phases()), self.seconds
        )
        self.changes = sorted({time for group in self.groups for time in group.bytes.times})

    def comings(self, queue: int, queues: int) -> list[Coming]:
        """When publishers of one of the queues come and go, in order of time."""
        return sorted(
            coming
            for place in range(len(self.groups))
            for coming in self._comings(place, queue, queues)
        )

    def _group(self, place: int, parameters: Parameters) -> Group:
        bytes_pieces, message_pieces, batch_pieces, work_pieces = [], [], [], []
        for begin, phase, subscribers in self._phases():
            group = _at(phase, place)
            if group is None:
                pieces = [(0.0, 0.0)]
                size, shares = 0.0, {1.0: 1}
            else:
                pieces = list(steps(group.rate, phase.seconds, parameters.step_seconds))
                size, shares = mean_size(group.size), group.topics.shares
            per_byte = parameters.byte_in_ns + subscribers * parameters.byte_out_ns
            work = parameters.message_us * 1e-6 + size * per_byte * 1e-9
            batch_work = 1e-6 * (parameters.batch_us + subscribers * parameters.batch_out_us)
            for offset, rate in pieces:
                batches = batched(rate, size, shares, parameters)
                bytes_pieces.append((begin + offset, 60 * rate * size))
                message_pieces.append((begin + offset, 60 * rate))
                batch_pieces.append((begin + offset, 60 * batches))
                work_pieces.append((begin + offset, rate * work + batches * batch_work))
        return Group(*(
            Timeline(pieces, self.seconds)
            for pieces in (bytes_pieces, message_pieces, batch_pieces, work_pieces)
        ))  # fmt: skip

    def _comings(self, place: int, queue: int, queues: int) -> Iterator[Coming]:
        there = 0
        for (begin, _), groups in zip(self._scenario.timed(), self._crowds, strict=True):
            crowd = groups[place] if place < len(groups) else None
            stay = min(there, crowd.group.count) if crowd is not None else 0
            for index in range(_first(stay, queue, queues), there, queues):
                yield Coming(begin, index, place, False)
            if crowd is not None:
                for index in range(_first(stay, queue, queues), crowd.at_last, queues):
                    yield Coming(begin + crowd.group.begins(index), index, place, True)
            there = crowd.at_last if crowd is not None else 0

    def _phases(self) -> Iterator[tuple[float, Phase, int]]:
        """When each begins, it, and who gets everything in it."""
        readers = 0
        for begin, phase in self._scenario.timed():
            if phase.subscribers:
                readers = sum(each.count for each in phase.subscribers if not each.topic)
            yield begin, phase, readers


def batched(rate: float, size: float, shares: Mapping[float, int], parameters: Parameters) -> float:
    """Batches a second of a publisher: each holds messages of one topic, and what comes while the
    first of them waits, if it fits.

    Args:
        rate: messages a second.
        size: payload bytes of each.
        shares: of the messages, and how many topics have such a share.
        parameters: how long a message waits, and how large a batch may be.
    """
    fits = max(1.0, parameters.batch_bytes / size) if size > 0 else 1.0
    linger = parameters.linger_ms / 1_000
    return sum(
        topics * rate * share / min(fits, 1.0 + rate * share * linger)
        for share, topics in shares.items()
    )


def _at(phase: Phase, place: int) -> PublisherGroup | None:
    return phase.publishers[place] if place < len(phase.publishers) else None


def _first(least: int, queue: int, queues: int) -> int:
    """The first publisher of a queue from this one on."""
    return least + (queue - least) % queues
