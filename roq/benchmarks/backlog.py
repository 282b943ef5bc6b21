"""Millions of jobs that wait or are done, and a transaction that stays open: what they cost the
jobs of today, and whoever looks at them in a console."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

import msgspec
import sqlalchemy as sa
from rich.console import Console

from roq.benchmarks import job_times, report
from roq.benchmarks.cluster import RoqCluster
from roq.benchmarks.contenders import postgres_server
from roq.benchmarks.contenders.postgres_server import PostgresServer
from roq.benchmarks.contenders.roq_jobs import NOTHING, TIMED, RoqJobs
from roq.benchmarks.durable import Store, ratio
from roq.benchmarks.job_times import JobTimes, times
from roq.benchmarks.jobs import JobResults, show_rates, turn
from roq.benchmarks.processes import (
    PYTHON,
    BenchmarkError,
    Program,
    cpu_seconds,
    temporary_directory,
)
from roq.benchmarks.results import environment, write_document
from roq.errors import RoQError
from roq.jobs.jobs import Jobs
from roq.jobs.schema import COUNT, JOB
from roq.jobs.states import DEFAULT, JobStatus

JSON_NAME: Final = "jobs_backlog.json"
WAITING: Final = "Waiting"
"""Nobody runs this type."""
BROWSERS: Final = 50
LOOKS: Final = 5
PAGES: Final = (
    "/jobs", "/jobs/list", "/jobs/list?status=CREATED", "/jobs/list?status=COMPLETE",
    f"/jobs/list?type={WAITING}", "/jobs/list?status=FAILED", "/jobs/list?type=Nothing",
    "/jobs/list?below=2500000", "/jobs/list?priority=100&status=CREATED",
    "/jobs/running", "/jobs/failures", "/jobs/instances", "/jobs/schedules", "/jobs/1",
    "/do/restart-jobs?status=FAILED", "/do/delete-jobs?status=COMPLETE",
)  # fmt: skip
READY_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 5.0


EMPTY: Final = "empty"
BACKLOG: Final = "backlog"
HELD: Final = "backlog_and_transaction"
SHARE_WANTED: Final = 0.8
PAGE_MS: Final = 200.0
CORE_PERCENT: Final = 10.0


class ConsoleCost(msgspec.Struct, frozen=True, kw_only=True):
    """What a console makes of that."""

    pages: dict[str, float]
    """Path → milliseconds, the median of some looks."""
    first: dict[str, float]
    """… of the first look."""
    browsers: int
    core_percent: float
    """Of one core, with so many browsers open."""


class BacklogResults(JobResults, kw_only=True):
    """What one run has found out."""

    number: int
    """Jobs that wait, and as many that are done."""
    held_seconds: float = 0.0
    """For which the transaction was open."""
    times: JobTimes | None = None
    console: ConsoleCost | None = None


def measure(
    rounds: int, seconds: float, console: Console, *, number: int, held_minutes: int = 0
) -> BacklogResults:
    """Measure an empty database and a full one in turns; what was started is stopped again.

    Args:
        rounds: the medians over them are shown.
        seconds: of each measurement, about.
        console: is told how it goes.
        number: jobs that wait, and as many that are done.
        held_minutes: for which the transaction is open at least: rounds are added until then.
    """
    results = BacklogResults(environment=environment(), rounds=rounds, number=number)
    reason = postgres_server.missing()
    if reason:
        results.skipped[EMPTY] = reason
        return results
    with temporary_directory() as name, ExitStack() as stack:
        folder = Path(name)
        cluster = RoqCluster()
        cluster.start(folder)
        stack.callback(cluster.stop)
        empty, full = PostgresServer(), PostgresServer()
        for each, place in ((empty, "empty"), (full, "full")):
            each.start(folder, place)
            stack.callback(each.stop)
        with Jobs(full.url) as jobs:
            began = time.monotonic()
            fill(jobs, number, NOTHING)
            console.print(f"{number:,} wait, {number:,} are done: {time.monotonic() - began:.0f} s")
            _turns(results, empty, full, jobs, cluster, seconds, held_minutes, folder, console)
        timed = RoqJobs(lambda: full.url, lambda: cluster.client, TIMED)
        with _failures(results, "times"):
            results.times = times(timed, folder)
        with _failures(results, "console"):
            results.console = console_cost(cluster.client, full.url, folder)
    return results


def _turns(
    results: BacklogResults, empty: PostgresServer, full: PostgresServer, jobs: Jobs,
    cluster: RoqCluster, seconds: float, held_minutes: int, folder: Path, console: Console,
) -> None:  # fmt: skip
    """The full database without a transaction first: it is open from then on, until the end."""
    titles = {
        EMPTY: "no other jobs", BACKLOG: f"{results.number:,} wait, as many are done",
        HELD: "… and a transaction is open",
    }  # fmt: skip
    results.systems = [Store(key, f"RoQ, PostgreSQL, queue: {titles[key]}", "") for key in titles]
    for key, block, minutes in (
        (BACKLOG, contextlib.nullcontext(), 0),
        (HELD, open_transaction(jobs.engine), held_minutes),
    ):  # fmt: skip
        began = time.monotonic()
        with block:
            for number in itertools.count():
                pair = [(EMPTY, empty), (key, full)]
                for name, server in pair[:: -1 if number % 2 else 1]:
                    system = RoqJobs(partial(_url, server), lambda: cluster.client)
                    with _failures(results, name):
                        rate = turn(results, name, system, seconds, folder)
                        console.print(f"{titles[name]}: {rate:,.0f} jobs/s")
                results.held_seconds = time.monotonic() - began
                if number + 1 >= results.rounds and results.held_seconds >= 60 * minutes:
                    break


def _url(server: PostgresServer) -> str:
    return server.url


@contextlib.contextmanager
def _failures(results: BacklogResults, name: str) -> Iterator[None]:
    try:
        yield
    except (BenchmarkError, RoQError) as error:
        results.failures.append(f"{name}: {error}")


def show(results: BacklogResults, console: Console) -> None:
    """Print everything."""
    show_rates(results, console)
    told = comparisons(results)
    report.show_rest(told, results.skipped, results.failures, console)
    if results.console is not None:
        pages = results.console.pages
        for path, ms in sorted(pages.items(), key=lambda each: -each[1]):
            first = results.console.first[path]
            console.print(f"{path}: {ms:.0f} ms, at first {first:.0f} ms")


def comparisons(results: BacklogResults) -> list[tuple[str, str]]:
    """What came out, and what was wanted."""
    told = []
    rates = results.rates.get(EMPTY, [])
    for key, mine in (
        (BACKLOG, rates[: results.rounds]), (HELD, rates[results.rounds :]),
    ):  # fmt: skip
        text = ratio(results.rates.get(key, []), mine)
        if text:
            told.append((f"{key} by {EMPTY}", f"{text}, wanted {SHARE_WANTED:g}"))
    told.append(("the transaction was open, s", f"{results.held_seconds:.0f}"))
    if results.times is not None:
        told += job_times.told(BACKLOG, results.times)
    if results.console is not None:
        slowest = max(results.console.pages.values())
        told.append(("slowest page of the console, ms", f"{slowest:.0f}, wanted ≤ {PAGE_MS:g}"))
        percent = f"{results.console.core_percent:.1f}, wanted ≤ {CORE_PERCENT:g}"
        told.append((f"{results.console.browsers} open browsers, % of a core", percent))
    return told


def write(results: BacklogResults, directory: Path) -> list[Path]:
    """Write JSON; gives its path."""
    write_document(results, directory / JSON_NAME)
    return [directory / JSON_NAME]


def fill(jobs: Jobs, number: int, done: str) -> None:
    """Have so many jobs wait, of a type that nobody runs, and as many be done.

    Args:
        jobs: of the database; there are no jobs yet.
        number: of each.
        done: type of those that are done.
    """
    jobs.open()
    numbers = f"generate_series(1, {number}) AS n(n)"
    if jobs.database.sqlite:
        numbers = (
            "(WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n"  # noqa: S608
            f" WHERE n < {number}) SELECT n FROM n)"
        )
    with jobs.database.write() as connection:
        now = jobs.database.now(connection)
        # Indexes are made in the end: that takes half of the time.
        for index in JOB.indexes:
            index.drop(connection)
        for kind, status, token, ended in (
            (WAITING, JobStatus.CREATED, 1, None),
            (done, JobStatus.COMPLETE, 2, now),
        ):
            jobs.database.run(
                connection,
                "INSERT INTO job (type, priority, status, created, batch_sequence, held,"  # noqa: S608
                " dispatched, token, restartable, items, started, ended)"
                " SELECT :kind, :priority, :status, :now - :number + n, 0, '',"
                f" :now - :number + n, :token, 1, 0, :ended, :ended FROM {numbers}",
                now=now, kind=kind, priority=DEFAULT, status=status.value, number=number,
                token=token, ended=ended,
            )  # fmt: skip
            connection.execute(
                COUNT.insert().values(
                    type=kind, priority=DEFAULT, status=status.value, shard=0, number=number,
                    items=0, failures=0,
                )
            )  # fmt: skip
        jobs.database.run(
            connection,
            "INSERT INTO job_params (job, codec, version, body)"
            " SELECT id, 'json', 1, :body FROM job",
            body=b"1",
        )
        for index in JOB.indexes:
            index.create(connection)
    with jobs.engine.connect() as connection:
        held = connection.execution_options(isolation_level="AUTOCOMMIT")
        held.exec_driver_sql("ANALYZE" if jobs.database.sqlite else "VACUUM ANALYZE")


@contextlib.contextmanager
def open_transaction(engine: sa.Engine) -> Iterator[None]:
    """A transaction that has looked at the jobs, and then does nothing, until the block ends.

    PostgreSQL keeps for it whatever others change or delete meanwhile.
    """
    with engine.connect() as connection:
        held = connection.execution_options(isolation_level="REPEATABLE READ")
        held.exec_driver_sql("SELECT count(*) FROM job_setting").scalar()
        yield


def console_cost(
    cluster: str, url: str, directory: Path, *, browsers: int = BROWSERS, seconds: float = 20.0
) -> ConsoleCost:
    """Start a console of these jobs, look at its pages, and open browsers.

    Args:
        cluster: addresses of the cluster it is of.
        url: of the database of jobs.
        directory: for its log.
        browsers: that are open, as many on each page as on the others.
        seconds: for which they are.

    Raises:
        BenchmarkError: it does not start, or a page is an error.
    """
    command = ["roq", "--cluster", cluster, "console", "--port", "0", "--jobs", url]
    program = Program([*PYTHON, *command], directory / "console.log", env=dict(os.environ))
    try:
        line = program.read_line(READY_SECONDS).decode()
        place = urlsplit(json.loads(line.removeprefix("ready "))["url"]).netloc
        first = {path: _milliseconds(place, path) for path in PAGES}
        pages = {
            path: statistics.median(_milliseconds(place, path) for _ in range(LOOKS))
            for path in PAGES
        }
        with _opened(place, browsers):
            threading.Event().wait(SETTLE_SECONDS)
            before, began = cpu_seconds(program.pid), time.monotonic()
            threading.Event().wait(seconds)
            used = cpu_seconds(program.pid) - before
            percent = 100 * used / (time.monotonic() - began)
    finally:
        program.stop()
    return ConsoleCost(pages=pages, first=first, browsers=browsers, core_percent=percent)


def _milliseconds(place: str, path: str) -> float:
    """Until the whole page is there; what is shared by looks is asked for anew after a while."""
    connection = http.client.HTTPConnection(place, timeout=READY_SECONDS)
    began = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read()
    took = time.perf_counter() - began
    connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise BenchmarkError(f"{path}: {answer.status} {text[:200]!r}")
    return 1000 * took


@contextlib.contextmanager
def _opened(place: str, browsers: int) -> Iterator[None]:
    """So many streams, which are read as long as the block lasts."""
    pages = [path for path in PAGES if not path.startswith("/do/")]
    streams: list[http.client.HTTPConnection] = []
    threads: list[threading.Thread] = []
    try:
        for number in range(browsers):
            stream = http.client.HTTPConnection(place, timeout=READY_SECONDS)
            streams.append(stream)
            thread = threading.Thread(target=_read, args=(stream, pages[number % len(pages)]))
            thread.start()
            threads.append(thread)
        yield
    finally:
        for stream in streams:
            if stream.sock is not None:
                with contextlib.suppress(OSError):
                    stream.sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def _read(stream: http.client.HTTPConnection, page: str) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        stream.request("GET", f"/live?{urlencode({'page': page})}")
        answer = stream.getresponse()
        while answer.readline():
            pass
