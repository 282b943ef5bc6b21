"""Several runs side by side as one HTML page: means, how sure they are, what really differs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from roq.simulation.lab.report.differences import METHOD, change, compared, spoken
from roq.simulation.lab.report.figures import about, ordered
from roq.simulation.lab.report.groups import Group, differing
from roq.simulation.lab.report.markup import Markup, document, joined, tag
from roq.simulation.lab.report.outcome import wanted
from roq.simulation.lab.report.overlay import overlay
from roq.simulation.lab.report.parts import asset, colours, folded, footer, gallery, table, when
from roq.simulation.lab.report.published import Published, Span, published
from roq.simulation.lab.report.statistics import Mean, mean
from roq.simulation.lab.report.svg import percent
from roq.simulation.lab.report.wording import NOTHING, count

_LINES: Final = (
    "Lines are means of the runs of a group, window by window; bands reach from the lowest run to "
    "the highest."
)
_SHARES: Final = (
    " The runs are not of the same length: they are laid upon each other by % of the run that has "
    "passed."
)
_SILENT: Final = " Where the statistics of a run were silent, it is left out of what they tell."


def page(folders: Sequence[Path], *, baseline: str | None = None) -> str:
    """The page.

    Runs that differ by nothing but chance (seed, time) are repetitions and make one group.

    Args:
        folders: of the runs, at least one.
        baseline: with which others are compared: the id of one of its runs, or the name of its
            folder; None: the first group.

    Raises:
        RunError: there are none, or too many groups; a `run.json` is missing or damaged; the
            baseline is none of them.
    """
    made = compared(folders, baseline)
    known = _published(made)
    plots, told = overlay(made)
    body = tag(
        "main",
        _heading(made),
        _groups(made),
        tag("h2", "Figures"),
        _figures(made, known),
        _expectations(made),
        joined(tag("h2", "How they went"), tag("p", _lines(made, told), class_="note"))
        if plots
        else None,
        gallery(plots, 1) if plots else None,
        footer("these runs"),
    )
    return document(
        f"{count(len(made), 'group')} compared",
        body,
        style=asset("style.css") + colours(range(1, len(made) + 1)),
        script=asset("hover.js"),
        data=told,
    )


def _lines(made: Sequence[Group], told: dict[str, object]) -> str:
    """How lines are to be read."""
    silent = any(found.quiet for group in made for found in group.columns)
    return _LINES + (_SHARES if told.get("clock") else "") + (_SILENT if silent else "")


def _published(made: Sequence[Group]) -> Published | None:
    names = {group.first.scenario.name for group in made}
    return published(names.pop()) if len(names) == 1 else None


def _heading(made: Sequence[Group]) -> Markup:
    titles = {group.first.scenario.title or group.first.scenario.name for group in made}
    title = titles.pop() if len(titles) == 1 else "Different scenarios"
    runs = count(sum(len(group.runs) for group in made), "run")
    eyebrow = f"Comparison of {runs} in {count(len(made), 'group')}"
    return tag("header", tag("p", eyebrow, class_="eyebrow"), tag("h1", title))


def _groups(made: Sequence[Group]) -> Markup:
    rows: list[list[Markup | str]] = []
    for at, group in enumerate(made):
        times = sorted(when(run.began_us) for run in group.runs[:1])
        ids = ", ".join(run.id for run in group.runs[:4])
        more = f" and {len(group.runs) - 4} more" if len(group.runs) > 4 else ""
        left = (
            f"; {count(len(group.left_out), 'run')} not complete, left out"
            if group.left_out
            else ""
        )
        role = " (baseline)" if not at and len(made) > 1 else ""
        rows.append([
            tag("span", f"{group.name}{role}", class_=f"group x{at}"),
            f"{len(group.runs)}", tag("div", f"{ids}{more}{left}", class_="ids"), "".join(times),
        ])  # fmt: skip
    apart = [[name, *(value or NOTHING for value in values)] for name, values in differing(made)]
    return joined(
        table(("group", "n#", "runs", "first began"), rows),
        joined(tag("h2", "What differs"), table(["", *_names(made)], apart))
        if apart and len(made) > 1
        else None,
    )


def _figures(made: Sequence[Group], known: Published | None) -> Markup:
    """What is the same in all runs comes after what is not."""
    names = {name for group in made for name in group.figures()}
    differ: list[list[Markup | str]] = []
    same: list[list[Markup | str]] = []
    for name in ordered(names | set(known.figures if known else ())):
        span = known.figures.get(name) if known else None
        means = [mean(values) if (values := group.values(name)) else None for group in made]
        row = [
            about(name).label,
            _strips(made, name, means, span),
            *(_mean(found, name, made, group) for found, group in zip(means, made, strict=True)),
            *([span.text(about(name).unit) if span else ""] if known else []),
        ]
        (differ if row[1] else same).append(row)
    heads: list[str] = ["", "each run, mean, interval", *_names(made)]
    heads += [tag("span", known.name, class_="group known")] if known else []
    alike = table([heads[0], *heads[2:]], [[row[0], *row[2:]] for row in same])
    return joined(
        table(heads, differ) if differ else None,
        tag("p", METHOD, class_="note"),
        tag("p", known.source, class_="note") if known else None,
        folded("The same in all of them", count(len(same), "figure"), alike) if same else None,
    )


def _names(made: Sequence[Group]) -> list[Markup]:
    """The groups as headings."""
    return [tag("span", group.name, class_=f"group x{at}") for at, group in enumerate(made)]


def _mean(found: Mean | None, name: str, made: Sequence[Group], group: Group) -> Markup | str:
    if found is None:
        return NOTHING
    verdict = _verdict(made[0], group, name) if group is not made[0] else None
    return joined(tag("span", spoken(found, about(name).unit), class_="mean-of"), verdict)


def _verdict(base: Group, group: Group, name: str) -> Markup | None:
    found = change(base, group, name)
    if found is None:
        return None
    style = {None: "other", True: "more", False: "less"}[found.better]
    return tag("small", tag("span", found.text, class_=style))


def _strips(
    made: Sequence[Group], name: str, means: Sequence[Mean | None], span: Span | None
) -> Markup | str:
    """A line for each group: its runs, their mean and its interval, on one scale."""
    edges = [edge for found in means if found for edge in _edges(found)]
    edges += [span.least, span.most] if span else []
    if len({f"{edge:.4g}" for edge in edges}) < 2:
        return ""
    low, high = min(edges), max(edges)
    margin = 0.06 * (high - low)

    def place(value: float) -> str:
        return percent((value - low + margin) / (high - low + 2 * margin))

    strips = []
    for at, (group, found) in enumerate(zip(made, means, strict=True)):
        if found is None:
            continue
        marks = [tag("i", class_="base")]
        marks += [
            tag("i", class_="one", style=f"left:{place(value)}") for value in group.values(name)
        ]
        if found.half:
            begin, end = place(found.value - found.half), place(found.value + found.half)
            marks.append(tag("i", class_="range", style=f"left:{begin};right:calc(100% - {end})"))
        marks.append(tag("i", class_="mean", style=f"left:{place(found.value)}"))
        strips.append(tag("div", *marks, class_=f"strip x{at}", aria_hidden="true"))
    if span:
        marks = [
            tag("i", class_="base"),
            *(
                tag("i", class_="known", style=f"left:{place(value)}")
                for value in sorted({span.least, span.most})
            ),
        ]
        strips.append(tag("div", *marks, class_="strip", aria_hidden="true"))
    return joined(*strips)


def _edges(found: Mean) -> tuple[float, ...]:
    half = found.half or 0.0
    return found.value - half, found.value + half, found.least, found.most


def _expectations(made: Sequence[Group]) -> Markup | None:
    expected = list(dict.fromkeys(each for group in made for each in group.first.scenario.expect))
    if not expected:
        return None
    rows: list[list[Markup | str]] = []
    for each in expected:
        row: list[Markup | str] = [f"{about(each.what).label}: {wanted(each)}"]
        for group in made:
            holds = [v.holds for run in group.runs for v in run.verdicts if v.expected == each]
            judged = [one for one in holds if one is not None]
            met = sum(judged)
            style = "more" if judged and met == len(judged) else "less"
            text = f"met by {met} of {len(judged)}" if judged else "not judged"
            row.append(tag("span", text, class_=style if judged else None))
        rows.append(row)
    return joined(tag("h2", "What was expected"), table(["", *_names(made)], rows))
