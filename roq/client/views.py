"""What the management interface tells about a cluster, as values for Python programs."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from roq.model import Limits
from roq.protocol.documents import RawDocument, convert
from roq.protocol.public import ExchangeRule, HostRule, QueueRule


class QueueSummary(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """One queue of the cluster."""

    name: str
    host: str
    """Where its monitor runs."""
    state: str
    """See `roq.model.QueueState`."""
    running: bool
    exchanges: int
    durability: str


class ProcessSummary(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A monitor or exchange process on a host."""

    child: str
    """`<queue>.monitor` or `<queue>.x<number>`."""
    role: str
    queue: str
    number: int
    state: str
    reason: str
    restarts: int
    epoch: int
    pid: int


class HostSummary(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """One host of the cluster."""

    host: str
    control: str
    """Address of its host manager."""
    exchanges: int
    monitors: int
    exchange_max: int
    """Exchanges that may run there; 0: no limit."""
    cpu: float
    """Percent of the machine."""
    memory_bytes: int
    state: str
    """`live`, `silent` or `away`."""
    children: list[ProcessSummary]


class ExchangeSummary(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """One exchange of a queue."""

    name: str
    number: int
    host: str
    data: str
    """Where publishers send; empty until it runs."""
    live: str
    """Where subscribers listen; empty until it runs."""
    state: str
    epoch: int
    pid: int


class QueueDescription(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """Everything about a queue."""

    name: str
    host: str
    state: str
    running: bool
    durability: str
    monitor: str
    """Where clients ask; empty unless it runs."""
    statistics: str
    """Address of the KPI stream; empty unless it runs."""
    created: float
    """Seconds since 1970."""
    queue_id: str
    """Hexadecimal."""
    limits: Limits
    exchanges: list[ExchangeSummary]
    rules: dict[str, object]
    """The scaling rules as documents; empty if there are none. See `Cluster.get_rules`."""

    @property
    def created_at(self) -> datetime:
        """When it was created."""
        return datetime.fromtimestamp(self.created, UTC)


class ScalingRules(msgspec.Struct, frozen=True, kw_only=True):
    """When a queue grows; 0 means that a number is not looked at."""

    name: str
    host_cpu_percent: int = 0
    host_memory_mb: int = 0
    exchange_bytes_per_minute: int = 0
    queue_bytes_per_minute_per_exchange: int = 0
    queue_publishers_per_exchange: int = 0


class _Rules(msgspec.Struct, frozen=True):
    AUTOSCALING_NAME: str
    AUTOSCALING_HOST: HostRule | None = None
    AUTOSCALING_XCHANGE: ExchangeRule | None = None
    AUTOSCALING_Q: QueueRule | None = None


def rules_document(rules: ScalingRules) -> RawDocument:
    """The fields of command 2006 beside the queue's name."""
    return {
        "AUTOSCALING_NAME": rules.name,
        "AUTOSCALING_HOST": {
            "AUTOSCALING_HOST_CPU": rules.host_cpu_percent,
            "AUTOSCALING_HOST_RAM": rules.host_memory_mb,
        },
        "AUTOSCALING_XCHANGE": {"AUTOSCALING_XCHANGE_THR": rules.exchange_bytes_per_minute},
        "AUTOSCALING_Q": {
            "AUTOSCALING_THR_PROD_EXCH": rules.queue_bytes_per_minute_per_exchange,
            "AUTOSCALING_Q_PROD_EXCH": rules.queue_publishers_per_exchange,
        },
    }


def rules_of(document: RawDocument) -> ScalingRules:
    """The rules in an answer to command 2007.

    Raises:
        RemoteProtocolError: not such an answer.
    """
    found = convert(document, _Rules)
    host, exchange, queue = found.AUTOSCALING_HOST, found.AUTOSCALING_XCHANGE, found.AUTOSCALING_Q
    return ScalingRules(
        name=found.AUTOSCALING_NAME,
        host_cpu_percent=host.AUTOSCALING_HOST_CPU if host else 0,
        host_memory_mb=host.AUTOSCALING_HOST_RAM if host else 0,
        exchange_bytes_per_minute=exchange.AUTOSCALING_XCHANGE_THR if exchange else 0,
        queue_bytes_per_minute_per_exchange=queue.AUTOSCALING_THR_PROD_EXCH if queue else 0,
        queue_publishers_per_exchange=queue.AUTOSCALING_Q_PROD_EXCH if queue else 0,
    )
