"""Jobs that do nothing, beside those of other libraries: `roq bench --jobs`.

Two processes with eight threads each, one submitter; from the first submission until all have
ended. All take turns in each round; a ratio is the median of those within the rounds. Contenders
are started for their turn and stopped after it, so that nobody's workers take another one's time.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec
from rich.console import Console
from rich.table import Table

from roq.benchmarks import report
from roq.benchmarks.cluster import RoqCluster
from roq.benchmarks.contenders import (
    celery_redis,
    dramatiq_redis,
    oban_jobs,
    pgqueuer_jobs,
    postgres_server,
    procrastinate_jobs,
    river_jobs,
)
from roq.benchmarks.contenders.roq_jobs import RoqJobs
from roq.benchmarks.durable import Store, ratio
from roq.benchmarks.processes import BenchmarkError, temporary_directory
from roq.benchmarks.results import Environment, environment, write_document
from roq.errors import RoQError

JSON_NAME: Final = "jobs.json"
PROCESSES: Final = 2
THREADS: Final = 8
MANY: Final = 500
"""Jobs that run at once in each process of those that take no more than may run: RoQ claims as many
ahead."""
FIRST_JOBS: Final = 200
RUN_SECONDS: Final = 120.0
LOOK_SECONDS: Final = 0.02
SQLITE_QUEUE: Final = "roq_sqlite_queue"
SQLITE: Final = "roq_sqlite"
POSTGRES_QUEUE: Final = "roq_postgres_queue"
POSTGRES: Final = "roq_postgres"
DRAMATIQ: Final = "dramatiq_redis"
PROCRASTINATE: Final = "procrastinate"
CELERY: Final = "celery_redis"
PGQUEUER: Final = "pgqueuer"
OBAN: Final = "oban"
RIVER: Final = "river"
WANTED: Final = (
    (SQLITE_QUEUE, DRAMATIQ, 3.0),
    (POSTGRES_QUEUE, DRAMATIQ, 1.5),
    (POSTGRES_QUEUE, PROCRASTINATE, 4.0),
    (POSTGRES, PROCRASTINATE, 2.0),
)
"""How much faster RoQ is to be."""


class JobSystem(Protocol):
    """One that takes part."""

    def start(self, directory: Path, processes: int, threads: int) -> None:
        """Start its workers."""

    def submit(self, number: int) -> None:
        """Submit so many jobs."""

    def left(self) -> int:
        """Jobs that have not ended."""

    def stop(self) -> None:
        """End its workers; idempotent."""


_OnPostgres = Callable[[Callable[[], str], int | None], JobSystem]


class JobResults(msgspec.Struct, kw_only=True):
    """What one run has found out."""

    environment: Environment
    rounds: int
    systems: list[Store] = []
    skipped: dict[str, str] = {}
    failures: list[str] = []
    rates: dict[str, list[float]] = {}
    """System → jobs a second from the first submission until all have ended, by round."""
    numbers: dict[str, int] = {}
    """System → jobs of its last measurement."""


class _Servers:
    """What several systems use; started when it is needed first."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._cluster: RoqCluster | None = None
        self._postgres = postgres_server.PostgresServer()
        self._files = 0

    def cluster(self) -> str:
        if self._cluster is None:
            self._cluster = RoqCluster()
            self._cluster.start(self._directory)
        return self._cluster.client

    def postgres(self) -> str:
        self._postgres.start(self._directory)
        return self._postgres.url

    def file(self) -> str:
        self._files += 1
        return str(self._directory / f"jobs-{self._files}.db")

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()
        self._postgres.stop()


def measure(rounds: int, seconds: float, console: Console) -> JobResults:
    """Measure everything; what was started is stopped again, whatever happens.

    Args:
        rounds: the medians over them are shown.
        seconds: of each measurement, about.
        console: is told how it goes.
    """
    results = JobResults(environment=environment(), rounds=rounds)
    with temporary_directory() as name:
        servers = _Servers(Path(name))
        taking = []
        for store, system, missing in _everybody(servers):
            reason = missing()
            if reason:
                results.skipped[store.key] = reason
                console.print(f"skipped: {store.title}: {reason}")
            else:
                results.systems.append(store)
                taking.append((store, system))
        try:
            for number in range(rounds):
                for store, system in taking[:: -1 if number % 2 else 1]:
                    try:
                        rate = turn(results, store.key, system, seconds, Path(name))
                    except (BenchmarkError, RoQError) as error:
                        results.failures.append(f"{store.title}: {error}")
                        continue
                    console.print(f"round {number + 1}: {store.title}: {rate:,.0f} jobs/s")
        finally:
            servers.stop()
    return results


