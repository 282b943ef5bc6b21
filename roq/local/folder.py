"""Where a local cluster keeps its configuration, logs and data; one cluster at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Final

import psutil

from roq.errors import ConfigError

_PREFIX: Final = "roq-cluster-"
_YOUNG_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 5.0
PROVIDED_HOSTS: Final = "hosts"
"""The folder of the hosts that a provider has made for the cluster."""


class Folder:
    """A data directory, locked for as long as the cluster uses it.

    Args:
        path: made if missing and kept; None: a temporary folder, removed by `close`.

    Raises:
        ConfigError: it cannot be made or written to, or another cluster uses it.
    """

    def __init__(self, path: Path | None) -> None:
        self.temporary = path is None
        self._asked: list[psutil.Process] = []
        self._kept = False
        try:
            if path is None:
                sweep(Path(tempfile.gettempdir()))
                self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            else:
                path.mkdir(parents=True, exist_ok=True)
                self.path = path.resolve()
            (self.path / "log").mkdir(exist_ok=True)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(
                f"--data-dir {path or tempfile.gettempdir()}: {error.strerror}; "
                "name a folder that can be written to"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise ConfigError(
                f"--data-dir {self.path} is used by another cluster that runs now: "
                "stop it or name another folder"
            ) from None

    def make(self, name: str) -> Path:
        """A folder in it."""
        path = self.path / name
        path.mkdir(exist_ok=True)
        return path

    def write(self, name: str, text: str) -> Path:
        """A text file in it."""
        path = self.path / name
        path.write_text(text)
        return path

    def log(self, name: str) -> Path:
        """The log file of a part."""
        return self.path / "log" / f"{name.replace(' ', '-')}.log"

    def keep(self) -> None:
        """Leave everything as it is at the end, for a user who wants to read the logs."""
        self._kept = True

    def close(self) -> None:
        """End what still works in it, unlock it, and remove it if it is temporary; idempotent.

        A host manager that was killed leaves its monitors and exchanges behind; they name a file of
        this folder on their command line.
        """
        if self._lock < 0:
            return
        psutil.wait_procs(self._asked, timeout=_STOP_SECONDS)
        leftovers = [process for process in psutil.process_iter() if self._uses(process)]
        for process in leftovers:
            _send(process, signal.SIGKILL)
        psutil.wait_procs(leftovers, timeout=_STOP_SECONDS)
        os.close(self._lock)
        self._lock = -1
        if self._kept:
            (self.path / "lock").unlink(missing_ok=True)  # nothing to sweep
        elif self.temporary:
            shutil.rmtree(self.path, ignore_errors=True)

    def stop_provided_hosts(self) -> None:
        """Ask the host managers that a provider has made to stop; `close` waits for them."""
        self._ask(signal.SIGINT, "roq.hcm", PROVIDED_HOSTS)

    def stop_children(self, host: str) -> None:
        """Ask monitors and exchanges whose host manager is gone to stop; `close` waits for them.

        Args:
            host: the folder of that host manager.
        """
        self._ask(signal.SIGTERM, "-m", host)

    def _ask(self, number: signal.Signals, word: str, *parts: str) -> None:
        for process in psutil.process_iter():
            if self._uses(process, word, *parts):
                _send(process, number)
                self._asked.append(process)

    def _uses(self, process: psutil.Process, word: str = "-m", *parts: str) -> bool:
        """Whether it runs with this word, and names a file below this part of the folder."""
        try:
            words = process.cmdline()
        except psutil.Error:
            return False
        prefix = f"{self.path.joinpath(*parts)}{os.sep}"
        return (
            process.pid != os.getpid()
            and word in words
            and any(word.startswith(prefix) for word in words)
        )


def sweep(place: Path) -> None:
    """Remove the temporary folders of clusters that had no chance to do so themselves."""
    for path in place.glob(f"{_PREFIX}*"):
        try:
            # A folder without a lock file, or a young one, may be about to be locked.
            if time.time() - path.stat().st_mtime < _YOUNG_SECONDS:
                continue
            lock = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue  # another cluster's, or gone
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)


def _send(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
