"""The shell of a host manager: its name, its folder, its sockets, how it starts and ends."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from fake_leader import HOST, FakeLeader
from hcm_process import RunningHost, hcm_config
from waiting import eventually

from roq.coordination.addresses import Zk
from roq.coordination.memory import MemoryEnsemble, MemoryRegistry
from roq.coordination.registry_contract import EPOCH, EPOCH_MAX, Create, SessionState
from roq.errors import ConfigError, RegistryAway
from roq.hcm.config import Network
from roq.hcm.daemon import HostManager
from roq.hcm.records import OWN
from roq.protocol.control import Failure, Health, HealthRequest, HostReport, Inventory
from roq.runtime import exits
from roq.runtime.interfaces import Call


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


def _run_all(posted: queue.SimpleQueue[Call]) -> None:
    while not posted.empty():
        posted.get()()


@pytest.mark.parametrize("control", ["tcp://127.0.0.1:1", "tcp://", "nonsense", 5])
def test_a_name_whose_owner_does_not_answer_is_taken_over(
    tmp_path, leader, ensemble, control
) -> None:
    posted: queue.SimpleQueue[Call] = queue.SimpleQueue()
    dead = MemoryRegistry(ensemble, posted.put)
    dead.start(lambda _state: None)
    dead.register_host(HOST, json.dumps({"control": control}).encode(), lambda _result: None)
    eventually(lambda: _run_all(posted) or ensemble.names("/hosts") == (HOST,), "it has the name")
    host = RunningHost(hcm_config(tmp_path / "two", leader), ensemble)
    try:
        assert host.ready.wait(30)
    finally:
        host.stop()
        dead.close()


def test_a_host_that_has_used_the_last_epoch_says_so_and_leaves_the_others_to_the_cluster(
    tmp_path, leader, ensemble, caplog
) -> None:
    posted: queue.SimpleQueue[Call] = queue.SimpleQueue()
    registry = MemoryRegistry(ensemble, posted.put)
    sessions: list[SessionState] = []
    registry.start(sessions.append)
    eventually(lambda: _run_all(posted) or sessions, "it is connected")
    drawn: list[int | RegistryAway] = []
    registry.next_host_epoch(drawn.append, EPOCH_MAX - 100)
    eventually(lambda: _run_all(posted) or drawn, "so many were given")
    assert drawn == [EPOCH_MAX - 99]
    registry.close()
    before = ensemble.node(EPOCH).version
    (tmp_path / OWN).write_text(str(EPOCH_MAX))
    host = RunningHost(hcm_config(tmp_path, leader), ensemble)
    host.join()
    assert host.code == exits.CONFIG
    assert f"{OWN} holds {EPOCH_MAX}, above which no epoch is left" in caplog.text
    assert ensemble.node(EPOCH).version == before + 1


def test_two_host_managers_cannot_share_a_folder(tmp_path, leader, ensemble) -> None:
    host = RunningHost(hcm_config(tmp_path, leader), ensemble)
    try:
        with pytest.raises(ConfigError, match=r"data\.dir"):
            HostManager(hcm_config(tmp_path, leader), partial(MemoryRegistry, ensemble))
    finally:
        host.stop()


def test_a_port_in_use_is_a_clear_error(tmp_path, leader, host, ensemble) -> None:
    port = int(host.control.rpartition(":")[2])
    config = hcm_config(tmp_path / "other", leader, network=Network(port=port))
    with pytest.raises(ConfigError, match=f"port {port}"):
        HostManager(config, partial(MemoryRegistry, ensemble))


def test_it_is_registered_with_its_address_and_epoch_and_reports_how_its_machine_is(
    host: RunningHost, leader: FakeLeader, ensemble: MemoryEnsemble
) -> None:
    node = ensemble.node(f"/hosts/{HOST}")
    told = json.loads(node.data)
    assert (told["host"], told["control"], told["epoch"]) == (HOST, host.control, 1)
    report = leader.reports[HOST]
    assert (report.control, report.epoch, report.children) == (host.control, 1, [])
    memory = psutil.virtual_memory().total
    assert 0 < report.memory_bytes < memory
    assert 0 < report.memory_free_bytes < memory


def test_it_says_how_it_is_and_what_runs_here(host: RunningHost, leader: FakeLeader) -> None:
    eventually(lambda: leader.ask(host.control, HealthRequest(id=4)).ready, "it is measured")
    health = leader.ask(host.control, HealthRequest(id=4))
    assert isinstance(health, Health)
    assert (health.role, health.name, health.state) == ("host", HOST, "serving")
    assert {"registry", "leader", "files"} <= {each.name for each in health.checks}
    inventory = leader.ask(host.control, Inventory(id=5))
    assert isinstance(inventory, HostReport)
    assert (inventory.host, inventory.memory_bytes > 0) == (HOST, True)


def test_what_it_cannot_read_is_refused_with_the_reason(
    host: RunningHost, leader: FakeLeader, caplog: pytest.LogCaptureFixture
) -> None:
    refused = leader.ask(host.control, HostReport(id=6, host="h", epoch=1, control="tcp://a:1"))
    assert isinstance(refused, Failure)
    assert "refused a request" in caplog.text


def test_after_a_stop_its_name_and_its_folder_are_free(
    tmp_path: Path, leader: FakeLeader, ensemble: MemoryEnsemble
) -> None:
    for epoch in (1, 2):
        running = RunningHost(hcm_config(tmp_path, leader), ensemble)
        assert running.ready.wait(30)
        assert json.loads(ensemble.node(f"/hosts/{HOST}").data)["epoch"] == epoch
        running.stop()
        assert running.code == exits.STOPPED
        assert ensemble.names("/hosts") == ()


def test_a_registry_that_is_not_there_in_time_ends_it_with_a_code_of_its_own(
    tmp_path: Path, leader: FakeLeader, ensemble: MemoryEnsemble, caplog: pytest.LogCaptureFixture
) -> None:
    config = hcm_config(tmp_path, leader, zk=Zk(connect_seconds=0.2))
    manager = HostManager(config, partial(_Unreachable, ensemble))
    try:
        assert manager.run() == exits.UNAVAILABLE
    finally:
        manager.close()
    assert "within 0.2 s" in caplog.text


class _Unreachable(MemoryRegistry):
    def start(self, *_: object) -> None: ...


def test_a_name_that_another_one_takes_over_ends_it_as_it_was_not_meant(
    host: RunningHost, ensemble: MemoryEnsemble, caplog: pytest.LogCaptureFixture
) -> None:
    session = ensemble.open_session()
    host.registries[0].suspend()
    ensemble.end_session(ensemble.node(f"/hosts/{HOST}").owner)
    ensemble.transact(session, [Create(f"/hosts/{HOST}", b'{"epoch": 9}', ephemeral=True)])
    host.registries[0].resume()
    host.join()
    assert host.code == exits.CONFIG
    assert "network.advertise" in caplog.text


def test_an_epoch_that_this_host_has_used_is_not_used_again(
    tmp_path: Path, leader: FakeLeader, ensemble: MemoryEnsemble, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / OWN).write_text("40")
    running = RunningHost(hcm_config(tmp_path, leader), ensemble)
    assert running.ready.wait(30)
    assert leader.reports[HOST].epoch > 40
    running.stop()
    assert "has started processes under 40" in caplog.text


def test_a_drain_that_has_nothing_to_wait_for_ends_it(host: RunningHost) -> None:
    host.manager.drain()
    host.join()
    assert host.code == exits.STOPPED


def test_a_host_that_others_reach_is_told_that_nobody_is_asked_for_a_name(
    tmp_path: Path, leader: FakeLeader, ensemble: MemoryEnsemble, caplog: pytest.LogCaptureFixture
) -> None:
    network = Network(bind="0.0.0.0", advertise="127.0.0.1", port=0)
    RunningHost(hcm_config(tmp_path, leader, network=network), ensemble).stop()
    assert "there is no authentication" in caplog.text
