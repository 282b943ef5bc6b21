"""Which sessions of a registry file live: each holds one lock, whose place is its heartbeat.

The locks stand on a file beside the registry. Session *n* holds one byte of a range of its
own, and moves that lock on by one byte at each beat. So one look tells two things: a range without
a lock is that of a process that has ended, however it ended, since the system has taken the lock
away with it; and a lock that stays where it is is that of a process that runs no more, as one that
was stopped. Nothing is written to the disk for that.

They are locks of an open file (F_OFD_SETLK), not of a process: SQLite's own locks do not mix with
them, several registries in one process do not lose each other's, and programs that a manager starts
do not inherit them.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from roq.errors import RegistryAway

SESSION_MAX: Final = (1 << 30) - 1
GUARD_SECONDS: Final = 5.0
_BEATS_BITS: Final = 32
_GUARD: Final = 0
"""The place of the lock under which the registry's file is opened or made."""
_RECORD_BYTES_MAX: Final = 256
_PAUSE_SECONDS: Final = 0.005
_FLOCK: Final = struct.Struct("hhqqi4x")
"""`struct flock` of a 64-bit system."""


class SessionLocks:
    """The lock file of one registry, opened once.

    Args:
        path: of the lock file; made if missing.

    Raises:
        OSError: it cannot be opened for writing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._place = 0

    def hold(self, session: int) -> None:
        """Take the lock of a session of ours; at most one at a time."""
        self.release()
        place = session << _BEATS_BITS
        self._set(fcntl.F_WRLCK, place)
        self._place = place

    def beat(self) -> None:
        """Show that this process runs."""
        if self._place:
            place = self._place
            self._set(fcntl.F_WRLCK, place + 1)  # first, so that there is one at any time
            self._place = place + 1
            self._set(fcntl.F_UNLCK, place)

    def release(self) -> None:
        """Give the lock of our session back, if we have one."""
        place, self._place = self._place, 0
        if place:
            self._set(fcntl.F_UNLCK, place)

    def place(self, session: int) -> int | None:
        """Where the lock of a session of another process is now; None: that process has ended."""
        wanted = _FLOCK.pack(
            fcntl.F_WRLCK, os.SEEK_SET, session << _BEATS_BITS, 1 << _BEATS_BITS, 0
        )
        kind, _, start, _, _ = _FLOCK.unpack(fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, wanted))
        return None if kind == fcntl.F_UNLCK else int(start)

    @property
    def stands(self) -> bool:
        """Whether others that open it now find the same file."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._file))
        except OSError:
            return False

    def close(self) -> None:
        """Give back everything."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    # --- opening the registry ---------------------------------------------------------------------

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Be the only one that opens or makes the registry.

        Raises:
            RegistryAway: another process has been at it for `GUARD_SECONDS`.
        """
        deadline = time.monotonic() + GUARD_SECONDS
        pause = threading.Event()
        while True:
            try:
                self._set(fcntl.F_WRLCK, _GUARD)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise RegistryAway(
                        f"another process has been opening the registry for {GUARD_SECONDS:g} s: "
                        f"`lsof {self._path}` names it; end it if it is stopped"
                    ) from None
                pause.wait(_PAUSE_SECONDS)
        try:
            yield
        finally:
            self._set(fcntl.F_UNLCK, _GUARD)

    @property
    def record(self) -> str:
        """What was written down when the registry was opened the last time."""
        return os.pread(self._file, _RECORD_BYTES_MAX, 0).decode("ascii", "replace")

    @record.setter
    def record(self, text: str) -> None:
        os.pwrite(self._file, text.encode(), 0)
        os.ftruncate(self._file, len(text))

    def _set(self, kind: int, place: int) -> None:
        lock = _FLOCK.pack(kind, os.SEEK_SET, place, 1, 0)
        fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, lock)
