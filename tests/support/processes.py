"""Which processes serve the children of host managers, as these have written down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from roq.hcm.records import ProcessRecord


def processes(folder: Path, name: str = "*") -> Iterator[psutil.Process]:
    """Of the child of this name, or of all, in whichever data folder under this one.

    One that has ended, or is only being started, is left out.
    """
    for path in folder.rglob(f"{name}.process"):
        with suppress(FileNotFoundError, psutil.NoSuchProcess, msgspec.DecodeError):
            record = msgspec.json.decode(path.read_bytes(), type=ProcessRecord)
            process = psutil.Process(record.pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                yield process
