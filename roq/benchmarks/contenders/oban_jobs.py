"""Oban for Python with PostgreSQL: its own program in two processes, its jobs do nothing.

Its jobs are coroutines.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from roq.benchmarks.contenders.postgres_server import PostgresJobs, blocks, worker_missing
from roq.benchmarks.processes import PYTHON

SINCE: Final = (3, 12)
"""The first Python that it runs on."""


def missing() -> str | None:
    """Why it cannot take part; None: it can."""
    if sys.version_info < SINCE:
        return f"oban needs Python {SINCE[0]}.{SINCE[1]}, and this is {sys.version.split()[0]}"
    return worker_missing("oban")


class Nothing:
    """What its program runs: it is found by the name that each job has."""

    async def process(self, job: object) -> None:
        """Do nothing."""


NAME: Final = f"{__name__}.{Nothing.__name__}"


class ObanJobs(PostgresJobs):
    """Workers in processes of their own, and a submitter here.

    Args:
        url: gives the database, when it runs.
        at_once: jobs that run in each process; None: as many as others have threads.
    """

    def __init__(self, url: Callable[[], str], at_once: int | None = None) -> None:
        super().__init__(
            url,
            "SELECT count(*) FROM oban_jobs WHERE state IN ('available', 'executing', 'retryable')",
        )
        self._at_once = at_once
        self._runner: asyncio.Runner | None = None
        self._pool: Any = None
        self._oban: Any = None

    def start(self, directory: Path, processes: int, threads: int) -> None:
        """Make the tables, and start the workers."""
        url = self.open()
        self._runner = asyncio.Runner()
        self._runner.run(self._install(url))
        command = [
            *PYTHON, "oban", "start", "--dsn", url,
            "--queues", f"default:{self._at_once or threads}",
            "--log-level", "ERROR", "--cron-modules", __name__,
        ]  # fmt: skip
        self.work(directory, processes, command, {})

    async def _install(self, url: str) -> None:
        from oban import Oban  # noqa: PLC0415 - only if it is installed
        from oban.schema import install  # noqa: PLC0415

        self._pool = await Oban.create_pool(url)
        await install(self._pool)
        self._oban = Oban(pool=self._pool)

    def submit(self, number: int) -> None:
        """Enqueue so many jobs, as many in a transaction as RoQ's."""
        from oban.job import Job  # noqa: PLC0415 - only if it is installed

        assert self._runner is not None  # noqa: S101 - started before
        for few in blocks(number):
            jobs = [Job(worker=NAME, args={"number": each}) for each in few]
            self._runner.run(self._oban.enqueue_many(jobs))

    def stop(self) -> None:
        """End the workers; idempotent."""
        super().stop()
        if self._runner is not None:
            if self._pool is not None:
                self._runner.run(self._pool.close())
                self._pool = None
            self._runner.close()
            self._runner = None
