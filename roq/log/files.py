"""What a log on disk asks of a folder. The adapter for real disks is `roq.log.disk`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from roq.errors import RoQError


class LogRefused(RoQError):
    """A folder cannot be used as the log of this exchange; says why and what to do."""


class Files(Protocol):
    """The files of one folder, which one process has to itself.

    What was written counts as kept only when `sync` of its file has returned, and a new, renamed or
    removed file only when `sync_folder` has. Every method may raise OSError; after a `sync` that
    failed nobody knows what of the file is on the disk.
    """

    def names(self) -> list[str]:
        """All files that are there."""
        ...

    def size(self, name: str) -> int:
        """Bytes of a file."""
        ...

    def read(self, name: str, at: int, size: int) -> bytes:
        """Up to `size` bytes from here on; fewer at the end of the file."""
        ...

    def create(self, name: str) -> None:
        """Make an empty file, in the place of one that has this name."""
        ...

    def write(self, name: str, at: int, buffers: Sequence[bytes | memoryview]) -> None:
        """Write all of these, one behind the other, from here on."""
        ...

    def sync(self, name: str) -> None:
        """Wait until everything that was written to the file before is on the disk."""
        ...

    def sync_beside(self, name: str) -> None:
        """As `sync`, whatever files are made, renamed or removed meanwhile."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in the place of one that has it."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, whatever other files are made, renamed, written or synced meanwhile."""
        ...

    def sync_folder(self) -> None:
        """Wait until the names of all files are on the disk."""
        ...
