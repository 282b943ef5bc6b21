"""What the management interface tells about a cluster, as values for Python programs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from roq.model import ElasticRules, Limits, LogId, QueueState
from roq.protocol.documents import RawDocument, convert
from roq.protocol.scaling_rules import ElasticityRule, ExchangeRule, HostRule, QueueRule
from roq.ranges import Amount, ExchangeNumber, Int32, Whole, WholeOrUnknown

_DEFAULTS: Final = ElasticRules()


T = TypeVar("T")


class FromMemory(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """Why an answer may be behind: its manager has no registry, and another one may lead."""

    seconds: Whole
    """For how long it has had none."""
    reason: str
    """Why, in a clause."""

    def __str__(self) -> str:
        """In a sentence."""
        return f"told from memory for {self.seconds} s, so it may be behind: {self.reason}"


class Listing(list[T]):
    """What a manager lists.

    Attributes:
        from_memory: why it may be behind; None: it is not.
    """

    def __init__(self, rows: Iterable[T], from_memory: FromMemory | None) -> None:
        super().__init__(rows)
        self.from_memory = from_memory


class QueueSummary(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """One queue of the cluster."""

    name: str
    host: str
    """Where its monitor runs."""
    state: str
    """See `roq.model.QueueState`; or `unreadable`, if its definition in the registry is."""
    running: bool
    exchanges: Whole
    durability: str
    reasons: list[str] = []
    """What is wrong with it and what becomes of it, in sentences; empty if all is well."""
    slow_subscriber: str = ""
    """`hold` or `drop`, by its rules; empty: not known."""
    hold_seconds: Whole = 0
    """So long publishers wait for a subscriber that does not read on."""

    @property
    def shown_state(self) -> str:
        """Its state; one that runs, but not all of it, is `degraded`."""
        return _shown_state(self.state, self.reasons)


class ProcessSummary(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A monitor or exchange process on a host."""

    child: str
    """`<queue>.monitor` or `<queue>.x<number>`."""
    role: str
    queue: str
    number: ExchangeNumber
    state: str
    reason: str
    restarts: Whole
    epoch: Whole
    pid: Int32


