"""A program with a schedule of every second, for processes that tests kill."""

from __future__ import annotations

import os

import roq

jobs = roq.Jobs(os.environ["ROQ_JOBS"])


@jobs.type("Beat", restartable=True)
def beat(job: roq.Job) -> int:
    """Be short."""
    return job.id


jobs.schedule("beat", beat, every=1, catch_up="all", overlap="allow")
