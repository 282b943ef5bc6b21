"""Groups of runs against each other: which are compared, and by how much they clearly differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from roq.simulation.lab.archive.folder import RunError
from roq.simulation.lab.report import palette
from roq.simulation.lab.report.figures import about
from roq.simulation.lab.report.groups import Group, groups
from roq.simulation.lab.report.statistics import CONFIDENCE, Mean, difference
from roq.simulation.lab.report.wording import multiple, number, quantity

GROUPS_MAX: Final = len(palette.NAMED)
"""More groups than this cannot be told apart on one page."""
RUNS_MAX: Final = 500
METHOD: Final = (
    f"± is half of the {CONFIDENCE:.0%} confidence interval of the mean (Student t, n runs). A "
    "difference is marked only where the interval of the difference of both means (Welch) does not "
    "hold zero; one in twenty figures that are the same in truth is marked by chance. A group of "
    "one run has no interval, and no difference from it is marked."
)


class Change(NamedTuple):
    """By how much a group clearly differs from the baseline.

    Attributes:
        text: in words, with an arrow.
        better: whether that is better; None if that cannot be said.
    """

    text: str
    better: bool | None


def compared(folders: Sequence[Path], baseline: str | None = None) -> list[Group]:
    """The groups of runs, the baseline first.

    Args:
        folders: of the runs, at least one.
        baseline: the id of one of its runs, or the name of its folder or group; None: the first
            group that has a complete run.

    Raises:
        RunError: there are none, or too many groups; a `run.json` is missing or damaged; the
            baseline is none of them.
    """
    if not folders:
        raise RunError("there is nothing to compare: name two runs or more")
    if len(folders) > RUNS_MAX:
        raise RunError(f"{len(folders):,} runs are too many to compare: at most {RUNS_MAX}")
    made = groups(folders)
    if len(made) > GROUPS_MAX:
        raise RunError(
            f"these runs are {len(made)} different things, and at most {GROUPS_MAX} can be compared"
        )
    base = _baseline(made, baseline)
    return [base, *(group for group in made if group is not base)]


def change(base: Group, group: Group, name: str) -> Change | None:
    """By how much a figure of a group differs from that of the baseline, if it clearly does."""
    one, other = group.values(name), base.values(name)
    if not one or not other:
        return None
    found = difference(one, other)
    if not found.clear:
        return None
    figure = about(name)
    usual = sum(other) / len(other)
    amount = (
        f"{number(100 * abs(found.value / usual), 2)} %"
        if usual
        else quantity(abs(found.value), figure.unit)
    )
    arrow, direction = ("▲", "more") if found.value > 0 else ("▼", "less")
    judged = figure.better * found.value
    word = f", {'better' if judged > 0 else 'worse'}" if judged else ""
    return Change(f"{arrow} {amount} {direction}{word}", judged > 0 if judged else None)


def spoken(found: Mean, unit: str) -> str:
    """A mean and how sure it is, in the same multiple: `12.5 ± 0.8 ms`."""
    if not found.half:
        return quantity(found.value, unit)
    scale, prefix = multiple(found.value) if unit in {"B", "B/s"} else (1.0, "")
    factor = 100 if unit == "share" else 1 / scale
    written = {"share": " %", "": "", "/s": "/s"}.get(unit, f" {prefix}{unit}")
    return f"{number(found.value * factor)} ± {number(found.half * factor, 2)}{written}"


def _baseline(made: Sequence[Group], baseline: str | None) -> Group:
    if baseline is None:
        return next((group for group in made if group.runs), made[0])
    name = Path(baseline).name
    for group in made:
        if any(name in {run.id, group.name} for run in [*group.runs, *group.left_out]):
            return group
    raise RunError(f"the baseline {baseline!r} is none of the runs that are compared")
