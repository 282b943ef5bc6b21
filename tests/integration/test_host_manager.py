"""A real host manager with real monitors and exchanges; the configuration manager is a fake."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import zmq
from fake_leader import HOST, QUEUE_ID, FakeLeader, is_gone, start_exchange, start_monitor, topology
from hcm_process import RunningHost, hcm_config
from waiting import eventually

from roq.coordination.memory import MemoryEnsemble
from roq.hcm.children import child_name
from roq.hcm.config import Exchange, Network
from roq.model import Limits
from roq.protocol import documents, kpi
from roq.protocol.control import (
    Assigned,
    Attach,
    ChildReport,
    Done,
    Failure,
    Inventory,
    StartExchange,
    StopQueue,
    Topology,
)
from roq.protocol.reports import ChildInfo
from roq.protocol.version import FIELD, WIRE_VERSION
from roq.runtime import exits

pytestmark = pytest.mark.integration


@pytest.fixture
def leader() -> Iterator[FakeLeader]:
    with FakeLeader() as found:
        yield found


@pytest.fixture
def ensemble() -> MemoryEnsemble:
    return MemoryEnsemble("c1")


@pytest.fixture
def host(tmp_path: Path, leader: FakeLeader, ensemble: MemoryEnsemble) -> Iterator[RunningHost]:
    running = RunningHost(hcm_config(tmp_path, leader), ensemble)
    assert running.ready.wait(30)
    yield running
    running.stop()


def test_a_queue_starts_crashes_recovers_and_stops_without_a_trace(leader, host) -> None:
    monitor = start_monitor(leader, host.control)
    exchanges = [start_exchange(leader, host.control, number, monitor.control) for number in (1, 2)]
    eventually(
        lambda: topology(leader, monitor.control) == {1: exchanges[0].epoch, 2: exchanges[1].epoch},
        "the monitor shows both exchanges",
    )
    assigned = leader.ask(monitor.control, Attach(queue_id=QUEUE_ID, publisher=b"p"))
    assert isinstance(assigned, Assigned)

    # An exchange is killed: another process takes its place, with a higher epoch.
    os.kill(exchanges[0].pid, signal.SIGKILL)
    eventually(
        lambda: topology(leader, monitor.control).get(1, 0) > exchanges[0].epoch,
        "the monitor shows the restarted exchange",
    )
    restarted = leader.child(HOST, "orders.x1")
    assert restarted is not None
    assert restarted.restarts == 1
    assert restarted.data != exchanges[0].data

    # The monitor is killed: the new one learns of both exchanges before it shows anything.
    os.kill(monitor.pid, signal.SIGKILL)

    def moved() -> ChildInfo | None:
        child = leader.child(HOST, "orders.monitor")
        return child if child and child.epoch > monitor.epoch and child.control else None

    eventually(moved, "the monitor runs again")
    new_monitor = moved()
    assert new_monitor is not None
    assert topology(leader, new_monitor.control) == {1: restarted.epoch, 2: exchanges[1].epoch}

    pids = [child.pid for child in leader.reports[HOST].children]
    assert len(pids) == 3
    stop = StopQueue(queue="orders", queue_id=QUEUE_ID, leader_epoch=1)
    assert isinstance(leader.ask(host.control, stop), Done)
    eventually(lambda: all(is_gone(pid) for pid in pids), "their processes are gone")
    eventually(lambda: leader.reports[HOST].children == [], "the report shows nothing")


def test_clients_hear_why_the_queue_ends(leader, host) -> None:
    monitor = start_monitor(leader, host.control)
    assert topology(leader, monitor.control) == {}
    leader.ask(host.control, StopQueue(queue="orders", leader_epoch=1, reason="removed"))
    eventually(
        lambda: [m.state for m in leader.pushed if isinstance(m, Topology)][-1:] == ["removed"],
        "the monitor said goodbye",
    )


def test_the_statistics_stream_serves_old_consoles(leader, host) -> None:
    monitor = start_monitor(leader, host.control)
    start_exchange(leader, host.control, 1, monitor.control)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with context, context.socket(zmq.SUB) as console:
        console.setsockopt(zmq.RCVTIMEO, 30_000)
        console.subscribe(b"")
        console.connect(monitor.statistics)
        seen: set[type] = set()
        while not {kpi.OldExchange, kpi.OldQueue, kpi.ExchangeKpi, kpi.QueueKpi} <= seen:
            seen |= {type(document) for document in kpi.decode(console.recv_multipart())}


def test_a_start_that_fails_says_why(tmp_path, leader, ensemble) -> None:
    # A range of one port, and an exchange needs two.
    config = hcm_config(tmp_path, leader, exchange=Exchange(base_port=16_001, ports=1))
    host = RunningHost(config, ensemble)
    try:
        assert host.ready.wait(30)
        answer = leader.ask(
            host.control,
            StartExchange(queue="orders", queue_id=QUEUE_ID, number=1, leader_epoch=1,
                          monitor="tcp://127.0.0.1:1", limits=Limits()),
        )  # fmt: skip
        assert isinstance(answer, Failure)
        assert "orders.x1" in answer.COMMENT
        assert "no free port" in answer.COMMENT
        eventually(lambda: leader.reports[HOST].children == [], "nothing is left of it")
    finally:
        host.stop()


def test_garbage_is_answered_and_harms_nobody(leader, host) -> None:
    monitor = start_monitor(leader, host.control)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    garbage = ([b""], [b"garbage"], [b"a", b"b"], [b"\x05\x00\x00\x00\x00"], [os.urandom(100)])
    with context:
        for endpoint in (host.control, monitor.control):
            for frames in garbage:
                with context.socket(zmq.DEALER) as client:
                    client.setsockopt(zmq.LINGER, 0)
                    client.setsockopt(zmq.RCVTIMEO, 30_000)
                    client.connect(endpoint)
                    client.send_multipart(frames)
                    assert b"COMMENT" in client.recv_multipart()[-1]
    assert topology(leader, monitor.control) == {}
    assert leader.ask(host.control, Inventory()).id > 0


@pytest.mark.parametrize("role", ["exchange", "monitor"])
def test_a_child_of_version_1_is_refused_by_name_and_nothing_is_started_for_it(
    leader, host, role
) -> None:
    """As it is left by an earlier release: it goes on, and ends when nobody has wanted it."""
    before = set(psutil.Process().children())
    number = int(role == "exchange")
    info = ChildInfo(
        child=child_name("old", number), role=role, queue="old", queue_id=QUEUE_ID, number=number,
        epoch=1, state="running", pid=os.getpid(),
    )  # fmt: skip
    first = documents.decode_raw(documents.encode(ChildReport(id=7, child=info)))
    del first[FIELD]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with context, context.socket(zmq.DEALER) as child:
        child.setsockopt(zmq.LINGER, 0)
        child.setsockopt(zmq.RCVTIMEO, 30_000)
        child.connect(host.control)
        for _ in range(5):
            child.send(documents.encode_raw(first))
            answer = documents.decode(child.recv(), Failure)
            assert (answer.id, answer.CODE) == (7, "version")
            assert "speaks version 1 " in answer.COMMENT
            assert f"version {WIRE_VERSION}:" in answer.COMMENT
    inventory = leader.ask(host.control, Inventory())
    assert inventory.children == []
    assert set(psutil.Process().children()) <= before


def test_the_end_of_a_host_manager_leaves_nothing(tmp_path, leader, ensemble) -> None:
    host = RunningHost(hcm_config(tmp_path, leader), ensemble)
    try:
        assert host.ready.wait(30)
        assert ensemble.names("/hosts") == (HOST,)
        monitor = start_monitor(leader, host.control)
        exchange = start_exchange(leader, host.control, 1, monitor.control)
    finally:
        host.stop()
    assert is_gone(monitor.pid)
    assert is_gone(exchange.pid)
    assert ensemble.names("/hosts") == ()
    assert not list(tmp_path.glob("*.json"))


def test_a_second_host_manager_of_the_same_name_ends_and_disturbs_nothing(
    tmp_path, leader, host, ensemble, caplog
) -> None:
    monitor = start_monitor(leader, host.control)
    second = RunningHost(hcm_config(tmp_path / "two", leader), ensemble)
    second.join()
    assert second.code == exits.CONFIG
    assert f"a host manager at {host.control} is host {HOST} already" in caplog.text
    assert topology(leader, monitor.control) == {}
    assert ensemble.names("/hosts") == (HOST,)
    assert leader.reports[HOST].control == host.control


def test_a_lost_session_keeps_the_children(leader, host, ensemble) -> None:
    monitor = start_monitor(leader, host.control)
    host.registries[0].expire()
    eventually(lambda: ensemble.names("/hosts") == (HOST,), "the host is registered again")
    assert topology(leader, monitor.control) == {}
    assert not is_gone(monitor.pid)


def test_a_host_with_an_ipv6_address_serves(tmp_path, leader, ensemble) -> None:
    if not any(a.address == "::1" for each in psutil.net_if_addrs().values() for a in each):
        pytest.skip("this machine has no ::1")
    host = RunningHost(hcm_config(tmp_path, leader, network=Network(bind="::1", port=0)), ensemble)
    try:
        assert host.ready.wait(30)
        assert host.control.startswith("tcp://[::1]:")
        monitor = start_monitor(leader, host.control)
        start_exchange(leader, host.control, 1, monitor.control)
        eventually(lambda: 1 in topology(leader, monitor.control), "the exchange is known")
    finally:
        host.stop()
