"""A quota of processor time for some processes, by a control group of the kernel."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from roq.simulation.real.workers import ScenarioError

PERIOD_US: Final = 100_000
_V1: Final = Path("/sys/fs/cgroup/cpu")
_V2: Final = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))


class Quota:
    """Processes in a group of their own, whose processor time can be limited.

    Those that they start are in the group as well. `close` puts all of them back.

    Raises:
        ScenarioError: no control group can be made here; says why.
    """

    def __init__(self) -> None:
        problem = missing()
        if problem:
            raise ScenarioError(problem)
        self._parent = _parent()
        self._group = self._parent / f"roq-starved-{os.getpid()}"
        self._old = self._parent == _V1
        try:
            self._group.mkdir()
        except OSError as error:
            raise ScenarioError(f"no control group can be made: {error}") from None

    def take(self, pids: Iterable[int]) -> None:
        """These processes belong to the group from now on; one that has ended does not matter."""
        for pid in pids:
            _put(self._group, pid)

    def limit(self, cores: float) -> None:
        """All of them together get so much of one core."""
        quota = max(1_000, round(cores * PERIOD_US))
        self._write(quota)

    def lift(self) -> None:
        """They get what they want."""
        self._write(None)

    def close(self) -> None:
        """Put the processes back and remove the group."""
        self.lift()
        with contextlib.suppress(OSError):
            for pid in self._group.joinpath("cgroup.procs").read_text().split():
                _put(self._parent, int(pid))
            self._group.rmdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, quota_us: int | None) -> None:
        if self._old:
            self._group.joinpath("cpu.cfs_quota_us").write_text(str(quota_us or -1))
        else:
            self._group.joinpath("cpu.max").write_text(f"{quota_us or 'max'} {PERIOD_US}")


def missing() -> str:
    """Why no quota can be set here; empty if one can."""
    if os.geteuid() != 0:
        return "a quota of processor time needs root"
    try:
        _parent()
    except ScenarioError as error:
        return str(error)
    return ""


def _parent() -> Path:
    """The group below which one can be made that limits the processor."""
    if (_V1 / "cpu.cfs_quota_us").exists() or (_V1 / "cpu.shares").exists():
        found = _V1
    else:
        lists = [each / "cgroup.subtree_control" for each in _V2]
        found = next((each.parent for each in lists if _controls(each)), Path())
    if not found.is_absolute() or not os.access(found, os.W_OK):
        raise ScenarioError("there is no control group for processor time that can be written to")
    return found


def _controls(listed: Path) -> bool:
    try:
        return "cpu" in listed.read_text().split()
    except OSError:
        return False


def _put(group: Path, pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        group.joinpath("cgroup.procs").write_text(str(pid))
