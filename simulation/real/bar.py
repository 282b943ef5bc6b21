"""How far it is, for people at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from roq.cli.output import console


class Shown(Protocol):
    """Is told how far it is."""

    def __call__(self, done: int, total: int, remark: str = "", /) -> None:
        """So much is done, of so much."""
        ...


@contextmanager
def bar(noun: str) -> Iterator[Shown]:
    """A bar on standard error; nothing where that is no terminal.

    Args:
        noun: of what there are so many.
    """
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(),
        console=console(error=True), transient=True, disable=not sys.stderr.isatty(),
    ) as shown:  # fmt: skip
        task = shown.add_task(noun, total=None)

        def tell(done: int, total: int, remark: str = "", /) -> None:
            shown.update(task, completed=done, total=total, description=f"{noun}{remark}")

        yield tell
