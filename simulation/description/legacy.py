"""The JSON by which the old tool described a load test; the names of its fields are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from roq.errors import ConfigError
from simulation.description.scenario import Phase, PublisherGroup, Scenario, SubscriberGroup

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

    delay: Annotated[float, Meta(ge=0)] = 5.0
    duration: Annotated[float, Meta(gt=0)] = 1.0
    maxPub: Annotated[int, Meta(ge=1)] = 1  # noqa: N815 - the old tool's names
    maxSub: Annotated[int, Meta(ge=1)] = 1  # noqa: N815
    payload: Annotated[int, Meta(ge=0)] = 1
    rate: Annotated[float, Meta(ge=0)] = 0.0
    spawnRate: Annotated[float, Meta(gt=0)] = 1.0  # noqa: N815
    throughput: Annotated[float, Meta(ge=0)] = 0.0


LEGACY_KEYS: Final = frozenset(LegacyLoad.__struct_fields__)


def from_legacy(data: dict[str, object], path: Path) -> Scenario:
    """The scenario that an old description means.

    Raises:
        ConfigError: it does not fit; the text names file and key.
    """
    try:
        load = msgspec.convert(data, LegacyLoad, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}") from None
    rate = load.rate or load.throughput / (load.maxPub * load.maxSub)
    if not rate:
        raise ConfigError(f"{path}: `rate` and `throughput` are both 0: there would be no load")
    subscribers = [SubscriberGroup(count=load.maxSub)]
    group = PublisherGroup(
        count=load.maxPub, rate=rate, size=load.payload, spawn_rate=load.spawnRate
    )
    wait = Phase(name="delay", seconds=max(load.delay, 0.001), subscribers=subscribers)
    work = Phase(name="load", seconds=load.duration * MINUTE_SECONDS, publishers=[group])
    return Scenario(
        name=_name(path),
        title=f"{load.maxPub} publishers, {load.maxSub} subscribers, {rate:g} messages/s each",
        phases=[wait, work] if load.delay else [
            msgspec.structs.replace(work, subscribers=subscribers)
        ],
    )  # fmt: skip


def _name(path: Path) -> str:
    name = "".join(each if each.isalnum() else "-" for each in path.stem.lower()).strip("-")
    return name[:64] or "load"
