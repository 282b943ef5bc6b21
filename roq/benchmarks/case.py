"""What is measured, what a client process is told, and what came out of one measurement."""

from __future__ import annotations

from typing import Final

import msgspec

BATCH_BYTES: Final = 64 * 1024
"""Payload bytes per batch at most, for every contender that sends batches (RoQ's own default)."""


class Case(msgspec.Struct, frozen=True):
    """One thing to measure; every contender that takes part does exactly this."""

    size: int
    """Payload bytes per message."""
    batch: int = 1
    """Messages per batch, for the contenders that send batches; see `per_batch`."""
    subscribers: int = 1
    rate: int = 0
    """Messages per second for a latency measurement; 0: as fast as it goes."""
    flood: bool = False
    """For many seconds: what does a server do with what its subscriber has not read?"""
    busy: int = 0
    """Programs that burn a core each meanwhile."""
    idle: int = 0
    """Servers that have nothing to do meanwhile, but many threads with timers."""

    @property
    def per_batch(self) -> int:
        """Messages that really go into a batch: a batch is also limited by its bytes."""
        return max(1, min(self.batch, BATCH_BYTES // self.size))


def beside_text(case: Case) -> str:
    """What runs beside a measurement, in words; empty: nothing does."""
    counts = ((case.busy, "busy program"), (case.idle, "idle server"))
    parts = [f"{count} {what}{'s' if count > 1 else ''}" for count, what in counts if count]
    return f"beside {' and '.join(parts)}" if parts else ""


class Run(msgspec.Struct, frozen=True):
    """What one publisher and its subscribers are told about one measurement."""

    topic: str
    size: int
    batch: int
    """Messages per batch."""
    count: int
    """Messages to publish, and to receive by each subscriber."""
    rate: int = 0


class CaseSample(msgspec.Struct, frozen=True):
    """What one measurement gave."""

    contender: str
    case: Case
    round: int
    messages: int
    """Published; each subscriber received as many."""
    seconds: float
    """From before the first publish until the last subscriber had the last message."""
    cpu: dict[str, float]
    """CPU seconds by role: `publisher`, `subscriber` (all of them), and each server process."""
    rss: dict[str, int]
    """Resident bytes by role after the run: largest subscriber, publisher, server processes."""
    latencies_us: list[float] = []
    """One per message, for a latency measurement."""
    acks_us: list[float] = []
    """Until each publish was acknowledged, where that is measured."""

    @property
    def rate(self) -> float:
        """Messages per second, published and received by every subscriber."""
        return self.messages / self.seconds

    @property
    def bytes_rate(self) -> float:
        """Payload bytes per second to one subscriber."""
        return self.rate * self.case.size


class CaseFailure(msgspec.Struct, frozen=True):
    """A measurement that did not finish."""

    contender: str
    case: Case
    round: int
    reason: str
