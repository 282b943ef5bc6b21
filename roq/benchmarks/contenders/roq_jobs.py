"""Jobs of RoQ: a program with a type that does nothing, and what submits to it."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import roq
from roq.benchmarks.processes import PYTHON, Program
from roq.jobs.states import JobStatus

URL: Final = "ROQ_BENCH_JOBS"
CLUSTER: Final = "ROQ_BENCH_CLUSTER"
QUEUE: Final = "ROQ_BENCH_QUEUE"
BLOCK: Final = 500
NOTHING: Final = "Nothing"
TIMED: Final = ("Begins", "Limited", "Waits")
LIMIT: Final = 8
"""Of the type Limited."""
PROGRAM: Final = "roq.benchmarks.contenders.roq_jobs:jobs"
_numbers = itertools.count(1)


def program(url: str, cluster: str | None, queue: str) -> roq.Jobs:
    """The program: a type whose jobs do nothing, and those of `roq.benchmarks.job_times`."""
    made = roq.Jobs(url, cluster, queue=queue)
    made.type(NOTHING)(_nothing)
    made.type("Begins")(_begins)
    made.type("Limited", cluster_limit=LIMIT)(_sleeps)
    made.type("Waits", restartable=True)(_waits)
    return made


def _nothing(job: roq.Job, params: int) -> None: ...


def _begins(_job: roq.Job) -> int:
    """When it begins, on the clock of the machine."""
    return time.monotonic_ns()


def _sleeps(_job: roq.Job, params: float) -> None:
    threading.Event().wait(params)


def _waits(job: roq.Job) -> None:
    """The first run waits to be killed, a second one a little."""
    for _ in range(600 if job.attempt == 1 else 40):
        job.check()
        threading.Event().wait(0.1)


class RoqJobs:
    """Instances in processes of their own, and a submitter here.

    Args:
        url: gives the database, when everything it needs has been started.
        cluster: gives the addresses of a cluster by whose queue jobs are dispatched; None: by the
            database.
        types: that the instances run; more of them cost more.
    """

    def __init__(
        self,
        url: Callable[[], str],
        cluster: Callable[[], str] | None,
        types: Sequence[str] = (NOTHING,),
    ) -> None:
        self._types = types
        self._url = url
        self._cluster = cluster
        self._programs: list[Program] = []
        self._jobs: roq.Jobs | None = None
        self._environment: dict[str, str] = {}

    def start(self, directory: Path, processes: int, threads: int) -> None:
        """Start the instances."""
        number = next(_numbers)
        cluster = None if self._cluster is None else self._cluster()
        queue, url = f"roq.jobs.{number}", self._url()
        self._jobs = jobs = program(url, cluster, queue)
        jobs.operate.dispatch("database" if cluster is None else "queue", who="bench")
        self._environment = {**os.environ, URL: url, CLUSTER: cluster or "", QUEUE: queue}
        for _ in range(processes):
            self.add(directory, threads)

    def add(self, directory: Path, threads: int) -> None:
        """Start one more instance."""
        types = [word for name in self._types for word in ("--type", name)]
        self._programs.append(
            Program(
                [*PYTHON, "roq", "jobs", "work", PROGRAM, "--threads", str(threads), *types],
                directory / f"roq-jobs-{next(_numbers)}.log", env=self._environment,
            )
        )  # fmt: skip

    @property
    def jobs(self) -> roq.Jobs:
        """The program, once it was started."""
        assert self._jobs is not None  # noqa: S101 - started before
        return self._jobs

    def submit(self, number: int) -> None:
        """Submit so many jobs, as many in a transaction as the instances take at once."""
        kind = self.jobs.types[NOTHING]
        for first in range(0, number, BLOCK):
            kind.submit_many(range(first, min(first + BLOCK, number)))

    def left(self) -> int:
        """Jobs that have not ended."""
        return sum(
            cell.number
            for cell in self.jobs.operate.counts()
            if cell.status is not JobStatus.COMPLETE and cell.type == NOTHING
        )

    def pids(self) -> list[int]:
        """Of its workers."""
        return [each.pid for each in self._programs]

    def stop(self) -> None:
        """End the instances; idempotent."""
        while self._programs:
            self._programs.pop().stop()
        if self._jobs is not None:
            self._jobs.close()
            self._jobs = None


if URL in os.environ:
    jobs = program(os.environ[URL], os.environ[CLUSTER] or None, os.environ[QUEUE])
