"""How a host manager is, as it says itself."""

from __future__ import annotations

from typing import Final

from roq.hcm.children import Children, State
from roq.hcm.cpu import HostCpu
from roq.hcm.leader import Leader
from roq.protocol.control import Health
from roq.protocol.reports import Check

SHOWN_MAX: Final = 10
"""Children that are named one by one."""
_TROUBLED: Final = {State.RESTARTING, State.FAILED}


def of_host(
    host: str,
    children: Children,
    leader: Leader,
    measured: tuple[Check, ...] = (),
    *,
    stopping: bool = False,
    request_id: int = 0,
) -> Health:
    """The answer of this manager: ready if the leader takes its reports and every child runs.

    Args:
        host: its name in the cluster.
        children: what it starts and watches.
        leader: whom it reports to.
        measured: what its shell has found out about this process and its machine.
        stopping: it was asked to end.
        request_id: of the request that is answered.
    """
    checks = [_leader(leader), _children(children), *measured]
    return Health(
        id=request_id,
        role="host",
        name=host,
        ready=all(check.ok for check in checks if check.essential) and not stopping,
        state="stopping" if stopping else "serving",
        checks=checks,
    )


def shortage(processor: HostCpu) -> str:
    """What is wrong with the processor of a host, and what to do; follows its name."""
    return (
        f"gets too little processor: {processor.text()}. Its processes are given more time; give "
        "it more of a processor, or fewer queues"
    )


def processor_check(processor: HostCpu, short: bool) -> Check:
    """Whether the host gets enough of it; if not, everything takes its time but goes on."""
    text = shortage(processor) if short else processor.text()
    detail = f"this host {text}" if short else text
    return Check(name="processor", ok=not short, detail=detail, essential=False)


def _leader(leader: Leader) -> Check:
    if leader.leading:
        return Check(name="leader", ok=True, detail=leader.leading)
    detail = "no configuration manager has answered yet"
    if leader.trouble:
        detail = f"no configuration manager takes its reports, the last one says: {leader.trouble}"
    return Check(name="leader", ok=False, detail=detail)


def _children(children: Children) -> Check:
    troubled = [child for child in children if child.state in _TROUBLED]
    if not troubled:
        running = sum(child.state is State.RUNNING for child in children)
        return Check(name="children", ok=True, detail=f"{running} run")
    shown = [
        f"{child.name} is {child.state}" + (f": {child.reason}" if child.reason else "")
        for child in troubled[:SHOWN_MAX]
    ]
    more = len(troubled) - SHOWN_MAX
    detail = "; ".join(shown) + (f"; and {more} more" if more > 0 else "")
    return Check(name="children", ok=False, detail=detail)
