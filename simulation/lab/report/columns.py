"""How a run went, in columns: what charts, tables and comparisons are made of; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean, median
from typing import Final, TypeAlias, TypeVar

from msgspec.structs import replace

from roq.simulation.lab.archive.document import (
    HEARD_FROM,
    LATENCIES,
    RATES,
    ExchangeWindow,
    LatencyWindow,
    PhaseTime,
    Run,
    Series,
    Window,
)
from roq.simulation.lab.report.bounds import LATEST, bounded_phases
from roq.simulation.lab.report.wording import duration, listed, moment
from roq.simulation.scenario.offered import present

T = TypeVar("T")
WINDOWS_MAX: Final = 720
"""More windows than this are merged: a chart has no more room."""
EXCHANGES_MAX: Final = 60
"""Of more exchanges than this the quietest are taken together."""
OTHERS: Final = -1
"""Number of the exchanges that are taken together."""
_SILENT_FROM: Final = 1e-3
_STRETCHES_MAX: Final = 4
Column: TypeAlias = "list[float | None]"
Stretch: TypeAlias = tuple[float, float]
"""From when to when, in seconds since the load began."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of equal length, one entry for each window; None where nothing was measured.

    Attributes:
        begins, ends: of the windows, in seconds since the load began.
        span: seconds that axes show.
        merged: so many windows were taken together to one.
        heard: whether the statistics tell what exchanges did; where they do not, it is None.
        silent: seconds that they do not tell of.
        exchanges: the numbers of those that served, and `OTHERS`.
        messages, bytes, cpu, publishers: by exchange; None where it did not serve, too.
        out: messages out per second, of all exchanges.
        offered: messages a second that the scenario wants; empty if it says nothing.
        serving: how many exchanges served.
        imbalance: busiest over mean.
        latency: mean, percentiles and the highest, by name, in milliseconds.
        samples: how many latencies were measured.
    """

    begins: list[float]
    ends: list[float]
    span: float
    merged: int
    heard: list[bool]
    silent: float
    exchanges: list[int]
    messages: dict[int, Column]
    bytes: dict[int, Column]
    cpu: dict[int, Column]
    publishers: dict[int, Column]
    out: Column
    offered: list[float]
    serving: list[int | None]
    imbalance: Column
    latency: dict[str, Column]
    samples: list[int]

    @property
    def total(self) -> Column:
        """Messages in per second, of all exchanges."""
        return self.together(self.messages)

    @property
    def quiet(self) -> list[Stretch]:
        """When it was not heard what exchanges did, as few stretches."""
        found: list[Stretch] = []
        for begin, end, heard in zip(self.begins, self.ends, self.heard, strict=True):
            if not heard:
                joins = found and begin <= found[-1][1]
                found.append((found.pop()[0] if joins else begin, end))
        return found

    def together(self, columns: dict[int, Column]) -> Column:
        """The sum over all exchanges, window by window."""
        return [
            sum(column[at] or 0.0 for column in columns.values()) if heard else None
            for at, heard in enumerate(self.heard)
        ]


def known(column: Sequence[T | None]) -> list[T]:
    """What was measured of a column."""
    return [value for value in column if value is not None]


def columns_of(series: Series, seconds: float = 0.0) -> Columns:
    """The columns of a run.

    Args:
        series: how it went.
        seconds: how long the load lasted, if that is known.
    """
    windows = sorted(map(_plain, series.windows), key=lambda window: window.at)
    silent = sum((1 - window.covered) * series.window_seconds for window in windows)
    size = -(-len(windows) // WINDOWS_MAX) if windows else 1
    if size > 1:
        windows = [_plain(_merged(windows[at : at + size])) for at in range(0, len(windows), size)]
    length = series.window_seconds * size
    ends = [window.at for window in windows]
    begins = [
        max(0.0, end - length, before) for end, before in zip(ends, [0.0, *ends], strict=False)
    ]
    if windows:
        begins[0] = max(0.0, ends[0] - length)
    numbers = _loudest(windows)
    shown = [_by_number(window, numbers) for window in windows]

    def each(part: Callable[[ExchangeWindow], float | None]) -> dict[int, Column]:
        return {
            number: [part(row[number]) if number in row else None for row in shown]
            for number in numbers
        }

    heard = [window.covered >= HEARD_FROM for window in windows]
    offered = [window.offered for window in windows]
    return Columns(
        begins=begins,
        ends=ends,
        span=max([min(LATEST, seconds), *ends, *(event.at for event in series.events)], default=0.0)
        or 1.0,
        merged=size,
        heard=heard,
        silent=silent,
        exchanges=numbers,
        messages=each(lambda one: max(0.0, one.messages_in)),
        bytes=each(lambda one: max(0.0, one.bytes_in)),
        cpu=each(lambda one: one.cpu_percent),
        publishers=each(lambda one: float(one.publishers)),
        out=[
            sum(one.messages_out for one in window.exchanges) if there else None
            for window, there in zip(windows, heard, strict=True)
        ],
        offered=offered if any(offered) else [],
        serving=[
            window.serving if there else None for window, there in zip(windows, heard, strict=True)
        ],
        imbalance=[window.imbalance for window in windows],
        latency={
            name: [getattr(window.latency, name, None) for window in windows] for name in LATENCIES
        },
        samples=[window.latency.count if window.latency else 0 for window in windows],
    )


def silence(found: Columns) -> str:
    """How long the statistics were not heard, in a sentence; nothing if they always were."""
    if found.silent < _SILENT_FROM * found.span and not found.quiet:
        return ""
    if not any(found.heard):
        return "The statistics were silent all along: what exchanges did is not known."
    said = f"The statistics were silent for {duration(found.silent)} of {duration(found.span)}"
    if not found.quiet:
        return f"{said}, never for most of a window: rates are those of the rest."
    told = [f"{moment(begin)} to {moment(end)}" for begin, end in found.quiet]
    if len(told) > _STRETCHES_MAX:
        told = [*told[: _STRETCHES_MAX - 1], f"{len(told) - _STRETCHES_MAX + 1:,} times more"]
    where = f"{said} ({listed(told)}): what exchanges did then is not known."
    latencies = " Latency is measured by clients and goes on." if any(found.samples) else ""
    return where + latencies


def has(columns: dict[int, Column]) -> bool:
    """Whether anything but nothing stands in them."""
    return any(value for column in columns.values() for value in column)


def at_the_end(run: Run, found: Columns) -> dict[str, float]:
    """Figures of the last phase, and with how many publishers further exchanges came.

    Averages over a whole run that grows say little; these can be compared with other systems.
    """
    figures: dict[str, float] = {}
    if rows := _in(run.phases[-1] if run.phases else None, found):
        total = found.total
        figures["last_phase_in_per_second"] = fmean(known([total[row] for row in rows]))
        if any(found.out):
            figures["last_phase_out_per_second"] = fmean(known([found.out[row] for row in rows]))
        # At its very end publishers leave one after the other.
        columns = (known([column[row] for row in rows]) for column in found.publishers.values())
        attached = [median(column) for column in columns if column]
        if len(attached) > 1 and any(attached):
            figures["last_phase_publishers_most"] = max(attached)
            figures["last_phase_publishers_least"] = min(attached)
    publishers = found.together(found.publishers)
    if any(publishers) and found.serving[0] == 1:
        for wanted in (2, 3, 4):
            row = next((at for at, many in enumerate(found.serving) if (many or 0) >= wanted), None)
            attached_then = publishers[row] if row and found.heard[row - 1] else None
            if row is not None and attached_then is not None:
                # Who has just moved is attached to both exchanges, and one publisher all the same.
                there = float(present(run.scenario, found.ends[row]))
                figures[f"publishers_at_exchange_{wanted}"] = min(attached_then, there)
    return figures


def phases_of(run: Run, series: Series | None) -> list[PhaseTime]:
    """When each phase was played; of a run that did not end, as far as its events tell."""
    if run.phases or series is None:
        return bounded_phases(run.phases)
    return phases_told(series, run.seconds)


def phases_told(series: Series, seconds: float) -> list[PhaseTime]:
    """When each phase was played, as far as events tell."""
    begun = [event for event in series.events if event.kind == "phase"]
    if not begun:
        return []
    ends = [event.at for event in begun[1:]] + [
        max(min(LATEST, seconds), *(w.at for w in series.windows), 0)
    ]
    return [
        PhaseTime(name=event.text, begins=event.at, ends=max(event.at, end))
        for event, end in zip(begun, ends, strict=True)
    ]


def _in(phase: PhaseTime | None, found: Columns) -> list[int]:
    """The windows in a phase of which anything is known; none if no exchange served in any."""
    if phase is None:
        return []
    slack = 1e-6 * found.span
    rows = [
        row
        for row, (begin, end) in enumerate(zip(found.begins, found.ends, strict=True))
        if begin >= phase.begins - slack and end <= phase.ends + slack and found.heard[row]
    ]
    served = any(column[row] is not None for column in found.messages.values() for row in rows)
    return rows if served else []


def _plain(window: Window) -> Window:
    """Of a window that was hardly heard nothing that the statistics say; merged ones know it."""
    if window.covered >= HEARD_FROM:
        return window
    return replace(window, exchanges=[], serving=0, imbalance=None)


def _loudest(windows: Sequence[Window]) -> list[int]:
    """The numbers of the exchanges; of too many the quietest are `OTHERS`."""
    volume: Counter[int] = Counter()
    for window in windows:
        for one in window.exchanges:
            volume[one.exchange] += max(0, int(one.messages_in)) + 1
    if len(volume) <= EXCHANGES_MAX:
        return sorted(volume)
    return [*sorted(number for number, _ in volume.most_common(EXCHANGES_MAX - 1)), OTHERS]


def _by_number(window: Window, numbers: Sequence[int]) -> dict[int, ExchangeWindow]:
    known = set(numbers)
    groups: dict[int, list[ExchangeWindow]] = {}
    for one in window.exchanges:
        groups.setdefault(one.exchange if one.exchange in known else OTHERS, []).append(one)
    return {number: _together(number, group) for number, group in groups.items()}


def _together(number: int, group: list[ExchangeWindow]) -> ExchangeWindow:
    if len(group) == 1:
        return group[0]
    return _joined(number, group, sum)


def _joined(
    number: int,
    rows: Sequence[ExchangeWindow],
    publishers: Callable[[Iterable[int]], int],
    windows: int = 1,
) -> ExchangeWindow:
    """Several rows as one, with the rates of so many windows."""
    cpu = [one.cpu_percent for one in rows if one.cpu_percent is not None]
    return ExchangeWindow(
        exchange=number,
        publishers=publishers(one.publishers for one in rows),
        cpu_percent=fmean(cpu) if cpu else None,
        **{name: sum(getattr(one, name) for one in rows) / windows for name in RATES},
    )


def _merged(windows: Sequence[Window]) -> Window:
    """Several windows as one: rates are means; latency and imbalance the worst of them.

    Rates are those of the windows that were heard.
    """
    heard = sum(window.covered >= HEARD_FROM for window in windows)
    rows = sorted((one for window in windows for one in window.exchanges), key=_number)
    latencies = [window.latency for window in windows if window.latency is not None]
    imbalances = [window.imbalance for window in windows if window.imbalance is not None]
    return Window(
        at=windows[-1].at,
        exchanges=[
            _joined(number, list(group), max, heard) for number, group in groupby(rows, _number)
        ],
        serving=max(window.serving for window in windows),
        latency=_worst(latencies) if latencies else None,
        imbalance=max(imbalances) if imbalances else None,
        offered=fmean(window.offered for window in windows),
        covered=fmean(window.covered for window in windows),
    )


def _number(one: ExchangeWindow) -> int:
    return one.exchange


def _worst(found: Sequence[LatencyWindow]) -> LatencyWindow:
    counted = sum(one.count for one in found)
    return LatencyWindow(
        count=counted,
        mean=sum(one.mean * one.count for one in found) / counted if counted else 0.0,
        **{name: max(getattr(one, name) for one in found) for name in LATENCIES if name != "mean"},
    )
