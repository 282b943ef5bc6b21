"""What a policy is shown and what it may decide: plain data, the same in a monitor and in a model.

Rates are payload bytes per minute, as the limit is. `throughput` is that of the last KPI period and
tells at once that something has changed; `mean` goes over several periods and tells what lasts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias

import msgspec

from roq.model import ElasticRules, PublisherId


class PublisherView(msgspec.Struct, frozen=True, gc=False):
    """One of the busiest publishers of an exchange.

    Attributes:
        id: of the publisher.
        throughput: what it brings to this exchange, bytes per minute, in the last period; if it
            has come by a move since, what it brought before.
        exchanges: numbers of all exchanges that it publishes at; several: it is striped.
        moving: a move of it is under way, or has failed a short while ago, or nobody can tell it
            anything at present: it is to be left alone.
    """

    id: PublisherId
    throughput: float
    exchanges: tuple[int, ...]
    moving: bool = False


class ExchangeView(msgspec.Struct, frozen=True):
    """One exchange that serves.

    Attributes:
        number: in its queue.
        host: where it runs.
        throughput: bytes per minute in the last period, moves that are under way counted in.
        mean: bytes per minute over the window.
        publishers: how many publish there.
        top: the busiest ones, the busiest first.
        accepting: it takes publishers; False while it is emptied or stops.
        removable: scaling has made it, so scaling may remove it.
        latency_ms: mean that subscribers report; 0: unknown.
        age: seconds since the monitor knows it.
    """

    number: int
    host: str
    throughput: float
    mean: float
    publishers: int
    top: tuple[PublisherView, ...] = ()
    accepting: bool = True
    removable: bool = False
    latency_ms: float = 0.0
    age: float = 0.0


class HostView(msgspec.Struct, frozen=True):
    """A host on which the queue has an exchange."""

    host: str
    cpu_percent: float = 0.0
    memory_used_bytes: int = 0


class QueueView(msgspec.Struct, frozen=True):
    """A queue at the moment of a decision.

    Attributes:
        now: seconds on the monitor's clock; only differences mean anything.
        limit: L, bytes per minute that one exchange may take.
        rules: when the queue is to grow and shrink.
        exchanges: all that serve, by number.
        hosts: what is known of their hosts.
        latency_ms: mean that the subscribers report; 0: unknown.
        scaling: an exchange is being added or removed at the moment.
        missing: exchanges that the queue has and that do not serve: they failed, or are started.
            They count for how many there may be, or a queue would grow into one failed exchange
            after the other.
    """

    now: float
    limit: float
    rules: ElasticRules
    exchanges: tuple[ExchangeView, ...]
    hosts: tuple[HostView, ...] = ()
    latency_ms: float = 0.0
    scaling: bool = False
    missing: int = 0

    @property
    def size(self) -> int:
        """How many exchanges the queue has, serving or not."""
        return len(self.exchanges) + self.missing


class Move(msgspec.Struct, frozen=True, gc=False):
    """This publisher, which publishes at `source` alone, is to publish at `target`."""

    publisher: PublisherId
    source: int
    target: int
    reason: str


class Stripe(msgspec.Struct, frozen=True, gc=False):
    """This publisher is to be spread over these exchanges; one: it is striped no more."""

    publisher: PublisherId
    targets: tuple[int, ...]
    reason: str


class Grow(msgspec.Struct, frozen=True):
    """So many exchanges more are wanted, at once."""

    reason: str
    count: int = 1


class Shrink(msgspec.Struct, frozen=True):
    """This exchange is to be emptied and stopped."""

    number: int
    reason: str


Decision: TypeAlias = Move | Stripe | Grow | Shrink


class Memory(msgspec.Struct, frozen=True):
    """What a policy wants to remember until it is asked again; the monitor only keeps it.

    Attributes:
        marks: times and counts under names of the policy's own choice.
    """

    marks: Mapping[str, float] = {}


class Policy(Protocol):
    """Decides when publishers move, and when exchanges come and go.

    A policy is a pure function with a name: no clock, socket, file or randomness, so that the same
    object runs in a monitor, in a test and in a model of a thousand hosts. It is asked after each
    KPI period in which something has changed. One that raises, or decides the impossible, is
    counted and logged, and nothing is done in that period.
    """

    def decide(self, view: QueueView, memory: Memory) -> tuple[list[Decision], Memory]:
        """Give the decisions in the order in which they are to be taken, and the new memory."""
        ...
