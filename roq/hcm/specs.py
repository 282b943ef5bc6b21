"""What a host manager's machine goes by, what it tells a child of that when it starts it, and the
child that was told so."""

from __future__ import annotations

from dataclasses import dataclass, field

from roq.hcm.children import EXCHANGE, MONITOR, Child, State
from roq.hcm.crash_history import CrashHistory, CrashLimits
from roq.model import ASYNC, FLUSH, VOLATILE, exchange_name
from roq.protocol.spec import ExchangeSpec, MonitorSpec, Spec
from roq.timing import CHILD_START_SECONDS, CHILD_STOP_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Of one host: plain values, already validated.

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


def make_spec(child: Child, settings: Settings, cluster: str, avoid: list[int]) -> Spec:
    """The spec of a child's next process.

    Args:
        cluster: its identity; empty if it is not known yet.
        avoid: ports that it must not take.
    """
    if child.role == EXCHANGE:
        return ExchangeSpec(
            child=child.name,
            queue=child.queue,
            queue_id=child.queue_id,
            epoch=child.epoch,
            bind=settings.bind,
            advertise=settings.host,
            ports=settings.exchange_ports,
            avoid_ports=avoid,
            manager=settings.control_local,
            managers=list(settings.managers),
            orphan_seconds=settings.orphan_seconds,
            kpi_seconds=settings.kpi_seconds,
            log_level=settings.log_level,
            log_format=settings.log_format,
            limits=child.limits,
            cluster=cluster,
            number=child.number,
            host=settings.host,
            monitor=child.monitor,
            log="" if child.durability == VOLATILE else log_folder(settings.logs, child),
            has_log=child.has_log,
            ahead=child.durability == ASYNC,
        )
    return MonitorSpec(
        child=child.name,
        queue=child.queue,
        queue_id=child.queue_id,
        epoch=child.epoch,
        bind=settings.bind,
        advertise=settings.host,
        ports=settings.monitor_ports,
        avoid_ports=avoid,
        manager=settings.control_local,
        managers=list(settings.managers),
        orphan_seconds=settings.orphan_seconds,
        kpi_seconds=settings.kpi_seconds,
        log_level=settings.log_level,
        log_format=settings.log_format,
        limits=child.limits,
        cluster=cluster,
        statistics_ports=settings.statistics_ports,
        # Exchanges may be there already, and must not be taken for gone.
        restarted=child.ran or child.restarted,
    )


def log_folder(logs: str, child: Child) -> str:
    """Where the log of an exchange lies, below the folder of all of them.

    Named by what never changes and is never used again, so nobody finds the log of another one.
    """
    return f"{logs}/{child.queue_id.hex()}/{exchange_name(child.number)}"


def _durability(spec: Spec) -> str:
    if not isinstance(spec, ExchangeSpec) or not spec.log:
        return VOLATILE
    return ASYNC if spec.ahead else FLUSH


def adopted_child(spec: Spec, pid: int, history: CrashHistory) -> Child:
    """The child whose present process was started with this spec, by an earlier life of ours."""
    exchange = isinstance(spec, ExchangeSpec)
    return Child(
        role=EXCHANGE if exchange else MONITOR,
        queue=spec.queue,
        queue_id=spec.queue_id,
        number=spec.number if isinstance(spec, ExchangeSpec) else 0,
        limits=spec.limits,
        cluster=spec.cluster,
        history=history,
        monitor=spec.monitor if isinstance(spec, ExchangeSpec) else "",
        durability=_durability(spec),
        has_log=isinstance(spec, ExchangeSpec) and spec.has_log,
        state=State.STARTING,
        epoch=spec.epoch,
        alive=True,
        ran=True,
        pid=pid,
        reason="adopted: it has not reported yet",
    )
