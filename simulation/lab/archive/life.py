"""Whether the process that runs something still lives: as far as this machine can tell."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from roq.runtime import procfs
from roq.simulation.lab.archive.document import Process

_PIDS: Final = Path("/proc/self/ns/pid")


def this_process() -> Process:
    """Who we are."""
    found = procfs.sample(os.getpid())
    return Process(place=_place(), pid=os.getpid(), start=found.start if found is not None else 0)


def gone(process: Process) -> bool:
    """Whether it has ended for sure; of another machine or container that is not known here."""
    if not process.place or process.place != _place():
        return False
    found = procfs.sample(process.pid)
    return found is None or found.state in procfs.ENDED or found.start != process.start


def _place() -> str:
    """Where a pid means what it means here: this start of this machine, this container."""
    boot = procfs.boot_id()
    try:
        return f"{boot} {_PIDS.readlink()}" if boot else ""
    except OSError:
        return ""
