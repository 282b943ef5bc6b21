"""How a flight of a configuration manager is flown again."""

from __future__ import annotations

from typing import Final

import msgspec

from roq.gcm.events import Event
from roq.gcm.machine import GcmMachine, Settings
from roq.gcm.provision.hosts import ProvisionSettings
from roq.gcm.state.records import Manager
from roq.runtime.flight import Kind


class Birth(msgspec.Struct, frozen=True):
    """The settings as plain values, with the policies that were installed."""

    manager: Manager
    period: float
    cloud: dict[str, bool | int | float | str]
    provision: ProvisionSettings | None
    policies: list[str]
    registry: str


def birth(settings: Settings) -> Birth:
    """What a machine with these settings is made of."""
    return Birth(
        manager=settings.manager,
        period=settings.period,
        cloud=settings.cloud,  # type: ignore[arg-type] # only `[cloud]` of gcm.toml
        provision=settings.provision,
        policies=sorted(settings.policies()),
        registry=settings.registry,
    )


def make(given: Birth) -> GcmMachine:
    """A machine as it was at its birth."""
    return GcmMachine(
        Settings(
            manager=given.manager,
            period=given.period,
            cloud=dict(given.cloud),
            provision=given.provision,
            policies=lambda: given.policies,
            registry=given.registry,
        )
    )


KIND: Final = Kind("gcm", Birth, Event, make)
