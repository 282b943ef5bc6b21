"""What all processes write to their logs, and what must not stand there, whatever is broken.

No process may end by an error of its own. No manager leads under an epoch that another one has led
under, and no two processes of a child have the same one: by these, all others tell which of
two counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

READ_BYTES: Final = 1 << 20
TRACE: Final = b"Traceback (most recent call last)"
LEADS: Final = re.compile(rb" leading, epoch (\d+)$")
FELL: Final = re.compile(rb"ended by signal (?!9\b|15\b)(\d+)")
RUNS: Final = re.compile(rb" (\S+) (?:runs|goes on), epoch (\d+), pid (\d+)$")


class LogWatch:
    """Reads all logs below a folder as they grow.

    Args:
        folder: of a run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._leaders: dict[int, str] = {}
        self._children: dict[tuple[str, int], tuple[str, int]] = {}

    def look(self) -> list[str]:
        """What is wrong in what was written since the last look, in sentences."""
        found: list[str] = []
        for path in sorted(self._folder.rglob("*.log")):
            for line in self._lines(path):
                problem = self._problem(path, line)
                if problem:
                    found.append(problem)
        return found

    def _lines(self, path: Path) -> Iterator[bytes]:
        """Whole lines that are new; half of one waits for its other half."""
        at = self._read.get(path, 0)
        with path.open("rb") as file:
            if file.seek(0, 2) < at:
                at = 0  # it was begun anew
            file.seek(at)
            while data := file.read(READ_BYTES):
                whole = data.rfind(b"\n") + 1
                if not whole:
                    break
                at += whole
                self._read[path] = at
                file.seek(at)
                yield from data[:whole].splitlines()

    def _problem(self, path: Path, line: bytes) -> str:
        name = path.relative_to(self._folder).as_posix().removesuffix(".log")
        if line.startswith(TRACE):
            return f"{name} has raised an error: its log tells"
        if fell := FELL.search(line):
            return f"{name}: a child has ended by signal {int(fell[1])}"
        if leads := LEADS.search(line):
            return self._leads(name, int(leads[1]))
        if runs := RUNS.search(line):
            return self._runs(name, runs[1].decode(), int(runs[2]), int(runs[3]))
        return ""

    def _leads(self, name: str, epoch: int) -> str:
        other = self._leaders.setdefault(epoch, name)
        return "" if other == name else f"{name} leads under epoch {epoch}, as {other} did"

    def _runs(self, name: str, child: str, epoch: int, pid: int) -> str:
        other = self._children.setdefault((child, epoch), (name, pid))
        if other == (name, pid):
            return ""
        return f"{child} runs as {pid} under epoch {epoch} ({name}), and as {other[1]} ({other[0]})"
