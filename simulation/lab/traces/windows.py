"""The windows of a series, out of rows that Spark has made small; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from roq.demo.latency import Histogram
from roq.simulation.lab.archive.document import HEARD_FROM, ExchangeWindow, LatencyWindow, Window
from roq.simulation.lab.traces.grid import MICROSECONDS, Grid
from roq.simulation.scenario.offered import offered
from roq.simulation.scenario.scenario import Scenario

Rows = Sequence[dict[str, Any]]
Span = tuple[int, int]
"""From when to when, µs since 1970."""

DIGITS: Final = 3
"""Of shares, as they are kept."""
MS: Final = 1_000.0


class Latencies:
    """Histograms of one role, merged over all clients.

    Args:
        rows: of `Traces.latencies`.
        sums: of `Traces.clients`.
        role: publisher or subscriber.
    """

    def __init__(self, rows: Rows, sums: Rows, role: str) -> None:
        self._windows: dict[int, Histogram] = {}
        self._seconds = {row["window"]: row["latency_sum"] for row in sums if row["role"] == role}
        for row in rows:
            if row["role"] == role:
                counts = dict(zip(map(str, row["buckets"]), row["counts"], strict=True))
                self._windows[row["window"]] = Histogram(counts)

    def window(self, number: int) -> LatencyWindow | None:
        """Of one window; None if nothing was measured in it."""
        if not self._windows.get(number):
            return None
        histogram = self._windows[number]
        return LatencyWindow.of(histogram, self._seconds.get(number, 0.0) / len(histogram))

    def whole(self) -> LatencyWindow | None:
        """Of the whole load; None if nothing was measured."""
        merged, seconds = Histogram(), 0.0
        for number, histogram in self._windows.items():
            merged.merge(histogram)
            seconds += self._seconds.get(number, 0.0)
        return LatencyWindow.of(merged, seconds / len(merged)) if merged else None


def windows(
    grid: Grid,
    scenario: Scenario,
    exchanges: Rows,
    latencies: Latencies,
    silences: Iterable[Span],
    holes: Rows = (),
) -> list[Window]:
    """All windows of a run.

    Args:
        grid: where they are.
        scenario: what was to be offered.
        exchanges: rows of `Traces.exchange_windows`.
        latencies: of the subscribers.
        silences: when the statistics stream said nothing.
        holes: those rows of `Traces.unusual`: when it said nothing of one exchange that serves.
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
    latencies: Latencies,
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
        latency=latencies.window(number),
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
        messages_in=row["messages_in"] / seconds,
        bytes_in=row["bytes_in"] / seconds,
        messages_out=row["messages_out"] / seconds,
        bytes_out=row["bytes_out"] / seconds,
        publishers=row["publishers"],
        cpu_percent=row["cpu_seconds"] / row["seconds"] * 100,
    )


def imbalance(loads: Sequence[float]) -> float | None:
    """The highest load over the mean one; None with less than two or no load."""
    total = sum(loads)
    return max(loads) * len(loads) / total if len(loads) > 1 and total > 0 else None


def silences(times: Sequence[int], grid: Grid, most: float) -> list[Span]:
    """When a stream said nothing although it should, within the load.

    Args:
        times: of what it said, in order.
        grid: the load.
        most: seconds that may lie between two of them.
    """
    edges = [grid.begin_us, *(time for time in times if grid.within(time)), grid.end_us]
    before = [time for time in times if time < grid.begin_us]
    after = [time for time in times if time > grid.end_us]
    if before:
        edges[0] = before[-1]
    if after:
        edges[-1] = after[0]
    return [
        (max(one, grid.begin_us), min(other, grid.end_us))
        for one, other in pairwise(edges)
        if other - one > most * MICROSECONDS
    ]
