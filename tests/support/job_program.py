"""A program with jobs, for processes that tests kill; its database is named by ROQ_JOBS."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import roq

jobs = roq.Jobs(os.environ["ROQ_JOBS"])


@jobs.type("Line", restartable=True)
def line(job: roq.Job, params: str) -> int:
    """Write a line that says which run this is; the first run then waits to be killed."""
    with Path(params).open("a") as file:
        file.write(f"{job.attempt} {job.token} {os.getpid()}\n")
    while job.attempt == 1:
        job.check()
        threading.Event().wait(0.05)
    return job.token


@jobs.type("Once")
def once(job: roq.Job, params: str) -> None:
    """The same, of a job that must not be run twice."""
    with Path(params).open("a") as file:
        file.write(f"{job.attempt} {job.token} {os.getpid()}\n")
    while True:
        job.check()
        threading.Event().wait(0.05)


@jobs.type("Exit", restartable=True)
def leave(job: roq.Job) -> int:
    """End the process on the first run."""
    if job.attempt == 1:
        os._exit(9)
    return job.attempt


@jobs.type("Fork")
def fork(job: roq.Job) -> int:
    """Come back twice, once in a child."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return child


@jobs.type("Aside", kind="process", restartable=True)
def aside(job: roq.Job, params: str) -> None:
    """Say in which process, start another one, and never stop."""
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with Path(params).open("a") as file:
        file.write(f"{job.attempt} {job.token} {os.getpid()} {other.pid}\n")
    threading.Event().wait(600)
