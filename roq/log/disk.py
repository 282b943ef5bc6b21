"""The files of a log in a folder of a real disk. A shell: it asks the system, decides nothing."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Final

from roq.log.files import META, LogRefused

LOCK: Final = "lock"
BUFFERS_MAX: Final = 1_000
"""Of one call; the system takes 1,024."""


class DiskFiles:
    """A folder (`roq.log.files.Files`), made if it is not there. `close()` gives it back.

    One thread at a time writes; others may read, `sync_beside`, `remove` and `sync_folder`, and
    `sync` a file that was written since the last `create` meanwhile.

    Args:
        folder: where it is.
        read_only: look at it beside the process that has it; nothing is made, locked or written.

    Raises:
        LogRefused: it cannot be made or read, or another process has it.
    """

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self.folder = folder
        self._writing: dict[str, int] = {}
        self._folder_lock = Lock()
        self._folder_lost: OSError | None = None
        """Why names may be missing on the disk that were given."""
        self._lock = -1
        if read_only:
            try:
                self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                raise LogRefused(f"{folder} cannot be read: {error.strerror}") from error
            return
        try:
            _make_folder(folder)
            self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise LogRefused(
                f"the folder {folder} cannot be used: {error.strerror}. The host manager's "
                "user must be able to write there"
            ) from error
        try:
            self._lock = os.open(
                LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644, dir_fd=self._folder
            )
        except OSError as error:
            os.close(self._folder)
            raise LogRefused(f"{folder / LOCK} cannot be made: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            os.close(self._folder)
            raise LogRefused(
                f"another process has the log in {folder}: end it, or wait until it has ended"
            ) from None

    def close(self) -> None:
        """Give the folder back."""
        for descriptor in self._writing.values():
            os.close(descriptor)
        self._writing.clear()
        if self._lock >= 0:
            os.close(self._lock)
        os.close(self._folder)

    def room(self) -> tuple[int, int, int, int]:
        """What is left on the disk: bytes free and in all, files that can be made and in all.

        Raises:
            OSError: the system does not tell.
        """
        told = os.statvfs(self._folder)
        return (
            told.f_bavail * told.f_frsize, told.f_blocks * told.f_frsize, told.f_favail,
            told.f_files,
        )  # fmt: skip

    def names(self) -> list[str]:
        """As `Files.names`."""
        return [path.name for path in self.folder.iterdir() if path.name != LOCK]

    def size(self, name: str) -> int:
        """As `Files.size`."""
        return os.stat(name, dir_fd=self._folder).st_size

    def read(self, name: str, at: int, size: int) -> bytes:
        """As `Files.read`."""
        # A descriptor of its own: any thread may read, while another one removes the file. What
        # is a pipe under the name of a file is told at once, and not waited for.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(name, flags, dir_fd=self._folder)
        parts = []
        try:
            while size > 0:
                part = os.pread(descriptor, size, at)
                if not part:
                    break
                parts.append(part)
                at += len(part)
                size -= len(part)
        except OSError as error:
            error.filename = name  # it is what a person looks at first
            raise
        finally:
            os.close(descriptor)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def create(self, name: str) -> None:
        """As `Files.create`."""
        self._forget(name)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        # Of the files that are written only the newest is written again.
        for descriptor in self._writing.values():
            os.close(descriptor)
        self._writing.clear()
        self._writing[name] = os.open(name, flags, 0o644, dir_fd=self._folder)

    def write(self, name: str, at: int, buffers: Sequence[bytes | memoryview]) -> None:
        """As `Files.write`: one call for up to a thousand buffers, unless the system takes less."""
        descriptor = self._writer(name)
        for first in range(0, len(buffers), BUFFERS_MAX):
            at = _write_all(descriptor, at, list(buffers[first : first + BUFFERS_MAX]))

    def sync(self, name: str) -> None:
        """As `Files.sync`."""
        os.fdatasync(self._writer(name))

    def sync_beside(self, name: str) -> None:
        """As `Files.sync_beside`; what failed to be written before it was opened counts, too."""
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        """As `Files.rename`."""
        self._forget(new)
        os.replace(old, new, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        if old in self._writing:
            self._writing[new] = self._writing.pop(old)

    def remove(self, name: str) -> None:
        """As `Files.remove`; what is not there is removed already."""
        try:
            os.unlink(name, dir_fd=self._folder)
        except FileNotFoundError:
            return

    def sync_folder(self) -> None:
        """As `Files.sync_folder`; once it has failed it does so for all who ask later."""
        with self._folder_lock:
            if self._folder_lost is not None:
                raise self._folder_lost
            try:
                os.fsync(self._folder)
            except OSError as error:
                self._folder_lost = error  # the system may tell each error once
                raise

    def _writer(self, name: str) -> int:
        descriptor = self._writing.get(name)
        if descriptor is None:
            descriptor = os.open(name, os.O_RDWR | os.O_CLOEXEC, dir_fd=self._folder)
            self._writing[name] = descriptor
        return descriptor

    def _forget(self, name: str) -> None:
        descriptor = self._writing.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents, each synced into the one above.

    Also if it is there, but for one that says whose log it is: that is written afterwards. Who has
    made it may have ended before its name was on the disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / META).exists():
        return
    folder = folder.resolve()
    while not os.path.ismount(folder):
        folder = folder.parent
        try:
            above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except PermissionError:
            return  # it belongs to others, and so does what is above
        try:
            os.fsync(above)
        finally:
            os.close(above)


def _write_all(descriptor: int, at: int, buffers: list[bytes | memoryview]) -> int:
    """Write these, however little the system takes at once; gives where they end."""
    while buffers:
        written = os.pwritev(descriptor, buffers, at)
        if not written and any(len(memoryview(each)) for each in buffers):
            raise OSError(errno.EIO, "nothing was written")
        at += written
        if written == sum(map(len, buffers)):  # as nearly always; they are bytes, and so is this
            return at
        first = 0
        while first < len(buffers) and written >= _bytes_of(buffers[first]):
            written -= _bytes_of(buffers[first])
            first += 1
        del buffers[:first]
        if buffers and written:
            buffers[0] = memoryview(buffers[0]).cast("B")[written:]
    return at


def _bytes_of(buffer: bytes | memoryview) -> int:
    return memoryview(buffer).nbytes
