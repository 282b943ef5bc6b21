"""Help for tests of programs that use RoQ, and of RoQ itself.

`roq.testing.cluster()` gives a running cluster for the length of a block; the pytest fixture
`roq_cluster` (in `roq.testing.fixtures`) does so for a whole run.
"""

from roq.testing.running import RunningCluster, cluster

__all__ = ["RunningCluster", "cluster"]
