"""What a child is told when it is started."""

from __future__ import annotations

from roq.hcm.children import EXCHANGE, Child
from roq.hcm.settings import Settings
from roq.protocol.spec import ExchangeSpec, MonitorSpec


def make_spec(child: Child, settings: Settings, avoid: list[int]) -> MonitorSpec | ExchangeSpec:
    """The spec of a child's next process.

    Args:
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
            orphan_seconds=settings.orphan_seconds,
            kpi_seconds=settings.kpi_seconds,
            log_level=settings.log_level,
            log_format=settings.log_format,
            limits=child.limits,
            number=child.number,
            host=settings.host,
            monitor=child.monitor,
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
        orphan_seconds=settings.orphan_seconds,
        kpi_seconds=settings.kpi_seconds,
        log_level=settings.log_level,
        log_format=settings.log_format,
        limits=child.limits,
        statistics_ports=settings.statistics_ports,
        # Exchanges may be there already, and must not be taken for gone.
        restarted=child.ran or child.restarted,
    )
