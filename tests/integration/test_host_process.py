"""A host manager as a process of its own, with a real ZooKeeper."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_leader import HOST, FakeLeader, is_gone, start_exchange, start_monitor, topology
from founding import found_cluster
from waiting import eventually
from zookeeper_server import EmbeddedZooKeeper

pytestmark = pytest.mark.integration


@pytest.fixture
def leader() -> Iterator[FakeLeader]:
    with FakeLeader() as found:
        yield found


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        found_cluster(server.address)
        yield server.address


class HostProcess:
    """`python -m roq.hcm`, ready when it returns."""

    def __init__(
        self,
        folder: Path,
        leader: FakeLeader,
        zookeeper: str,
        env: dict[str, str] | None = None,
        orphan_seconds: float = 60.0,
    ) -> None:
        config = folder / "hcm.toml"
        config.write_text(
            f'[gcm]\naddress = ["{leader.address}"]\n[zk]\nservers = "{zookeeper}"\n'
            "[network]\nport = 0\n[monitor]\nbase_port = 0\n[statmonitor]\nbase_port = 0\n"
            "[exchange]\nbase_port = 0\n"
            f"[children]\nstart_seconds = 60.0\norphan_seconds = {orphan_seconds}\n"
            f'[data]\ndir = "{folder / "data"}"\n'
        )
        read, write = os.pipe()
        with (folder / "hcm.log").open("wb") as log, os.fdopen(read) as ready:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "roq.hcm", "--config", str(config),
                 "--ready-fd", str(write)],
                stdout=log, stderr=log, pass_fds=(write,), env=env,
            )  # fmt: skip
            os.close(write)
            line = ready.readline()
        assert line, (folder / "hcm.log").read_text()
        self.control = str(json.loads(line)["control"])


@pytest.fixture
def process(tmp_path: Path, leader: FakeLeader, zookeeper: str) -> Iterator[HostProcess]:
    found = HostProcess(tmp_path, leader, zookeeper)
    yield found
    found.process.terminate()
    found.process.wait(30)


def test_a_host_manager_process_stops_all_its_children_at_sigterm(leader, process) -> None:
    monitor = start_monitor(leader, process.control)
    exchange = start_exchange(leader, process.control, 1, monitor.control)
    process.process.terminate()
    assert process.process.wait(30) == 0
    assert is_gone(monitor.pid)
    assert is_gone(exchange.pid)


def test_children_of_a_killed_host_manager_end_by_themselves(tmp_path, leader, zookeeper) -> None:
    process = HostProcess(tmp_path, leader, zookeeper, orphan_seconds=3.0)
    monitor = start_monitor(leader, process.control)
    exchange = start_exchange(leader, process.control, 1, monitor.control)
    process.process.kill()
    process.process.wait()
    assert not is_gone(monitor.pid)
    assert not is_gone(exchange.pid)
    eventually(lambda: is_gone(monitor.pid) and is_gone(exchange.pid), "the orphans end")


@pytest.mark.parametrize("years", [-30, 10])
def test_a_host_whose_clock_is_off_works_like_any_other(tmp_path, leader, zookeeper, years) -> None:
    # The wall clock of the host manager and of its children; that of others is right.
    (tmp_path / "sitecustomize.py").write_text(
        "import time\n"
        "right, right_ns = time.time, time.time_ns\n"
        f"off = {years} * 365 * 86_400\n"
        "time.time = lambda: right() + off\n"
        "time.time_ns = lambda: right_ns() + off * 10**9\n"
    )
    process = HostProcess(tmp_path, leader, zookeeper, {**os.environ, "PYTHONPATH": str(tmp_path)})
    try:
        monitor = start_monitor(leader, process.control)
        exchange = start_exchange(leader, process.control, 1, monitor.control)
        eventually(lambda: topology(leader, monitor.control) == {1: exchange.epoch}, "it is shown")
        os.kill(exchange.pid, signal.SIGSTOP)
        eventually(
            lambda: topology(leader, monitor.control).get(1, 0) > exchange.epoch, "it is replaced"
        )
        # The next life finds them: who they are does not depend on the time of day.
        before = leader.reports[HOST]
        process.process.kill()
        process.process.wait()
        process = HostProcess(tmp_path, leader, zookeeper)
        eventually(lambda: leader.reports[HOST].epoch > before.epoch, "the next life reports")
        found = leader.child(HOST, "orders.monitor")
        assert found is not None
        assert found.pid == monitor.pid
    finally:
        process.process.terminate()
        assert process.process.wait(30) == 0


def test_without_zookeeper_it_gives_up_with_a_clear_word(tmp_path, leader) -> None:
    config = tmp_path / "hcm.toml"
    config.write_text(
        '[zk]\nservers = "127.0.0.1:1"\nconnect_seconds = 1.0\n[network]\nport = 0\n'
        f'[gcm]\naddress = ["{leader.address}"]\n[data]\ndir = "{tmp_path / "data"}"\n'
    )
    ended = subprocess.run(
        [sys.executable, "-m", "roq.hcm", "--config", str(config)],
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 69
    assert b"zk.servers" in ended.stderr


def test_without_zookeeper_it_does_not_give_up_on_children_of_an_earlier_life(
    tmp_path, leader, process
) -> None:
    monitor = start_monitor(leader, process.control)
    process.process.kill()
    process.process.wait()
    config = tmp_path / "hcm.toml"
    config.write_text(
        config.read_text().replace("[network]", "connect_seconds = 0.5\n[network]", 1)
    )
    text = config.read_text()
    zookeeper = text.split('servers = "')[1].split('"')[0]
    config.write_text(text.replace(zookeeper, "127.0.0.1:1"))
    with (tmp_path / "next.log").open("wb") as log:
        following = subprocess.Popen(
            [sys.executable, "-m", "roq.hcm", "--config", str(config)], stdout=log, stderr=log
        )
    try:
        said = tmp_path / "next.log"
        eventually(lambda: said.read_text().count("trying again") >= 2, "it tries again and again")
        # It looks after them as well: what is killed is started again.
        os.kill(monitor.pid, signal.SIGKILL)
        eventually(lambda: said.read_text().count("orders.monitor runs") >= 2, "it is replaced")
    finally:
        following.terminate()
        assert following.wait(30) == 0


@pytest.mark.parametrize(
    ("text", "word"),
    [("[exchange]\nmax = 3\n", b"exchange.max"), ("[network]\nbind = '192.0.2.1'\n", b"192.0.2.1")],
)
def test_a_wrong_configuration_ends_with_78_and_says_where(tmp_path, text, word) -> None:
    config = tmp_path / "hcm.toml"
    config.write_text(f"{text}[data]\ndir = '{tmp_path / 'data'}'\n")
    ended = subprocess.run(
        [sys.executable, "-m", "roq.hcm", "--config", str(config)],
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 78
    assert word in ended.stderr
