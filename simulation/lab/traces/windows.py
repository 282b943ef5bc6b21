"""The windows of a series, out of rows that Spark has made small; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from roq.simulation.lab.archive.document import (
    HEARD_FROM,
    RATES,
    ExchangeWindow,
    LatencyWindow,
    Window,
)
from roq.simulation.lab.traces.grid import MICROSECONDS, Grid
from roq.simulation.scenario.offered import offered
from roq.simulation.scenario.scenario import Scenario

Rows = Sequence[dict[str, Any]]
Span = tuple[int, int]
"""From when to when, µs since 1970."""

DIGITS: Final = 3
"""Of shares, as they are kept."""


def windows(
    grid: Grid,
    scenario: Scenario,
    exchanges: Rows,
    latencies: Mapping[int, LatencyWindow],
    silences: Iterable[Span],
    holes: Rows = (),
) -> list[Window]:
    """All windows of a run.

    Args:
        grid: where they are.
        scenario: what was to be offered.
        exchanges: rows of `Traces.exchange_windows`.
        latencies: of the subscribers, by window.
        silences: when the statistics stream said nothing.
        holes: rows of `Traces.holes`: when it said nothing of one exchange that serves.
    """
    by_window: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in exchanges:
        by_window[row["window"]].append(row)
    unheard: dict[int, dict[int, list[Span]]] = defaultdict(lambda: defaultdict(list))
    for row in holes:
        begin, end = row["begin_us"], row["end_us"]
        for number in grid.touched(begin, end):
            unheard[number][row["exchange"]].append((begin, end))
    told = list(silences)
    return [
        _window(
            grid, number, scenario, by_window.get(number, []), latencies, told,
            unheard.get(number, {}),
        )
        for number in range(grid.count)
    ]  # fmt: skip


def _window(
    grid: Grid,
    number: int,
    scenario: Scenario,
    rows: list[dict[str, Any]],
    latencies: Mapping[int, LatencyWindow],
    silences: list[Span],
    unheard: Mapping[int, list[Span]],
) -> Window:
    length = grid.seconds(number)
    begin = grid.begin_us + number * grid.window_us
    within = (begin, min(begin + grid.window_us, grid.end_us))
    stream = _covered(within, silences)
    parts = {
        exchange: _covered(within, [*silences, *unheard.get(exchange, [])])
        for exchange in {*unheard, *(row["exchange"] for row in rows)}
    }
    heard = {exchange for exchange, part in parts.items() if _known(part)}
    known = [
        _exchange(row, length * parts[row["exchange"]]) for row in rows if row["exchange"] in heard
    ]
    at = grid.ends(number)
    return Window(
        at=at,
        exchanges=known,
        serving=len(parts) if _known(stream) else 0,
        latency=latencies.get(number),
        imbalance=imbalance([each.bytes_in for each in known])
        if len(known) == len(parts)
        else None,
        offered=offered(scenario, at - length, at).messages / length,
        covered=round(min([stream, *parts.values()]), DIGITS),
    )


def _known(part: float) -> bool:
    """Whether a reader of the series, who has it rounded, takes it for known."""
    return round(part, DIGITS) >= HEARD_FROM


def _covered(within: Span, silences: Iterable[Span]) -> float:
    """The share of a span that lies in none of these; they may overlap."""
    begin, end = within
    quiet, told = 0, begin
    for since, until in sorted(silences):
        quiet += max(0, min(end, until) - max(told, since))
        told = max(told, until)
    return max(0.0, 1.0 - quiet / (end - begin))


def _exchange(row: dict[str, Any], seconds: float) -> ExchangeWindow:
    return ExchangeWindow(
        exchange=row["exchange"],
        **{name: row[name] / seconds for name in RATES},
        publishers=row["publishers"],
        cpu_percent=row["cpu_seconds"] / row["seconds"] * 100,
    )


def imbalance(loads: Sequence[float]) -> float | None:
    """The highest load over the mean one; None with less than two or no load."""
    total = sum(loads)
    return max(loads) * len(loads) / total if len(loads) > 1 and total > 0 else None


def silences(
    holes: Rows, first_us: int | None, last_us: int | None, grid: Grid, most: float
) -> list[Span]:
    """When a stream said nothing although it should, within the load.

    Args:
        holes: rows of `Traces.silences`.
        first_us, last_us: when it said something for the first and the last time; None: never.
        grid: the load.
        most: seconds that may lie between two of its words.
    """
    spans = [(row["begin_us"], row["end_us"]) for row in holes]
    if first_us is None or last_us is None:
        spans.append((grid.begin_us, grid.end_us))
    else:
        spans += [(grid.begin_us, first_us), (last_us, grid.end_us)]
    return [
        (max(begin, grid.begin_us), min(end, grid.end_us))
        for begin, end in sorted(spans)
        if end - begin > most * MICROSECONDS and begin < grid.end_us and end > grid.begin_us
    ]
