"""`roq top`: what a cluster's queues carry at the moment, redrawn all the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from threading import Event
from typing import Final

import click
import msgspec
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from roq.cli import completion, screen
from roq.cli.client import Target, cluster_command
from roq.cli.interrupts import ends_quietly
from roq.cli.keys import HELP, HINT, Browsing, Keys, Press, pressed
from roq.cli.options import Number
from roq.cli.output import console
from roq.client.operate.followers import Followers
from roq.errors import QueueNotFound, Unavailable

LOOK_SECONDS: Final = 0.05


@click.command(short_help="Show what queues carry, live.")
@click.argument("queue", required=False, shell_complete=completion.queues)
@click.option("--once", is_flag=True, help="Print once what there is, after about three seconds.")
@click.option(
    "--interval",
    type=Number(0.1, 60.0),
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
