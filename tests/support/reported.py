"""What host managers report of a process."""

from __future__ import annotations

from waiting import eventually

import roq
from roq.protocol.public_answers import ProcessSummary


def reported(cluster: roq.Cluster, name: str) -> ProcessSummary:
    """How the child of this name is; waits until somebody has told of it."""
    found: list[ProcessSummary] = []

    def is_known() -> bool:
        children = [each for host in cluster.hosts() for each in host.children]
        found.extend(each for each in children if each.child == name)
        return bool(found)

    eventually(is_known)
    return found[-1]
