"""Runs cut into tasks, done by the workers that are there: this process, several, or Spark.

A task is one cell of one run, so what it needs of memory is bounded by the size of a cell. Tasks
and their results travel as bytes. Results come in any order.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from roq.errors import ConfigError, RoQError
from roq.simulation.forecast.case import Case
from roq.simulation.forecast.cell import Cell
from roq.simulation.forecast.outcome import Outcome, Sums, outcome
from roq.simulation.lab.masters import SparkWish
from roq.simulation.lab.session import Session
from roq.simulation.lab.shipping import missing
from roq.simulation.real.pool import end_with_parent

if TYPE_CHECKING:
    from pyspark import SparkContext

WAVE: Final = 8
"""Tasks of one Spark job, for each core: progress is told and results are kept job by job."""
AHEAD: Final = 2
"""Jobs that Spark has at the same time."""


class Task(msgspec.Struct, frozen=True):
    """One cell of one run."""

    run: int
    cell: int
    case: Case


class Done(msgspec.Struct, frozen=True):
    """What came out of it, or why nothing did."""

    run: int
    cell: int
    sums: Sums | None
    trouble: str = ""


class Workers(Protocol):
    """What does tasks."""

    def results(self, tasks: Sequence[bytes]) -> Iterator[bytes]:
        """Do them; results come as they are ready."""
        ...


def perform(tasks: Iterable[bytes]) -> Iterator[bytes]:
    """Do tasks one after the other; runs wherever the workers are."""
    decoder = msgspec.msgpack.Decoder(Task)
    for each in tasks:
        task = decoder.decode(each)
        try:
            done = Done(task.run, task.cell, Cell(task.case, task.cell).play())
        except RoQError as error:
            done = Done(task.run, task.cell, None, str(error))
        yield msgspec.msgpack.encode(done)


class Here:
    """This process."""

    def results(self, tasks: Sequence[bytes]) -> Iterator[bytes]:
        """One after the other."""
        return perform(tasks)


class Processes:
    """Processes of this machine.

    Args:
        count: how many; 0: one for each core.
    """

    def __init__(self, count: int = 0) -> None:
        self._count = count or os.cpu_count() or 1

    def results(self, tasks: Sequence[bytes]) -> Iterator[bytes]:
        """Side by side; all of them end when the caller stops listening."""
        context = multiprocessing.get_context("spawn")
        with context.Pool(min(self._count, len(tasks)), initializer=_begin_worker) as pool:
            yield from pool.imap_unordered(_perform_one, tasks)


class Spark:
    """Executors of a Spark cluster, or local ones.

    Args:
        context: of the session.

    Raises:
        ConfigError: executors cannot import the model.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        try:
            context.parallelize([0], 1).map(_importable).collect()
        except Exception as error:
            if (lacking := missing(error)) is None:
                raise
            raise lacking from None

    def results(self, tasks: Sequence[bytes]) -> Iterator[bytes]:
        """Some jobs one after the other, so that what is done is done; the next one always waits in
        Spark, so no executor is idle while the last tasks of a job go on.

        They run in threads, for a thread that waits for Spark itself hears of an interruption only
        when it is over.
        """
        wave = WAVE * self._context.defaultParallelism
        waves = iter([tasks[first : first + wave] for first in range(0, len(tasks), wave)])
        with ThreadPoolExecutor(AHEAD, thread_name_prefix="job") as threads:
            jobs = deque(threads.submit(self._collect, some) for some in islice(waves, AHEAD))
            try:
                while jobs:
                    yield from jobs.popleft().result()
                    jobs.extend(threads.submit(self._collect, some) for some in islice(waves, 1))
            except BaseException:
                for job in jobs:
                    job.cancel()
                self._context.cancelAllJobs()
                raise

    def _collect(self, tasks: Sequence[bytes]) -> list[bytes]:
        return self._context.parallelize(tasks, len(tasks)).mapPartitions(perform).collect()


@contextmanager
def on_spark(master: str, *, ship: bool, wish: SparkWish | None = None) -> Iterator[Spark]:
    """Workers of a Spark session that ends with the block, unless there was one before.

    Args:
        master: of the Spark cluster; that of the session that is there counts more.
        ship: send RoQ's own code to the executors.
        wish: what is asked of Spark beside that.

    Raises:
        ConfigError: there is no PySpark here, the master cannot have that, or executors cannot
            import the model.
        Unavailable: Spark does not start.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - it is an extra
    except ImportError:
        raise ConfigError("this needs PySpark: pip install 'roq-cluster[sim]'") from None
    session = Session(SparkSession.getActiveSession())
    with tempfile.TemporaryDirectory(prefix="roq-sweep-") as name:
        folder = Path(name)
        try:
            session.start(master, folder / "spark.log", folder if ship else None, wish)
            yield Spark(session.context)
        finally:
            session.stop()


def tasks_of(cases: Sequence[Case]) -> list[bytes]:
    """All tasks of these runs."""
    return [
        msgspec.msgpack.encode(Task(run, cell, case))
        for run, case in enumerate(cases)
        for cell in range(case.cells)
    ]


def play_all(cases: Sequence[Case], workers: Workers) -> Iterator[tuple[int, Outcome | None]]:
    """Play runs; gives (run, outcome) as each is complete, and (run, None) for each further task.

    Raises:
        ConfigError: a run cannot be played.
    """
    decoder = msgspec.msgpack.Decoder(Done)
    open_runs: dict[int, tuple[Sums, int]] = {}
    for each in workers.results(tasks_of(cases)):
        done = decoder.decode(each)
        if done.sums is None:
            raise ConfigError(done.trouble)
        sums, cells = open_runs.pop(done.run, (None, 0))
        if sums is None:
            sums = done.sums
        else:
            sums.join(done.sums)
        case = cases[done.run]
        if cells + 1 < case.cells:
            open_runs[done.run] = (sums, cells + 1)
            yield done.run, None
        else:
            yield done.run, outcome(sums, case.seed)


def _perform_one(task: bytes) -> bytes:
    return next(perform([task]))


def _begin_worker() -> None:
    """Ctrl-C reaches all processes of a terminal; who listens to them ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def _importable(_: int) -> str:
    return Cell.__module__
