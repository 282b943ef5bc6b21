"""A program with jobs, for instances that are killed: each run says when it begins and how it ends.

It writes lines to the file that JOURNAL names, each at once and whole: what (`begin`, `taken`,
`refused`), job, token, process.
"""

from __future__ import annotations

import os
import threading
from typing import Final

import roq

URL: Final = "ROQ_KILLED_JOBS"
CLUSTER: Final = "ROQ_KILLED_CLUSTER"
JOURNAL: Final = "ROQ_KILLED_JOURNAL"
PROGRAM: Final = "roq.simulation.real.job_program:jobs"
LIMIT: Final = 3
STEP_SECONDS: Final = 0.1
EFFECT: Final = "CREATE TABLE effect (job BIGINT PRIMARY KEY, token BIGINT NOT NULL)"
"""What the jobs do: a row each, in the transaction that completes the job."""


def program(url: str, cluster: str | None, journal: str) -> roq.Jobs:
    """The program.

    Args:
        url: of the database.
        cluster: addresses, if jobs come by a queue.
        journal: path of the file.
    """
    made = roq.Jobs(url, cluster)
    lines = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(what: str, job: roq.Job) -> None:
        os.write(lines, f"{what} {job.id} {job.token} {os.getpid()}\n".encode())

    def run(job: roq.Job, params: int) -> None:
        note("begin", job)
        steps = range(params)  # every other job does not hear that it is to stop, and finishes
        for _ in job.each(steps) if job.id % 2 else steps:
            threading.Event().wait(STEP_SECONDS)

    def effect(job: roq.Job, params: int) -> None:
        run(job, params)
        try:
            with made.engine.begin() as connection:
                job.finish(connection=connection)  # first: else the other run's row is what refuses
                made.database.run(
                    connection,
                    "INSERT INTO effect (job, token) VALUES (:job, :token)",
                    job=job.id,
                    token=job.token,
                )
        except roq.JobOutdated:
            note("refused", job)
            raise
        note("taken", job)

    made.type("Effect", restartable=True)(effect)
    made.type("Limited", restartable=True, cluster_limit=LIMIT)(effect)
    made.type("Returns", restartable=True)(run)
    made.type("Once")(run)
    return made


if URL in os.environ:
    jobs = program(os.environ[URL], os.environ[CLUSTER] or None, os.environ[JOURNAL])
