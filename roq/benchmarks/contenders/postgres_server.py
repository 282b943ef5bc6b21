"""A PostgreSQL server of its own in a temporary folder, over a socket there; it syncs what it
commits, as it does without any settings; and what peers whose jobs are there have in common."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from roq.benchmarks.contender import not_installed
from roq.benchmarks.processes import BenchmarkError, Program

USER: Final = "nobody"
"""initdb refuses root."""
START_SECONDS: Final = 120.0
BLOCK: Final = 500
"""Jobs that peers submit at once, as many as RoQ's."""


def missing() -> str | None:
    """Why there is none here; None: there is."""
    if _programs() is None:
        return "no PostgreSQL server here: apt-get install postgresql"
    if os.getuid() == 0 and shutil.which("setpriv") is None:
        return "PostgreSQL refuses root, and there is no setpriv: apt-get install util-linux"
    return None


def worker_missing(*libraries: str) -> str | None:
    """Why one that works with these libraries cannot take part; None: it can."""
    return not_installed(*libraries, "psycopg") or missing()


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


class PostgresJobs:
    """Workers, and a submitter here.

    Args:
        url: gives the database, when it runs.
        left: SQL for the number of jobs that have not ended.
    """

    def __init__(self, url: Callable[[], str], left: str) -> None:
        self._url = url
        self._left = left
        self._programs: list[Program] = []
        self._connection: Any = None

    def open(self) -> str:
        """Connect to the database; gives where it is."""
        import psycopg  # noqa: PLC0415 - only if it is installed

        url = self._url()
        self._connection = psycopg.connect(url, autocommit=True)
        return url

    def work(
        self, directory: Path, processes: int, command: Sequence[str], env: Mapping[str, str]
    ) -> None:
        """Start the workers."""
        for number in range(processes):
            log = directory / f"{type(self).__name__}-{number}.log"
            self._programs.append(Program(command, log, env=env))

    def left(self) -> int:
        """Jobs that have not ended."""
        return int(self._connection.execute(self._left).fetchone()[0])

    def stop(self) -> None:
        """End the workers; idempotent."""
        while self._programs:
            self._programs.pop().stop()
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def blocks(number: int) -> list[range]:
    """So many jobs, in lists."""
    return [range(first, min(first + BLOCK, number)) for first in range(0, number, BLOCK)]


def _programs() -> Path | None:
    """The folder of the newest installed server."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda each: float(each.parts[-3])
    )
    there = found[-1] if found else shutil.which("initdb")
    return None if there is None else Path(there).parent
