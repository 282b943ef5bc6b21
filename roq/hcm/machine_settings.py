"""What a host manager's machine goes by: plain values, already validated."""

from __future__ import annotations

from dataclasses import dataclass, field

from roq.hcm.crash_history import CrashLimits
from roq.timing import CHILD_START_SECONDS, CHILD_STOP_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of one host.

    Attributes:
        host: host id, the advertised address; children are reached there, too.
        bind: address that children bind to.
        control: endpoint of this host manager for configuration managers.
        control_local: endpoint of this host manager for its children.
        managers: client endpoints of the configuration managers.
        monitor_ports, statistics_ports, exchange_ports: first, and first that is too high;
            (0, 0): any free port.
        exchange_max: exchanges that may run here; 0: no limit.
        starts_max: processes that are started at the same time; others wait for their turn.
        start_seconds: a child must report for the first time within this.
        stop_seconds: between SIGTERM and SIGKILL.
        drain_seconds: what runs here has so long to go elsewhere before it is stopped; 0: none.
        hung_seconds: silence after which a child that does nothing counts as hung; 0: never.
        orphan_seconds: children end when this host manager is silent for so long.
        kpi_seconds: period of the children's reports to their monitor.
        logs: folder of the logs of durable exchanges.
    """

    host: str
    bind: str
    control: str
    control_local: str
    managers: tuple[str, ...]
    monitor_ports: tuple[int, int] = (0, 0)
    statistics_ports: tuple[int, int] = (0, 0)
    exchange_ports: tuple[int, int] = (0, 0)
    exchange_max: int = 0
    starts_max: int = 8
    start_seconds: float = CHILD_START_SECONDS
    stop_seconds: float = CHILD_STOP_SECONDS
    drain_seconds: float = 0.0
    hung_seconds: float = 1.0
    orphan_seconds: float = 60.0
    kpi_seconds: float = 1.0
    log_level: str = "info"
    log_format: str = "text"
    logs: str = ""
    crashes: CrashLimits = field(default_factory=CrashLimits)
