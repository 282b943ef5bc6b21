"""Children of a host, and whether a leader knows it, without any process; no test in here."""

from __future__ import annotations

from roq.hcm.children import EXCHANGE, MONITOR, Child, Children, State
from roq.hcm.crash_history import CrashHistory, CrashLimits
from roq.hcm.leader import Leader
from roq.model import Limits
from roq.protocol.control import HostReportAck

LEADER = "tcp://a:5000"


def leader(*, known: bool = True) -> Leader:
    link = Leader([LEADER])
    link.start(0.0)
    if known:
        assert link.take_due(0.0)
        link.answered(HostReportAck(cluster="c"), 0.0)
    return link


def child(number: int, state: State = State.RUNNING, reason: str = "") -> Child:
    return Child(
        role=EXCHANGE if number else MONITOR,
        queue="orders",
        queue_id=b"q",
        number=number,
        limits=Limits(),
        history=CrashHistory(CrashLimits()),
        state=state,
        reason=reason,
    )


def children(*members: Child) -> Children:
    made = Children()
    for each in members:
        made.add(each)
    return made
