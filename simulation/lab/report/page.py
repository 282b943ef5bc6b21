"""One run as one HTML page that needs nothing else."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Final

from roq.simulation.lab.archive.document import Event, Run, RunKind, Series
from roq.simulation.lab.archive.folder import RunError, read_run, read_series
from roq.simulation.lab.report import story
from roq.simulation.lab.report.bounds import bounded
from roq.simulation.lab.report.charts import bounds_of, charts
from roq.simulation.lab.report.columns import Columns, at_the_end, columns_of, phases_of, silence
from roq.simulation.lab.report.figures import FIRST, about, ordered
from roq.simulation.lab.report.marks import said as event_said
from roq.simulation.lab.report.markup import Markup, document, joined, tag
from roq.simulation.lab.report.outcome import found, outcome, said, tone, wanted
from roq.simulation.lab.report.parts import (
    asset,
    badge,
    banner,
    colours,
    folded,
    footer,
    gallery,
    pairs,
    setting,
    table,
    when,
)
from roq.simulation.lab.report.published import Published, published
from roq.simulation.lab.report.wording import clean, count, duration, moment, number, quantity

TILES: Final = (
    "messages_per_second", "received", "lost", "latency_p50_ms", "latency_p99_ms",
    "exchanges_most", "moves", "imbalance_last",
)  # fmt: skip
WIDE: Final = frozenset({"throughput", "latency"})
"""Charts that have the whole width."""
_ALARMING: Final = frozenset({"lost", "doubled", "reordered", "failed", "moves_failed"})
_EVENTS_MAX: Final = 400
_ROWS_MAX: Final = 60
_SETTINGS_MAX: Final = 200
_REMARKS_MAX: Final = 50
_REMARK_MAX: Final = 600


def page(folder: Path) -> str:
    """The page of a run.

    Args:
        folder: of the run; without `series.json`, or with a damaged one, the page has no charts
            and says why.

    Raises:
        RunError: `run.json` is missing or damaged.
    """
    run = read_run(folder)
    try:
        series, missing = read_series(folder), ""
    except RunError as error:
        series, missing = None, str(error).replace(f"{folder}/", "")
    return written(run, series, missing)


def written(run: Run, series: Series | None, missing: str = "") -> str:
    """The page.

    Args:
        run: what was asked, and what came out.
        series: how it went, if that is known.
        missing: why it is not known.
    """
    series = None if series is None else bounded(series)
    columns = columns_of(series, run.seconds) if series is not None else None
    phases = phases_of(run, series)
    plots = charts(series, columns, phases, bounds_of(run)) if series and columns else []
    body = tag(
        "main",
        _heading(run),
        banner(outcome(run)),
        _tiles(run),
        _verdicts(run),
        tag("h2", "What happened", id="happened"),
        _remarks(run, series, columns),
        gallery(plots, sum(plot.name in WIDE for plot in plots))
        if plots
        else tag("p", _nothing(series, missing), class_="note"),
        _silence(columns) if plots else None,
        _asked(run),
        tag("h2", "All of it"),
        _figures(run, columns, published(run.scenario.name)),
        _events(series),
        _windows(columns),
        _surroundings(run),
        footer("the run"),
    )
    data: dict[str, object] = {"charts": [plot.told() for plot in plots]}
    if columns is not None:
        data |= {
            "span": columns.span, "begins": columns.begins, "ends": columns.ends,
            "events": [[event.at, event_said(event)] for event in _shown(series)[:2_000]],
        }  # fmt: skip
    style = asset("style.css") + colours(columns.exchanges if columns else [])
    return document(
        f"{run.scenario.title or run.id} – {run.kind.value} run",
        body,
        style=style,
        script=asset("hover.js"),
        data=data,
    )


def _heading(run: Run) -> Markup:
    kind = "Live run" if run.kind is RunKind.LIVE else "Run of the model"
    scaled = f", time × {number(run.time_scale)}" if run.time_scale != 1 else ""
    facts = [
        when(run.began_us),
        f"{duration(run.seconds)} of load{scaled}" if run.seconds else "",
        count(run.scenario.hosts, "host"),
        f"seed {run.seed}",
        f"run {run.id}",
    ]
    return tag(
        "header",
        tag("p", f"{kind} of the scenario “{run.scenario.name}”", class_="eyebrow"),
        tag("h1", run.scenario.title or run.scenario.name),
        tag("p", run.scenario.about.strip(), class_="about")
        if run.scenario.about.strip()
        else None,
        tag("p", " · ".join(filter(None, map(_unbroken, facts))), class_="facts"),
    )


def _unbroken(text: str) -> str:
    return text.replace(" ", "\u00a0")


def _tiles(run: Run) -> Markup | None:
    shown = [name for name in TILES if name in run.figures]
    if not shown:
        return None
    tiles = []
    for name in shown:
        value, figure = run.figures[name], about(name)
        alarm = "bad" if name in _ALARMING and value > 0 else None
        tiles.append(
            tag(
                "div",
                tag("dt", figure.label),
                tag("dd", quantity(value, figure.unit), class_=alarm),
            )
        )
    even = "tiles thirds" if len(tiles) in {3, 5, 6} else "tiles"
    return tag("dl", *tiles, class_=even)


def _verdicts(run: Run) -> Markup | None:
    if not run.verdicts:
        return None
    rows = [
        [
            about(each.expected.what).label,
            wanted(each.expected),
            found(each),
            joined(
                badge(tone(each), said(each)),
                tag("div", each.why, class_="why") if each.why else None,
            ),
        ]
        for each in run.verdicts
    ]
    made = table(("", "wanted#", "found#", "verdict"), rows)
    return joined(tag("h2", "What was expected"), tag("div", made, class_="figures"))


def _remarks(run: Run, series: Series | None, columns: Columns | None) -> Markup | None:
    remarks = [clean(each, _REMARK_MAX) for each in run.remarks[:_REMARKS_MAX]]
    if columns is not None and columns.merged > 1:
        remarks.append(
            f"Each {columns.merged} windows are shown as one: rates are means, of latencies and "
            "imbalance the worst is shown."
        )
    if series is not None and series.events_left_out:
        remarks.append(f"{count(series.events_left_out, 'event')} more happened and were not kept.")
    lines = (tag("li", each) for each in remarks)
    return tag("ul", *lines, class_="remarks note") if remarks else None


def _nothing(series: Series | None, missing: str) -> str:
    if series is None:
        return f"There are no charts: {missing or 'nothing is known of how it went.'}"
    return "There are no charts: nothing was measured."


def _silence(columns: Columns | None) -> Markup | None:
    said = silence(columns) if columns is not None else ""
    if not said:
        return None
    sign = tag("i", class_="quiet-key", aria_hidden="true")
    return tag("p", sign if columns and columns.quiet else None, said, class_="note silence")


def _asked(run: Run) -> Markup:
    rows = [list(each) for each in story.phases(run.scenario)]
    columns = ("phase", "lasts#", "publishers", "subscribers", "messages#", "peak#")
    faults = [[moment(each.at), story.fault(each)] for each in run.scenario.faults[:_EVENTS_MAX]]
    return joined(
        tag("h2", "What was asked"),
        table(columns, rows),
        table(("at", "fault"), faults) if faults else None,
        tag("p", Markup("&nbsp;")) if faults else None,
        folded(
            "The queue",
            count(len(story.queue(run.scenario.queue)), "setting"),
            pairs(story.queue(run.scenario.queue)),
        ),
    )


def _figures(run: Run, columns: Columns | None, known: Published | None) -> Markup:
    """Those that say most beside those that were published; all others to unfold."""
    figures = {**(at_the_end(run, columns) if columns else {}), **run.figures}
    heads = ["", "this run#", f"{known.name}#"] if known else ["", "this run#"]
    rows = []
    for name in ordered(
        [each for each in figures if each in FIRST] + list(known.figures if known else ())
    ):
        unit = about(name).unit
        row = [about(name).label, quantity(figures.get(name), unit)]
        if known:
            row.append(known.figures[name].text(unit) if name in known.figures else "")
        rows.append(row)
    further = [
        [about(name).label, quantity(figures[name], about(name).unit)]
        for name in ordered(name for name in figures if name not in FIRST)
    ]
    note = tag("p", known.source, class_="note") if known else None
    shown = tag("div", table(heads, rows), note, class_="figures") if rows else Markup()
    more = tag("div", table(("", "this run#"), further), class_="figures")
    return joined(
        folded("Figures", f"{len(rows)}", shown, shown=True) if rows else None,
        folded("Further figures", f"{len(further)}", more, long=True) if further else None,
    )


def _shown(series: Series | None) -> list[Event]:
    return sorted(series.events, key=lambda event: event.at) if series else []


def _events(series: Series | None) -> Markup | None:
    events = _shown(series)
    if not events:
        return None
    rows: list[list[str]] = []
    for (kind, _), group in groupby(events, key=lambda event: (event.kind, round(event.at))):
        together = list(group)
        first = event_said(together[0])
        more = len(together) - 1
        text = (
            f"{first}; and {count(more, f'more {kind.value}', f'more of {kind.value}')}"
            if more
            else first
        )
        rows.append([moment(together[0].at), text])
    left = len(rows) - _EVENTS_MAX
    note = tag("p", f"{left:,} more rows are left out.", class_="note") if left > 0 else None
    made = table(("at", "what"), rows[:_EVENTS_MAX])
    return folded("Events", f"{len(events):,}", joined(made, note), long=True)


def _windows(columns: Columns | None) -> Markup | None:
    """The charts as a table, for those who do not see them and those who copy numbers."""
    if columns is None or not columns.ends:
        return None
    step = -(-len(columns.ends) // _ROWS_MAX)
    total, latency = columns.total, columns.latency
    rows = []
    for at in range(step - 1, len(columns.ends), step):
        cpu = [value for column in columns.cpu.values() if (value := column[at]) is not None]
        rows.append([
            moment(columns.ends[at]), number(total[at]), number(columns.out[at]),
            number(columns.offered[at]) if columns.offered else quantity(None, ""),
            number(columns.serving[at]), number(latency["p50"][at]), number(latency["p99"][at]),
            number(columns.imbalance[at]), number(max(cpu) if cpu else None),
        ])  # fmt: skip
    heads = (
        "until",
        "in /s#",
        "out /s#",
        "wanted /s#",
        "exchanges#",
        "median ms#",
        "p99 ms#",
        "imbalance#",
        "highest CPU %#",
    )
    every = f"every {step}th window" if step > 1 else "every window"
    return folded("The charts as a table", every, table(heads, rows), long=True)


def _surroundings(run: Run) -> Markup:
    machine = run.machine
    busy = f"{number(machine.load_before)} before, {number(machine.busy_percent)} % busy meanwhile"
    versions = list(run.versions.items())[:_SETTINGS_MAX]
    settings = list(run.settings.items())[:_SETTINGS_MAX]
    rows = [
        ("machine", f"{machine.cpu}, {count(machine.cores, 'core')}"),
        ("load", busy),
        ("runs on", f"{machine.python}, libzmq {machine.libzmq}"),
        *((f"version of {name}", value) for name, value in versions),
        ("clock", run.clock or "nothing is said about it"),
        *((name.replace("_", " "), setting(value)) for name, value in settings),
    ]
    return folded("Where and with what", "machine, versions, clock, settings", pairs(rows))
