"""River with PostgreSQL: a program in Go, in `benchmarks/river`, works and submits.

It is built when it is needed first, with what `go` gets from its proxy.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from roq.benchmarks.contender import OPEN_SECONDS, RUN_SECONDS
from roq.benchmarks.contenders.postgres_server import PostgresJobs, worker_missing
from roq.benchmarks.processes import BenchmarkError, Program

SOURCE: Final = Path(__file__).parents[1] / "river"
BUILD_SECONDS: Final = 600.0


def missing() -> str | None:
    """Why it cannot take part; None: it can."""
    if shutil.which("go") is None:
        return "Go is not installed: https://go.dev/dl"
    return worker_missing()


class RiverJobs(PostgresJobs):
    """Workers and a submitter, all in processes of their own.

    Args:
        url: gives the database, when it runs.
        at_once: jobs that run in each process; None: as many as others have threads.
    """

    def __init__(self, url: Callable[[], str], at_once: int | None = None) -> None:
        super().__init__(
            url,
            "SELECT count(*) FROM river_job WHERE state IN ('available', 'running', 'retryable')",
        )
        self._at_once = at_once
        self._submitter: Program | None = None

    def start(self, directory: Path, processes: int, threads: int) -> None:
        """Build the program, make the tables, and start the workers."""
        url, program = self.open(), str(_built(directory / "river"))
        self._submitter = Program([program, "submit", url], directory / "river.log")
        self._submitter.read_line(OPEN_SECONDS)
        self.work(directory, processes, [program, "work", url, str(self._at_once or threads)], {})

    def submit(self, number: int) -> None:
        """Insert so many jobs, as many in a statement as RoQ's in a transaction."""
        assert self._submitter is not None  # noqa: S101 - started before
        self._submitter.write_line(str(number).encode())
        self._submitter.read_line(RUN_SECONDS)

    def stop(self) -> None:
        """End all; idempotent."""
        super().stop()
        if self._submitter is not None:
            self._submitter.finish()
            self._submitter = None


def _built(program: Path) -> Path:
    """The program, which is built if it is not there.

    Raises:
        BenchmarkError: it cannot be built.
    """
    if not program.exists():
        try:
            subprocess.run(
                [str(shutil.which("go")), "build", "-buildvcs=false", "-o", program, "."],
                cwd=SOURCE, check=True, timeout=BUILD_SECONDS, capture_output=True, text=True,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BenchmarkError(f"go build: {error}") from None
        except subprocess.CalledProcessError as error:
            raise BenchmarkError(f"go build: {error.stderr.strip()}") from None
    return program
