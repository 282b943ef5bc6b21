"""PgQueuer with PostgreSQL: its own worker in two processes, and an entrypoint that does nothing.

Its jobs are coroutines. It takes half as many jobs at a time as may run at once, at most.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from roq.benchmarks.contenders.postgres_server import PostgresJobs, blocks, worker_missing
from roq.benchmarks.processes import PYTHON

URL: Final = "ROQ_BENCH_PGQUEUER"
NOTHING: Final = "nothing"


def missing() -> str | None:
    """Why it cannot take part; None: it can."""
    return worker_missing("pgqueuer", "asyncpg")


@asynccontextmanager
async def program() -> AsyncIterator[Any]:
    """What its worker runs."""
    import asyncpg  # noqa: PLC0415 - only if it is installed
    from pgqueuer import PgQueuer  # noqa: PLC0415

    connection = await asyncpg.connect(os.environ[URL])
    made = PgQueuer.from_asyncpg_connection(connection)
    made.entrypoint(NOTHING)(_nothing)
    yield made
    await connection.close()


async def _nothing(_job: object) -> None: ...


async def _install(url: str) -> None:
    import asyncpg  # noqa: PLC0415 - only if it is installed
    from pgqueuer.queries import Queries  # noqa: PLC0415

    connection = await asyncpg.connect(url)
    queries = Queries.from_asyncpg_connection(connection)
    if not await queries.schema_is_installed():
        await queries.install()
    await connection.close()


def work(threads: int) -> None:
    """Run jobs until terminated, as its program `pgq run` does."""
    import pgqueuer  # noqa: PLC0415 - only if it is installed

    asyncio.run(pgqueuer.run(program, max_concurrent_tasks=threads, batch_size=threads // 2))


class PgQueuerJobs(PostgresJobs):
    """Workers in processes of their own, and a submitter here.

    Args:
        url: gives the database, when it runs.
        at_once: jobs that run in each process; None: as many as others have threads.
    """

    def __init__(self, url: Callable[[], str], at_once: int | None = None) -> None:
        super().__init__(url, "SELECT count(*) FROM pgqueuer")
        self._at_once = at_once
        self._queries: Any = None

    def start(self, directory: Path, processes: int, threads: int) -> None:
        """Make the tables, and start the workers."""
        from pgqueuer.db import SyncPsycopgDriver  # noqa: PLC0415 - only if it is installed
        from pgqueuer.queries import SyncQueries  # noqa: PLC0415

        url = self.open()
        asyncio.run(_install(url))
        self._queries = SyncQueries(SyncPsycopgDriver(self._connection))
        command = [*PYTHON, __name__, str(self._at_once or threads)]
        self.work(directory, processes, command, {URL: url})

    def submit(self, number: int) -> None:
        """Enqueue so many jobs, as many in a statement as RoQ's in a transaction."""
        for few in blocks(number):
            payloads = [str(each).encode() for each in few]
            self._queries.enqueue([NOTHING] * len(few), payloads, [0] * len(few))


if __name__ == "__main__":
    work(int(sys.argv[1]))
