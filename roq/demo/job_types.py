"""What the demo of jobs runs: types of all kinds, and a schedule.

Each process of `roq jobs demo` imports it; database and cluster are in its environment.
"""

from __future__ import annotations

import os
import threading

import msgspec

from roq.errors import RoQError
from roq.jobs.jobs import Jobs
from roq.jobs.run import Job

STEP_SECONDS = 0.02


class Broken(RoQError):
    """What a job of the demo fails with."""


class Images(msgspec.Struct):
    """Params of a job that has items."""

    names: list[str]
    width: int = 800


jobs = Jobs(os.environ.get("ROQ_JOBS", "jobs.db"), os.environ.get("ROQ_CLUSTER") or None)


def step() -> None:
    """What work takes."""
    threading.Event().wait(STEP_SECONDS)


@jobs.type("Resize", items=lambda params: len(params.names), restartable=True, cluster_limit=6)
def resize(job: Job, params: Images) -> int:
    """Has items, can be interrupted, and goes on where it was; six at once in the cluster."""
    for _name in job.each(params.names):
        step()
    return params.width


@jobs.type("Import", restartable=True, priority="high")
def part(job: Job, params: int) -> int:
    """One in four fails until an operator restarts it: that sets its attempts to the first."""
    step()
    if params % 4 == 3 and job.token <= 6:
        raise Broken(f"part {params} is not there yet")
    return params


@jobs.type("Report")
def report(_job: Job, params: str) -> str:
    """The last one of a batch."""
    step()
    return f"{params}: all parts are there"


@jobs.type("Flaky", restartable=True, retries=3)
def flaky(job: Job) -> int:
    """Fails at first."""
    if job.attempt == 1:
        raise Broken("not at the first try")
    return job.attempt


@jobs.type("Heartbeat")
def heartbeat(_job: Job) -> None:
    """Of a schedule."""
    step()


jobs.schedule("heartbeat", heartbeat, every=2)
