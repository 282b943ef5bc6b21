"""Help for tests of programs that use RoQ, and of RoQ itself.

`roq.testing.cluster()` gives a running cluster for the length of a block; the pytest fixture
`roq_cluster` (in `roq.testing.fixtures`) does so for a whole run. On a clock of the test's
`roq.testing.jobs()` runs the jobs of a program, `roq.testing.requests()` its services and
requesters.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from roq.testing.running import RunningCluster, cluster

if TYPE_CHECKING:
    from roq.testing.job_clock import JobClock, jobs
    from roq.testing.virtual_requests import RequestWorld, requests

__all__ = ["JobClock", "RequestWorld", "RunningCluster", "cluster", "jobs", "requests"]


_LATER = {
    "JobClock": "roq.testing.job_clock",
    "jobs": "roq.testing.job_clock",
    "RequestWorld": "roq.testing.virtual_requests",
    "requests": "roq.testing.virtual_requests",
}


def __getattr__(name: str) -> object:
    """What needs the extra `jobs`, or much else, is loaded when it is used."""
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
