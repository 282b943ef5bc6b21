"""What a child is told when it is started; and the child that was told so."""

from __future__ import annotations

from roq.hcm.children import EXCHANGE, MONITOR, Child, State
from roq.hcm.crash_history import CrashHistory
from roq.hcm.machine_settings import Settings
from roq.model import ASYNC, FLUSH, VOLATILE, exchange_name
from roq.protocol.spec import ExchangeSpec, MonitorSpec, Spec


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
        state=State.STARTING,
        epoch=spec.epoch,
        alive=True,
        ran=True,
        pid=pid,
        reason="adopted: it has not reported yet",
    )
