"""How `roq top` looks: rows in, lines out, as many and as wide as the terminal has room for.

    queue       one queue in full: exchanges with their load, publishers, subscribers, events
    overview    one line for each of several queues, and the events of all

A load is shown against the limit of one exchange, which the mark in the bar stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from rich.console import Group, RenderableType
from rich.layout import Layout
from rich.table import Table
from rich.text import Text

from roq.cli.output import state_text
from roq.client.admin.board import (
    Event,
    ExchangeRow,
    MoveEvent,
    PublisherRow,
    QueueView,
    SubscriberRow,
)
from roq.client.admin.wording import bytes_text, many

FULL: Final = 1.25
"""The load at which a bar is full; the limit itself is at four fifths of it."""
LEVELS: Final = ((0.7, "green"), (0.9, "yellow"), (1.1, "dark_orange"))
"""Loads below which a bar has this colour; above the last one it is red."""
BAR_WIDTHS: Final = (10, 48)
EVENT_STYLES: Final = {
    "started": "yellow",
    "accepted": "green",
    "done": "green",
    "failed": "red",
    "given_up": "red",
}
SIDE_BY_SIDE: Final = 100
"""From this width on publishers and subscribers stand beside each other."""
ROWS_OF_A_PIPE: Final = 20
"""Publishers, subscribers and events that are printed where no terminal limits them."""
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_ID_DIGITS: Final = 8
_NAME_WIDTH: Final = 22
_UNDER: Final = " " * 10
"""Below what stands behind the time of day."""

_T = TypeVar("_T")

Clock = Callable[[float], str]
"""The time of day of a moment on the board's clock."""


class Room(NamedTuple):
    """How much fits."""

    width: int
    height: int | None
    """None: any number of lines."""


class Column(NamedTuple):
    """A column of the exchanges: what is less important goes first where it is narrow."""

    heading: str
    width: int
    rank: int
    """0 is always there."""
    text: Callable[[ExchangeRow], str]


COLUMNS: Final = (
    Column("MSG/S IN", 10, 1, lambda row: f"{row.messages_in:,.0f}"),
    Column("IN/S", 9, 0, lambda row: bytes_text(row.bytes_in)),
    Column("OUT/S", 9, 2, lambda row: bytes_text(row.bytes_out)),
    Column("PUBS", 6, 0, lambda row: f"{row.publishers:,}"),
    Column("SUBS", 6, 3, lambda row: f"{row.subscribers:,}"),
    Column("LAG", 9, 4, lambda row: _milliseconds(row.lag_ms)),
    Column("CPU", 6, 2, lambda row: f"{row.cpu_percent:.0f} %"),
    Column("MEMORY", 9, 5, lambda row: bytes_text(row.memory_bytes)),
)


class QueueColumn(NamedTuple):
    """A column of the overview."""

    heading: str
    width: int
    rank: int
    text: Callable[[QueueView], str | Text]


QUEUE_COLUMNS: Final = (
    QueueColumn("X", 4, 1, lambda view: str(len(view.exchanges))),
    QueueColumn("PUBS", 7, 2, lambda view: f"{view.publisher_count:,}"),
    QueueColumn("SUBS", 7, 3, lambda view: f"{view.subscriber_count:,}"),
    QueueColumn("MSG/S IN", 10, 5, lambda view: f"{view.messages_in:,.0f}"),
    QueueColumn("IN/S", 9, 0, lambda view: bytes_text(view.bytes_in)),
    QueueColumn("OUT/S", 9, 4, lambda view: bytes_text(view.bytes_out)),
    QueueColumn("MOVES", 7, 6, lambda view: f"{view.moves:,}"),
    QueueColumn("LOST", 10, 0, lambda view: _lost(view.lost)),
)
NAME_WIDTHS: Final = (12, 40)
"""A queue's name has so much room at least, and needs no more at most."""


def colour(load: float) -> str:
    """The colour of a load."""
    return next((name for below, name in LEVELS if load < below), "red")


