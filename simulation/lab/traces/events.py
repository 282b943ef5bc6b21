"""What happened in a run, in order of time, and how quickly overloads were answered; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from roq.model import exchange_name
from roq.simulation.lab.archive.document import EVENTS_MAX, Event, EventKind
from roq.simulation.lab.traces.grid import MICROSECONDS, Grid
from roq.simulation.lab.traces.windows import Rows, Span

_SCALES: Final = {
    ("out", "done"): EventKind.SCALE_OUT,
    ("in", "done"): EventKind.SCALE_IN,
    ("out", "failed"): EventKind.SCALE_FAILED,
    ("in", "failed"): EventKind.SCALE_FAILED,
}
MOVED: Final = "accepted"
NOT_MOVED: Final = ("failed", "given_up")


class Overload(NamedTuple):
    """Periods without a pause in which one exchange got too much."""

    exchange: int
    begin_us: int
    end_us: int


def told(rows: Rows, grid: Grid) -> list[Event]:
    """What driver and tap have told."""
    return [
        Event(
            at=grid.at(row["time_us"]),
            kind=EventKind(row["event"]),
            exchange=row["exchange"],
            text=row["text"],
        )
        for row in rows
    ]


def moves(rows: Rows, grid: Grid) -> list[Event]:
    """Publishers that have moved, or could not."""
    events = []
    for row in rows:
        if row["state"] != MOVED and row["state"] not in NOT_MOVED:
            continue
        way = f"{_names(row['sources'])} → {_names(row['targets'])}"
        kind = EventKind.MOVE if row["state"] == MOVED else EventKind.MOVE_FAILED
        target = row["targets"][0] if row["targets"] else 0
        text = f"publisher {row['publisher'][:8]} {way}: {row['reason']}"
        events.append(Event(at=grid.at(row["time_us"]), kind=kind, exchange=target, text=text))
    return events


def scalings(rows: Rows, grid: Grid) -> list[Event]:
    """Exchanges that were added or removed, or could not be."""
    events = []
    for row in rows:
        kind = _SCALES.get((row["direction"], row["state"]))
        if kind is not None:
            number = row["exchange"] or 0
            name = exchange_name(number) if number else "an exchange"
            what = "came" if row["direction"] == "out" else "went"
            if kind is EventKind.SCALE_FAILED:
                what = "could not come" if row["direction"] == "out" else "could not go"
            text = f"{name} {what}: {row['reason']}"
            events.append(Event(at=grid.at(row["time_us"]), kind=kind, exchange=number, text=text))
    return events


def births_and_deaths(rows: Rows, grid: Grid, last_us: int, most: float) -> list[Event]:
    """Exchanges that began to serve during the load, and that ended without having been asked to.

    Args:
        rows: of `Traces.lives`.
        grid: the load.
        last_us: when the stream was heard last.
        most: seconds for which an exchange may be silent.
    """
    events = []
    first_us = min((row["first_us"] for row in rows), default=0)
    for row in rows:
        number, name = row["exchange"], exchange_name(row["exchange"])
        if row["first_us"] > max(first_us + most * MICROSECONDS, grid.begin_us):
            text = f"{name} serves"
            events.append(
                Event(
                    at=grid.at(row["first_us"]), kind=EventKind.SERVES, exchange=number, text=text
                )
            )
        replaced = any(
            other["exchange"] == number and other["epoch"] > row["epoch"] for other in rows
        )
        gone = row["last_us"] < last_us - most * MICROSECONDS
        if not row["leaving"] and (replaced or gone):
            text = f"{name} was heard of for the last time"
            if replaced:
                text += "; another process took its place"
            events.append(
                Event(at=grid.at(row["last_us"]), kind=EventKind.DEATH, exchange=number, text=text)
            )
    return events


def gaps(holes: Rows, quiet: Iterable[Span], grid: Grid) -> list[Event]:
    """When nothing is known: of all exchanges, or of one while others were heard.

    Args:
        holes: those rows of `Traces.unusual`.
        quiet: silences of the whole stream.
        grid: the load.
    """
    events = []
    silent = list(quiet)
    for begin, end in silent:
        text = f"no statistics for {(end - begin) / MICROSECONDS:.1f} s"
        events.append(Event(at=grid.at(begin), kind=EventKind.GAP, text=text))
    for row in holes:
        begin, end = row["begin_us"], row["end_us"]
        alone = not any(since < end and begin < until for since, until in silent)
        if alone and grid.begin_us < end and begin < grid.end_us:
            name = exchange_name(row["exchange"])
            text = f"nothing is known of {name} for {(end - begin) / MICROSECONDS:.1f} s"
            events.append(
                Event(at=grid.at(begin), kind=EventKind.GAP, exchange=row["exchange"], text=text)
            )
    return events


def in_order(events: Iterable[Event]) -> tuple[list[Event], int]:
    """All of them in order of time, and how many were too many."""
    found = sorted(events, key=lambda event: event.at)
    return found[:EVENTS_MAX], max(0, len(found) - EVENTS_MAX)


def overloads(rows: Rows, grid: Grid) -> list[Overload]:
    """Overloads within the load.

    Args:
        rows: those of `Traces.unusual` that are no holes.
        grid: the load.
    """
    open_: dict[int, Overload] = {}
    ended: list[Overload] = []
    for row in rows:
        exchange = row["exchange"]
        begin, end = max(row["begin_us"], grid.begin_us), min(row["end_us"], grid.end_us)
        if end <= begin:
            continue
        before = open_.get(exchange)
        if before is not None and begin <= before.end_us:
            open_[exchange] = Overload(exchange, before.begin_us, max(end, before.end_us))
            continue
        if before is not None:
            ended.append(before)
        open_[exchange] = Overload(exchange, begin, end)
    return sorted([*ended, *open_.values()], key=lambda each: each.begin_us)


def reactions(
    found: Sequence[Overload], rows: Rows, grace_us: int = 2 * MICROSECONDS
) -> list[float]:
    """For each overload that was answered: seconds until a publisher had moved away.

    Args:
        found: overloads.
        rows: of `Traces.moves`.
        grace_us: a move is told so much later than it relieves the exchange.
    """
    moved: list[dict[str, Any]] = [row for row in rows if row["state"] == MOVED]
    seconds = []
    for each in found:
        times = [
            row["time_us"]
            for row in moved
            if each.exchange in row["sources"]
            and each.begin_us <= row["time_us"] <= each.end_us + grace_us
        ]
        if times:
            seconds.append((min(times) - each.begin_us) / MICROSECONDS)
    return seconds


def _names(numbers: Sequence[int]) -> str:
    return "+".join(exchange_name(number) for number in numbers) or "nowhere"
