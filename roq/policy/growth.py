"""When a queue grows: which rule is broken, and whether it may grow at the moment.

A condition that may be a passing flicker has to hold for some rounds in a row. What is far beyond
its limit counts at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Final

from roq.model import ElasticRules, exchange_name
from roq.policy.memory import Marks
from roq.policy.snapshot import HostView, QueueView
from roq.policy.verdict import AT_ONCE_MAX

CLEAR: Final = 1.20
"""A limit that is exceeded by this factor needs no second hit."""
OVERLOAD_HITS: Final = 2
RULE_HITS: Final = 3
COMFORTABLE: Final = 0.80
"""Part of their limit up to which exchanges are counted on when several are added at once."""
BYTES_PER_MB: Final = 1024 * 1024

_EXCHANGE: Final = "exchange "
_CHANGED: Final = "changed"
_RULE: Final = "rule "


def watch_exchanges(marks: Marks, view: QueueView) -> bool:
    """Notice which exchanges there are; whether others take publishers than in the round before.

    The first round of a policy has none before it: whatever is there then is news.
    """
    before = {name: marks.get(name) for name in marks.named(_EXCHANGE)}
    after = {f"{_EXCHANGE}{each.number}": float(each.accepting) for each in view.exchanges}
    if after == before:
        return False
    if before and before.keys() != after.keys():
        marks.start(_CHANGED)
    marks.drop(*before)
    for name, accepting in after.items():
        marks.put(name, accepting)
    return _accepting(before) != _accepting(after)


def may_scale(marks: Marks, view: QueueView) -> bool:
    """Whether the number of exchanges may be changed now: nothing is under way, it has cooled."""
    return not view.scaling and marks.since(_CHANGED) >= view.rules.cooldown_seconds


def may_grow(marks: Marks, view: QueueView) -> bool:
    """Whether there may be one exchange more now."""
    return view.size < view.rules.exchanges_max and may_scale(marks, view)


@dataclass(frozen=True, slots=True)
class Signal:
    """One rule of growth, measured.

    Attributes:
        name: of the rule.
        value: what was measured.
        limit: what it is measured against.
        hits: rounds in a row in which it must be exceeded.
        reason: a sentence for people.
    """

    name: str
    value: float
    limit: float
    hits: int
    reason: str

    @property
    def exceeded(self) -> bool:
        """Whether the value is above its limit."""
        return self.value > self.limit


def signals(view: QueueView) -> Iterator[Signal]:
    """All rules that are set but the throughput of single exchanges, which moves may help, too."""
    rules = view.rules
    accepting = [each for each in view.exchanges if each.accepting]
    count = max(1, len(accepting))
    if rules.queue_bytes_per_exchange:
        throughput = sum(each.throughput for each in accepting) / count
        yield Signal(
            "queue throughput", throughput, rules.queue_bytes_per_exchange, RULE_HITS,
            f"{throughput:,.0f} bytes per minute and exchange are above the rule of "
            f"{rules.queue_bytes_per_exchange:,}",
        )  # fmt: skip
    if rules.queue_publishers_per_exchange:
        publishers = sum(each.publishers for each in accepting) / count
        yield Signal(
            "queue publishers", publishers, rules.queue_publishers_per_exchange, OVERLOAD_HITS,
            f"{publishers:.1f} publishers per exchange are above the rule of "
            f"{rules.queue_publishers_per_exchange}",
        )  # fmt: skip
    if rules.latency_ms:
        yield Signal(
            "latency", view.latency_ms, rules.latency_ms, RULE_HITS,
            f"latency of {view.latency_ms:.1f} ms is above the rule of {rules.latency_ms} ms",
        )  # fmt: skip
    for host in view.hosts:
        yield from _signals_of(host, rules)


def _signals_of(host: HostView, rules: ElasticRules) -> Iterator[Signal]:
    if rules.host_cpu_percent:
        yield Signal(
            f"processor {host.host}", host.cpu_percent, rules.host_cpu_percent, RULE_HITS,
            f"host {host.host} uses {host.cpu_percent:.0f} % of its processor, "
            f"above the rule of {rules.host_cpu_percent} %",
        )  # fmt: skip
    if rules.host_memory_mb:
        memory = host.memory_used_bytes / BYTES_PER_MB
        yield Signal(
            f"memory {host.host}", memory, rules.host_memory_mb, RULE_HITS,
            f"host {host.host} uses {memory:,.0f} MB, above the rule of {rules.host_memory_mb:,}",
        )  # fmt: skip


def reason_to_grow(marks: Marks, view: QueueView, overloaded: dict[int, float]) -> str:
    """Why the queue needs one exchange more; empty if it does not.

    Args:
        marks: of the policy.
        view: of the queue.
        overloaded: exchanges that no move of this round has relieved, with their load.
    """
    reasons = []
    worst = max(overloaded.values(), default=0.0)
    hits = marks.hit(f"{_RULE}overload", bool(overloaded))
    if overloaded and (worst > CLEAR * view.limit or hits >= OVERLOAD_HITS):
        number = min(overloaded, key=lambda each: (-overloaded[each], each))
        reasons.append(
            f"no move helps: {exchange_name(number)} carries {worst / view.limit:.0%} of its limit"
        )
    seen = set()
    for signal in signals(view):
        name = f"{_RULE}{signal.name}"
        seen.add(name)
        if marks.hit(name, signal.exceeded) >= signal.hits:
            reasons.append(signal.reason)
    marks.keep(_RULE, seen | {f"{_RULE}overload"})
    least = view.rules.exchanges_min
    if view.size < least:
        reasons.append(f"the rules want at least {least} exchanges")
    return reasons[0] if reasons else ""


def needed(view: QueueView) -> int:
    """How many exchanges more the load needs, at least one; as many as the rules allow at once."""
    load = sum(each.throughput for each in view.exchanges)
    wanted = ceil(load / (COMFORTABLE * view.limit)) - view.size
    allowed = view.rules.exchanges_max - view.size
    return max(1, min(wanted, allowed, AT_ONCE_MAX))


def _accepting(marks: dict[str, float]) -> set[str]:
    return {name for name, accepting in marks.items() if accepting}
