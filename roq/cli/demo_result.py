"""The last page of the demo: what was measured, and whether every byte arrived."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from roq.cli.output import bytes_text
from roq.demo.run import Outcome

_PERCENTILES = (50, 90, 99, 99.9)


def show(out: Console, outcome: Outcome) -> None:
    """Print it: in boxes on a terminal, in plain lines into a log."""
    out.print()
    out.print(_figures(outcome, boxed=out.is_terminal))
    out.print()
    out.print(_digests(outcome, boxed=out.is_terminal))
    out.print()
    verdict = _verdict(outcome)
    out.print(Panel(verdict, expand=False, style=_style(outcome)) if out.is_terminal else verdict)


def _figures(outcome: Outcome, *, boxed: bool) -> Table:
    table = Table(
        box=box.ROUNDED if boxed else None, title="Throughput and latency", title_justify="left"
    )
    for heading, justify in (("", "left"), ("messages", "right"), ("payload", "right"),
                             ("messages/s", "right"), ("MB/s", "right")):  # fmt: skip
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for name, messages, size in (
        ("published", outcome.published, outcome.published_bytes),
        ("received", outcome.received, outcome.received_bytes),
    ):
        table.add_row(
            name,
            f"{messages:,}",
            bytes_text(size),
            f"{messages / outcome.seconds:,.0f}",
            f"{size / outcome.seconds / 1e6:,.1f}",
        )
    latencies = "   ".join(
        f"p{percent:g} {outcome.latency.percentile(percent) * 1e3:,.1f} ms"
        for percent in _PERCENTILES
    )
    table.caption = f"in {outcome.seconds:.2f} s; creation to receipt under full load: {latencies}"
    table.caption_justify = "left"
    return table


def _digests(outcome: Outcome, *, boxed: bool) -> Table:
    table = Table(
        box=box.ROUNDED if boxed else None,
        title="What went in and what came out",
        title_justify="left",
    )
    table.add_column("publisher")
    table.add_column("topic")
    table.add_column("messages", justify="right")
    table.add_column("SHA-256 of what went in")
    rows = outcome.verdict.rows
    for number in range(len(rows[0].received) if rows else 0):
        table.add_column(f"subscriber {number + 1}", justify="center")
    for row in rows:
        table.add_row(
            row.sent.publisher[:8],
            row.sent.topic,
            f"{row.sent.messages:,}",
            row.sent.sha256[:32] + "…",
            *(_mark(equal) for equal in row.received),
        )
    return table


def _mark(equal: bool) -> Text:
    return Text("✔ equal", style="bold green") if equal else Text("✘ differs", style="bold red")


def _verdict(outcome: Outcome) -> Text:
    if outcome.verdict.equal:
        return Text(
            f"{len(outcome.verdict.rows)} streams, {len(outcome.verdict.rows[0].received)} "
            "subscribers: every byte arrived at each of them, once and in order."
        )
    return Text(
        f"Something differs: {outcome.lost:,} messages lost, {outcome.verdict.strays} streams that "
        "nobody published."
    )


def _style(outcome: Outcome) -> str:
    return "bold green" if outcome.verdict.equal else "bold red"
