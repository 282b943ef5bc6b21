"""What came of a run, as text for terminals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from roq.simulation.lab.archive.document import Run, RunKind, Series
from roq.simulation.lab.report.bounds import bounded
from roq.simulation.lab.report.columns import Columns, columns_of, silence
from roq.simulation.lab.report.differences import METHOD, change, spoken
from roq.simulation.lab.report.figures import about, ordered
from roq.simulation.lab.report.groups import Group
from roq.simulation.lab.report.outcome import MARKS, Tone, found, outcome, said, tone, wanted
from roq.simulation.lab.report.statistics import mean
from roq.simulation.lab.report.wording import NOTHING, clean, count, duration, number, quantity

FIGURES: Final = (
    "sent", "received", "messages_per_second", "load_reached", "lost", "doubled", "reordered",
    "failed", "latency_p50_ms", "latency_p99_ms", "latency_max_ms", "exchanges_most",
    "exchanges_last", "moves", "imbalance_last",
)  # fmt: skip
"""Shown if not all are asked for."""
_STYLES: Final = {Tone.GOOD: "green", Tone.BAD: "bold red", Tone.OPEN: "yellow", Tone.PLAIN: ""}
_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_SPARK_WIDTH: Final = 48
_REMARKS_MAX: Final = 8


def show(run: Run, series: Series | None, console: Console, *, everything: bool = False) -> None:
    """Print the verdict: outcome, expectations, how it went in two lines, figures, remarks.

    Args:
        run: what was asked, and what came out.
        series: how it went; None if that is not known.
        console: to print on; colour and width are its own.
        everything: all figures, not just those that say most.
    """
    what = outcome(run)
    kind = "live" if run.kind is RunKind.LIVE else "model"
    facts = f"{clean(run.id)} · {kind} · {duration(run.seconds)} of load · seed {run.seed}"
    console.print(Text(clean(run.scenario.title or run.scenario.name, 200), style="bold"))
    console.print(Text(facts, style="dim"))
    console.print()
    console.print(Text(f"{MARKS[what.tone]} {what.headline}", style=f"bold {_STYLES[what.tone]}"))
    if what.more:
        console.print(Text(what.more))
    if run.verdicts:
        console.print(_expectations(run))
    if series is not None and series.windows:
        console.print()
        columns = columns_of(bounded(series), run.seconds)
        console.print(_sparks(columns))
        if silent := silence(columns):
            console.print(Text(silent, style="dim"))
    console.print()
    console.print(_figures(run, everything))
    for remark in run.remarks[:_REMARKS_MAX]:
        console.print(Text(f"· {clean(remark)}", style="dim"))
    more = len(run.remarks) - _REMARKS_MAX
    if more > 0:
        console.print(Text(f"· {count(more, 'more remark')} in the page", style="dim"))


def compare(made: Sequence[Group], console: Console) -> None:
    """Print groups of runs side by side: their means, and what clearly differs from the first.

    Args:
        made: the groups, the baseline first.
        console: to print on.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("")
    for at, group in enumerate(made):
        role = ", baseline" if not at and len(made) > 1 else ""
        heading = Text(f"{clean(group.name, 40)} (n {len(group.runs)}{role})")
        table.add_column(heading, overflow="fold")
    for name in ordered({name for group in made for name in group.figures()}):
        if name in FIGURES:
            cells = [_compared(made[0], group, name) for group in made]
            table.add_row(Text(clean(about(name).label, 80), style="dim"), *cells)
    console.print(table)
    console.print(Text(METHOD, style="dim"))


def _compared(base: Group, group: Group, name: str) -> Text:
    values = group.values(name)
    if not values:
        return Text(NOTHING)
    text = Text(spoken(mean(values), about(name).unit))
    found = change(base, group, name) if group is not base else None
    if found is not None:
        style = {None: "", True: "green", False: "red"}[found.better]
        text.append(f"\n{found.text}", style=style)
    return text


def spark(values: Sequence[float | None], width: int = _SPARK_WIDTH) -> str:
    """A line of blocks, as high as values are; a dot where nothing was measured.

    Args:
        values: from left to right; more than `width` are merged, and the highest of them shown.
        width: characters.
    """
    if not values:
        return ""
    size = max(1, -(-len(values) // width))
    groups = [
        [value for value in values[at : at + size] if value is not None]
        for at in range(0, len(values), size)
    ]
    top = max((value for value in values if value is not None), default=0.0)
    top = top if top > 0 else 1.0
    steps = len(_BLOCKS) - 1
    return "".join(
        _BLOCKS[round(steps * max(0.0, *group) / top)] if group else "·" for group in groups
    )


def _expectations(run: Run) -> Table:
    table = _table()
    for each in run.verdicts:
        style = _STYLES[tone(each)]
        table.add_row(
            Text(f"{MARKS[tone(each)]} {said(each)}", style=style),
            about(each.expected.what).label,
            Text(wanted(each.expected), style="dim"),
            Text(found(each), style=style),
            Text(clean(each.why), style="dim"),
        )
    return table


def _sparks(columns: Columns) -> Table:
    table = _table()
    rows: list[tuple[str, Sequence[float | None], str]] = [
        ("messages in", columns.total, "/s"),
        ("latency p99", columns.latency["p99"], "ms"),
        ("exchanges", [None if many is None else float(many) for many in columns.serving], ""),
    ]
    for name, values, unit in rows:
        there = [value for value in values if value is not None]
        if there:
            span = f"{number(min(there))} to {quantity(max(there), unit)}"
            table.add_row(Text(name, style="dim"), Text(spark(values), style="cyan"), span)
    return table


def _figures(run: Run, everything: bool) -> Table:
    table = _table()
    for name in ordered(run.figures):
        if everything or name in FIGURES:
            figure = about(name)
            value = Text(quantity(run.figures[name], figure.unit), justify="right")
            table.add_row(Text(clean(figure.label, 80), style="dim"), value)
    return table


def _table() -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for _ in range(5):
        table.add_column(overflow="fold")
    return table