def _everybody(
    servers: _Servers,
) -> list[tuple[Store, JobSystem, Callable[[], str | None]]]:
    once = "each run has a token, so an outdated one changes nothing; results kept a day"
    synced = f"on the disk when submit returns; {once}"
    disk, aged = "on the disk when", "run again by age"
    kept = "kept a day, with what a job records"
    peers: list[tuple[str, str, str, _OnPostgres, Callable[[], str | None]]] = [
        (
            PGQUEUER, "PgQueuer, PostgreSQL",
            f"{disk} enqueue returns; {aged} of its worker's last sign of life; no results",
            pgqueuer_jobs.PgQueuerJobs, pgqueuer_jobs.missing,
        ),
        (
            OBAN, "Oban for Python, PostgreSQL",
            f"{disk} enqueue_many returns; {aged}, an outdated run changes nothing; {kept}",
            oban_jobs.ObanJobs, oban_jobs.missing,
        ),
        (
            RIVER, "River (Go), PostgreSQL",
            f"{disk} InsertManyFast returns; {aged}; {kept}",
            river_jobs.RiverJobs, river_jobs.missing,
        ),
    ]  # fmt: skip
    return [
        (
            Store(SQLITE_QUEUE, "RoQ, SQLite, queue", synced),
            RoqJobs(servers.file, servers.cluster), lambda: None,
        ),
        (
            Store(SQLITE, "RoQ, SQLite, database", synced),
            RoqJobs(servers.file, None), lambda: None,
        ),
        (
            Store(POSTGRES_QUEUE, "RoQ, PostgreSQL, queue", synced),
            RoqJobs(servers.postgres, servers.cluster), postgres_server.missing,
        ),
        (
            Store(POSTGRES, "RoQ, PostgreSQL, database", synced),
            RoqJobs(servers.postgres, None), postgres_server.missing,
        ),
        (
            Store(
                DRAMATIQ, "Dramatiq, Redis",
                "in the memory of Redis; run again when a worker dies, by age; no results",
            ),
            dramatiq_redis.DramatiqJobs(), dramatiq_redis.missing,
        ),
        (
            Store(
                CELERY, "Celery, Redis, acks_late",
                "in the memory of Redis; run again when a worker dies, by age; no results",
            ),
            celery_redis.CeleryJobs(), celery_redis.missing,
        ),
        (
            Store(
                PROCRASTINATE, "procrastinate, PostgreSQL",
                "on the disk when defer returns; jobs of dead workers are found by a task of one's "
                "own; no results",
            ),
            procrastinate_jobs.ProcrastinateJobs(servers.postgres), procrastinate_jobs.missing,
        ),
        *(
            (
                Store(f"{key}_{many or THREADS}", f"{title}, {many or THREADS} at once", guarantee),
                kind(servers.postgres, many), missing,
            )
            for key, title, guarantee, kind, missing in peers
            for many in (None, MANY)
        ),
    ]  # fmt: skip


def turn(
    results: JobResults, key: str, system: JobSystem, seconds: float, directory: Path
) -> float:
    """One measurement of a system; gives its jobs a second, which are in the results, too.

    Raises:
        BenchmarkError, RoQError: it cannot be measured.
    """
    try:
        system.start(directory, PROCESSES, THREADS)
        warm = _run(system, FIRST_JOBS)  # its workers are there, and have imported everything
        warm = _run(system, FIRST_JOBS)
        number = results.numbers.get(key) or _enough(FIRST_JOBS / warm, seconds)
        rate = number / _run(system, number)
        results.numbers[key] = _enough(rate, seconds)
    except (BenchmarkError, RoQError):
        raise
    except Exception as error:
        raise BenchmarkError(f"{type(error).__name__}: {error}") from error  # a peer's
    finally:
        system.stop()
    results.rates.setdefault(key, []).append(rate)
    return rate


def _run(system: JobSystem, number: int) -> float:
    """Seconds from the first submission until all have ended."""
    began, pause = time.monotonic(), threading.Event()
    system.submit(number)
    while system.left():
        if time.monotonic() - began > RUN_SECONDS:
            raise BenchmarkError(f"{system.left():,} jobs have not ended in {RUN_SECONDS:g} s")
        pause.wait(LOOK_SECONDS)
    return time.monotonic() - began


def _enough(rate: float, seconds: float) -> int:
    """So many take about that long, a few times as long as the others' measurements."""
    return max(FIRST_JOBS, int(rate * seconds * 5))


def show(results: JobResults, console: Console) -> None:
    """Print everything."""
    show_rates(results, console)
    report.show_rest(comparisons(results), results.skipped, results.failures, console)


def show_rates(results: JobResults, console: Console) -> None:
    """Print jobs a second."""
    what = f"jobs that do nothing, {PROCESSES} processes × {THREADS} threads"
    report.show_machine(results.environment, results.rounds, what, console)
    table = Table("jobs", "what is guaranteed", "jobs/s, submit → all ended")
    for each in results.systems:
        rates = results.rates.get(each.key)
        told = f"{statistics.median(rates):,.0f}" if rates else "-"
        table.add_row(each.title, each.guarantee, told)
    console.print(table)


def comparisons(results: JobResults) -> list[tuple[str, str]]:
    """RoQ against the others, and what was wanted."""
    told = []
    for one, other, wanted in WANTED:
        text = ratio(results.rates.get(one, []), results.rates.get(other, []))
        if text:
            told.append((f"{one} by {other}", f"{text}, wanted {wanted:g}"))
    return told


def write(results: JobResults, directory: Path) -> list[Path]:
    """Write JSON; gives its path."""
    write_document(results, directory / JSON_NAME)
    return [directory / JSON_NAME]
