"""The JSON by which the old tool described a load test; the names of its fields are kept."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from roq.simulation.scenario.draws import Bytes, Count
from roq.simulation.scenario.rates import PerSecond
from roq.simulation.scenario.scenario import Phase, PublisherGroup, Scenario, SubscriberGroup

MINUTE_SECONDS: Final = 60.0


class LegacyLoad(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A load test of the old tool.

    Attributes:
        delay: seconds before the load begins.
        duration: minutes.
        maxPub: publishers.
        maxSub: subscribers.
        payload: bytes of a message.
        rate: messages a second of each publisher; 0: by `throughput`.
        spawnRate: publishers that begin each second.
        throughput: messages a second that all subscribers are to receive together.
    """

    delay: Annotated[float, Meta(ge=0, le=31_536_000)] = 5.0
    duration: Annotated[float, Meta(gt=0, le=525_600)] = 1.0
    maxPub: Count = 1  # noqa: N815 - the old tool's names
    maxSub: Count = 1  # noqa: N815
    payload: Bytes = 1
    rate: PerSecond = 0.0
    spawnRate: Annotated[float, Meta(gt=0, le=1_000_000)] = 1.0  # noqa: N815
    throughput: PerSecond = 0.0

    def __post_init__(self) -> None:
        if not self.each:
            raise ValueError("`rate` and `throughput` are both 0: there would be no load")

    @property
    def each(self) -> float:
        """Messages a second of each publisher."""
        return self.rate or self.throughput / (self.maxPub * self.maxSub)


LEGACY_KEYS: Final = frozenset(LegacyLoad.__struct_fields__)


def from_legacy(data: dict[object, object], name: str) -> Scenario:
    """The scenario that an old description means.

    Args:
        data: as it was read.
        name: of the scenario.

    Raises:
        msgspec.ValidationError: it does not fit; the text tells the key.
    """
    load = msgspec.convert(data, LegacyLoad, strict=False)
    subscribers = [SubscriberGroup(count=load.maxSub)]
    group = PublisherGroup(
        count=load.maxPub, rate=load.each, size=load.payload, spawn_rate=load.spawnRate
    )
    wait = Phase(name="delay", seconds=max(load.delay, 0.001), subscribers=subscribers)
    work = Phase(name="load", seconds=load.duration * MINUTE_SECONDS, publishers=[group])
    return Scenario(
        name=name,
        title=f"{load.maxPub} publishers, {load.maxSub} subscribers, {load.each:g} messages/s each",
        phases=[wait, work] if load.delay else [
            msgspec.structs.replace(work, subscribers=subscribers)
        ],
    )  # fmt: skip
