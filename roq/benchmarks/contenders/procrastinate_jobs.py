"""procrastinate with PostgreSQL: its own worker in two processes, and a task that does nothing."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from roq.benchmarks.contenders import postgres_server
from roq.benchmarks.processes import PYTHON, Program

URL: Final = "ROQ_BENCH_PROCRASTINATE"
APP: Final = "roq.benchmarks.contenders.procrastinate_jobs.app"
BLOCK: Final = 500


def missing() -> str | None:
    """Why it cannot take part; None: it can."""
    if importlib.util.find_spec("procrastinate") is None:
        return "procrastinate is not installed: pip install procrastinate"
    return postgres_server.missing()


def program(url: str, *, sync: bool) -> tuple[Any, Any]:
    """The application, and the task."""
    import procrastinate  # noqa: PLC0415 - only if it is installed

    kind = procrastinate.SyncPsycopgConnector if sync else procrastinate.PsycopgConnector
    made = procrastinate.App(connector=kind(conninfo=url))
    return made, made.task(name="nothing")(_nothing)


def _nothing(number: int) -> None: ...


class ProcrastinateJobs:
    """Workers in processes of their own, and a submitter here.

    Args:
        url: gives the database, when it runs.
    """

    def __init__(self, url: Callable[[], str]) -> None:
        self._url = url
        self._programs: list[Program] = []
        self._app: Any = None
        self._task: Any = None

    def start(self, directory: Path, processes: int, threads: int) -> None:
        """Make the tables, and start the workers."""
        url = self._url()
        self._app, self._task = program(url, sync=True)
        self._app.open()
        rows = self._app.connector.execute_query_all(
            "SELECT to_regclass('procrastinate_jobs') IS NULL AS missing"
        )
        if rows[0]["missing"]:
            self._app.schema_manager.apply_schema()
        self._programs = [
            Program(
                [*PYTHON, "procrastinate", "--app", APP, "worker", "--concurrency", str(threads)],
                directory / f"procrastinate-{each}.log", env={**os.environ, URL: url},
            )
            for each in range(processes)
        ]  # fmt: skip

    def submit(self, number: int) -> None:
        """Defer so many jobs, as many in a statement as RoQ's in a transaction."""
        for first in range(0, number, BLOCK):
            few = range(first, min(first + BLOCK, number))
            self._task.batch_defer(*({"number": each} for each in few))

    def left(self) -> int:
        """Jobs that have not ended."""
        rows = self._app.connector.execute_query_all(
            "SELECT count(*) AS number FROM procrastinate_jobs WHERE status <> 'succeeded'"
        )
        return int(rows[0]["number"])

    def pids(self) -> list[int]:
        """Of its workers."""
        return [each.pid for each in self._programs]

    def stop(self) -> None:
        """End the workers; idempotent."""
        while self._programs:
            self._programs.pop().stop()
        if self._app is not None:
            self._app.close()
            self._app = None


if URL in os.environ:
    app, nothing = program(os.environ[URL], sync=False)
