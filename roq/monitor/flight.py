"""How a flight of a monitor is flown again.

A policy of another package is asked anew, without the bound on its time.
"""

from __future__ import annotations

from typing import Final

import msgspec

from roq.model import Limits
from roq.monitor.events import Event
from roq.monitor.machine import MonitorMachine
from roq.monitor.scaling_rules import PolicyNamed
from roq.runtime import plugins
from roq.runtime.flight import Kind


class Birth(msgspec.Struct, frozen=True, kw_only=True):
    """What a monitor's machine is made of."""

    queue: str
    queue_id: bytes
    epoch: int
    limits: Limits
    kpi_seconds: float
    restarted: bool
    now: float
    control: str


def make(given: Birth, policy_named: PolicyNamed = plugins.policy) -> MonitorMachine:
    """A machine as it was, or shall be, at its birth."""
    return MonitorMachine(
        queue=given.queue, queue_id=given.queue_id, epoch=given.epoch, limits=given.limits,
        kpi_seconds=given.kpi_seconds, restarted=given.restarted, now=given.now,
        control=given.control, policy_named=policy_named,
    )  # fmt: skip


KIND: Final = Kind("monitor", Birth, Event, make)
