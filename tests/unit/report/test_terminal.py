"""What came of a run, as text."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import msgspec
from rich.console import Console
from runs import partly_heard, run_of, series_of

from roq.simulation.lab.archive.document import Run, RunState, Series
from roq.simulation.lab.archive.folder import make, write_run
from roq.simulation.lab.report.differences import compared
from roq.simulation.lab.report.terminal import compare, show, spark


def shown(run: Run, series: Series | None, *, everything: bool = False) -> str:
    console = Console(file=StringIO(), width=110, color_system=None)
    show(run, series, console, everything=everything)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_outcome_expectations_course_and_figures_are_shown() -> None:
    text = shown(run_of("a"), series_of(10))
    for part in (
        "✗ 1 of 3 expectations not met", "✓ met", "? not judged", "at most 10 ms", "12.5 ms",
        "200 to 400/s", "▄▄▄▄▄█████", "Publishers moved",
    ):  # fmt: skip
        assert part in text


def test_a_run_without_course_or_figures_is_shown() -> None:
    run = msgspec.structs.replace(
        run_of("a"), state=RunState.FAILED, error="no host", verdicts=[], figures={}
    )
    assert "no host" in shown(run, None)
    assert "no host" in shown(run, series_of(0))


def test_neither_markup_nor_control_characters_work() -> None:
    run = run_of("a", **{"[red]x\x1b]0;y\x07": 1.0})
    scenario = msgspec.structs.replace(run.scenario, title="[bold]t[/] \x1b[31m")
    run = msgspec.structs.replace(run, scenario=scenario, remarks=["[link]r\x9b1m"], error="\x1b")
    text = shown(run, None, everything=True)
    assert "[bold]t[/]" in text
    assert "[link]r" in text
    assert not {"\x1b", "\x07", "\x9b"} & set(text)


def test_a_line_of_blocks_shows_the_highest_of_what_is_merged() -> None:
    assert spark([0.0, 1.0, None, 2.0]) == " ▄·█"
    assert spark([1.0, 8.0, 1.0, 4.0], 2) == "█▄"
    assert spark([]) == ""
    assert spark([0.0, 0.0]) == "  "
    assert len(spark([1.0] * 1_000, 48)) <= 48


def test_groups_stand_side_by_side_with_what_clearly_differs(tmp_path: Path) -> None:
    folders = []
    for number, (tasks, moves) in enumerate([(2, 4.0), (2, 5.0), (4, 40.0), (4, 41.0)]):
        folders.append(make(tmp_path, f"r{number}"))
        run = run_of(f"r{number}", moves=moves)
        settings = {**run.settings, "tasks": tasks}
        write_run(folders[-1], msgspec.structs.replace(run, seed=number, settings=settings))
    console = Console(file=StringIO(), width=110, color_system=None)
    compare(compared(folders), console)
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    for part in ("(n 2, baseline)", "4.5 ± 6.4", "40.5 ± 6.4", "▲ 800 % more", "Student t"):
        assert part in text
    assert "Exchanges, most at a time" in text


def test_names_of_groups_are_no_markup(tmp_path: Path) -> None:
    folders = [make(tmp_path, name) for name in ("a", "b")]
    for folder, mode in zip(folders, ("[/red]", "[bold]x"), strict=True):
        write_run(folder, msgspec.structs.replace(run_of(folder.name), settings={"mode": mode}))
    console = Console(file=StringIO(), width=110, color_system=None)
    compare(compared(folders), console)
    assert isinstance(console.file, StringIO)
    assert "[/red]" in console.file.getvalue()


def test_what_nobody_heard_is_a_dot_and_said() -> None:
    text = shown(run_of("a"), partly_heard(series_of(10), 2, 3))
    assert "▄▄··▄█████" in text
    assert "200 to 400/s" in text
    assert "silent for 2 s of 20 s (2 s to 4 s)" in text
