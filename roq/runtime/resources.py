"""What this process uses of its machine, and whether that comes to an end."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from roq.protocol.reports import Check
from roq.runtime import procfs

FILES_SHARE_MAX: Final = 0.9
"""Above this share of its descriptors a process is warned of."""
DISK_SHARE_MIN: Final = 0.01
DISK_BYTES_MIN: Final = 256 * 1024 * 1024
DISK_SMALL_SHARE_MIN: Final = 0.1
"""A disk is nearly full below 1 % or 256 MiB; a small one below a tenth."""
SHOWN_MAX: Final = 5
"""Processes that are named one by one."""


@dataclass(frozen=True, slots=True)
class Resources:
    """One measurement.

    Attributes:
        files: open descriptors.
        files_max: how many there may be; 0: no limit.
        disk_bytes: size of the disk of the data folder; 0: there is no such folder, or the system
            does not tell.
        disk_free_bytes: what may still be written there.
        others: open descriptors of other processes with the same limit, by their name.
    """

    files: int
    files_max: int
    disk_bytes: int = 0
    disk_free_bytes: int = 0
    others: Mapping[str, int] = field(default_factory=dict)

    @property
    def disk_low(self) -> bool:
        """Whether the disk is nearly full."""
        least = max(
            DISK_SHARE_MIN * self.disk_bytes,
            min(DISK_BYTES_MIN, DISK_SMALL_SHARE_MIN * self.disk_bytes),
        )
        return self.disk_free_bytes < least

    def checks(self, folder: Path | None = None) -> tuple[Check, ...]:
        """The warnings, and that all is well.

        Args:
            folder: where the process keeps its files.
        """
        found = [self._files()]
        if folder is not None and self.disk_bytes:
            text = f"{self.disk_free_bytes // 1_000_000:,} MB are free in {folder}"
            if self.disk_low:
                text += "; make room, or logs and new children fail"
            found.append(Check(name="disk", ok=not self.disk_low, detail=text, essential=False))
        return tuple(found)

    def _files(self) -> Check:
        most = FILES_SHARE_MAX * (self.files_max or float("inf"))
        limit = self.files_max or "any number of"
        open_here = f"{self.files} of {limit} descriptors are open"
        many = [
            f"{name} has {files} of {limit} descriptors open"
            for name, files in self.others.items()
            if files > most
        ]
        if self.files > most:
            many.insert(0, open_here)
        if not many:
            return Check(name="files", ok=True, detail=open_here, essential=False)
        advice = "raise LimitNOFILE (ulimit -n), or no new client can connect"
        return Check(
            name="files",
            ok=False,
            detail="; ".join([*many[:SHOWN_MAX], advice]),
            essential=False,
        )


def measure(folder: Path | None = None, others: Mapping[str, int] | None = None) -> Resources:
    """How it is now; what the system does not tell is 0.

    Args:
        folder: its disk is looked at.
        others: open descriptors of processes that this one has started.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    total, free = _disk(folder) if folder is not None else (0, 0)
    return Resources(
        files=procfs.open_files(os.getpid()) or 0,
        files_max=0 if soft == resource.RLIM_INFINITY else soft,
        disk_bytes=total,
        disk_free_bytes=free,
        others=others or {},
    )


def _disk(folder: Path) -> tuple[int, int]:
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return 0, 0
    return usage.total, usage.free
