"""What pages are put together from: tables, lists, badges, things to unfold."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources

from roq.simulation.lab.report import palette
from roq.simulation.lab.report.markup import Markup, joined, tag
from roq.simulation.lab.report.outcome import MARKS, Outcome, Tone
from roq.simulation.lab.report.plot import Plot
from roq.simulation.lab.report.svg import figure
from roq.simulation.lab.report.wording import clean, number


def asset(name: str) -> str:
    """Style or script, as it stands beside this module."""
    return resources.files("roq.simulation.lab.report").joinpath(name).read_text(encoding="utf-8")


def colours(exchanges: Sequence[int]) -> str:
    """A class with a colour for each exchange, in light, dark and print."""

    def rules(dark: bool) -> str:
        found = palette.exchanges(exchanges, dark=dark)
        return "".join(f".x{at}{{--c:{colour}}}" for at, colour in enumerate(found))

    return f"{rules(False)}@media screen and (prefers-color-scheme:dark){{{rules(True)}}}"


def banner(what: Outcome) -> Markup:
    """What came of it, at the top of a page."""
    more = tag("span", what.more) if what.more else None
    strong = tag("strong", f"{MARKS[what.tone]} {what.headline}")
    return tag("div", strong, more, class_=f"outcome {what.tone}".strip())


def badge(which: Tone, text: str) -> Markup:
    """A small sign with a word, not colour alone."""
    return tag("span", f"{MARKS[which]} {text}", class_=f"badge {which}")


def pairs(rows: Sequence[tuple[str, str]]) -> Markup:
    """Names and values."""
    lines = (joined(tag("dt", name), tag("dd", value)) for name, value in rows)
    return tag("dl", *lines, class_="pairs")


def table(
    columns: Sequence[str], rows: Sequence[Sequence[Markup | str]], caption: str = ""
) -> Markup:
    """A table; columns whose heading ends with `#` hold numbers, the first one heads its row."""
    styles = ["n" if column.endswith("#") else None for column in columns]
    heads = [
        tag("th", column.rstrip("#") if style else column, scope="col", class_=style)
        for column, style in zip(columns, styles, strict=True)
    ]
    title = tag("caption", caption) if caption else None
    lines = [tag("tr", *map(_cell, row, styles, range(len(row)))) for row in rows]
    made = tag("table", title, tag("thead", tag("tr", *heads)), tag("tbody", *lines))
    return tag("div", made, class_="scroll")


def folded(
    title: str, small: str, *content: Markup, long: bool = False, shown: bool = False
) -> Markup:
    """Something that is there for those who ask; what is long is not printed."""
    summary = tag("summary", title, tag("small", small) if small else None)
    inner = tag("div", *content, class_="inner")
    return tag("details", summary, inner, class_="long" if long else None, open=shown)


def gallery(plots: Sequence[Plot], wide: int) -> Markup:
    """Charts, the first ones over the whole width, the others in pairs; a last one alone as well.

    Args:
        plots: the charts.
        wide: so many have the whole width.
    """
    alone = len(plots) - 1 if (len(plots) - wide) % 2 else -1
    charts = (figure(plot, wide=at < wide or at == alone) for at, plot in enumerate(plots))
    return tag("div", *charts, class_="charts")


def footer(of: str) -> Markup:
    """The end of a page."""
    return tag("footer", f"Made by RoQ from what was kept of {of}. One file; it loads nothing.")


def when(microseconds: int) -> str:
    """A wall clock time in UTC; nothing if there is none."""
    try:
        told = datetime.fromtimestamp(microseconds / 1e6, UTC)
    except (OverflowError, ValueError, OSError):
        return ""
    return f"{told:%-d %B %Y, %H:%M:%S} UTC" if microseconds > 0 else ""


def setting(value: str | int | float) -> str:
    """A setting of any type."""
    if isinstance(value, str):
        return clean(value)
    return f"{value:,}" if isinstance(value, int) else number(value, 4)


def _cell(content: Markup | str, style: str | None, place: int) -> Markup:
    if place:
        return tag("td", content, class_=style)
    return tag("th", content, class_=style, scope="row")
