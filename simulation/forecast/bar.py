"""How far it is, for people at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from roq.cli.output import console
from roq.simulation.forecast import run as runs


@contextmanager
def bar(noun: str) -> Iterator[runs.Progress]:
    """A bar on standard error; nothing where that is no terminal.

    Args:
        noun: of what there are so many.
    """
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=console(error=True), transient=True, disable=not sys.stderr.isatty(),
    ) as shown:  # fmt: skip
        task = shown.add_task(noun, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
