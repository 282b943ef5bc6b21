"""`roq up`: comes up as one, goes down as one, and says clearly why it does not."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest
from commands import environment, family, gone, read_ready, roq, started

from roq.local.ports import choose_base

pytestmark = pytest.mark.integration

ROLES = ("roq.gcm", "roq.hcm", "roq.monitor", "roq.exchange")
SERVER = "QuorumPeerMain"


@pytest.mark.parametrize(
    ("number", "registry"),
    [(signal.SIGTERM, "zookeeper"), (signal.SIGINT, "file"), (signal.SIGHUP, "file")],
)
def test_a_stop_leaves_nothing_behind(
    number: signal.Signals, registry: str, tmp_path: Path
) -> None:
    env = environment(TMPDIR=str(tmp_path))
    arguments = ("up", "--port-base", "0", "--hosts", "2", "--registry", registry)
    with started(*arguments, env=env) as up:
        addresses = read_ready(up)
        assert addresses["hosts"] == ["127.0.0.1", "127.0.0.2"]
        created = roq("queue", "create", "orders", cluster=addresses["client"])
        assert created.returncode == 0, created.stderr
        processes = family(up.pid)
        commands = [" ".join(process.cmdline()) for process in processes]
        assert all(any(role in command for command in commands) for role in ROLES), commands
        assert any(SERVER in command for command in commands) == (registry == "zookeeper")
        up.send_signal(number)
        out, err = up.communicate(timeout=40)
        assert up.returncode == 0, err
        assert out == b"", "the ready line is the only one"
        assert err == b"", "without a terminal there is nothing to say"
        assert gone(processes)
    assert list(tmp_path.iterdir()) == []


def test_everything_ends_when_roq_up_is_killed(tmp_path: Path) -> None:
    env = environment(TMPDIR=str(tmp_path))
    with started("up", "--port-base", "0", env=env) as up:
        addresses = read_ready(up)
        assert roq("queue", "create", "orders", cluster=addresses["client"]).returncode == 0
        processes = family(up.pid)
        up.kill()
        assert gone(processes)


@pytest.mark.parametrize("registry", ["file", "zookeeper"])
def test_a_data_directory_keeps_the_queues(registry: str, tmp_path: Path) -> None:
    arguments = ("up", "--port-base", "0", "--data-dir", str(tmp_path / "data"))
    arguments += ("--registry", registry)
    with started(*arguments) as up:
        addresses = read_ready(up)
        assert roq("queue", "create", "orders", cluster=addresses["client"]).returncode == 0
        up.terminate()
        assert up.wait(40) == 0
    with started(*arguments) as up:
        addresses = read_ready(up)
        listed = roq("queue", "list", "--json", cluster=addresses["client"])
        assert [queue["name"] for queue in json.loads(listed.stdout)] == ["orders"]
        second = roq(*arguments)
        assert second.returncode == 78
        assert b"used by another cluster" in second.stderr
        up.terminate()
        assert up.wait(40) == 0


def test_the_ports_are_those_that_were_asked_for() -> None:
    base = choose_base("127.0.0.1")
    with started("up", "--port-base", str(base)) as up:
        addresses = read_ready(up)
        assert addresses["client"] == f"127.0.0.1:{base}"
        assert addresses["management"] == f"127.0.0.1:{base + 3}"
        assert addresses["broadcast"] == f"127.0.0.1:{base + 5}"
        up.terminate()
        assert up.wait(40) == 0


def test_a_port_in_use_ends_with_78_and_says_which() -> None:
    base = choose_base("127.0.0.1")
    port = base + 3
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        ended = roq("up", "--port-base", str(base))
    assert ended.returncode == 78
    assert f"port {port} on 127.0.0.1".encode() in ended.stderr
    assert b"--port-base" in ended.stderr
    assert ended.stdout == b""


def test_no_zookeeper_ends_with_69_and_says_where_it_was_looked_for(tmp_path: Path) -> None:
    env = environment(
        ROQ_GCM_ZK_CONNECT_SECONDS="1", ROQ_HCM_ZK_CONNECT_SECONDS="1", TMPDIR=str(tmp_path)
    )
    with started("up", "--port-base", "0", "--zookeeper", "127.0.0.1:1", env=env) as up:
        out, err = up.communicate(timeout=40)
    assert up.returncode == 69, err
    assert out == b""
    assert b"127.0.0.1:1" in err
    assert b"Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_without_java_there_is_a_cluster_with_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    arguments = ("up", "--port-base", "0", "--data-dir", str(folder))
    with started(*arguments, env=environment(JAVA_HOME="/nowhere")) as up:
        assert read_ready(up)["registry"] == f"file:{folder}/cluster.db"
        up.terminate()
        assert up.wait(40) == 0
    other = roq(*arguments, "--registry", "zookeeper")
    assert other.returncode == 78
    assert b"holds a registry in a file" in other.stderr


def test_a_file_that_is_no_registry_ends_with_78_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "cluster.db").write_text("notes " * 100)
    ended = roq("up", "--port-base", "0", "--data-dir", str(tmp_path))
    assert ended.returncode == 78
    assert b"cluster.db is no SQLite database" in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_no_java_ends_with_69_and_says_what_to_install() -> None:
    arguments = ("up", "--port-base", "0", "--registry", "zookeeper")
    with started(*arguments, env=environment(JAVA_HOME="/nowhere")) as up:
        _, err = up.communicate(timeout=40)
    assert up.returncode == 69
    assert b"JAVA_HOME" in err
    assert b"Traceback" not in err


@pytest.mark.parametrize("daemon", ["gcm", "host"])
def test_an_unknown_configuration_key_ends_with_78_and_is_named(
    daemon: str, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text("[network]\nbint = '127.0.0.1'\n")
    ended = roq(daemon, "--config", str(path))
    assert ended.returncode == 78
    assert b"bint" in ended.stderr
    assert str(path).encode() in ended.stderr
    assert b"Traceback" not in ended.stderr
