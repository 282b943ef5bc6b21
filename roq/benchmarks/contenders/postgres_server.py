"""A PostgreSQL server of its own in a temporary folder, over a socket there; it syncs what it
commits, as it does without any settings."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import psutil

from roq.benchmarks.processes import BenchmarkError

USER: Final = "nobody"
"""initdb refuses root."""
START_SECONDS: Final = 120.0


def missing() -> str | None:
    """Why there is none here; None: there is."""
    if _programs() is None:
        return "no PostgreSQL server here: apt-get install postgresql"
    if os.getuid() == 0 and shutil.which("setpriv") is None:
        return "PostgreSQL refuses root, and there is no setpriv: apt-get install util-linux"
    return None


class PostgresServer:
    """Started once, for all that use it."""

    def __init__(self) -> None:
        self._home: Path | None = None

    @property
    def url(self) -> str:
        """For psycopg and SQLAlchemy."""
        return f"postgresql://roq@/postgres?host={self._home}"

    def start(self, directory: Path, name: str = "postgres") -> None:
        """Start it in a folder of this name, if it does not run.

        Raises:
            BenchmarkError: it does not start.
        """
        if self._home is not None:
            return
        home = directory / name
        home.mkdir()
        if os.getuid() == 0:
            for each in (directory, home):
                each.chmod(0o755)
            shutil.chown(home, USER, "nogroup")
        folder = _programs()
        assert folder is not None  # noqa: S101 - asked before
        data = home / "data"
        self._run(folder / "initdb", "-D", data, "-U", "roq", "-A", "trust", "-E", "UTF8")
        self._home = home
        self.again()

    def again(self) -> None:
        """Start it anew on what it has stored, after all its processes were killed.

        Raises:
            BenchmarkError: it does not start.
        """
        folder, home = _programs(), self._home
        assert folder is not None and home is not None  # noqa: S101, PT018 - it was started before
        data, options = home / "data", f"-k {home} -h '' -c max_connections=100"
        self._run(folder / "pg_ctl", "-D", data, "-w", "-o", options, "-l", home / "log", "start")

    def pids(self) -> list[int]:
        """Of all its processes, the first one first; none: it does not run."""
        if self._home is None:
            return []
        with contextlib.suppress(OSError, ValueError, IndexError, psutil.Error):
            head = int((self._home / "data" / "postmaster.pid").read_text().split()[0])
            return [head, *(each.pid for each in psutil.Process(head).children())]
        return []

    def stop(self) -> None:
        """Stop it; idempotent."""
        folder, home = _programs(), self._home
        self._home = None
        if folder is not None and home is not None:
            self._run(folder / "pg_ctl", "-D", home / "data", "-w", "-m", "immediate", "stop")

    def _run(self, *command: str | Path) -> None:
        as_user = ["setpriv", f"--reuid={USER}", "--regid=nogroup", "--clear-groups"]
        before = as_user if os.getuid() == 0 else []
        try:
            subprocess.run(
                [*before, *command], check=True, timeout=START_SECONDS, cwd="/",
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            raise BenchmarkError(f"PostgreSQL: {error}") from None


def _programs() -> Path | None:
    """The folder of the newest installed server."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda each: float(each.parts[-3])
    )
    there = found[-1] if found else shutil.which("initdb")
    return None if there is None else Path(there).parent
