"""Jobs of RoQ: a program with a type that does nothing, and what submits to it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import roq
from roq.benchmarks.processes import PYTHON, Program
from roq.jobs.states import JobStatus

URL: Final = "ROQ_BENCH_JOBS"
CLUSTER: Final = "ROQ_BENCH_CLUSTER"
QUEUE: Final = "ROQ_BENCH_QUEUE"
BLOCK: Final = 500
PROGRAM: Final = "roq.benchmarks.contenders.roq_jobs:jobs"
_numbers = itertools.count(1)


def program(url: str, cluster: str | None, queue: str) -> roq.Jobs:
    """The program: one type, whose jobs do nothing."""
    made = roq.Jobs(url, cluster, queue=queue)
    made.type("Nothing")(_nothing)
    return made


def _nothing(job: roq.Job, params: int) -> None: ...


class RoqJobs:
    """Instances in processes of their own, and a submitter here.

    Args:
        url: gives the database, when everything it needs has been started.
        cluster: gives the addresses of a cluster by whose queue jobs are dispatched; None: by the
            database.
    """

    def __init__(self, url: Callable[[], str], cluster: Callable[[], str] | None) -> None:
        self._url = url
        self._cluster = cluster
        self._programs: list[Program] = []
        self._jobs: roq.Jobs | None = None

    def start(self, directory: Path, processes: int, threads: int) -> None:
        """Start the instances."""
        number = next(_numbers)
        cluster = None if self._cluster is None else self._cluster()
        queue, url = f"roq.jobs.{number}", self._url()
        self._jobs = jobs = program(url, cluster, queue)
        jobs.operate.dispatch("database" if cluster is None else "queue", who="bench")
        environment = {**os.environ, URL: url, CLUSTER: cluster or "", QUEUE: queue}
        self._programs = [
            Program(
                [*PYTHON, "roq", "jobs", "work", PROGRAM, "--threads", str(threads),
                 "--type", "Nothing"],
                directory / f"roq-jobs-{number}.log", env=environment,
            )
            for _ in range(processes)
        ]  # fmt: skip

    def submit(self, number: int) -> None:
        """Submit so many jobs, as many in a transaction as the instances take at once."""
        assert self._jobs is not None  # noqa: S101 - started before
        kind = self._jobs.types["Nothing"]
        for first in range(0, number, BLOCK):
            kind.submit_many(range(first, min(first + BLOCK, number)))

    def left(self) -> int:
        """Jobs that have not ended."""
        assert self._jobs is not None  # noqa: S101 - started before
        return sum(
            cell.number
            for cell in self._jobs.operate.counts()
            if cell.status is not JobStatus.COMPLETE
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
