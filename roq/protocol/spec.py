"""What a host manager writes down for a child process before it starts it: one JSON file.

`python -m roq.exchange FILE` and `python -m roq.monitor FILE` read it and need nothing else.
"""

from __future__ import annotations

import msgspec

from roq.model import Limits
from roq.ranges import Amount, ChildEpoch, ExchangeNumber, Port


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What every child is told."""

    child: str
    """`<queue>.monitor` or `<queue>.x<number>`."""
    queue: str
    queue_id: bytes
    epoch: ChildEpoch
    bind: str
    """Address to bind to."""
    advertise: str
    """Address under which others reach it."""
    ports: tuple[Port, Port]
    """Range of ports to choose from: first, and first that is too high. (0, 0): any free port."""
    avoid_ports: list[Port] = []
    """Ports that were in use within the last ten minutes."""
    manager: str
    """Control address of the host manager."""
    managers: list[str] = []
    """Client addresses of configuration managers, for as long as the host manager is away."""
    orphan_seconds: Amount = 60.0
    """Without an answer from the host manager for so long, the child drains and ends."""
    kpi_seconds: Amount = 1.0
    log_level: str = "info"
    log_format: str = "text"
    limits: Limits
    cluster: str = ""
    """Identity of the cluster it belongs to, for a later life of the host manager."""


class MonitorSpec(ChildSpec, frozen=True, kw_only=True, tag="monitor"):
    """What a monitor is told."""

    statistics_ports: tuple[Port, Port] = (0, 0)
    restarted: bool = False
    """A monitor of this queue was there before: exchanges that it does not know yet may serve."""


class ExchangeSpec(ChildSpec, frozen=True, kw_only=True, tag="exchange"):
    """What an exchange is told."""

    number: ExchangeNumber
    host: str
    monitor: str
    """Control address of the queue's monitor."""


Spec = MonitorSpec | ExchangeSpec


def encode_spec(spec: ChildSpec) -> bytes:
    """The JSON of a spec."""
    return msgspec.json.format(msgspec.json.encode(spec), indent=2)
