"""Help for tests of programs that use RoQ, and of RoQ itself.

`roq.testing.cluster()` gives a running cluster for the length of a block; the pytest fixture
`roq_cluster` (in `roq.testing.fixtures`) does so for a whole run. `roq.testing.jobs()` runs the
jobs of a program on a clock of the test's.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from roq.testing.running import RunningCluster, cluster

if TYPE_CHECKING:
    from roq.testing.job_clock import JobClock, jobs

__all__ = ["JobClock", "RunningCluster", "cluster", "jobs"]


def __getattr__(name: str) -> object:
    """What needs the extra `jobs` is loaded when it is used."""
    if name in {"JobClock", "jobs"}:
        return getattr(import_module("roq.testing.job_clock"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
