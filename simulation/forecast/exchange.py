"""One exchange of a queue, and the publishers of the queue.

What publishers bring is never added up publisher by publisher: those of a group differ by their
weight only, so an exchange carries the sum of weights times what the group brings.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from random import Random

from roq.model import PublisherId
from roq.policy.snapshot import PublisherView
from roq.simulation.forecast.reports import Reports

Place = tuple[int, ...]
"""Numbers of the exchanges at which a publisher is."""
NOWHERE: Place = ()


@dataclass(slots=True, eq=False)
class Exchange:
    """An exchange.

    Attributes:
        number: in its queue.
        host: where it runs.
        since: when its monitor heard of it.
        reports: when its monitor hears of it again and again.
        planned: per group, weight of those who are there or on their way there, none of those who
            are on their way elsewhere; by this a monitor decides.
        actual: the same by where publishers really are.
        open: publishers may be moved there.
        leaving: it is being emptied.
        scaled: scaling has made it.
        died: when it died, as long as its monitor does not know; None: it lives.
        doubted: a publisher could not reach it.
        frozen: (throughput, mean) that its monitor believes in after its death.
        version: rises with all that changes what its busiest publishers look like.
    """

    number: int
    host: str
    since: float
    reports: Reports
    planned: list[float]
    actual: list[float]
    open: bool = False
    leaving: bool = False
    scaled: bool = False
    died: float | None = None
    doubted: bool = False
    frozen: tuple[float, float] = (0.0, 0.0)
    members: set[int] = field(default_factory=set)
    newcomers: dict[int, float] = field(default_factory=dict)
    """Who came by a move, and when; those of the last period are shown in any case."""
    version: int = 0
    top: tuple[PublisherView, ...] = ()
    top_of: object = None
    """What `top` was made of."""
    views: dict[int, PublisherView] = field(default_factory=dict)
    """Of publishers, as they were shown last."""
    views_of: tuple[float, ...] = ()
    arrivals: tuple[int, float] = (-1, 0.0)
    """(Period, bytes per minute that those will bring who were assigned in it)."""

    @property
    def accepting(self) -> bool:
        """Whether its monitor takes it for one that publishers may be moved to."""
        return self.open and not self.leaving and not self.doubted


class Publishers:
    """All publishers of one queue, in arrays.

    Args:
        groups: of each publisher, its group.
        spread: sigma of the log-normal weights.
        random: draws them.
    """

    def __init__(self, groups: list[int], spread: float, random: Random) -> None:
        self.group = array("H", groups)
        self.weight = array("d", (_weight(spread, random) for _ in groups))
        _level(self.group, self.weight)
        self.place: list[Place] = [NOWHERE] * len(groups)
        self.ids = list(map(id_of, range(len(groups))))
        self.there = bytearray(len(groups))
        """1 for those who have come and not gone."""
        order = sorted(range(len(groups)), key=lambda each: (-self.weight[each], each))
        self.rank = array("L", bytes(array("L").itemsize * len(groups)))
        for rank, publisher in enumerate(order):
            self.rank[publisher] = rank

    def __len__(self) -> int:
        return len(self.group)


def id_of(publisher: int) -> PublisherId:
    """The id by which policies know a publisher."""
    return PublisherId(publisher.to_bytes(16, "big"))


def number_of(publisher: bytes) -> int:
    """The contrary."""
    return int.from_bytes(publisher, "big")


def _weight(spread: float, random: Random) -> float:
    return random.lognormvariate(0.0, spread) if spread else 1.0


def _level(groups: array[int], weights: array[float]) -> None:
    """Give each group a mean weight of 1: what is offered does not depend on the seed."""
    sums: dict[int, float] = {}
    counts: dict[int, int] = {}
    for group, weight in zip(groups, weights, strict=True):
        sums[group] = sums.get(group, 0.0) + weight
        counts[group] = counts.get(group, 0) + 1
    for index, group in enumerate(groups):
        weights[index] *= counts[group] / sums[group]
