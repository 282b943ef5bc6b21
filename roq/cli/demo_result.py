"""The last page of the demo: what was measured, and whether every byte arrived."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from roq.client.admin.wording import bytes_text
from roq.demo.run import DemoOutcome

_PERCENTILES = (50, 90, 99, 99.9)


def show(out: Console, outcome: DemoOutcome) -> None:
    """Print it: in boxes on a terminal, in plain lines into a log."""
    boxed = out.is_terminal
    for part in (_throughput(outcome, boxed), _latency(outcome, boxed), _digests(outcome, boxed)):
        out.print()
        out.print(part)
    out.print()
    verdict = _verdict(outcome)
    style = "bold green" if outcome.verdict.equal else "bold red"
    out.print(Panel(verdict, expand=False, style=style) if boxed else verdict)


def _throughput(outcome: DemoOutcome, boxed: bool) -> Table:
    table = _table(f"Full speed, {outcome.seconds:.2f} s", boxed)
    for heading in ("", "messages", "payload", "messages/s", "MB/s"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, times in (
        ("published", 1),
        (f"received by {outcome.subscribers}", outcome.subscribers),
    ):
        messages, size = outcome.messages * times, outcome.bytes * times
        table.add_row(
            name,
            f"{messages:,}",
            bytes_text(size),
            f"{messages / outcome.seconds:,.0f}",
            f"{size / outcome.seconds / 1e6:,.1f}",
        )
    return table


def _latency(outcome: DemoOutcome, boxed: bool) -> Table:
    table = _table("Latency, from creation to receipt", boxed)
    table.add_column()
    for percent in _PERCENTILES:
        table.add_column(f"p{percent:g}", justify="right")
    for name, latency in (("line by line", outcome.calm), ("at full speed", outcome.full)):
        table.add_row(
            name, *(f"{latency.percentile(percent) * 1e3:,.2f} ms" for percent in _PERCENTILES)
        )
    return table


def _table(title: str, boxed: bool) -> Table:
    return Table(
        box=box.ROUNDED if boxed else None,
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="bold" if boxed else "",
        pad_edge=boxed,
    )


def _digests(outcome: DemoOutcome, boxed: bool) -> Table:
    table = _table("What went in and what came out", boxed)
    table.add_column("publisher")
    table.add_column("topic")
    table.add_column("messages", justify="right")
    table.add_column("SHA-256 of what went in", no_wrap=True, overflow="ellipsis")
    rows = outcome.verdict.rows
    for number in range(len(rows[0].received) if rows else 0):
        table.add_column(f"subscriber {number + 1}", justify="center")
    for row in rows:
        table.add_row(
            row.sent.publisher[:8],
            row.sent.topic,
            f"{row.sent.messages:,}",
            row.sent.sha256,
            *(_mark(equal) for equal in row.received),
        )
    return table


def _mark(equal: bool) -> Text:
    return Text("✔ equal", style="bold green") if equal else Text("✘ differs", style="bold red")


def _verdict(outcome: DemoOutcome) -> Text:
    if outcome.verdict.equal:
        return Text(
            f"{len(outcome.verdict.rows)} streams, {len(outcome.verdict.rows[0].received)} "
            "subscribers: every byte arrived at each of them, once and in order."
        )
    return Text(
        f"Something differs: {outcome.lost:,} messages lost, {outcome.verdict.strays} streams that "
        "no publisher sent."
    )
