"""A scenario: a queue, hosts, phases of load, faults, and what is expected of it all."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from roq.simulation.scenario.draws import Count, Size, Topics
from roq.simulation.scenario.rates import Rate, Seconds, highest, stretched

Name: TypeAlias = Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9._-]{0,63}\Z")]
FaultKind: TypeAlias = Literal["kill", "pause", "cut", "loss", "delay"]
Target: TypeAlias = Literal[
    "exchange", "monitor", "host_manager", "manager", "zookeeper", "publisher", "subscriber", "host"
]
Operator: TypeAlias = Literal["<", "<=", "==", ">=", ">"]
What: TypeAlias = Literal[
    "lost", "doubled", "reordered", "failed", "sent", "received", "messages_per_second",
    "bytes_per_second", "latency_mean_ms", "latency_p50_ms", "latency_p90_ms", "latency_p99_ms",
    "latency_p999_ms", "latency_max_ms", "exchanges_most", "exchanges_last", "moves",
    "moves_failed", "scale_outs", "scale_ins", "imbalance_last", "overload_minutes",
    "reaction_seconds", "load_reached",
]  # fmt: skip

_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, ">=": operator.ge, ">": operator.gt,
}  # fmt: skip


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the parts: what is not known is an error, so that no typing error goes unnoticed."""


class QueueSettings(Part, frozen=True, kw_only=True):
    """The queue that the load goes to.

    Attributes:
        exchanges: it begins with so many.
        limits: as for `roq queue create --limit`.
        rules: as for `roq rules set`, by the names of `ScalingRules`.
    """

    exchanges: Annotated[int, Meta(ge=1, le=1_000)] = 1
    limits: dict[str, int] = {}
    rules: dict[str, int | str] = {}


class PublisherGroup(Part, frozen=True, kw_only=True):
    """Publishers that are alike.

    Attributes:
        count: how many.
        rate: messages a second of each; or one of the kinds of `rates`.
        size: payload bytes; or one of the kinds of `draws`.
        topics: what they publish under.
        spawn_rate: so many of them begin each second; 0: all at once. Who was there in the phase
            before goes on.
    """

    count: Count = 1
    rate: Rate = 1.0
    size: Size = 100
    topics: Topics = Topics()
    spawn_rate: Annotated[float, Meta(ge=0, le=1_000_000)] = 0.0

    def begins(self, index: int) -> float:
        """Seconds after the beginning of the phase at which one of them begins.

        From then on it sends what the rate says for that moment of the phase.
        """
        return index / self.spawn_rate if self.spawn_rate else 0.0

    def stretched(self, factor: float) -> PublisherGroup:
        """The same in `factor` times the time."""
        return msgspec.structs.replace(
            self, rate=stretched(self.rate, factor), spawn_rate=self.spawn_rate / factor
        )


class SubscriberGroup(Part, frozen=True, kw_only=True):
    """Subscribers that are alike; each gets everything under its prefix."""

    count: Count = 1
    topic: str = ""


class ConsumerGroup(Part, frozen=True, kw_only=True):
    """Consumers that share the work of one group."""

    group: Name
    count: Count = 1
    topic: str = ""


class Phase(Part, frozen=True, kw_only=True):
    """A stretch of time with one load."""

    name: Name
    seconds: Seconds
    publishers: list[PublisherGroup] = []
    subscribers: list[SubscriberGroup] = []
    """Those of the phase before stay, if nothing is said."""
    consumers: list[ConsumerGroup] = []

    def peak(self) -> float:
        """The highest rate of all its publishers together, messages a second."""
        return sum(group.count * highest(group.rate) for group in self.publishers)


class Fault(Part, frozen=True, kw_only=True):
    """Something goes wrong.

    Attributes:
        at: seconds since the first phase began.
        kind: what happens.
        target: to whom.
        index: to which of them, counted from 0.
        seconds: how long a pause, a cut, a loss or a delay lasts.
        amount: of a loss: share of packets, 0 to 1; of a delay: seconds.
    """

    at: Annotated[float, Meta(ge=0)]
    kind: FaultKind
    target: Target
    index: Annotated[int, Meta(ge=0)] = 0
    seconds: Seconds = 1.0
    amount: Annotated[float, Meta(ge=0, le=60)] = 0.0


class Expectation(Part, frozen=True, kw_only=True):
    """What must come out."""

    what: What
    op: Operator
    value: Annotated[float, Meta(ge=-1e15, le=1e15)]

    def holds(self, found: float) -> bool:
        """Whether it came out so."""
        return _COMPARE[self.op](found, self.value)

    def __str__(self) -> str:
        return f"{self.what} {self.op} {self.value:g}"


class Scenario(Part, frozen=True, kw_only=True):
    """The whole."""

    name: Name
    title: str
    about: str = ""
    queue: QueueSettings = QueueSettings()
    hosts: Annotated[int, Meta(ge=1, le=100_000)] = 1
    phases: Annotated[list[Phase], Meta(min_length=1, max_length=1_000)]
    faults: Annotated[list[Fault], Meta(max_length=10_000)] = []
    expect: Annotated[list[Expectation], Meta(max_length=100)] = []

    @property
    def seconds(self) -> float:
        """How long all phases take together."""
        return sum(phase.seconds for phase in self.phases)

    def timed(self) -> Iterator[tuple[float, Phase]]:
        """When each phase begins, seconds since the first one did, and it."""
        begins = 0.0
        for phase in self.phases:
            yield begins, phase
            begins += phase.seconds

    def scaled(self, factor: float) -> Scenario:
        """The same in `factor` times the time: rates stay, durations change.

        What a fault lasts stays as well: RoQ's own time-outs, which it is about, do not change.

        Args:
            factor: above 0; 0.1 makes ten minutes one.
        """
        phases = [
            msgspec.structs.replace(
                phase,
                seconds=phase.seconds * factor,
                publishers=[group.stretched(factor) for group in phase.publishers],
            )
            for phase in self.phases
        ]
        end = sum(phase.seconds for phase in phases)
        faults = [
            msgspec.structs.replace(fault, at=min(fault.at * factor, end)) for fault in self.faults
        ]
        return msgspec.structs.replace(self, phases=phases, faults=faults)
