"""Rates out of counters that only ever grow."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from roq.model import PublisherId
from roq.protocol.reports import ExchangeLoad, PublisherLoad

WINDOW_SECONDS: Final = 5.0
"""Means are taken over so long: they tell what lasts."""
RECENT_SECONDS: Final = 0.5
"""The last period is at least so long; reports that come between two others do not shorten it."""
SAMPLES_MAX: Final = 64
TOP_MAX: Final = 64
"""Publishers of one exchange whose rates are known."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second."""

    messages_in: float = 0.0
    bytes_in: float = 0.0
    messages_out: float = 0.0
    bytes_out: float = 0.0


@dataclass(frozen=True, slots=True)
class PublisherRates:
    """What one publisher brings: totals since it joined, and rates per second."""

    load: PublisherLoad
    messages: float
    bytes: float


class _Sample(NamedTuple):
    when: float
    load: ExchangeLoad
    top: dict[bytes, PublisherLoad]


def rate(before: int, after: int, seconds: float) -> float:
    """Growth per second; a counter that fell has started anew from 0."""
    if seconds <= 0:
        return 0.0
    return (after - before if after >= before else after) / seconds


def reaches_back(times: Sequence[float], moment: float) -> int:
    """Which of the reports before it one counts from that tells what has been since a moment: the
    last that was there then, or the first of all.

    Args:
        times: of those before it, in order.
        moment: since when.
    """
    return max(0, bisect_right(times, moment) - 1)


class LoadWindow:
    """The last reports of one exchange process.

    A restarted exchange counts from 0 again: it gets a window of its own.
    """

    __slots__ = ("_base", "_samples", "_top")

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES_MAX)
        self._base: _Sample | None = None
        """The report from which the last period is measured."""
        self._top: list[PublisherRates] = []

    def add(self, load: ExchangeLoad, top: list[PublisherLoad], now: float) -> None:
        """Take in the counters of one report."""
        samples = self._samples
        times = [each.when for each in samples]
        self._base = samples[reaches_back(times, now - RECENT_SECONDS)] if samples else None
        for _ in range(reaches_back(times, now - WINDOW_SECONDS)):
            samples.popleft()
        samples.append(_Sample(now, load, {each.publisher: each for each in top[:TOP_MAX]}))
        self._top = self._measure_top()

    def mean(self) -> Rates:
        """Over the window; 0 until there are two reports."""
        return self._since(self._samples[0]) if self._samples else Rates()

    def last(self) -> Rates:
        """Over the last period; 0 until there are two reports."""
        return self._since(self._base) if self._base is not None else Rates()

    def top(self) -> list[PublisherRates]:
        """The busiest publishers of the last report, the busiest of the last period first."""
        return self._top

    def mean_before(self, moment: float) -> float:
        """Which part of the window lies before a moment, 0 to 1."""
        return self._part_before(self._samples[0] if self._samples else None, moment)

    def last_before(self, moment: float) -> float:
        """Which part of the last period lies before a moment, 0 to 1."""
        return self._part_before(self._base, moment)

    def publisher_rate(self, publisher: PublisherId) -> float | None:
        """Bytes per second in the last period; None if it is not among the busiest."""
        return next((each.bytes for each in self._top if each.load.publisher == publisher), None)

    def _since(self, before: _Sample) -> Rates:
        after = self._samples[-1]
        seconds = after.when - before.when
        old, new = before.load, after.load
        return Rates(
            messages_in=rate(old.messages_in, new.messages_in, seconds),
            bytes_in=rate(old.bytes_in, new.bytes_in, seconds),
            messages_out=rate(old.messages_out, new.messages_out, seconds),
            bytes_out=rate(old.bytes_out, new.bytes_out, seconds),
        )

    def _part_before(self, start: _Sample | None, moment: float) -> float:
        if start is None:
            return 0.0 if self._samples and moment <= self._samples[-1].when else 1.0
        end = self._samples[-1].when
        if end <= start.when:
            return 0.0 if moment <= start.when else 1.0
        return min(1.0, max(0.0, (moment - start.when) / (end - start.when)))

    def _measure_top(self) -> list[PublisherRates]:
        base, now = self._base, self._samples[-1]
        found = [
            PublisherRates(load, *self._publisher_rates(base, now, load))
            for load in now.top.values()
        ]
        return sorted(found, key=lambda each: (-each.bytes, each.load.publisher))

    @staticmethod
    def _publisher_rates(
        base: _Sample | None, now: _Sample, load: PublisherLoad
    ) -> tuple[float, float]:
        if base is None:
            return 0.0, 0.0
        before = base.top.get(load.publisher)
        if before is None and base.load.publishers > len(base.top):
            return 0.0, 0.0  # it may have been there and not been told
        seconds = now.when - base.when
        return (
            rate(before.messages if before else 0, load.messages, seconds),
            rate(before.bytes if before else 0, load.bytes, seconds),
        )
