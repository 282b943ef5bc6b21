"""How a host manager is, as it says itself."""

from __future__ import annotations

from roq.hcm.children import Children, State
from roq.hcm.leader import LeaderLink
from roq.protocol.control import (
    Health,
    HealthRequest,
)
from roq.protocol.facts import Check

FAILED_SHOWN = 10


def of_host(
    request: HealthRequest, host: str, children: Children, leader: LeaderLink, stopping: bool
) -> Health:
    """The answer of this manager: ready if the leader takes its reports and every child runs."""
    failed = [child for child in children if child.state is State.FAILED]
    reasons = "; ".join(f"{child.name}: {child.reason}" for child in failed[:FAILED_SHOWN])
    checks = [
        Check(name="leader", ok=bool(leader.leading), detail=leader.trouble or leader.leading),
        Check(name="children", ok=not failed, detail=reasons or f"{len(children)} run"),
    ]
    return Health(
        id=request.id,
        role="host",
        name=host,
        ready=all(check.ok for check in checks) and not stopping,
        state="stopping" if stopping else "serving",
        checks=checks,
    )
