"""What people see while a live run goes on."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from roq.client.admin.wording import bytes_text
from roq.simulation.lab.report.terminal import spark

if TYPE_CHECKING:
    from roq.simulation.lab.traces.view import Seen

FRAME_SECONDS: Final = 0.2
LINE_SECONDS: Final = 5.0
EVENTS: Final = 5
LATE_SHARE: Final = 0.01
SPARKS_MAX: Final = 48
_BAR: Final = 40
_MILLI: Final = 1_000.0


class Picture(NamedTuple):
    """How a run stands."""

    phase: str
    elapsed: float
    seconds: float
    due: float
    """Messages that should have been sent by now."""
    seen: Seen | None
    """As its traces tell, some seconds ago; None: none are kept."""


class Show(Protocol):
    """Shows how a run goes on."""

    def step(self, text: str) -> None:
        """What is being done now, before and after the load."""
        ...

    def picture(self, picture: Picture) -> None:
        """How the load stands; called often."""
        ...

    def happened(self, at: float, text: str) -> None:
        """Something worth a line."""
        ...


class Silent:
    """Shows nothing."""

    def step(self, text: str) -> None:
        """Do nothing."""

    def picture(self, picture: Picture) -> None:
        """Do nothing."""

    def happened(self, at: float, text: str) -> None:
        """Do nothing."""


class Lines:
    """For logs and pipes: a line for each step and phase, and one every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._phase = ""
        self._said = 0.0

    def step(self, text: str) -> None:
        """A line."""
        self._console.print(f"          {text}")

    def picture(self, picture: Picture) -> None:
        """A line, if it is time for one."""
        now = time.monotonic()
        waits = picture.phase == self._phase and now - self._said < LINE_SECONDS
        if waits or picture.elapsed < 0:
            return
        self._phase, self._said = picture.phase, now
        self._console.print(f"{picture.elapsed:7.1f} s  {picture.phase}{_told(picture.seen)}")

    def happened(self, at: float, text: str) -> None:
        """A line."""
        self._console.print(f"{at:7.1f} s  {text}")


def _told(seen: Seen | None) -> str:
    if seen is None:
        return ""
    p99 = "-" if seen.p99 is None else f"{_MILLI * seen.p99:.1f} ms"
    return (
        f": sent {seen.sent:,}, received {seen.received:,}, {bytes_text(seen.bytes_in)}/s in, "
        f"{seen.exchanges} exchanges, {seen.moves} moves, p99 {p99}"
    )


class Moving:
    """For terminals: a few lines that change."""

    def __init__(self, live: Live, title: str) -> None:
        self._live = live
        self._title = title
        self._steps: list[tuple[str, float]] = []
        self._began = time.monotonic()
        self._drawn = 0.0
        self._picture: Picture | None = None
        self._events: deque[tuple[float, str]] = deque(maxlen=EVENTS)
        self._rates: deque[float] = deque(maxlen=SPARKS_MAX)
        self._noted = 0.0
        self._spinner = Spinner("dots", style="cyan")

    def step(self, text: str) -> None:
        """The step before is done."""
        self._steps.append((text, time.monotonic()))
        self._draw()

    def picture(self, picture: Picture) -> None:
        """Draw, five times a second at most."""
        now = time.monotonic()
        if now - self._noted >= 1.0:
            self._noted = now
            self._rates.append(picture.seen.messages_in if picture.seen is not None else 0.0)
        self._picture = picture
        if now - self._drawn >= FRAME_SECONDS:
            self._draw()

    def happened(self, at: float, text: str) -> None:
        """Among the last lines."""
        self._events.append((at, text))

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        parts: list[RenderableType] = [Text(self._title, style="bold"), Text()]
        if self._picture is None or (len(self._steps) > 1 and self._after()):
            parts += self._list()
        if self._picture is not None:
            parts += _load(self._picture, list(self._rates))
            parts += [Text.assemble((f"{at:8.1f} s  ", "dim"), text) for at, text in self._events]
        self._live.update(Group(*parts), refresh=True)

    def _after(self) -> bool:
        """Whether the present step began after the load."""
        return self._picture is not None and self._picture.elapsed >= self._picture.seconds

    def _list(self) -> list[RenderableType]:
        rows: list[RenderableType] = []
        steps = self._steps if self._picture is None else self._steps[-1:]
        for place, (text, when) in enumerate(steps):
            if place + 1 < len(steps):
                took = steps[place + 1][1] - when
                rows.append(Text.assemble(("  ✓ ", "green"), text, (f"  {took:.1f} s", "dim")))
            else:
                row = Table.grid(padding=(0, 1))
                row.add_row(Text(" "), self._spinner, Text(text))
                rows.append(row)
        return [*rows, Text()]


def _load(picture: Picture, rates: list[float]) -> list[RenderableType]:
    share = min(1.0, max(0.0, picture.elapsed) / picture.seconds)
    head = Table.grid(padding=(0, 1))
    head.add_row(
        Text(f"  {picture.phase}", style="bold yellow"),
        ProgressBar(total=1.0, completed=share, width=_BAR),
        Text(f"{max(0.0, picture.elapsed):.0f} of {picture.seconds:.0f} s", style="dim"),
    )
    seen = picture.seen
    if seen is None:
        return [head, Text()]
    late = seen.late / seen.sent if seen.sent else 0.0
    body = Table.grid(padding=(0, 2))
    for _ in range(3):
        body.add_column()
    body.add_row(
        Text("  sent", style="dim"),
        Text.assemble(
            f"{seen.sent:,}",
            (f" of {picture.due:,.0f}", "dim"),
            (f"  {late:.1%} late" if late > LATE_SHARE else "", "yellow"),
            (f"  {seen.failed:,} failed" if seen.failed else "", "bold red"),
        ),
        Text(f"{seen.messages_in:,.0f}/s, {bytes_text(seen.bytes_in)}/s", style="cyan"),
    )
    body.add_row(
        Text("  received", style="dim"),
        Text(f"{seen.received:,}"),
        Text(f"{seen.messages_out:,.0f}/s", style="cyan"),
    )
    p99 = "-" if seen.p99 is None else f"p99 {_MILLI * seen.p99:.1f} ms"
    body.add_row(Text("  latency", style="dim"), Text(p99), Text(""))
    moving = f", {seen.moving} being moved" if seen.moving else ""
    body.add_row(
        Text("  exchanges", style="dim"),
        Text("■ " * min(seen.exchanges, 20) + f"{seen.exchanges}"),
        Text(f"{seen.moves} moves{moving}", style="dim"),
    )
    return [head, Text(), body, Text(f"  {spark(rates)}", style="cyan"), Text()]


@contextmanager
def show(console: Console, title: str) -> Iterator[Show]:
    """The one that fits this console."""
    if not console.is_terminal:
        yield Lines(console)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield Moving(live, title)
