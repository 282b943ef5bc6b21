"""What happened in a run, in order of time; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

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


def told(rows: Rows, grid: Grid) -> list[Event]:
    """What rows of `Traces.told` say."""
    return [event for row in rows if (event := _EVENTS[row["kind"]](row, grid)) is not None]


def _event(row: dict[str, Any], grid: Grid) -> Event:
    """What driver or tap told."""
    at, kind = grid.at(row["time_us"]), EventKind(row["event"])
    return Event(at=at, kind=kind, exchange=row["exchange"], text=row["text"])


def _move(row: dict[str, Any], grid: Grid) -> Event:
    """A publisher has moved, or could not."""
    kind = EventKind.MOVE if row["state"] == "accepted" else EventKind.MOVE_FAILED
    target = row["targets"][0] if row["targets"] else 0
    way = f"{_names(row['sources'])} → {_names(row['targets'])}"
    text = f"publisher {row['publisher'][:8]} {way}: {row['reason']}"
    return Event(at=grid.at(row["time_us"]), kind=kind, exchange=target, text=text)


def _scaling(row: dict[str, Any], grid: Grid) -> Event | None:
    """An exchange was added or removed, or could not be."""
    kind = _SCALES.get((row["direction"], row["state"]))
    if kind is None:
        return None
    number = row["exchange"] or 0
    name = exchange_name(number) if number else "an exchange"
    what = "came" if row["direction"] == "out" else "went"
    if kind is EventKind.SCALE_FAILED:
        what = "could not come" if row["direction"] == "out" else "could not go"
    text = f"{name} {what}: {row['reason']}"
    return Event(at=grid.at(row["time_us"]), kind=kind, exchange=number, text=text)


_EVENTS: Final[dict[str, Callable[[dict[str, Any], Grid], Event | None]]] = {
    "event": _event, "move": _move, "scale": _scaling,
}  # fmt: skip


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
        holes: rows of `Traces.holes`.
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


def _names(numbers: Sequence[int]) -> str:
    return "+".join(exchange_name(number) for number in numbers) or "nowhere"
