"""`roq top`: what a cluster's queues carry at the moment, redrawn all the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from threading import Event
from types import TracebackType
from typing import Final, Self

import click
import msgspec
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

import roq
from roq.cli import completion, screen
from roq.cli.board import Board, QueueView
from roq.cli.client import Target, cluster_command
from roq.cli.interrupts import ends_quietly
from roq.cli.keys import HELP, HINT, Browsing, Keys, Press, pressed
from roq.cli.output import console
from roq.client.admin.broadcast import Watch
from roq.client.admin.statistics import Statistics, StreamState
from roq.errors import QueueNotFound, Unavailable

QUEUES_MAX: Final = 100
"""Queues that are followed at once; the others are left out and counted."""
LOOK_SECONDS: Final = 0.05
SETTLE_SECONDS: Final = 2.5
"""Subscribers tell about themselves every two seconds."""


class QueueReport(msgspec.Struct, frozen=True, kw_only=True):
    """One queue for programs."""

    state: str
    """`running`, `stopped`, `removed`, or `searching` while its monitor is not heard."""
    reason: str
    view: QueueView


class Followed:
    """One queue: its stream and its board."""

    def __init__(self, statistics: Statistics) -> None:
        self.statistics = statistics
        self.board = Board(statistics.queue)
        self.since = time.monotonic()

    def update(self) -> None:
        """Take in what has come."""
        for sample in self.statistics.waiting():
            self.board.take(sample.document, sample.when)

    def report(self) -> QueueReport:
        """How it is now."""
        return QueueReport(
            state=self.statistics.state.value,
            reason=self.statistics.reason,
            view=self.board.view(time.monotonic()),
        )

    def settled(self) -> bool:
        """Whether all that there is to show has had the time to show."""
        if self.statistics.state in {StreamState.STOPPED, StreamState.MISSING}:
            return True
        waited = time.monotonic() - self.since
        return self.board.complete() and waited >= SETTLE_SECONDS


class Followers:
    """The queues that are shown: one by its name, or all that there are as they come and go.

    Args:
        cluster: whose queues.
        queue: the one; None: all.
        browse: whether another one may be wanted, so that their names must be known.
    """

    def __init__(self, cluster: roq.Cluster, queue: str | None, *, browse: bool = False) -> None:
        self.hidden = 0
        self.names: list[str] = []
        self._cluster = cluster
        self._queue = queue
        self._followed: dict[str, Followed] = {}
        self._watch: Watch | None = None
        self._known = queue is not None
        if queue is None or browse:
            self._watch = cluster.watch()
        if queue is not None:
            self._follow(queue)

    def show(self, queue: str | None) -> None:
        """From now on show this queue; None: all."""
        if queue != self._queue:
            self._queue = queue
            self._show()

    def update(self) -> None:
        """Take in what has come, and look which queues there are."""
        if self._watch is not None:
            while (state := self._watch.receive(0)) is not None:
                self._known = True
                self.names = sorted(each.name for each in state.queues)
                self._show()
        for followed in self._followed.values():
            followed.update()

    def reports(self) -> list[QueueReport]:
        """All queues by name."""
        return [self._followed[name].report() for name in sorted(self._followed)]

    def settled(self) -> bool:
        """Whether everything that there is can be shown."""
        return self._known and all(each.settled() for each in self._followed.values())

    def ring_limit(self, queue: str) -> int:
        """Bytes that one exchange of this queue keeps; 0: not known yet."""
        limits = self._followed[queue].statistics.limits
        return 0 if limits is None else limits.ring_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for followed in self._followed.values():
            followed.statistics.close()
        if self._watch is not None:
            self._watch.close()

    def _show(self) -> None:
        # The one that is asked for is told of also when it has gone.
        names = self.names if self._queue is None else [self._queue]
        self.hidden = max(0, len(names) - QUEUES_MAX)
        wanted = set(names[:QUEUES_MAX])
        for name in self._followed.keys() - wanted:
            self._followed.pop(name).statistics.close()
        for name in sorted(wanted - self._followed.keys()):
            self._follow(name)

    def _follow(self, name: str) -> None:
        self._followed[name] = Followed(self._cluster.statistics(name))


@click.command(short_help="Show what queues carry, live.")
@click.argument("queue", required=False, shell_complete=completion.queues)
@click.option("--once", is_flag=True, help="Print once what there is, after about three seconds.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 60.0),
    default=1.0,
    show_default=True,
    help="Seconds between two pictures.",
)
@cluster_command
def top(target: Target, queue: str | None, once: bool, interval: float) -> None:
    """Show what QUEUE carries, live: its exchanges with their load against the limit of one, the
    busiest publishers, the subscribers, and publishers and exchanges as they move, come and go.

    Without QUEUE one line for each queue of the cluster. It goes on when a queue stops, starts
    again or its monitor moves, and ends with q or Ctrl-C. --json prints one document a line.

    Keys: q quits, ? helps, → (or n) and ← (or p) show another queue, a shows all of them.

    \b
    Example:
      roq top orders
      roq top orders --once --json | jq '.view.exchanges[].load'
    """
    live = console().is_terminal and not (once or target.as_json)
    with (
        ends_quietly(),
        target.connect() as cluster,
        Followers(cluster, queue, browse=live) as followers,
    ):
        if queue is not None and not cluster.queue_exists(queue):
            raise QueueNotFound(f"there is no queue {queue!r}")
        if once:
            _wait_settled(followers, target.timeout)
        printer = _json if target.as_json else _text
        if live:
            _live(followers, queue, interval)
        else:
            _lines(followers, queue, interval, printer, once=once)


def _wait_settled(followers: Followers, timeout: float) -> None:
    pause = Event()
    deadline = time.monotonic() + timeout
    followers.update()
    while not followers.settled():
        if time.monotonic() > deadline:
            reasons = [each.reason for each in followers.reports() if each.reason]
            why = reasons[0] if reasons else "the monitors say nothing"
            raise Unavailable(f"no statistics within {timeout:g} s: {why}")
        pause.wait(LOOK_SECONDS)
        followers.update()


def _lines(
    followers: Followers,
    queue: str | None,
    interval: float,
    printer: Callable[[Followers, str | None], None],
    *,
    once: bool,
) -> None:
    pause = Event()
    printer(followers, queue)
    while not once:
        pause.wait(interval)
        followers.update()
        printer(followers, queue)


def _json(followers: Followers, queue: str | None) -> None:
    reports = followers.reports()
    value = reports if queue is None else reports[0]
    click.echo(msgspec.json.encode(value).decode())


def _text(followers: Followers, queue: str | None) -> None:
    target = console()
    target.print(_frame(followers, queue, screen.Room(min(target.width, 160), None)))


def _live(followers: Followers, queue: str | None, interval: float) -> None:
    target = console()
    browsing = Browsing(queue)
    frame: RenderableType = ""
    try:
        with pressed() as keys, Live(console=target, screen=True, auto_refresh=False) as live:
            while True:
                followers.show(browsing.queue)
                followers.update()
                # The size of the terminal is looked at each time: it may have been changed.
                below = 1 + keys.there
                room = screen.Room(target.width, max(1, target.height - below))
                frame = _frame(followers, browsing.queue, room)
                shown = screen.help_on_keys(HELP) if browsing.helping else frame
                live.update(screen.above(shown, HINT, room) if keys.there else shown, refresh=True)
                if _pressed(keys, browsing, followers, interval) is Press.QUIT:
                    return
    finally:
        target.print(frame)  # what was seen last stays


def _pressed(keys: Keys, browsing: Browsing, followers: Followers, seconds: float) -> Press:
    """Wait for so long, or until a key is pressed that means something."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        key = keys.wait(left)
        if not key:
            continue
        done = browsing.press(key, followers.names)
        if done is not Press.NOTHING:
            return done
    return Press.DRAW


def _frame(followers: Followers, queue: str | None, room: screen.Room) -> RenderableType:
    reports = followers.reports()
    offset = time.time() - time.monotonic()

    def clock(moment: float) -> str:
        return datetime.fromtimestamp(moment + offset).astimezone().strftime("%H:%M:%S")

    if queue is not None:
        report = reports[0]
        limit = followers.ring_limit(queue)
        return screen.queue(report.view, report.state, report.reason, room, clock, limit)
    if not reports:
        return Text("No queue yet: `roq queue create NAME` makes one.", style="dim")
    frame = screen.overview([(each.view, each.state) for each in reports], room, clock)
    if followers.hidden:
        return Group(frame, Text(f"… and {followers.hidden} queues are not followed", style="dim"))
    return frame
