"""A queue under load as a record of its statistics stream tells it: for pictures of experiments.

Runs on Spark keep traces, and have nothing to do with this.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from roq.demo.latency import Histogram, bucket_of
from roq.protocol.kpi import (
    ExchangeKpi,
    MoveKpi,
    NumericDocument,
    QueueKpi,
    ScaleKpi,
    SubscriberKpi,
)
from roq.simulation.lab.archive.document import (
    Event,
    EventKind,
    ExchangeWindow,
    LatencyWindow,
    Series,
    Window,
)
from roq.simulation.real.record import Record

EVENTS_MAX: Final = 10_000
RECORD_WINDOWS: Final = 60
WINDOW_SECONDS_LEAST: Final = 2.0
"""Of the windows of a record: what is told once a second comes a moment early or late."""
_MOVES: Final = {
    "accepted": EventKind.MOVE,
    "failed": EventKind.MOVE_FAILED,
    "given_up": EventKind.MOVE_FAILED,
}
_SCALINGS: Final = {
    ("out", "done"): EventKind.SCALE_OUT,
    ("in", "done"): EventKind.SCALE_IN,
    ("out", "failed"): EventKind.SCALE_FAILED,
    ("in", "failed"): EventKind.SCALE_FAILED,
}


@dataclass(slots=True)
class _Grown:
    """What one exchange did in one window."""

    messages_in: float = 0.0
    bytes_in: float = 0.0
    messages_out: float = 0.0
    bytes_out: float = 0.0
    publishers: int = 0
    cpu: float | None = None


class LiveStats:
    """Takes in documents and messages as they come.

    Args:
        lasts: seconds that the load lasts.
        seconds: length of a window.
        offered: messages that are to be sent between two moments; None: the load has no plan.

    Attributes:
        lasts: as given.
    """

    def __init__(
        self,
        lasts: float,
        seconds: float,
        offered: Callable[[float, float], float] | None = None,
    ) -> None:
        self.lasts = lasts
        self._offered = offered
        self._seconds = seconds
        self._seen: dict[tuple[int, int], tuple[float, ExchangeKpi]] = {}
        self._windows: defaultdict[int, dict[int, _Grown]] = defaultdict(dict)
        self._serving: dict[int, int] = {}
        self._latency: defaultdict[int, Histogram] = defaultdict(Histogram)
        self._events: list[Event] = []
        self._left_out = 0

    def take(self, at: float, document: NumericDocument) -> None:
        """A document of the stream.

        Args:
            at: when it came, seconds since the load began.
            document: of the queue under load.
        """
        match document:
            case ExchangeKpi():
                self._exchange(at, document)
            case QueueKpi():
                if 0 <= at <= self.lasts:
                    self._serving[self._number(at)] = document.exchanges
            case MoveKpi():
                kind = _MOVES.get(document.state)
                text = f"{_names(document.sources)} → {_names(document.targets)}"
                self._event(at, kind, document.targets[0] if document.targets else 0, text)
            case ScaleKpi():
                kind = _SCALINGS.get((document.direction, document.state))
                self._event(at, kind, document.number, document.reason)
            case _:
                return

    def latency(self, at: float, counts: dict[str, int]) -> None:
        """Latencies that were told at a moment."""
        if at >= 0:
            self._latency[self._number(at)].merge(Histogram(counts))

    def event(self, at: float, kind: EventKind, text: str) -> None:
        """Something that was done."""
        self._event(at, kind, 0, text)

    def series(self, until: float) -> Series:
        """Window by window.

        Args:
            until: seconds that the load lasted.
        """
        count = max(1, round(until / self._seconds))
        return Series(
            window_seconds=self._seconds,
            windows=[self._window(number) for number in range(count)],
            events=sorted(self._events, key=lambda event: event.at),
            events_left_out=self._left_out,
        )

    # --- windows ----------------------------------------------------------------------------------

    def _number(self, at: float) -> int:
        return int(at / self._seconds)

    def _exchange(self, at: float, now: ExchangeKpi) -> None:
        key = now.number, now.epoch
        before = self._seen.get(key)
        self._seen[key] = at, now
        if before is None or not 0 <= at <= self.lasts + self._seconds:
            return
        grown = self._windows[self._number(at)].setdefault(now.number, _Grown())
        grown.messages_in += now.messages_in - before[1].messages_in
        grown.bytes_in += now.bytes_in - before[1].bytes_in
        grown.messages_out += now.messages_out - before[1].messages_out
        grown.bytes_out += now.bytes_out - before[1].bytes_out
        grown.publishers, grown.cpu = now.publishers, now.cpu_percent

    def _window(self, number: int) -> Window:
        exchanges = [
            ExchangeWindow(
                exchange=exchange,
                messages_in=grown.messages_in / self._seconds,
                bytes_in=grown.bytes_in / self._seconds,
                messages_out=grown.messages_out / self._seconds,
                bytes_out=grown.bytes_out / self._seconds,
                publishers=grown.publishers,
                cpu_percent=grown.cpu,
            )
            for exchange, grown in sorted(self._windows.get(number, {}).items())
        ]
        loads = [each.bytes_in for each in exchanges]
        total = sum(loads)
        end = (number + 1) * self._seconds
        return Window(
            at=end,
            exchanges=exchanges,
            serving=self._serving.get(number, len(exchanges)),
            latency=LatencyWindow.of(self._latency.get(number, Histogram())),
            imbalance=max(loads) * len(loads) / total if len(loads) > 1 and total else None,
            offered=self._wanted(end),
        )

    def _wanted(self, end: float) -> float:
        """Messages a second that are to be sent in the window that ends then."""
        if self._offered is None:
            return 0.0
        return self._offered(end - self._seconds, end) / self._seconds

    def _event(self, at: float, kind: EventKind | None, exchange: int, text: str) -> None:
        if kind is None or at < 0:
            return
        if len(self._events) < EVENTS_MAX:
            self._events.append(Event(at=at, kind=kind, exchange=exchange, text=text))
        else:
            self._left_out += 1


def stats_of(record: Record) -> LiveStats:
    """What a whole record says; latencies are the means that subscribers tell."""
    lasts = max((when for when, _ in record.samples), default=record.began) - record.began
    found = LiveStats(lasts, max(WINDOW_SECONDS_LEAST, lasts / RECORD_WINDOWS))
    for when, document in record.samples:
        found.take(when - record.began, document)
        if isinstance(document, SubscriberKpi) and document.received_per_second > 0:
            latency = {str(bucket_of(document.latency_ms / 1_000)): 1}
            found.latency(when - record.began, latency)
    for when, text in record.marks:
        found.event(when - record.began, EventKind.PHASE, text)
    return found


def _names(numbers: list[int]) -> str:
    return ", ".join(f"x{number}" for number in numbers) or "-"
