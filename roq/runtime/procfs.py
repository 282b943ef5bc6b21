"""What the kernel tells of other processes. Where it does not, or they are gone, there is None."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_STATE, _USER, _SYSTEM, _START = 0, 11, 12, 19
"""Places in /proc/PID/stat behind the name of the program."""
_TICK_NS: Final = 10_000_000
ENDED: Final = frozenset("ZXx")
"""States of a process that has ended and is not taken away yet."""


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One process at one moment.

    Attributes:
        state: of its main thread, a letter as in /proc/PID/stat: R runs or could, S and D sleep, T
            and t are stopped, Z has ended.
        start: when it was started, in ticks since the start of the machine; with the pid it names
            one process among all that this machine has had since.
        ran_ns: how long its main thread has run so far.
    """

    state: str
    start: int
    ran_ns: int


def sample(pid: int) -> ProcessSample | None:
    """The process of this pid."""
    try:
        text = (_PROC / f"{pid}/stat").read_text("ascii", errors="replace")
        # The name of the program is in brackets, and may have brackets in it.
        fields = text.rpartition(")")[2].split()
        return ProcessSample(fields[_STATE], int(fields[_START]), _ran_ns(pid, fields))
    except (OSError, IndexError, ValueError):
        return None


def arguments(pid: int) -> list[str] | None:
    """The command line of this pid."""
    try:
        data = (_PROC / f"{pid}/cmdline").read_bytes()
    except OSError:
        return None
    return [part.decode(errors="surrogateescape") for part in data.split(b"\0")[:-1]]


def open_files(pid: int) -> int | None:
    """How many descriptors this pid has open."""
    folder = _PROC / f"{pid}/fd"
    try:
        # Since Linux 6.2 the size tells; counting thousands takes milliseconds.
        return folder.stat().st_size or sum(1 for _ in os.scandir(folder))
    except OSError:
        return None


def boot_id() -> str:
    """Another one after each start of the machine; empty where the system has none."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _ran_ns(pid: int, fields: list[str]) -> int:
    try:
        return int((_PROC / f"{pid}/schedstat").read_text("ascii").split()[0])
    except (OSError, IndexError, ValueError):
        # This kernel does not count so finely: ticks, of all threads.
        return (int(fields[_USER]) + int(fields[_SYSTEM])) * _TICK_NS
