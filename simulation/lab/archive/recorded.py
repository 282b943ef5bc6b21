"""What the statistics stream has told of a queue, window by window: for pictures of experiments.

Runs on Spark keep traces, and have nothing to do with this.
"""

from __future__ import annotations

from typing import Final

from roq.demo.latency import Histogram
from roq.protocol.kpi import ExchangeKpi, MoveKpi, QueueKpi, SubscriberKpi
from roq.simulation.lab.archive.document import (
    RATES,
    Event,
    EventKind,
    ExchangeWindow,
    LatencyWindow,
    Series,
    Window,
)
from roq.simulation.real import measures
from roq.simulation.real.record import Record

EVENTS_MAX: Final = 10_000
WINDOWS_MAX: Final = 60
WINDOW_SECONDS_LEAST: Final = 2.0
"""What is told once a second comes a moment early or late."""
_MOVES: Final = (
    (EventKind.MOVE, "accepted"), (EventKind.MOVE_FAILED, "failed"),
    (EventKind.MOVE_FAILED, "given_up"),
)  # fmt: skip
_SCALINGS: Final = (
    (EventKind.SCALE_OUT, "out", "done"), (EventKind.SCALE_IN, "in", "done"),
    (EventKind.SCALE_FAILED, "out", "failed"), (EventKind.SCALE_FAILED, "in", "failed"),
)  # fmt: skip


def series_of(record: Record) -> Series:
    """A whole record; latencies are the means that subscribers tell."""
    seconds = max(WINDOW_SECONDS_LEAST, record.seconds / WINDOWS_MAX)
    figures = {name: measures.periods(record.samples, name) for name in RATES}
    events = _events(record)
    return Series(
        window_seconds=seconds,
        windows=[
            _window(record, number * seconds, seconds, figures)
            for number in range(max(1, round(record.seconds / seconds)))
        ],
        events=events[:EVENTS_MAX],
        events_left_out=max(0, len(events) - EVENTS_MAX),
    )


def _window(
    record: Record, at: float, seconds: float, figures: dict[str, dict[int, list[measures.Period]]]
) -> Window:
    span = measures.Window(record.began + at, record.began + at + seconds)
    told: dict[int, ExchangeKpi] = {}
    latency = Histogram()
    serving = None
    for when, document in record.samples:
        if not span.begin <= when < span.end:
            continue
        match document:
            case ExchangeKpi():
                told[document.number] = document
            case QueueKpi():
                serving = document.exchanges
            case SubscriberKpi() if document.received_per_second > 0:
                latency.add(document.latency_ms / 1_000)
            case _:
                pass
    rates = {
        number: {
            name: measures.within(found.get(number, []), span) for name, found in figures.items()
        }
        for number in sorted(told)
    }
    loads = [each["bytes_in"] for each in rates.values()]
    return Window(
        at=at + seconds,
        exchanges=[
            ExchangeWindow(
                exchange=number,
                publishers=told[number].publishers,
                cpu_percent=told[number].cpu_percent,
                **each,
            )
            for number, each in rates.items()
        ],
        serving=len(told) if serving is None else serving,
        latency=LatencyWindow.of(latency),
        imbalance=measures.imbalance(loads) if len(loads) > 1 and sum(loads) > 0 else None,
        offered=0.0,
    )


def _events(record: Record) -> list[Event]:
    """What happened since the load began, in order of time."""
    found = [(when, EventKind.PHASE, 0, text) for when, text in record.marks]
    for kind, state in _MOVES:
        found += [
            (when, kind, move.targets[0] if move.targets else 0, _way(move))
            for when, move in record.moves(state)
        ]
    for kind, direction, state in _SCALINGS:
        found += [
            (when, kind, scaling.number, scaling.reason)
            for when, scaling in record.scalings(direction, state)
        ]
    return [
        Event(at=when - record.began, kind=kind, exchange=exchange, text=text)
        for when, kind, exchange, text in sorted(found, key=lambda each: each[0])
        if when >= record.began
    ]


def _way(move: MoveKpi) -> str:
    names = (
        ", ".join(f"x{number}" for number in numbers) or "-"
        for numbers in (move.sources, move.targets)
    )
    return " → ".join(names)
