"""A program whose handlers run in processes of their own; its database is named by ROQ_JOBS."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import sqlalchemy as sa

import roq

jobs = roq.Jobs(os.environ.get("ROQ_JOBS", "unused.db"))


@jobs.type("Where", kind="process")
def where(job: roq.Job) -> int:
    """In which process."""
    return os.getpid()


@jobs.type("Leaves", kind="process")
def leaves(job: roq.Job, params: str) -> None:
    """End the process in one of many ways, after three items."""
    job.save(3)
    threading.Event().wait(0.5)
    match params:
        case "exit":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "fork":
            if child := os.fork():
                os.waitpid(child, 0)
        case "raise":
            raise SystemExit(4)
        case "rubbish" | "half":
            for each in sorted(int(fd.name) for fd in Path("/proc/self/fd").iterdir())[3:]:
                with suppress(OSError):
                    os.write(each, b"\0\0\0\1x" if params == "rubbish" else b"\0\0\0\5x")
            threading.Event().wait(60)


@jobs.type("Deaf", kind="process", restartable=True, retries=0, time_limit=1.0)
def deaf(job: roq.Job, params: str) -> None:
    """Never stop, whatever is said, and start a program that does not, either."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with Path(params).open("a") as file:
        file.write(f"{job.attempt} {job.token} {os.getpid()}\n")
    while True:
        try:
            job.check()
        except roq.JobInterrupted:
            continue


@jobs.type("Stops", kind="process", restartable=True)
def stops(job: roq.Job, params: str) -> int:
    """Say where it is, and wait to be told to stop; in the second run say how far it was."""
    if job.saved:
        return job.saved
    for each in job.each(range(1_000)):
        if each == 7:
            with Path(params).open("a") as file:
                file.write(f"{job.attempt} {job.token} {os.getpid()}\n")
            while not job.interrupted:
                threading.Event().wait(0.02)
    return -1


@jobs.type("Completes", kind="process")
def completes(job: roq.Job) -> None:
    """Complete the job in a transaction, or not."""
    with jobs.engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO effect VALUES (:job)"), {"job": job.id})
        job.finish(str(job.scheduled()), connection=connection)
