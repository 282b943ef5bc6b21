"""procrastinate with PostgreSQL: its own worker in two processes, and a task that does nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from roq.benchmarks.contenders.postgres_server import PostgresJobs, blocks, worker_missing
from roq.benchmarks.processes import PYTHON

URL: Final = "ROQ_BENCH_PROCRASTINATE"


def missing() -> str | None:
    """Why it cannot take part; None: it can."""
    return worker_missing("procrastinate")


def program(url: str, *, sync: bool) -> tuple[Any, Any]:
    """The application, and the task."""
    import procrastinate  # noqa: PLC0415 - only if it is installed

    kind = procrastinate.SyncPsycopgConnector if sync else procrastinate.PsycopgConnector
    made = procrastinate.App(connector=kind(conninfo=url))
    return made, made.task(name="nothing")(_nothing)


def _nothing(number: int) -> None: ...


class ProcrastinateJobs(PostgresJobs):
    """Workers in processes of their own, and a submitter here.

    Args:
        url: gives the database, when it runs.
    """

    def __init__(self, url: Callable[[], str]) -> None:
        super().__init__(url, "SELECT count(*) FROM procrastinate_jobs WHERE status <> 'succeeded'")
        self._app: Any = None
        self._task: Any = None

    def start(self, directory: Path, processes: int, threads: int) -> None:
        """Make the tables, and start the workers."""
        url = self.open()
        self._app, self._task = program(url, sync=True)
        self._app.open()
        if (
            self._connection.execute("SELECT to_regclass('procrastinate_jobs')").fetchone()[0]
            is None
        ):
            self._app.schema_manager.apply_schema()
        command = [
            *PYTHON, "procrastinate", "--app", f"{__name__}.app", "worker", "--concurrency",
            str(threads),
        ]  # fmt: skip
        self.work(directory, processes, command, {URL: url})

    def submit(self, number: int) -> None:
        """Defer so many jobs, as many in a statement as RoQ's in a transaction."""
        for few in blocks(number):
            self._task.batch_defer(*({"number": each} for each in few))

    def stop(self) -> None:
        """End the workers; idempotent."""
        super().stop()
        if self._app is not None:
            self._app.close()
            self._app = None


if URL in os.environ:
    app, nothing = program(os.environ[URL], sync=False)