def bar(load: float, width: int, mark: float = 1.0) -> Text:
    """A load as a bar of so many characters, with a line where the limit is."""
    style = colour(load)
    eighths = round(min(load / FULL, 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    cells = ["█"] * full + ([_EIGHTHS[rest]] if rest else [])
    cells += [" "] * (width - len(cells))
    text = Text("".join(cells[:width]), style=style)
    limit = min(width - 1, int(mark / FULL * width))
    if cells[limit] == " ":
        text = text[:limit] + Text("│", style="dim") + text[limit + 1 :]
    return text


def queue(
    view: QueueView,
    state: str,
    reason: str,
    room: Room,
    clock: Clock,
    ring_limit: int = 0,
) -> RenderableType:
    """One queue in full.

    Args:
        view: its rows.
        state, reason: whether it runs; if not, why.
        room: how much fits.
        clock: for the times of events.
        ring_limit: bytes that a ring holds at most; 0: not known.
    """
    head = [*_headline(view, state, room.width), *_totals(view, room.width)]
    if reason:
        head.append(Text(reason, style="yellow"))
    for line in head:
        line.no_wrap, line.overflow = True, "ellipsis"
    most = None if room.height is None else min(room.height // 2, room.height - len(head) - 3)
    shown, hidden = _split(view.exchanges, most)
    parts: list[RenderableType] = [*head, Text()]
    if shown:
        parts.append(_exchanges(view, shown, room.width, ring_limit))
    if hidden:
        parts.append(Text(f"… and {hidden} exchanges more", style="dim"))
    left = None
    if room.height is not None:
        used = len(head) + 2 + len(shown) + bool(hidden)
        left = max(0, room.height - used)
    return Group(*parts, *_lower(view, Room(room.width, left), clock))


def overview(views: Sequence[tuple[QueueView, str]], room: Room, clock: Clock) -> RenderableType:
    """One line for each queue (its rows, and whether it runs), and the last events of all."""
    most = None if room.height is None else max(1, room.height - 6)
    shown, hidden = _split(views, most)
    names = max([5, *(len(view.queue) for view, _ in shown)])
    states = max([5, *(len(state) for _, state in shown)])
    columns, names, bars = _columns_of_queues(names, states, room.width)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold dim")
    table.add_column("QUEUE", width=names, no_wrap=True, overflow="ellipsis")
    table.add_column("STATE", width=states, no_wrap=True)
    table.add_column("BUSIEST" if bars else "LOAD", width=bars + 5, no_wrap=True)
    for column in columns:
        table.add_column(column.heading, width=column.width - 1, justify="right", no_wrap=True)
    for view, state in shown:
        load = Text(f"{min(view.load, 99.99):5.0%}", style=colour(view.load))
        table.add_row(
            Text(view.queue, style="bold"),
            state_text(state),
            bar(view.load, bars) + load if bars else load,
            *(column.text(view) for column in columns),
        )
    parts: list[RenderableType] = [table]
    if hidden:
        parts.append(Text(f"… and {hidden} queues more", style="dim"))
    left = None if room.height is None else room.height - len(shown) - 2 - bool(hidden)
    events = sorted(
        ((event, view.queue) for view, _ in views for event in view.events),
        key=lambda pair: pair[0].at,
    )
    lines = [
        line
        for event, name in events
        for line in _event(event, clock, room.width, Text(f"{_cut(name)}  ", style="dim"))
    ]
    return Group(*parts, *_log(lines, left))


def _columns_of_queues(names: int, states: int, width: int) -> tuple[list[QueueColumn], int, int]:
    """Columns that fit, the width of the names, and that of the bars; 0: there are none."""
    columns = list(QUEUE_COLUMNS)
    fixed = states + 1 + 6
    wanted = min(names, NAME_WIDTHS[1]) + 1

    def left() -> int:
        return width - fixed - wanted - sum(column.width for column in columns)

    while left() < 0:
        least = max(columns, key=lambda column: column.rank)
        if least.rank == 0:
            break
        columns.remove(least)
    name = max(min(NAME_WIDTHS[0], names), wanted - 1 + min(0, left()))
    bars = left() if left() >= BAR_WIDTHS[0] else 0
    return columns, name, min(bars, 12)


def help_on_keys(keys: Sequence[tuple[str, str]]) -> RenderableType:
    """What each key does."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 3, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for key, meaning in keys:
        table.add_row(key, meaning)
    return Group(Text("KEYS", style="bold dim"), table)


def above(frame: RenderableType, line: str, room: Room) -> RenderableType:
    """The frame, and this line at the lower end of the terminal."""
    layout = Layout()
    last = Text(line, style="dim", no_wrap=True, overflow="ellipsis")
    layout.split_column(Layout(frame, size=room.height), Layout(last, size=1))
    return layout


# --- the upper part -------------------------------------------------------------------------------


def _headline(view: QueueView, state: str, width: int) -> list[Text]:
    """Which queue it is and how many take part; on two lines where one would be cut off."""
    line = Text.assemble((view.queue, "bold cyan"), "  ", state_text(state))
    counts = Text(
        " · ".join(
            (
                many(len(view.exchanges), "exchange"),
                many(view.publisher_count, "publisher"),
                many(view.subscriber_count, "subscriber"),
            )
        )
    )
    if view.waiting:
        counts.append(f" · {view.waiting:,} waiting", "yellow")
    if view.moves:
        counts.append(f" · {many(view.moves, 'move')}")
    whole = Text("  ").join([line, counts])
    return [whole] if whole.cell_len <= width else [line, counts]


def _totals(view: QueueView, width: int) -> list[Text]:
    """What flows and how well; on two lines where one would be cut off."""
    flow = Text.assemble(
        ("in ", "dim"),
        f"{view.messages_in:,.0f} msg/s  {bytes_text(view.bytes_in)}/s   ",
        ("out ", "dim"),
        f"{view.messages_out:,.0f} msg/s  {bytes_text(view.bytes_out)}/s",
    )
    quality = Text.assemble(
        ("limit ", "dim"),
        f"{bytes_text(view.limit * 60)}/min each   ",
        ("latency ", "dim"),
        f"{_milliseconds(view.latency_ms)}   ",
        ("lost ", "dim"),
        _lost(view.lost),
    )
    line = Text("   ").join([flow, quality])
    return [line] if len(line) <= width else [flow, quality]


def _exchanges(
    view: QueueView, rows: Sequence[ExchangeRow], width: int, ring_limit: int
) -> RenderableType:
    columns = list(COLUMNS)
    if ring_limit:
        columns.append(Column("RING", 6, 6, lambda row: f"{row.ring_bytes / ring_limit:.0%}"))
    if any(row.requests is not None for row in rows):
        columns.append(Column("REQUESTS", 9, 3, lambda row: f"{row.requests or 0:,}"))
    names = max([8, *(len(_exchange_name(row)) for row in rows)])
    hosts = max([4, *(len(row.host) for row in rows)])
    fixed = names + 1 + hosts + 1 + BAR_WIDTHS[0] + 6
    while columns and fixed + sum(column.width for column in columns) > width:
        least = max(columns, key=lambda column: column.rank)
        if least.rank == 0:
            break
        columns.remove(least)
    spare = width - fixed - sum(column.width for column in columns)
    bars = max(BAR_WIDTHS[0], min(BAR_WIDTHS[1], BAR_WIDTHS[0] + spare))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold dim")
    table.add_column("EXCHANGE", width=names, no_wrap=True)
    table.add_column("HOST", width=hosts, no_wrap=True)
    table.add_column(_load_heading(bars), width=bars, no_wrap=True)
    table.add_column("", width=5, justify="right", no_wrap=True)
    for column in columns:
        table.add_column(column.heading, width=column.width - 1, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            _exchange_name(row),
            row.host,
            bar(row.load, bars),
            Text(f"{row.load:.0%}" if view.limit else "-", style=colour(row.load)),
            *(column.text(row) for column in columns),
        )
    return table


def _exchange_name(row: ExchangeRow) -> Text:
    name = Text(row.exchange, style="bold")
    if row.leaving:
        name += Text(" leaving", style="yellow")
    if row.holding:
        name += Text(" held", style="yellow")
    if row.behind:
        name += Text(f" {row.behind} behind", style="red")
    return name


def _load_heading(width: int) -> Text:
    limit = min(width - 1, int(width / FULL))
    return Text("LOAD".ljust(limit) + "L")


# --- the lower part -------------------------------------------------------------------------------


def _lower(view: QueueView, room: Room, clock: Clock) -> list[RenderableType]:
    lines = [line for event in view.events for line in _event(event, clock, room.width)]
    tables = 2 if room.width < SIDE_BY_SIDE and view.publishers and view.subscribers else 1
    rows = max(len(view.publishers), len(view.subscribers))
    if room.height is None:
        rows = min(rows, ROWS_OF_A_PIPE)
        left = None
    else:
        needed = tables * (rows + 2)
        wanted = min(len(lines) + 2, max(room.height // 2, room.height - needed))
        rows = max(0, min(rows, (room.height - wanted) // tables - 2))
        left = room.height - (tables * (rows + 2) if rows else 0)
    parts = _people(view, rows, room.width) if rows else []
    return [*parts, *_log(lines, left)]


def _people(view: QueueView, rows: int, width: int) -> list[RenderableType]:
    """Publishers and subscribers: beside each other, or below each other where it is narrow."""
    publishers, subscribers = (
        _publishers(view.publishers, rows),
        _subscribers(view.subscribers, rows),
    )
    if not (view.publishers and view.subscribers):
        return [Text(), publishers if view.publishers else subscribers]
    if width < SIDE_BY_SIDE:
        return [Text(), publishers, Text(), subscribers]
    grid = Table.grid(expand=False, padding=(0, 4, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_row(publishers, subscribers)
    return [Text(), grid]


def _publishers(rows: Sequence[PublisherRow], most: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold dim")
    table.add_column("PUBLISHER", no_wrap=True, min_width=10)
    table.add_column("AT", no_wrap=True, min_width=8)
    table.add_column("MSG/S", justify="right", no_wrap=True, min_width=8)
    table.add_column("PER SECOND", justify="right", no_wrap=True, min_width=10)
    for row in rows[:most]:
        place = Text(", ".join(row.exchanges))
        if row.moving:
            place += Text(" moving", style="yellow")
        who = Text(_shown(row.name, row.publisher))
        table.add_row(who, place, f"{row.messages:,.0f}", bytes_text(row.bytes))
    return table


def _shown(name: str, client: str) -> str:
    """A publisher as it calls itself, shortened in the middle: both ends tell it from others."""
    if len(name) <= _NAME_WIDTH:
        return name or client[:_ID_DIGITS]
    return f"{name[: _NAME_WIDTH // 2 - 1]}…{name[-_NAME_WIDTH // 2 :]}"


def _subscribers(rows: Sequence[SubscriberRow], most: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold dim")
    table.add_column("SUBSCRIBER", no_wrap=True, min_width=10)
    table.add_column("MSG/S", justify="right", no_wrap=True, min_width=8)
    table.add_column("LATENCY", justify="right", no_wrap=True, min_width=8)
    table.add_column("LOST", justify="right", no_wrap=True)
    for row in rows[:most]:
        table.add_row(
            row.subscriber[:_ID_DIGITS],
            f"{row.messages:,.0f}",
            _milliseconds(row.latency_ms),
            _lost(row.lost),
        )
    return table


def _log(lines: Sequence[Text], height: int | None) -> list[RenderableType]:
    most = ROWS_OF_A_PIPE if height is None else max(0, height - 2)
    if not lines or not most:
        return []
    shown = [Text(), Text("MOVES AND SCALING", style="bold dim"), *lines[-most:]]
    for line in shown:
        line.no_wrap, line.overflow = True, "ellipsis"
    return list(shown)


def _event(event: Event, clock: Clock, width: int, queue: Text | None = None) -> list[Text]:
    """What has happened, and why: on a line of its own where the first one has no room for it."""
    line = Text.assemble((clock(event.at), "dim"), "  ", queue or "")
    if isinstance(event, MoveEvent):
        line.append(f"{_shown(event.name, event.publisher)}  ")
        line.append(f"{', '.join(event.sources)} → {', '.join(event.targets)}", "bold")
        line.append(f"  {bytes_text(event.bytes)}/s  ", "dim")
    else:
        sign = "+" if event.direction == "out" else "-"
        line.append(f"{sign} {event.exchange or 'exchange'}", "bold magenta")
        line.append(f"{' on ' + event.host if event.host else ''}  ")
    line.append(event.state.replace("_", " "), EVENT_STYLES.get(event.state, ""))
    if isinstance(event, MoveEvent):
        if event.state == "accepted":
            line.append(f" (pause {_milliseconds(event.pause_ms)})", "dim")
    elif event.seconds:
        line.append(f" in {event.seconds:.1f} s", "dim")
    if not event.reason:
        return [line]
    whole = line + Text(f"  {event.reason}", style="dim")
    return [whole] if whole.cell_len <= width else [line, Text(f"{_UNDER}{event.reason}", "dim")]


# --- words ----------------------------------------------------------------------------------------


def _split(rows: Sequence[_T], most: int | None) -> tuple[list[_T], int]:
    shown = list(rows) if most is None else list(rows[: max(1, most)])
    return shown, len(rows) - len(shown)


def _cut(name: str) -> str:
    return name if len(name) <= NAME_WIDTHS[0] else f"{name[: NAME_WIDTHS[0] - 1]}…"


def _lost(count: int) -> Text:
    return Text(f"{count:,}", style="bold red" if count else "")


def _milliseconds(value: float) -> str:
    return f"{value:.1f} ms" if value < 99.95 else f"{value / 1000:.2f} s"
