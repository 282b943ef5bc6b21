"""`roq demo`: the standard library through a cluster, before your eyes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final, Protocol

import click
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from roq.cli import demo_result
from roq.cli.failures import INTERRUPTED, REFUSED, Failed, text_of
from roq.cli.output import console
from roq.client.admin.wording import bytes_text
from roq.demo import corpus
from roq.demo.lane import Lane
from roq.demo.run import Demo, Phase
from roq.local.launcher import StartFailed
from roq.runtime.reactor import Reactor
from roq.runtime.signals import on_stop

_FRAME_SECONDS: Final = 0.1
_LINE_SECONDS: Final = 1.0
_BAR_WIDTH: Final = 32
PUBLISHERS: Final = 2
SUBSCRIBERS: Final = 2
CALM_LINES: Final = 1_000


class Screen(Protocol):
    """Shows a demo while it runs."""

    period: float

    def draw(self, demo: Demo) -> None:
        """Show how far it is."""
        ...


@click.command(short_help="Send Python's standard library through a cluster.")
@click.option(
    "--hosts",
    type=click.IntRange(1, 16),
    default=2,
    show_default=True,
    help="Hosts, with one exchange each.",
)
@click.option(
    "--lines",
    type=click.IntRange(min=1),
    help="Stop after about so many lines; all of them if not given.",
)
def demo(hosts: int, lines: int | None) -> None:
    """Send the whole Python standard library through a cluster and check every byte.

    Starts a cluster with two hosts and a queue with an exchange on each, publishes every line of
    every .py file of the standard library as a message (two publishers, two topics), receives all
    of them with two subscribers, and compares SHA-256 per publisher and topic, in order. Exits with
    1 if anything differs.

    \b
    Example:
      roq demo
      roq demo --lines 50000
    """
    out = console()
    root = corpus.library()
    shares = corpus.shares(root, PUBLISHERS, lines)
    total = sum(share.lines for share in shares)
    size = sum(share.bytes for share in shares)
    files = sum(len(share.sources) for share in shares)
    out.print(
        Text.assemble(
            ("RoQ demo  ", "bold cyan"),
            f"{total:,} lines ({bytes_text(size)}) of {files:,} files in {root}",
        )
    )
    reactor = Reactor()
    run = Demo(reactor, shares, subscribers=SUBSCRIBERS, hosts=hosts, calm=CALM_LINES)
    with _screen(out) as screen:
        interrupted = _follow(reactor, run, screen)
    reactor.close()
    if run.outcome is None:
        if interrupted or run.failure is None:
            raise Failed("it was interrupted", INTERRUPTED)
        code = run.failure.exit_code if isinstance(run.failure, StartFailed) else REFUSED
        raise Failed(text_of(run.failure), code)
    demo_result.show(out, run.outcome)
    if not run.outcome.verdict.equal:
        raise Failed("what came out is not what went in: see the table above")


def _follow(reactor: Reactor, run: Demo, screen: Screen) -> bool:
    """Until the demo has ended; whether a signal has ended it, whatever failed by that."""
    told: list[bool] = []

    def stop() -> None:
        told.append(True)
        run.stop()

    on_stop(reactor, stop)

    def frame() -> None:
        screen.draw(run)
        reactor.call_later(screen.period, frame)

    reactor.call_soon(run.start)
    reactor.call_soon(frame)
    reactor.run()
    screen.draw(run)
    return bool(told)


@contextlib.contextmanager
def _screen(out: Console) -> Iterator[Screen]:
    if not out.is_terminal:
        yield _Lines(out)
        return
    with Live(console=out, auto_refresh=False, transient=False) as live:
        yield _Moving(live)


class _Moving:
    """A terminal: bars that move."""

    period = _FRAME_SECONDS

    def __init__(self, live: Live) -> None:
        self._live = live
        self._rates = Rates()

    def draw(self, demo: Demo) -> None:
        """Redraw in place."""
        rates = self._rates.update(demo)
        parts: list[Text | Table] = [_headline(demo)]
        if demo.lanes:
            parts.append(_lanes(demo, rates))
        self._live.update(Group(*parts), refresh=True)


class _Lines:
    """A log: a line at each step, and one a second in between."""

    period = _LINE_SECONDS

    def __init__(self, out: Console) -> None:
        self._out = out
        self._phase: Phase | None = None

    def draw(self, demo: Demo) -> None:
        """Print a line if there is something to say."""
        if demo.phase is not self._phase:
            self._phase = demo.phase
            self._out.print(_headline(demo))
        if demo.phase in {Phase.CALM, Phase.RUNNING}:
            parts = [f"{lane.name} {lane.messages:,}" for lane in demo.lanes]
            self._out.print("  " + "   ".join(parts))


class Rates:
    """Messages per second of each lane, over the last second or so."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[float, int]]] = {}

    def update(self, demo: Demo) -> dict[str, float]:
        """Note where the lanes are now, and give their rates."""
        now = demo.now()
        rates = {}
        for lane in demo.lanes:
            seen = self._seen.setdefault(lane.name, [])
            seen.append((now, lane.messages))
            while len(seen) > 2 and now - seen[0][0] > 1.0:
                seen.pop(0)
            (then, before), (_, messages) = seen[0], seen[-1]
            rates[lane.name] = (messages - before) / (now - then) if now > then else 0.0
        return rates


def _headline(demo: Demo) -> Text:
    elapsed = demo.now() - demo.started
    style = {Phase.DONE: "bold green", Phase.FAILED: "bold red"}.get(demo.phase, "bold yellow")
    line = Text.assemble((f"{elapsed:5.1f} s  ", "dim"), (demo.phase.value, style))
    if demo.exchanges:
        line.append(f"   exchanges {', '.join(demo.exchanges)}", "dim")
    return line


def _lanes(demo: Demo, rates: dict[str, float]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1))
    for justify in ("left", "left", "right", "right", "right"):
        table.add_column(justify=justify)
    for lane in demo.lanes:
        colour = "cyan" if lane.publishes else "magenta"
        table.add_row(
            Text(lane.name, style=colour),
            ProgressBar(
                total=max(lane.total, 1),
                completed=lane.messages,
                width=_BAR_WIDTH,
                complete_style=colour,
                finished_style="green",
            ),
            f"{_percent(lane):.0f} %",
            f"{lane.messages:,}",
            f"{rates[lane.name]:,.0f}/s" if demo.phase in {Phase.CALM, Phase.RUNNING} else "",
        )
    return table


def _percent(lane: Lane) -> float:
    return 100.0 * lane.messages / lane.total if lane.total else 100.0
