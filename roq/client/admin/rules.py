"""Which scaling rules are in force for a queue, what a change makes of them, and how they read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from roq.client.admin.views import ScalingRules, rules_of
from roq.errors import InvalidRequest
from roq.protocol.public_answers import QueueDescription

NAME: Final = "rules"
"""Of a set of rules to which nobody gave one."""
_NOT_SET: Final = "(none set: these are the defaults in force)"


def changed(
    described: QueueDescription, wanted: Mapping[str, int | str], *, replace: bool
) -> ScalingRules:
    """The rules of a queue after a change.

    Args:
        described: the queue with the rules before.
        wanted: fields of `ScalingRules` that are to be changed.
        replace: whether all others get their defaults again.

    Raises:
        InvalidRequest: they contradict each other.
    """
    before = msgspec.structs.replace(described, rules={}) if replace else described
    old = in_force(before)
    fields = {**msgspec.structs.asdict(old), "name": old.name or NAME, **wanted}
    result = msgspec.convert(fields, ScalingRules)
    if result.exchanges_min > result.exchanges_max:
        low, high = result.exchanges_min, result.exchanges_max
        raise InvalidRequest(f"at least {low} exchanges are more than {high} at most")
    return result


def in_force(described: QueueDescription) -> ScalingRules:
    """The rules of a queue, set or not; without a name nobody has set any.

    Those that say nothing of the number of exchanges leave the queue's own limit in force.
    """
    given = described.rules
    found = rules_of(given) if given else ScalingRules(name="")
    if "AUTOSCALING_ROQ" in given:
        return found
    limits = described.limits
    most = 1 if limits.ordered else limits.exchanges_max
    return msgspec.structs.replace(found, exchanges_max=most)


def limit_of(described: QueueDescription) -> int:
    """The limit L of one exchange that is in force, payload bytes per minute."""
    return in_force(described).exchange_bytes_per_minute or described.limits.throughput_bytes


def fields_of(found: ScalingRules, limit: int) -> list[tuple[str, object]]:
    """The rules in force as names and values for people.

    Args:
        found: the rules, see `in_force`.
        limit: L, see `limit_of`.
    """
    exchanges = f"{found.exchanges_min} to {found.exchanges_max}"
    held = f"publishers wait for it, {found.hold_seconds} s if it does not read on"
    slow = held if found.slow_subscriber == "hold" else "publishers do not wait for it"
    per_exchange = found.queue_bytes_per_minute_per_exchange
    return [
        ("Rules", found.name or _NOT_SET),
        ("Policy", found.policy),
        ("Exchanges", exchanges),
        ("Cool-down", f"{found.cooldown_seconds} s"),
        ("Slow subscriber", slow),
        ("Exchange: limit L", f"{limit:,} bytes/min ({limit / 60e6:.3g} MB/s)"),
        ("Queue: throughput per exchange", _limit(per_exchange, "bytes/min")),
        ("Queue: publishers per exchange", _limit(found.queue_publishers_per_exchange, "")),
        ("Queue: latency", _limit(found.latency_ms, "ms")),
        ("Host: CPU", _limit(found.host_cpu_percent, "%")),
        ("Host: memory", _limit(found.host_memory_mb, "MB")),
    ]


def _limit(value: int, unit: str) -> str:
    return f"{value:,} {unit}".rstrip() if value else "not evaluated"
