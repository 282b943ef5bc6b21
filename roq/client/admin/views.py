"""Listings and scaling rules as values for Python programs.

The other answers of the management interface are such as they come (`roq.protocol.public_answers`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from roq.model import ElasticRules
from roq.number_ranges import Whole
from roq.protocol.documents import RawDocument, convert
from roq.protocol.public_answers import FromMemory
from roq.protocol.scaling_rules import ElasticityRule, ExchangeRule, HostRule, QueueRule

_DEFAULTS: Final = ElasticRules()


T = TypeVar("T")


class Listing(list[T]):
    """What a manager lists.

    Attributes:
        from_memory: why it may be behind; None: it is not.
    """

    def __init__(self, rows: Iterable[T], from_memory: FromMemory | None) -> None:
        super().__init__(rows)
        self.from_memory = from_memory


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


_PLACES: Final = {
    "host_cpu_percent": ("AUTOSCALING_HOST", "AUTOSCALING_HOST_CPU"),
    "host_memory_mb": ("AUTOSCALING_HOST", "AUTOSCALING_HOST_RAM"),
    "exchange_bytes_per_minute": ("AUTOSCALING_XCHANGE", "AUTOSCALING_XCHANGE_THR"),
    "queue_bytes_per_minute_per_exchange": ("AUTOSCALING_Q", "AUTOSCALING_THR_PROD_EXCH"),
    "queue_publishers_per_exchange": ("AUTOSCALING_Q", "AUTOSCALING_Q_PROD_EXCH"),
    "policy": ("AUTOSCALING_ROQ", "AUTOSCALING_ROQ_POLICY"),
    "latency_ms": ("AUTOSCALING_ROQ", "AUTOSCALING_ROQ_LATENCY"),
    "exchanges_min": ("AUTOSCALING_ROQ", "AUTOSCALING_ROQ_XCHANGE_MIN"),
    "exchanges_max": ("AUTOSCALING_ROQ", "AUTOSCALING_ROQ_XCHANGE_MAX"),
    "cooldown_seconds": ("AUTOSCALING_ROQ", "AUTOSCALING_ROQ_COOLDOWN"),
    "slow_subscriber": ("AUTOSCALING_ROQ", "AUTOSCALING_ROQ_SLOW"),
    "hold_seconds": ("AUTOSCALING_ROQ", "AUTOSCALING_ROQ_HOLD"),
}
"""Field of `ScalingRules` → sub-document and name on the wire."""


def rules_document(rules: ScalingRules) -> RawDocument:
    """The fields of command 2006 beside the queue's name."""
    parts: dict[str, dict[str, int | str]] = {}
    for field, (part, name) in _PLACES.items():
        parts.setdefault(part, {})[name] = getattr(rules, field)
    return {"AUTOSCALING_NAME": rules.name, **parts}


def rules_of(document: RawDocument) -> ScalingRules:
    """The rules in an answer to command 2007.

    Raises:
        RemoteProtocolError: not such an answer.
    """
    found = convert(document, _Rules)
    given = {
        field: getattr(told, name)
        for field, (part, name) in _PLACES.items()
        if (told := getattr(found, part)) is not None
    }
    return ScalingRules(name=found.AUTOSCALING_NAME, **given)
