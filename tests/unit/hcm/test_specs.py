"""What a child is told when it is started, and the child that was told so."""

from __future__ import annotations

import pytest

from roq.hcm.children import EXCHANGE, MONITOR, Child, State
from roq.hcm.crash_history import CrashHistory, CrashLimits
from roq.hcm.specs import Settings, adopted_child, make_spec
from roq.model import Limits
from roq.protocol.spec import ExchangeSpec, MonitorSpec

SETTINGS = Settings(
    host="10.0.0.1",
    bind="0.0.0.0",
    control="tcp://10.0.0.1:5010",
    control_local="tcp://127.0.0.1:5010",
    managers=("tcp://10.0.0.9:5000",),
    monitor_ports=(6000, 6010),
    statistics_ports=(6100, 6110),
    exchange_ports=(7000, 7100),
)


def child(role: str = EXCHANGE, number: int = 1, **fields: object) -> Child:
    history = CrashHistory(CrashLimits())
    given = {"epoch": 65_537, "monitor": "tcp://10.0.0.2:6000", **fields}
    return Child(role, "orders", b"id", number, Limits(), history, **given)  # type: ignore[arg-type]


def test_an_exchange_is_told_where_its_monitor_and_its_ports_are() -> None:
    spec = make_spec(child(), SETTINGS, "c1", [7001])
    assert isinstance(spec, ExchangeSpec)
    assert (spec.child, spec.number, spec.monitor) == ("orders.x1", 1, "tcp://10.0.0.2:6000")
    assert (spec.ports, spec.avoid_ports) == ((7000, 7100), [7001])
    assert (spec.advertise, spec.bind) == ("10.0.0.1", "0.0.0.0")
    assert spec.manager == "tcp://127.0.0.1:5010"
    assert spec.cluster == "c1"


@pytest.mark.parametrize(
    ("fields", "restarted"), [({}, False), ({"ran": True}, True), ({"restarted": True}, True)]
)
def test_a_monitor_is_told_whether_exchanges_may_be_there_already(
    fields: dict[str, object], restarted: bool
) -> None:
    spec = make_spec(child(MONITOR, 0, **fields), SETTINGS, "", [])
    assert isinstance(spec, MonitorSpec)
    assert (spec.ports, spec.statistics_ports) == ((6000, 6010), (6100, 6110))
    assert spec.restarted is restarted


@pytest.mark.parametrize(("role", "number"), [(EXCHANGE, 3), (MONITOR, 0)])
def test_a_child_that_is_found_running_is_the_one_that_was_told_so(role: str, number: int) -> None:
    before = child(role, number)
    found = adopted_child(make_spec(before, SETTINGS, "c1", []), 4711, before.history)
    same = ("role", "queue", "queue_id", "number", "name", "epoch", "limits")
    assert all(getattr(found, name) == getattr(before, name) for name in same)
    assert (found.state, found.alive, found.ran, found.pid) == (State.STARTING, True, True, 4711)
