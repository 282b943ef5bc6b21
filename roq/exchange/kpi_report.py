"""What this process costs, and what its exchange reports to the monitor."""

from __future__ import annotations

import os
from heapq import nlargest
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from roq.exchange.machine import ExchangeCore
from roq.protocol.reports import ExchangeLoad, PublisherLoad
from roq.protocol.requesting import Durations

B = TypeVar("B")

TOP_PUBLISHERS: Final = 64
_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class CpuMeter:
    """CPU of this process in percent of one core, from one reading to the next."""

    def __init__(self, now: float) -> None:
        self._at = now
        self._used = _cpu_seconds()

    def read(self, now: float) -> float:
        """The mean since the last reading; 0 if no time has passed."""
        used = _cpu_seconds()
        elapsed = now - self._at
        percent = 100 * (used - self._used) / elapsed if elapsed > 0 else 0.0
        self._at, self._used = now, used
        return round(percent, 2)


def memory_bytes() -> int:
    """Resident memory of this process; 0 where the system does not tell."""
    try:
        return int(_STATM.read_text("ascii").split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def load_of(
    core: ExchangeCore[B], cpu_percent: float, lag_seconds: float = 0.0, memory: int = 0
) -> ExchangeLoad:
    """The counters of an exchange and its present state.

    Args:
        cpu_percent: of one core, since the last report.
        lag_seconds: the longest turn of the loop since then.
        memory: resident, of its process, in bytes; 0: it is not known.
    """
    messages, payload_bytes, batches = core.totals()
    counters = core.counters
    load = ExchangeLoad(
        messages_in=messages,
        bytes_in=payload_bytes,
        batches_in=batches,
        messages_out=counters.messages_out,
        bytes_out=counters.bytes_out,
        publishers=len(core.links.routes),
        subscribers=core.subscriptions.subscribers,
        ring_bytes=core.memory.kept,
        end_offset=core.log.end,
        floor_offset=core.log.following(core.log.floor),
        cpu_percent=cpu_percent,
        memory_bytes=memory,
        malformed=counters.malformed,
        duplicates=counters.duplicates,
        resets=counters.resets,
        fetches=counters.fetches,
        acks_pending=sum(link.owes_ack for link in core.links.routes.values()),
        lag_ms=round(1_000 * lag_seconds, 3),
        holding=int(core.backpressure.near),
        held_seconds=round(core.backpressure.held_seconds, 3),
        behind=len(core.backpressure.behind),
        left_behind=core.backpressure.left_behind,
        slow_bytes=core.backlogs.occupied,
        cut_off=core.backlogs.cut_off,
        consumers=len(core.consumers),
        groups=len(core.consumers.groups),
        groups_behind=core.consumers.behind,
        groups_oldest_seconds=round(_oldest_seconds(core), 3),
        stale=sum(group.stale for group in core.consumers.groups),
        delayed=len(core.delayed),
        transactions=len(core.delayed.transactions),
        transactions_kept=core.delayed.transactions.kept,
        transactions_oldest=round(core.delayed.transactions.oldest_seconds, 3),
        transactions_checked=core.delayed.transactions.counts["checked"],
        transactions_by_policy=core.delayed.transactions.counts["by_policy"],
    )
    return msgspec.structs.replace(load, **core.consumers.services.load())


def _oldest_seconds(core: ExchangeCore[B]) -> float:
    """Age of the oldest batch that a consumer group has not done; 0: everything is done."""
    oldest = min((us for group in core.consumers.groups if (us := group.oldest_us)), default=0)
    return max(0, core.log.time_us - oldest) / 1_000_000 if oldest else 0.0


def metrics_of(load: ExchangeLoad) -> dict[str, float]:
    """The same for the metrics of the host manager, which have one number for each name."""
    told: dict[str, float] = {}
    for name, value in msgspec.structs.asdict(load).items():
        if isinstance(value, Durations):
            told |= value.told(name)
        elif isinstance(value, dict):
            told |= {f"{name}.{reason}": float(count) for reason, count in value.items()}
        else:
            told[name] = float(value)
    return told


def busiest_publishers(core: ExchangeCore[B]) -> list[PublisherLoad]:
    """Those that have brought most since this was asked for the last time, busiest first."""
    links = list(core.links.routes.values())
    busiest = nlargest(TOP_PUBLISHERS, links, key=lambda link: link.bytes - link.reported_bytes)
    for link in links:
        link.reported_bytes = link.bytes
    return [PublisherLoad(link.publisher, link.messages, link.payload_bytes) for link in busiest]


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system