class HostSummary(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """One host of the cluster."""

    host: str
    control: str
    """Address of its host manager."""
    exchanges: Whole
    monitors: Whole
    exchange_max: Whole
    """Exchanges that may run there; 0: no limit."""
    cpu: Amount
    """Percent of the machine."""
    memory_bytes: Whole
    state: str
    """`live`, `silent`, `unmanaged` (its manager is gone, but processes on it live), `lost`, or
    `awaited` (not heard of by this leader yet)."""
    reason: str = ""
    """Why it is in this state, in a clause; empty if it is live."""
    children: list[ProcessSummary]
    provided: bool = False
    """A provider has made it, and gets it back when nothing is on it."""
    epoch: Whole = 0
    """Of its manager, a later one has a higher one; 0: it has not reported to this leader yet."""
    schedule: str = "active"
    """`active`; `cordoned`: nothing new is placed there; `draining`: and what is there goes."""
    left: list[str] = []
    """If it is draining: what is still there, by name, and what that waits for."""
    stuck: str = ""
    """If it is draining: why what is left cannot go elsewhere; empty as long as it may."""

    @property
    def shown_state(self) -> str:
        """Its state; of one that is live, whether anything is placed there."""
        if self.state != "live" or self.schedule == "active":
            return self.state
        return "drained" if self.schedule == "draining" and not self.left else self.schedule


class ExchangeSummary(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """One exchange of a queue."""

    name: str
    number: ExchangeNumber
    host: str
    data: str
    """Where publishers send; empty until it runs."""
    live: str
    """Where subscribers listen; empty until it runs."""
    state: str
    """Of its process; or `lost`, `missing`, `host silent`, …"""
    reason: str = ""
    """What is wrong with it and what becomes of it, in a clause; empty if it runs."""
    epoch: Whole
    pid: Int32
    origin: str = "manual"
    """`creation`: it came with its queue; `manual`: it was added by hand; `scaling`: it was added
    because of the load, and goes by itself, too."""

    @property
    def log(self) -> LogId:
        """The log that it serves: in memory, so its process has made it."""
        return LogId(self.number, self.epoch)


class DepartedExchange(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """An exchange that went, or is going, for good."""

    number: ExchangeNumber
    epoch: Whole
    """Of its last process; 0: it never had one, or it is not known."""
    end: WholeOrUnknown
    """The offset where the log of that process ends; -1: not known."""


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
    created: Amount
    """Seconds since 1970."""
    queue_id: str
    """Hexadecimal."""
    limits: Limits
    exchanges: list[ExchangeSummary]
    departed: list[DepartedExchange] = []
    """The exchanges that went last, at most 128, the latest at the end."""
    life: Whole = 0
    """So many exchanges have gone in all; a named publisher has another id in each life."""
    rules: dict[str, object]
    """The scaling rules as documents; empty if there are none. See `Cluster.get_rules`."""
    reasons: list[str] = []
    """What is wrong with it and what becomes of it, in sentences; empty if all is well."""
    from_memory: FromMemory | None = None
    """Why this may be behind; None: it is not."""

    @property
    def created_at(self) -> datetime:
        """When it was created."""
        return datetime.fromtimestamp(self.created, UTC)

    @property
    def shown_state(self) -> str:
        """As of a `QueueSummary`."""
        return _shown_state(self.state, self.reasons)


def _shown_state(state: str, reasons: list[str]) -> str:
    return "degraded" if reasons and state == QueueState.RUNNING else state


class ScalingRules(msgspec.Struct, frozen=True, kw_only=True):
    """When a queue moves publishers, grows and shrinks by itself.

    A limit of 0 is not looked at. The other defaults are those that are in force for a queue to
    which nobody has given rules.
    """

    name: str
    """Of this set of rules; for people."""
    host_cpu_percent: Whole = 0
    """A host is full above this use of all of its cores."""
    host_memory_mb: Whole = 0
    """A host is full above so much memory in use."""
    exchange_bytes_per_minute: Whole = 0
    """The limit L of one exchange; 0: the queue's limit `throughput_bytes`."""
    queue_bytes_per_minute_per_exchange: Whole = 0
    """The queue grows above so much throughput per exchange."""
    queue_publishers_per_exchange: Whole = 0
    """The queue grows above so many publishers per exchange."""
    latency_ms: Whole = 0
    """The queue grows when its subscribers report a higher mean latency."""
    policy: str = _DEFAULTS.policy
    """Name of the policy that decides."""
    exchanges_min: Whole = _DEFAULTS.exchanges_min
    """It does not shrink below this by itself."""
    exchanges_max: Whole = _DEFAULTS.exchanges_max
    """It does not grow above this by itself; 1: never."""
    cooldown_seconds: Whole = _DEFAULTS.cooldown_seconds
    """After a change the number of exchanges is left alone for so long."""
    slow_subscriber: str = _DEFAULTS.slow_subscriber
    """`hold`: publishers wait for who reads slowly; `drop`: it loses what leaves the ring."""
    hold_seconds: int = _DEFAULTS.hold_seconds
    """So long they wait for a subscriber that does not read on."""


class _Rules(msgspec.Struct, frozen=True):
    AUTOSCALING_NAME: str
    AUTOSCALING_HOST: HostRule | None = None
    AUTOSCALING_XCHANGE: ExchangeRule | None = None
    AUTOSCALING_Q: QueueRule | None = None
    AUTOSCALING_ROQ: ElasticityRule | None = None


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
        "AUTOSCALING_ROQ": {
            "AUTOSCALING_ROQ_POLICY": rules.policy,
            "AUTOSCALING_ROQ_LATENCY": rules.latency_ms,
            "AUTOSCALING_ROQ_XCHANGE_MIN": rules.exchanges_min,
            "AUTOSCALING_ROQ_XCHANGE_MAX": rules.exchanges_max,
            "AUTOSCALING_ROQ_COOLDOWN": rules.cooldown_seconds,
            "AUTOSCALING_ROQ_SLOW": rules.slow_subscriber,
            "AUTOSCALING_ROQ_HOLD": rules.hold_seconds,
        },
    }


def rules_of(document: RawDocument) -> ScalingRules:
    """The rules in an answer to command 2007.

    Raises:
        RemoteProtocolError: not such an answer.
    """
    found = convert(document, _Rules)
    rules = ScalingRules(name=found.AUTOSCALING_NAME)
    if (host := found.AUTOSCALING_HOST) is not None:
        rules = replace(
            rules,
            host_cpu_percent=host.AUTOSCALING_HOST_CPU,
            host_memory_mb=host.AUTOSCALING_HOST_RAM,
        )
    if (exchange := found.AUTOSCALING_XCHANGE) is not None:
        rules = replace(rules, exchange_bytes_per_minute=exchange.AUTOSCALING_XCHANGE_THR)
    if (queue := found.AUTOSCALING_Q) is not None:
        rules = replace(
            rules,
            queue_bytes_per_minute_per_exchange=queue.AUTOSCALING_THR_PROD_EXCH,
            queue_publishers_per_exchange=queue.AUTOSCALING_Q_PROD_EXCH,
        )
    if (ours := found.AUTOSCALING_ROQ) is not None:
        rules = replace(
            rules,
            policy=ours.AUTOSCALING_ROQ_POLICY,
            latency_ms=ours.AUTOSCALING_ROQ_LATENCY,
            exchanges_min=ours.AUTOSCALING_ROQ_XCHANGE_MIN,
            exchanges_max=ours.AUTOSCALING_ROQ_XCHANGE_MAX,
            cooldown_seconds=ours.AUTOSCALING_ROQ_COOLDOWN,
            slow_subscriber=ours.AUTOSCALING_ROQ_SLOW,
            hold_seconds=ours.AUTOSCALING_ROQ_HOLD,
        )
    return rules
