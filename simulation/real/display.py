"""What people see while a scenario runs: the picture of `roq top`, or lines where there is no
terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from roq.cli import screen
from roq.cli.output import console as standard_console
from roq.client.admin.board import QueueView
from roq.client.admin.wording import bytes_text

FRAME_SECONDS: Final = 0.25
LINE_SECONDS: Final = 5.0


class Picture(NamedTuple):
    """How a scenario stands."""

    phase: str
    elapsed: float
    view: QueueView
    sent: int
    received: list[int]
    """By each subscriber."""


class Display(Protocol):
    """Shows how a scenario stands; called often."""

    def show(self, picture: Picture) -> None:
        """Show it."""
        ...


class Silent:
    """Shows nothing."""

    def show(self, picture: Picture) -> None:
        """Do nothing."""


class Lines:
    """A line at each new phase, and one every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._phase = ""
        self._said = 0.0

    def show(self, picture: Picture) -> None:
        """Print a line if it is time for one."""
        now = time.monotonic()
        if picture.phase == self._phase and now - self._said < LINE_SECONDS:
            return
        self._phase, self._said = picture.phase, now
        view = picture.view
        loads = "  ".join(f"{row.exchange} {row.load:.0%}" for row in view.exchanges)
        self._console.print(
            f"{picture.elapsed:6.1f} s  {picture.phase}: {bytes_text(view.bytes_in)}/s in, "
            f"{view.moves} moves, load {loads or '-'}"
        )


class Moving:
    """The whole screen, as `roq top` draws it."""

    def __init__(self, live: Live, console: Console) -> None:
        self._live = live
        self._console = console
        self._drawn = 0.0

    def show(self, picture: Picture) -> None:
        """Draw, four times a second at most."""
        now = time.monotonic()
        if now - self._drawn < FRAME_SECONDS:
            return
        self._drawn = now
        offset = time.time() - now

        def clock(moment: float) -> str:
            return datetime.fromtimestamp(moment + offset).astimezone().strftime("%H:%M:%S")

        room = screen.Room(self._console.width, self._console.height - 3)
        frame = screen.queue(picture.view, "running", "", room, clock)
        self._live.update(Group(_headline(picture), Text(), frame), refresh=True)


def _headline(picture: Picture) -> Text:
    least = min(picture.received, default=0)
    return Text.assemble(
        (f"{picture.elapsed:6.1f} s  ", "dim"),
        (picture.phase, "bold yellow"),
        (f"   sent {picture.sent:,}   received by each at least {least:,}", "dim"),
    )


@contextmanager
def display(*, as_json: bool) -> Iterator[Display]:
    """The one that fits the console; none where programs read the output."""
    console = standard_console()
    if as_json:
        yield Silent()
        return
    if not console.is_terminal:
        yield Lines(console)
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        yield Moving(live, console)
