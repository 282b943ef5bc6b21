"""Rates out of counters that only ever grow."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from roq.protocol.control import ExchangeLoad, PublisherLoad

WINDOW_SECONDS: Final = 5.0
"""Rates are means over so long: steady enough to decide by, recent enough to matter."""
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


def rate(before: int, after: int, seconds: float) -> float:
    """Growth per second; a counter that fell has started anew from 0."""
    if seconds <= 0:
        return 0.0
    return (after - before if after >= before else after) / seconds


class LoadWindow:
    """The last reports of one exchange process.

    A restarted exchange counts from 0 again: it gets a window of its own.
    """

    __slots__ = ("_last_top", "_samples", "_top")

    def __init__(self) -> None:
        self._samples: deque[tuple[float, ExchangeLoad]] = deque(maxlen=SAMPLES_MAX)
        self._last_top: tuple[float, dict[bytes, PublisherLoad]] = (0.0, {})
        self._top: list[PublisherRates] = []

    def add(self, load: ExchangeLoad, top: list[PublisherLoad], now: float) -> None:
        """Take in the counters of one report."""
        samples = self._samples
        samples.append((now, load))
        while len(samples) > 2 and samples[1][0] <= now - WINDOW_SECONDS:
            samples.popleft()
        self._add_top(top[:TOP_MAX], now)

    def rates(self) -> Rates:
        """Means over the window; 0 until there are two reports."""
        if len(self._samples) < 2:
            return Rates()
        (start, before), (end, after) = self._samples[0], self._samples[-1]
        seconds = end - start
        return Rates(
            messages_in=rate(before.messages_in, after.messages_in, seconds),
            bytes_in=rate(before.bytes_in, after.bytes_in, seconds),
            messages_out=rate(before.messages_out, after.messages_out, seconds),
            bytes_out=rate(before.bytes_out, after.bytes_out, seconds),
        )

    def top(self) -> list[PublisherRates]:
        """The busiest publishers of the last report, the busiest first."""
        return self._top

    def _add_top(self, top: list[PublisherLoad], now: float) -> None:
        since, before = self._last_top
        found = []
        for load in top:
            last = before.get(load.publisher)
            seconds = now - since if last is not None else 0.0
            found.append(
                PublisherRates(
                    load,
                    rate(last.messages if last else 0, load.messages, seconds),
                    rate(last.bytes if last else 0, load.bytes, seconds),
                )
            )
        self._top = sorted(found, key=lambda each: (-each.bytes, each.load.publisher))
        self._last_top = (now, {load.publisher: load for load in top})
