"""How a configuration manager is, as it says itself."""

from __future__ import annotations

from roq.gcm.standing import Standing
from roq.protocol.control import (
    Health,
    HealthRequest,
)
from roq.protocol.facts import Check


def of_manager(request: HealthRequest, standing: Standing) -> Health:
    """The answer of this manager: ready if it is known who leads, and the registry is there."""
    checks = [_registry(standing), _leader(standing)]
    return Health(
        id=request.id,
        role="gcm",
        name=standing.me.client,
        ready=all(check.ok for check in checks),
        state="leading" if standing.leads and not standing.caretaker else "following",
        checks=checks,
    )


def _registry(standing: Standing) -> Check:
    away = standing.registry_away or not standing.cluster
    detail = "ZooKeeper cannot be reached: changes are refused, reads go on" if away else ""
    return Check(name="registry", ok=not away, detail=detail)


def _leader(standing: Standing) -> Check:
    if standing.leads:
        return Check(name="leader", ok=not standing.caretaker, detail="this one")
    leader = standing.leader
    detail = leader.client if leader else "nobody leads at the moment"
    return Check(name="leader", ok=leader is not None, detail=detail)
