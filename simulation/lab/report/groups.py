"""Runs sorted into groups: those that differ by chance alone are repetitions of each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count as numbers_from
from pathlib import Path
from typing import Final

import msgspec

from roq.simulation.lab.archive.document import Run, RunState
from roq.simulation.lab.archive.folder import RunError, read_run, read_series
from roq.simulation.lab.report.bounds import MOST, bounded
from roq.simulation.lab.report.columns import Columns, at_the_end, columns_of
from roq.simulation.lab.report.wording import clean, number

_NAME_PARTS: Final = 3
_PLAIN: Final = frozenset({"kind", "scenario", "time"})
"""What says by itself what it is."""
_PART_MAX: Final = 40


@dataclass(slots=True)
class Group:
    """Runs of the same thing.

    Attributes:
        name: what tells it from the other groups.
        runs: complete ones.
        columns: how they went, of those of which that is known.
        left_out: runs that did not end as they should; their figures are not used.
    """

    name: str = ""
    runs: list[Run] = field(default_factory=list)
    columns: list[Columns] = field(default_factory=list)
    left_out: list[Run] = field(default_factory=list)
    _figures: list[dict[str, float]] = field(default_factory=list)

    @property
    def first(self) -> Run:
        """One of its runs: what it depends on is the same in all."""
        return (self.runs or self.left_out)[0]

    def values(self, figure: str) -> list[float]:
        """A figure, of each run that has it."""
        values = (found[figure] for found in self._figures if figure in found)
        return [min(MOST, max(-MOST, value)) for value in values]

    def figures(self) -> set[str]:
        """The names of all figures."""
        return {name for found in self._figures for name in found}

    def add(self, run: Run, found: Columns | None) -> None:
        """Take a run in."""
        if run.state is not RunState.COMPLETE:
            self.left_out.append(run)
            return
        self.runs.append(run)
        self._figures.append({**(at_the_end(run, found) if found else {}), **run.figures})
        if found is not None:
            self.columns.append(found)


def groups(folders: Sequence[Path]) -> list[Group]:
    """Groups in the order of their first runs; a folder that is named twice counts once.

    Raises:
        RunError: a `run.json` is missing or damaged.
    """
    found: dict[bytes, Group] = {}
    seen: set[Path] = set()
    for folder in folders:
        if folder.resolve() in seen:
            continue
        seen.add(folder.resolve())
        run = read_run(folder)
        found.setdefault(_key(run), Group()).add(run, _columns(folder, run))
    made = list(found.values())
    _name(made)
    return made


def differing(made: Sequence[Group]) -> list[tuple[str, list[str]]]:
    """What the groups depend on and is not the same for all: a name, and a value for each."""
    parts = [_parts(group.first) for group in made]
    names = list(dict.fromkeys(name for each in parts for name in each))
    rows = [(name, [each.get(name, "") for each in parts]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def _columns(folder: Path, run: Run) -> Columns | None:
    try:
        return columns_of(bounded(read_series(folder)), run.seconds)
    except RunError:
        return None


def _key(run: Run) -> bytes:
    """All that a run depends on, but for chance."""
    return msgspec.json.encode(
        [run.kind, run.scenario, run.time_scale, run.settings, run.versions, run.machine.cpu,
         run.machine.cores],
        order="sorted",
    )  # fmt: skip


def _parts(run: Run) -> dict[str, str]:
    scenario = run.scenario
    return {
        "kind": run.kind.value,
        "scenario": scenario.name,
        "hosts": f"{scenario.hosts:,}",
        "exchanges at first": f"{scenario.queue.exchanges:,}",
        "time": f"× {number(run.time_scale)}",
        **_shown(scenario.queue.rules, "rule {}"),
        **_shown(scenario.queue.limits, "limit {}"),
        **_shown(run.settings, "{}"),
        **_shown(run.versions, "version of {}"),
        "machine": f"{run.machine.cpu}, {run.machine.cores} cores",
    }


def _shown(found: Mapping[str, str | int | float], name: str) -> dict[str, str]:
    def text(value: str | int | float) -> str:
        return clean(value, 120) if isinstance(value, str) else number(value, 6)

    return {name.format(clean(key, 60).replace("_", " ")): text(found[key]) for key in found}


def _name(made: Sequence[Group]) -> None:
    """Name groups by the fewest things that tell them apart; where nothing does, by a run."""
    telling = _telling(made)
    taken: set[str] = set()
    for at, group in enumerate(made):
        told = [
            values[at] if name in _PLAIN else f"{name} {values[at] or 'not set'}"
            for name, values in telling
        ]
        wanted = ", ".join(clean(part, _PART_MAX) for part in told) or group.first.id
        if wanted in taken:
            others = (f"{wanted} ({number})" for number in numbers_from(2))
            wanted = next(other for other in others if other not in taken)
        taken.add(wanted)
        group.name = wanted


def _telling(made: Sequence[Group]) -> list[tuple[str, list[str]]]:
    """What is not the same for all, as far as it tells further groups apart."""
    chosen: list[tuple[str, list[str]]] = []
    apart = 1
    for row in differing(made):
        kinds = len(set(zip(*(values for _, values in [*chosen, row]), strict=True)))
        if kinds > apart and len(chosen) < _NAME_PARTS:
            chosen.append(row)
            apart = kinds
    return chosen
