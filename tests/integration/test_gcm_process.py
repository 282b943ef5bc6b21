"""The configuration manager as a process: exit codes, readiness, real ZooKeeper, clean stop."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from gcm_process import Console, PaperHostManager, eventually
from gcm_script import PaperHost

from roq.coordination.embedded import EmbeddedZooKeeper
from roq.protocol import broadcast

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server.address


class Process:
    """`python -m roq.gcm` with a configuration of its own."""

    def __init__(self, folder: Path, text: str) -> None:
        self.file = folder / "gcm.toml"
        self.file.write_text(text)
        read, write = os.pipe()
        self.log = folder / "log"
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                [
                    *(sys.executable, "-m", "roq.gcm"),
                    *("--config", str(self.file), "--ready-fd", str(write)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=(write,),
            )
        os.close(write)
        self._ready = os.fdopen(read)

    def addresses(self) -> dict[str, str]:
        readable, _, _ = select.select([self._ready], [], [], 30)
        line = self._ready.readline() if readable else ""
        assert line, self.log.read_text()
        addresses: dict[str, str] = json.loads(line)
        return addresses

    def ends(self) -> int:
        """Wait for the end; it must have printed nothing."""
        output, _ = self.child.communicate(timeout=30)
        assert output == b""
        return self.child.returncode

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
            self.child.communicate(timeout=10)
        self._ready.close()


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    started: list[Process] = []

    def begin(text: str) -> Process:
        started.append(Process(tmp_path_factory.mktemp("gcm"), text))
        return started[-1]

    yield begin
    for process in started:
        process.close()


def test_it_serves_with_a_real_registry_and_stops_clean(start, zookeeper: str) -> None:
    text = f'[ports]\nbase = 0\n[zk]\nservers = "{zookeeper}"\n'
    first = start(text)
    one = first.addresses()
    second = start(text)
    two = second.addresses()
    host = PaperHost("127.0.0.1")
    with (
        Console(one["management"]) as console,
        Console(two["management"]) as other,
        Console(one["broadcast"], kind=zmq.SUB) as reader,
    ):
        reader.socket.setsockopt(zmq.SUBSCRIBE, b"")
        with PaperHostManager(host, one["client"]):
            answer = console.ask(2003, QName="orders", Host="127.0.0.1")
            assert (answer["RESULT"], answer["COMMENT"]) == (0, "SUCCESS")
            assert (
                console.ask(
                    2006,
                    QName="orders",
                    AUTOSCALING_NAME="m",
                    AUTOSCALING_XCHANGE={"AUTOSCALING_XCHANGE_THR": 5},
                )["RESULT"]
                == 0
            )
            assert (
                console.ask(2004, QName="orders", Host="127.0.0.1", TransactionID="t")["Number"]
                == 2
            )
        assert other.ask(2101)["RESULT"] == 8
        assert other.ask(2101)["COMMENT"] == one["management"]
        eventually(
            lambda: broadcast.decode(reader.socket.recv_multipart()).queues != (), "a broadcast"
        )
        first.child.send_signal(signal.SIGTERM)
        assert first.ends() == 0
        eventually(lambda: other.ask(2101)["RESULT"] == 0, "the second leads")
        assert other.ask(2007, QName="orders")["AUTOSCALING_XCHANGE"] == {
            "AUTOSCALING_XCHANGE_THR": 5
        }
        assert other.ask(2004, QName="orders", Host="127.0.0.1", TransactionID="t")["Number"] == 2
        described = other.ask(2104, QName="orders")
        assert described["Monitor"] == "tcp://127.0.0.1:6001"
        with PaperHostManager(host, two["client"]):
            assert other.ask(2001, QName="orders")["RESULT"] == 0
            assert host.children == {}
    second.child.send_signal(signal.SIGINT)
    assert second.ends() == 0


def test_without_zookeeper_it_gives_up_and_says_what_to_do(start) -> None:
    process = start('[ports]\nbase = 0\n[zk]\nservers = "127.0.0.1:1"\nconnect_seconds = 0.5\n')
    assert process.ends() == 69
    assert "zk.servers" in process.log.read_text()


def test_a_port_in_use_ends_it_with_the_port_named(start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start(f"[ports]\nbase = 0\nmanagement = {port}\n")
        assert process.ends() == 78
    assert f"port {port}" in process.log.read_text()


@pytest.mark.parametrize("text", ["[ports]\nbas = 1\n", "nonsense", '[zk]\nservers = "a b/c"\n'])
def test_a_wrong_configuration_ends_it(start, text: str) -> None:
    process = start(text)
    assert process.ends() == 78
    assert process.log.read_text()
